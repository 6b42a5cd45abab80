//! What can be wrong with a configuration; each error says the line and the next step.

use std::io;
use std::path::PathBuf;

use heat::units::Bytes;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {reason}; `hugepilot config` prints one to begin with", path = path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("the configuration {path} is longer than {limit}; it is no configuration of hugepilot's", path = path.display())]
    TooLong { path: PathBuf, limit: Bytes },
    #[error("the configuration {path} is wrong: {mistake}", path = path.display())]
    Wrong { path: PathBuf, mistake: Mistake },
    #[error(
        "the configuration {path} is empty (is it still being written?); write a [[target]] for each program, and below it which, \
         such as name = \"memcached\"; or mode = \"observe\" to have all programs observed",
        path = path.display()
    )]
    Empty { path: PathBuf },
}

/// What is wrong in the text. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Mistake {
    #[error("line {line} is not TOML: {message} (a text stands in quotes, as in max-cpu = \"1%\")")]
    Syntax { line: usize, message: String },
    #[error("unknown key '{key}' in line {line}; {advice}")]
    UnknownKey { key: String, line: usize, advice: String },
    #[error("{key} in line {line}: {problem}")]
    Value { key: &'static str, line: usize, problem: String },
    #[error(
        "the [[{section}]] in line {line} does not say which process: write at least one of pid, name, exe, cgroup, unit, \
         container, user below it"
    )]
    Nobody { section: &'static str, line: usize },
    #[error(
        "the [[target]] in line {line} names the same processes as that in line {first}, which comes first and counts: leave one out, \
         or name fewer processes in the first"
    )]
    SameTarget { line: usize, first: usize },
}
