//! `hugepilot config`: prints a configuration to start from, or checks one.

use anyhow::bail;
use daemon::config::Config;

use super::args::ConfigArgs;
use super::terminal;
use crate::report::{json, text};

pub(super) fn config(args: &ConfigArgs) -> anyhow::Result<()> {
    match &args.check {
        Some(path) => {
            let config = Config::read(path)?;
            terminal::print(&if args.json { json::config(path, &config) } else { text::config(path, &config) })
        }
        None if args.json => bail!("what is printed is a file in TOML; --json is for --check"),
        None => terminal::print(Config::COMMENTED),
    }
}
