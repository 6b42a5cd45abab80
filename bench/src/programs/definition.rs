//! What a program is, how it is loaded, and how its work is counted: a TOML file for each.
//!
//! Owns: the shape of these files, and the ones that are built in. Never touches: processes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A program as its community loads it. Commands are for sh, in a new directory of the program's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramDefinition {
    /// What it is and does, with its size.
    pub(super) what: String,
    /// Packages of Debian, or what else must be installed.
    pub(super) needs: String,
    /// Files to write into its directory, by name.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// Before it is started.
    #[serde(default)]
    pub(super) prepare: Option<String>,
    /// Becomes the program, or starts it.
    pub(super) start: String,
    /// The name of the process on trial, as in `/proc/PID/comm`: the oldest of that name.
    pub(super) process: String,
    /// Succeeds once the program answers.
    pub(super) ready: String,
    /// Fills it with data.
    #[serde(default)]
    pub(super) fill: Option<String>,
    /// Loads it until it is ended; absent where the program works by itself.
    #[serde(default)]
    pub(super) load: Option<String>,
    /// Prints a running total of its work.
    pub(super) rate: String,
    /// How long a window is at least, where that number comes late.
    #[serde(default)]
    pub(super) window: Option<String>,
    /// Whether its children do its work.
    #[serde(default)]
    pub(super) children: bool,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        const BUILT_IN: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../programs/", $name, ".toml")))),*];
    };
}

built_in!(
    "duckdb",
    "h2",
    "lightgbm",
    "mariadb",
    "memcached",
    "nginx",
    "numpy",
    "pagerank",
    "postgres",
    "postgres-100",
    "redis",
    "rocksdb",
    "sqlite",
);

impl ProgramDefinition {
    /// The built-in one of that name. Errors: there is none; those that exist are named.
    pub(super) fn named(name: &str) -> Result<Self> {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let text = text.with_context(|| format!("no program '{name}'; there are {}", names().join(", ")))?;
        toml::from_str(text).with_context(|| format!("{name}.toml is not as programs are defined"))
    }
}

/// The names of all that are built in.
pub(super) fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_defined() {
        for name in names() {
            let program = ProgramDefinition::named(name).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(!program.what.is_empty() && program.process.len() <= 15, "{name}");
        }
        assert!(names().is_sorted(), "{:?}", names());
        assert!(ProgramDefinition::named("doom").unwrap_err().to_string().contains("redis"));
    }
}
