//! Arguments of `hugepilot color` and its commands.

use clap::{Args, Subcommand};

const COLOR_EXAMPLES: &str = "\
Examples:
  hugepilot color probe                are page colors real on this machine?
  hugepilot color probe --json | jq '.caches[] | {level, colors, answer}'";

const PROBE_EXAMPLES: &str = "\
Examples:
  hugepilot color probe
  hugepilot color probe --rounds 100   where the answer is undecided
  taskset -c 3 hugepilot color probe   the caches of another processor

It takes seconds, and for a while up to a quarter of the memory that is available. Needs CAP_SYS_ADMIN.";

/// `hugepilot color`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = COLOR_EXAMPLES)]
pub struct ColorArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ColorCommand,
}

/// What can be done with colors.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum ColorCommand {
    /// Tell how many colors the caches have, and measure whether they are real
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(ColorProbeArgs),
}

/// `hugepilot color probe`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ColorProbeArgs {
    /// How often to compare, each time with new pages; fewer than 6 decide nothing
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u32).range(6..=1000))]
    pub rounds: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn every_option_arrives() {
        let parse = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Color(ColorArgs { command: ColorCommand::Probe(args) }) => args,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse("hugepilot color probe"), ColorProbeArgs { rounds: 30, json: false });
        assert_eq!(parse("hugepilot color probe --rounds 6 --json"), ColorProbeArgs { rounds: 6, json: true });
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        for line in ["hugepilot color", "hugepilot color paint", "hugepilot color probe --rounds 5"] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
