//! Arguments of the commands that configure a daemon, or ask a running one.

use std::path::PathBuf;

use clap::Args;
use daemon::args::DaemonOptions;
use daemon::config::Config;

use super::TargetOptions;

const CONFIG_EXAMPLES: &str = "\
Examples:
  hugepilot config > /etc/hugepilot/hugepilot.toml         every key with its default, to be changed
  hugepilot config --check                                 is /etc/hugepilot/hugepilot.toml right?
  hugepilot config --check ./try.toml

Exit status of --check: 0 right, 1 wrong.";

const STATUS_EXAMPLES: &str = "\
Examples:
  hugepilot status
  hugepilot status --json | jq '.targets[] | {pid, name, huge_bytes}'

Root sees all targets, everybody else those that are their own processes.";

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  hugepilot pause 4242                 leave process 4242 alone; yours, or anybody's as root
  hugepilot pause --name postgres --children
  hugepilot pause                      leave everything alone (as root)

What is on huge pages stays; `hugepilot give-back` undoes it.";

pub(super) const RESUME_EXAMPLES: &str = "\
Examples:
  hugepilot resume 4242                pilot process 4242 again
  hugepilot resume                     end the pause of everything (as root); processes paused one by one stay so";

/// `hugepilot config`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = CONFIG_EXAMPLES)]
pub struct ConfigArgs {
    /// Say whether this configuration is right, in place of printing one; without FILE the daemon's
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = Config::PATH)]
    pub check: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot status`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Print JSON with every target
    #[arg(long)]
    pub json: bool,
    /// The daemon to ask.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// `hugepilot pause` and `hugepilot resume`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PauseArgs {
    /// Which programs; without any, all.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The daemon to ask.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}
