//! What a program is, how it is loaded, and how its work is counted: a TOML file for each.
//!
//! Owns: the shape of these files, and the ones that are built in. Never touches: processes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use heat::units::{Bytes, Nanos};
use serde::{Deserialize, Deserializer};

const WARMING: Duration = Duration::from_secs(10);

/// A program as its community loads it. Commands are for sh, in a new directory of the program's own; `$PORT` in them and in files is a port for it,
/// `$BENCH` in them is this binary, `$WITH` precedes the program's own words where it is started by `hugepilot run`, and `$EXPERTS` are the words
/// that experts add.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramDefinition {
    /// What it is and does, with its size.
    pub(super) what: String,
    /// Packages of Debian, or what else must be installed; "nothing" for one of our own.
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
    #[serde(default, deserialize_with = "parsed")]
    pub(super) window: Option<Nanos>,
    /// How long it is under load before anything is measured: caches fill, and just-in-time compilers come to rest [default: 10s].
    #[serde(default, deserialize_with = "parsed")]
    warming: Option<Nanos>,
    /// Whether its children do its work.
    #[serde(default)]
    pub(super) children: bool,
    /// Settings of the machine below `/sys/kernel/mm/transparent_hugepage` with which it is started.
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
    /// How its own experts put it on huge pages; absent where they do not.
    #[serde(default)]
    pub(super) experts: Option<ExpertsAdvice>,
}

/// How a program's own experts put it on huge pages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpertsAdvice {
    /// In words.
    pub(super) what: String,
    /// Words of its command line.
    pub(super) words: String,
    /// Memory that a pool must have for it.
    #[serde(default, deserialize_with = "parsed")]
    pub(super) pool: Option<Bytes>,
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        const BUILT_IN: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../programs/", $name, ".toml")))),*];
    };
}

built_in!(
    "chase-dependent",
    "chase-independent",
    "chase-shuffled",
    "chase-small",
    "compiler",
    "duckdb",
    "faiss",
    "gunicorn",
    "h2",
    "lightgbm",
    "mariadb",
    "memcached",
    "nginx",
    "numpy",
    "pagerank",
    "postgres",
    "postgres-100",
    "postgres-100-select",
    "postgres-write",
    "redis",
    "rocksdb",
    "sqlite",
    "sweep-random",
    "sweep-scattered",
    "sweep-sequential",
    "sweep-skewed",
    "xgboost",
);

impl ProgramDefinition {
    /// The built-in one of that name. Errors: there is none; those that exist are named.
    pub(super) fn named(name: &str) -> Result<Self> {
        let wrong = || format!("{name}.toml is not as programs are defined");
        keys_of(name)?.try_into().with_context(wrong)
    }

    /// How long it warms up.
    pub(super) fn warming(&self) -> Duration {
        self.warming.map_or(WARMING, Nanos::duration)
    }

    /// How long a window is at least.
    pub(super) fn shortest_window(&self) -> Duration {
        self.window.map_or(Duration::ZERO, Nanos::duration)
    }
}

/// What a file defines, on top of the program that it is `like`.
fn keys_of(name: &str) -> Result<toml::Table> {
    let text = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    let text = text.with_context(|| format!("no program '{name}'; there are {}", names().join(", ")))?;
    let mut own: toml::Table = text.parse().with_context(|| format!("{name}.toml is no TOML"))?;
    let Some(like) = own.remove("like") else { return Ok(own) };
    let mut keys = keys_of(like.as_str().unwrap_or_default())?;
    keys.extend(own);
    Ok(keys)
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
            // The port is another one for each, and `hugepilot run` can start it.
            let files = program.files.values().map(String::as_str).collect::<String>();
            assert!(program.start.contains("$WITH ") && !files.contains("127.0.0.1:1"), "{name}");
            let has_place = |experts: &ExpertsAdvice| !experts.words.is_empty() && program.start.contains("EXPERTS");
            assert!(program.experts.as_ref().is_none_or(has_place), "{name}");
        }
        let [one, other] = ["postgres", "postgres-100"].map(|name| ProgramDefinition::named(name).unwrap());
        assert!(one.load != other.load && one.start == other.start, "{other:?}");
        assert!(names().is_sorted(), "{:?}", names());
        assert!(ProgramDefinition::named("doom").unwrap_err().to_string().contains("redis"));
    }
}
