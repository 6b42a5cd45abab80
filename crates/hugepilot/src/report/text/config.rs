//! A configuration that is right, and what follows from it.

use std::path::Path;

use daemon::config::Config;

/// The summary of a valid configuration. One that only observes may not be what was intended.
pub fn config(path: &Path, config: &Config) -> String {
    let (targets, never) = (config.scope.rules().len(), config.scope.never().len());
    let right = format!("{} is right; [[target]]: {targets}, [[never]]: {never}\n", path.display());
    let observing = if config.gives_something_to_do() {
        ""
    } else {
        "it names no program, so hugepilotd observes all of 64 MiB and more, and promotes nothing\n"
    };
    right + observing
}
