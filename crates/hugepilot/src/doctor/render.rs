//! The checks as a table for people and as JSON for programs.
//!
//! Owns: their form. Never touches: what they say.

use serde::Serialize;

use super::{Check, Mend, Status};

/// Columns left of the text: the status, the widest name, and what parts them.
const MARGIN: usize = 2;
/// Text is never squeezed into less.
const NARROWEST: usize = 40;

/// A table for a terminal of `width` columns. Commands are never broken, so that they can be pasted.
pub fn render_table(checks: &[Check], width: usize) -> String {
    let names = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let left = "warning".len() + MARGIN + names + MARGIN;
    let right = width.saturating_sub(left).max(NARROWEST);
    let mut table = String::new();
    for check in checks {
        let label = format!("{:<9}{:<names$}{:MARGIN$}", word(check.status), printable(&check.name), "");
        let text = wrap(&format!("{}. {}", check.finding, check.meaning), right);
        for (index, line) in text.into_iter().chain(check.mend.iter().flat_map(mend_lines)).enumerate() {
            let margin = if index == 0 { label.as_str() } else { "" };
            table.push_str(format!("{margin:<left$}{line}").trim_end());
            table.push('\n');
        }
    }
    table.push_str(&summary(checks));
    table
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "OK",
        Status::Warning => "warning",
        Status::Missing => "missing",
    }
}

fn mend_lines(mend: &Mend) -> Vec<String> {
    let lasts = if mend.survives_reboot { "for good" } else { "until a reboot" };
    let mut lines = vec![format!("{lasts}: {}", printable(&mend.command))];
    lines.extend(mend.permanent.as_ref().map(|permanent| format!("for good: {permanent}")));
    lines
}

fn summary(checks: &[Check]) -> String {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (fine, warnings, missing) = (count(Status::Ok), count(Status::Warning), count(Status::Missing));
    let shell = if checks.iter().any(|check| check.mend.is_some()) { " Commands are for a root shell." } else { "" };
    format!("\n{fine} OK, {warnings} warning, {missing} missing.{shell}\n")
}

/// Breaks text between words; a word longer than the width stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in printable(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A process may name itself with a terminal's control characters.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// One JSON object: `version` 1 and `checks`.
pub fn to_json(checks: &[Check]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        version: u32,
        checks: &'a [Check],
    }
    serde_json::to_string_pretty(&Document { version: 1, checks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_processes_cannot_steer_the_terminal() {
        let table = render_table(&[Check::warning("a", "evil\u{1b}[2J name", "b")], 80);
        assert!(table.contains("evil?[2J name") && !table.contains('\u{1b}'), "{table}");
    }

    #[test]
    fn commands_are_never_broken() {
        let command = "echo 1 > /proc/sys/vm/compact_memory; ".repeat(5);
        let check = Check::warning("a", "b", "c").mended_by(Mend::until_reboot(command.trim(), "boot parameter x=y"));
        let table = render_table(&[check], 20);
        assert!(table.contains(command.trim()) && table.contains("for good: boot parameter x=y"), "{table}");
    }

    proptest! {
        #[test]
        fn text_keeps_to_the_width_and_loses_no_word(text in "([a-zé]{1,12} ){0,30}", width in 12usize..100) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width));
            prop_assert_eq!(lines.join(" "), text.trim());
        }
    }
}
