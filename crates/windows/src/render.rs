//! The checks as text for people and as JSON for programs.
//!
//! Owns: their form. Never touches: what they say.

use serde::Serialize;

use crate::doctor::{Check, Mend, Status};

/// Consoles of Windows are that wide unless somebody makes them wider.
const WIDTH: usize = 80;
const MARGIN: usize = 9;

/// A paragraph for each check. Commands are never broken, so that they can be pasted, nor is where to click.
pub fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        text += &format!("{:<MARGIN$}{}\n", word(check.status), check.name);
        let said = wrapped(&format!("{}. {}", check.finding, check.meaning));
        for line in said.into_iter().chain(check.mend.iter().flat_map(mend_lines)) {
            text += &format!("{:MARGIN$}{line}\n", "");
        }
    }
    text
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "OK",
        Status::Warning => "warning",
        Status::Missing => "missing",
    }
}

fn mend_lines(mend: &Mend) -> Vec<String> {
    let mut lines = vec!["To give the account that right:".to_owned(), format!("  {}", mend.policy)];
    lines.push("or, in an elevated prompt:".to_owned());
    lines.extend(mend.commands.iter().map(|command| format!("  {command}")));
    lines.extend(wrapped(&format!("where {}.", mend.edit)));
    lines.extend(wrapped(&format!("Then {}. Without it: {}.", mend.afterwards, mend.service)));
    lines
}

/// Broken between words; a word longer than the width stays whole.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if MARGIN + line.chars().count() + 1 + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// One JSON object: `version` 1 and `checks`.
pub fn json(checks: &[Check]) -> serde_json::Result<String> {
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
    use crate::doctor::{Facts, check};
    use hugepilot_os::large_pages::{LargePagesError, Standing};

    fn checks() -> Vec<Check> {
        let enabled = Err(LargePagesError::PrivilegeNotAssigned);
        let standing = Ok(Standing { minimum_bytes: 2 << 20, held: false, enabled, elevated: true });
        check(&Facts { standing, contiguous: None, giant: None })
    }

    #[test]
    fn text_keeps_to_the_width_but_for_commands() {
        let text = text(&checks());
        let long: Vec<&str> = text.lines().filter(|line| line.len() >= WIDTH).collect();
        assert!(long.iter().all(|line| line.starts_with("           ")), "{long:?}");
        assert!(
            text.contains("missing  privilege\n")
                && text.contains("  secedit /export /areas USER_RIGHTS /cfg rights.inf\n")
        );
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains("Then sign out and in again"), "{text}");
    }

    #[test]
    fn json_has_its_fields() {
        let document: serde_json::Value = serde_json::from_str(&json(&checks()).unwrap()).unwrap();
        assert_eq!(document["version"], 1);
        let check = &document["checks"][1];
        assert_eq!((check["name"].as_str(), check["status"].as_str()), (Some("privilege"), Some("missing")));
        assert!(check["mend"]["commands"].as_array().is_some_and(|commands| commands.len() == 4), "{check}");
        assert!(document["checks"][0]["mend"].is_null());
    }
}
