//! The checks, and whatever else is said, as text for people.
//!
//! Owns: their layout. Never touches: their wording.

use hugepilot_checks::wrap;

use crate::doctor::{PolicyFix, WindowsCheck};

/// The default width of a Windows console.
const WIDTH: usize = 80;
const MARGIN: usize = 9;

/// A paragraph for each check. Commands and click paths are never broken across lines, so they can be pasted.
pub fn text(checks: &[WindowsCheck]) -> String {
    let mut text = String::new();
    for check in checks {
        text += &format!("{:<MARGIN$}{}\n", check.status, check.name);
        let said = wrapped(&format!("{}. {}", check.finding, check.meaning));
        for line in said.into_iter().chain(check.fix.iter().flat_map(fix_lines)) {
            text += &format!("{:MARGIN$}{line}\n", "");
        }
    }
    text
}

/// One paragraph.
pub fn paragraph(text: &str) -> String {
    wrap(text, WIDTH - 1).into_iter().map(|line| line + "\n").collect()
}

fn fix_lines(fix: &PolicyFix) -> Vec<String> {
    let mut lines = vec!["To give the account that right:".to_owned(), format!("  {}", fix.policy)];
    lines.push("or, in an elevated prompt:".to_owned());
    lines.extend(fix.commands.iter().map(|command| format!("  {command}")));
    lines.extend(wrapped(&format!("Then {}. Without it: {}.", fix.afterwards, fix.service)));
    lines
}

fn wrapped(text: &str) -> Vec<String> {
    wrap(text, WIDTH - MARGIN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{WindowsFacts, check};
    use hugepilot_os::large_pages::{LargePagesError, Standing};

    fn checks() -> Vec<WindowsCheck> {
        let enabled = Err(LargePagesError::PrivilegeNotAssigned);
        let standing = Ok(Standing { minimum_bytes: 2 << 20, held: false, enabled, elevated: true });
        check(&WindowsFacts { standing, contiguous: None, giant: None })
    }

    #[test]
    fn text_keeps_to_the_width_but_for_commands() {
        let text = text(&checks());
        let long: Vec<&str> = text.lines().filter(|line| line.len() >= WIDTH).collect();
        assert!(long.iter().all(|line| line.starts_with("           ")), "{long:?}");
        assert!(text.contains("missing  privilege\n") && text.contains("  hugepilot grant\n"));
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains("Then sign out and in again"), "{text}");
    }
}
