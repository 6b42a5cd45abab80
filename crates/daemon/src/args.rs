//! Arguments of `hugepilotd`; parsing has no side effects.
//!
//! Owns: its options, their defaults and their help. Never touches: the system.

use std::path::PathBuf;

use clap::{Args, Parser};

use crate::config::Config;
use crate::control::SOCKET;

const EXAMPLES: &str = "\
Examples:
  hugepilot config > /etc/hugepilot/hugepilot.toml         name targets in it, then
  hugepilotd
  hugepilotd --config ./try.toml
  hugepilotd --check                                       does it run, and move on?
  systemctl enable --now hugepilot                         after make install

SIGHUP reads the configuration anew. `hugepilot status` shows what goes on.";

/// Pilots all programs that a configuration names, in the background
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "hugepilotd", version, after_help = EXAMPLES)]
pub struct DaemonArgs {
    /// Which processes to pilot, and what that may take; `hugepilot config` prints one
    #[arg(long, value_name = "FILE", default_value = Config::PATH)]
    pub config: PathBuf,
    /// Asks the daemon that runs whether it is well, and fails if it does not answer or hangs; for a liveness probe. `hugepilot config --check FILE`
    /// checks a file
    #[arg(long, conflicts_with = "config")]
    pub check: bool,
    /// Waits at its end, for twenty seconds at most, until an agent that ends with it says whether records of promotions stay
    #[arg(long, conflicts_with = "check")]
    pub ends_with_agent: bool,
    /// Where to listen.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// Which daemon is meant.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DaemonOptions {
    /// The daemon's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        DaemonArgs::command().debug_assert();
    }

    #[test]
    fn every_option_arrives() {
        let parse = |line: &str| DaemonArgs::try_parse_from(line.split(' '));
        let daemon = DaemonOptions { socket: SOCKET.into() };
        assert_eq!(
            parse("hugepilotd").unwrap(),
            DaemonArgs { config: Config::PATH.into(), check: false, ends_with_agent: false, daemon }
        );
        let daemon = DaemonOptions { socket: "/a/b".into() };
        let given = parse("hugepilotd --config c.toml --socket /a/b").unwrap();
        assert!(parse("hugepilotd --check").unwrap().check);
        assert_eq!(given, DaemonArgs { config: "c.toml".into(), check: false, ends_with_agent: false, daemon });
        assert!(parse("hugepilotd --ends-with-agent").unwrap().ends_with_agent);
        assert_eq!(parse("hugepilotd c.toml").unwrap_err().exit_code(), 2);
    }
}
