//! `hugepilot config`: prints a configuration to start from, or checks one.

use std::path::Path;

use daemon::config::{Config, ConfigError};

use super::args::ConfigArgs;
use super::terminal;

pub(super) fn config(args: &ConfigArgs) -> anyhow::Result<()> {
    match &args.check {
        Some(path) => terminal::print(&checked(path)?),
        None => terminal::print(Config::COMMENTED),
    }
}

/// The summary of a valid configuration. One that only observes may not be what was intended.
fn checked(path: &Path) -> Result<String, ConfigError> {
    let config = Config::read(path)?;
    let (targets, never) = (config.scope.rules().len(), config.scope.never().len());
    let right = format!("{} is right; [[target]]: {targets}, [[never]]: {never}\n", path.display());
    let observing = if config.gives_something_to_do() {
        ""
    } else {
        "it names no program, so hugepilotd observes all of 64 MiB and more, and promotes nothing\n"
    };
    Ok(right + observing)
}
