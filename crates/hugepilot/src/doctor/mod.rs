//! Judges the facts of a machine: what hugepilot needs, what is there, and the command that fixes what is missing.
//!
//! Owns: the checks, their words and their advice; [`check`] is a pure function of [`Facts`]. Never touches: the system. Commands are for a root
//! shell, ready to be pasted.

mod abilities;
mod memory;
mod offered;
mod render;
mod settings;

pub use hugepilot_checks::{CheckStatus, to_json};
pub use offered::{HostAbility, abilities};
pub use render::render_table;

use kernel::probe::{Fact, Facts};
use serde::Serialize;

/// One thing checked.
pub type HostCheck = hugepilot_checks::Check<Fix>;

/// What fixes one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// A command for a root shell.
    pub command: String,
    /// How long its effect lasts.
    pub lasts: Lasts,
    /// If that is not for good, what is: a command, a boot parameter, or words in a unit.
    pub permanent: Option<String>,
}

/// How long a fix lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    /// For the command that it starts.
    Once,
    /// Until the next boot.
    UntilReboot,
    /// It survives reboots.
    ForGood,
}

/// A check without its name, or why its result cannot be known.
type Checked = Result<HostCheck, String>;

fn named(name: &str, checked: Checked) -> HostCheck {
    checked.map_or_else(|why| HostCheck::unknown(name, &why), |check| check.named(name))
}

fn known<T>(fact: &Fact<T>) -> Result<&T, String> {
    fact.as_ref().map_err(|error| error.to_string())
}

/// All checks, the most important first.
pub fn check(facts: &Facts) -> Vec<HostCheck> {
    let mut checks = abilities::checks(facts);
    checks.extend(settings::checks(facts));
    checks.extend(memory::checks(facts));
    checks
}

impl Fix {
    /// A way to start a command, and a permanent one.
    fn once(command: impl Into<String>, permanent: impl Into<String>) -> Self {
        Self { command: command.into(), lasts: Lasts::Once, permanent: Some(permanent.into()) }
    }

    /// A command whose effect ends at the next boot, and a permanent one.
    fn until_reboot(command: impl Into<String>, permanent: impl Into<String>) -> Self {
        Self { command: command.into(), lasts: Lasts::UntilReboot, permanent: Some(permanent.into()) }
    }

    /// A command whose effect is permanent.
    fn for_good(command: impl Into<String>) -> Self {
        Self { command: command.into(), lasts: Lasts::ForGood, permanent: None }
    }

    /// Writes a value into a kernel file, now and, through systemd-tmpfiles (man 5 tmpfiles.d), at every boot.
    fn write(value: impl std::fmt::Display, file: &str) -> Self {
        Self::until_reboot(
            format!("echo {value} > /{file}"),
            format!("echo 'w /{file} - - - - {value}' >> /etc/tmpfiles.d/60-hugepilot-thp.conf"),
        )
    }
}
