//! Checks of a machine: what was found, its status, and its fix. `doctor` reports in this form on every system.
//!
//! Owns: that form, its JSON, and line wrapping. Never touches: the system; each doctor decides what to check, how to fix it, and how
//! wide to print it.
#![forbid(unsafe_code)]

use std::fmt;

use serde::Serialize;

/// The status of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// It works, but less well; or its state is unknown.
    Warning,
    /// Part of the work is impossible.
    Missing,
}

/// One thing checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check<Fix> {
    /// What was checked; the same in every release.
    pub name: String,
    /// Its status.
    pub status: CheckStatus,
    /// What was found.
    pub finding: String,
    /// What that means.
    pub meaning: String,
    /// The fix; None if none is needed or possible.
    pub fix: Option<Fix>,
}

impl<Fix> Check<Fix> {
    /// A check without a fix.
    pub fn new(name: &str, status: CheckStatus, finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status, finding: finding.into(), meaning: meaning.into(), fix: None }
    }

    /// As it should be; [`Check::named`] says what.
    pub fn ok(finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new("", CheckStatus::Ok, finding, meaning)
    }

    /// Less than it should be; [`Check::named`] says what.
    pub fn warning(finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new("", CheckStatus::Warning, finding, meaning)
    }

    /// Not there; [`Check::named`] says what.
    pub fn missing(finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new("", CheckStatus::Missing, finding, meaning)
    }

    /// A state that is unknown does not count as missing, but is not ignored either.
    pub fn unknown(name: &str, why: &dyn fmt::Display) -> Self {
        Self::warning(format!("not known: {why}"), "What cannot be told is not taken for granted.").named(name)
    }

    /// With the name of what was checked.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// With a fix, if there is one.
    pub fn fixed_by(self, fix: impl Into<Option<Fix>>) -> Self {
        Self { fix: fix.into(), ..self }
    }
}

/// Padded to nine columns or more by `{:<9}`.
impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Warning => "warning",
            Self::Missing => "missing",
        })
    }
}

/// One line of JSON: the report `doctor`, with its version, its checks, and what the system offers ability by ability.
pub fn to_json<Fix: Serialize, Ability: Serialize>(
    checks: &[Check<Fix>],
    abilities: &[Ability],
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a, Fix, Ability> {
        version: u32,
        report: &'static str,
        checks: &'a [Check<Fix>],
        abilities: &'a [Ability],
    }
    serde_json::to_string(&Document { version: 1, report: "doctor", checks, abilities })
}

/// Wraps text between words into lines of at most `width` characters; a longer word stays whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
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

/// Text without control characters: a process name may contain terminal escape sequences.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_tells_everything_of_a_check() {
        let checks = [Check::missing("b", "c").named("a").fixed_by("d"), Check::unknown("e", &"why")];
        let text = to_json(&checks, &["f"]).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let told = serde_json::json!({ "version": 1, "report": "doctor", "checks": [
            { "name": "a", "status": "missing", "finding": "b", "meaning": "c", "fix": "d" },
            { "name": "e", "status": "warning", "finding": "not known: why",
              "meaning": "What cannot be told is not taken for granted.", "fix": null },
        ], "abilities": ["f"] });
        assert_eq!(document, told);
    }

    #[test]
    fn control_characters_are_told_but_not_sent() {
        assert_eq!(wrap("evil\u{1b}[2J name", 80), ["evil?[2J name"]);
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
