//! `hugepilot config`: a configuration to begin with, or whether one is right.

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

/// What a right configuration comes to. One that pilots nobody is right, and probably not what was meant.
fn checked(path: &Path) -> Result<String, ConfigError> {
    let config = Config::read(path)?;
    let (targets, never) = (config.scope.rules().len(), config.scope.never().len());
    let right = format!("{} is right; [[target]]: {targets}, [[never]]: {never}\n", path.display());
    Ok(match config.ensure_targets(path) {
        Ok(()) => right,
        Err(nobody) => format!("{right}{nobody}\n"),
    })
}
