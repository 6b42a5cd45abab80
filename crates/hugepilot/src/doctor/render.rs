//! The checks as a table for people.
//!
//! Owns: their form. Never touches: what they say.

use hugepilot_checks::{CheckStatus, printable, wrap};

use super::{Fix, HostCheck, Lasts};

/// The columns to the left of the text: the status, the widest name, and the gaps between them.
const MARGIN: usize = 2;
/// Text is never wrapped to less than this.
const NARROWEST: usize = 40;

/// A table for a terminal of `width` columns: what is missing, what is doubtful and, if `all`, the rest. Commands are never wrapped, so that they can
/// be pasted.
pub fn render_table(checks: &[HostCheck], all: bool, width: usize) -> String {
    let order = [CheckStatus::Missing, CheckStatus::Warning, CheckStatus::Ok];
    let shown = order.iter().filter(|status| all || **status != CheckStatus::Ok);
    let shown: Vec<&HostCheck> =
        shown.flat_map(|status| checks.iter().filter(|check| check.status == *status)).collect();
    let names = shown.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let left = "warning".len() + MARGIN + names + MARGIN;
    let right = width.saturating_sub(left).max(NARROWEST);
    let mut table = String::new();
    for check in &shown {
        let label = format!("{:<9}{:<names$}{:MARGIN$}", check.status, printable(&check.name), "");
        let text = wrap(&format!("{}. {}", check.finding, check.meaning), right);
        for (index, line) in text.into_iter().chain(check.fix.iter().flat_map(fix_lines)).enumerate() {
            let margin = if index == 0 { label.as_str() } else { "" };
            table.push_str(format!("{margin:<left$}{line}").trim_end());
            table.push('\n');
        }
    }
    if !shown.is_empty() {
        table.push('\n');
    }
    table.push_str(&summary(checks, all));
    table
}

fn fix_lines(fix: &Fix) -> Vec<String> {
    let lasts = match fix.lasts {
        Lasts::Once => "once",
        Lasts::UntilReboot => "until a reboot",
        Lasts::ForGood => "for good",
    };
    let mut lines = vec![format!("{lasts}: {}", printable(&fix.command))];
    lines.extend(fix.permanent.as_ref().map(|permanent| format!("for good: {permanent}")));
    lines
}

fn summary(checks: &[HostCheck], all: bool) -> String {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (fine, warnings, missing) = (count(CheckStatus::Ok), count(CheckStatus::Warning), count(CheckStatus::Missing));
    let shell = if checks.iter().any(|check| check.fix.is_some()) { " Commands are for a root shell." } else { "" };
    let hidden = if all { "" } else { " `hugepilot doctor --all` shows what is OK, too." };
    format!("{fine} OK, {warnings} warning, {missing} missing.{shell}{hidden}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_cannot_steer_the_terminal() {
        let table = render_table(&[HostCheck::warning("evil\u{1b}[2J name", "b").named("a")], false, 80);
        assert!(table.contains("evil?[2J name") && !table.contains('\u{1b}'), "{table}");
    }

    #[test]
    fn what_is_wrong_comes_first_and_the_rest_on_request() {
        let checks = [
            HostCheck::ok("fine", "b").named("first"),
            HostCheck::warning("doubtful", "b").named("second"),
            HostCheck::missing("absent", "b").named("third"),
        ];
        let at = |table: &str, text: &str| table.find(text);
        let usual = render_table(&checks, false, 80);
        assert!(at(&usual, "absent") < at(&usual, "doubtful") && at(&usual, "fine").is_none(), "{usual}");
        assert!(
            usual.contains("1 OK, 1 warning, 1 missing. `hugepilot doctor --all` shows what is OK, too."),
            "{usual}"
        );
        let all = render_table(&checks, true, 80);
        assert!(at(&all, "doubtful") < at(&all, "fine"), "{all}");
    }

    #[test]
    fn commands_are_never_broken() {
        let command = "echo 1 > /proc/sys/vm/compact_memory; ".repeat(5);
        let check =
            HostCheck::warning("b", "c").named("a").fixed_by(Fix::until_reboot(command.trim(), "boot parameter x=y"));
        let table = render_table(&[check], false, 20);
        assert!(table.contains(command.trim()) && table.contains("for good: boot parameter x=y"), "{table}");
    }
}
