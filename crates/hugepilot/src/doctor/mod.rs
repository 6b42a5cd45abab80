//! Judges the facts of a machine: what hugepilot needs, what is there, and the command that mends what is not.
//!
//! Owns: the checks, their words and their advice; [`check`] is a pure function of [`Facts`]. Never touches: the system.
//! Commands are for a root shell, and each is meant to be pasted as it stands.

mod abilities;
mod memory;
mod render;
mod settings;

pub use render::{render_table, to_json};

use serde::Serialize;

use crate::kernel::probe::Facts;

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// hugepilot works, but less well; or it cannot be told.
    Warning,
    /// hugepilot cannot do part of its work.
    Missing,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at; the same in every release.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub finding: String,
    /// What that means for hugepilot.
    pub meaning: String,
    /// What mends it; `None` where nothing needs mending or no command can.
    pub mend: Option<Mend>,
}

/// What mends one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mend {
    /// A command for a root shell.
    pub command: String,
    /// Whether its effect survives a reboot.
    pub survives_reboot: bool,
    /// Where it does not: what does, as a command or a boot parameter.
    pub permanent: Option<String>,
}

/// All checks, in the order in which they matter.
pub fn check(facts: &Facts) -> Vec<Check> {
    let mut checks = abilities::checks(facts);
    checks.extend(settings::checks(facts));
    checks.extend(memory::checks(facts));
    checks
}

impl Check {
    fn new(name: &str, status: Status, finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status, finding: finding.into(), meaning: meaning.into(), mend: None }
    }

    fn ok(name: &str, finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, finding, meaning)
    }

    fn warning(name: &str, finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Status::Warning, finding, meaning)
    }

    fn missing(name: &str, finding: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Status::Missing, finding, meaning)
    }

    /// What is not known is not taken for missing, but is not passed over either.
    fn unknown(name: &str, why: &dyn std::fmt::Display) -> Self {
        Self::warning(name, format!("not known: {why}"), "What cannot be told is not taken for granted.")
    }

    fn mended_by(self, mend: impl Into<Option<Mend>>) -> Self {
        Self { mend: mend.into(), ..self }
    }
}

impl Mend {
    /// A command whose effect ends with the next boot, and what lasts.
    fn until_reboot(command: impl Into<String>, permanent: impl Into<String>) -> Self {
        Self { command: command.into(), survives_reboot: false, permanent: Some(permanent.into()) }
    }

    /// A command whose effect stays.
    fn for_good(command: impl Into<String>) -> Self {
        Self { command: command.into(), survives_reboot: true, permanent: None }
    }

    /// Writes a value into a file of the kernel's, now and, through systemd-tmpfiles (man 5 tmpfiles.d), at every boot.
    fn write(value: impl std::fmt::Display, file: &str) -> Self {
        Self::until_reboot(
            format!("echo {value} > /{file}"),
            format!("echo 'w /{file} - - - - {value}' >> /etc/tmpfiles.d/hugepilot.conf"),
        )
    }
}
