//! Arguments, parsed purely.
//!
//! Owns: every option and its help. Never touches: what a command does.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  hugepilot doctor                     may this account have large pages, and are there any?
  hugepilot doctor --json

hugepilot observes and promotes other programs' memory on Linux only: Windows has no way to. A program asks for large pages itself, when
it allocates. Exit status: 0 done, 1 error, 2 wrong usage.";

/// Says whether programs can have large pages on this machine, and what is missing.
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "hugepilot", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
pub struct WindowsCli {
    /// What to do.
    #[command(subcommand)]
    pub command: WindowsCommand,
}

/// The commands.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum WindowsCommand {
    /// Say what this account and this machine offer, and how to fix what is missing
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Start a program on huge pages: on Linux only
    Run {
        /// The program and its arguments
        #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        WindowsCli::command().debug_assert();
        let parse = |line: &str| WindowsCli::try_parse_from(line.split(' ')).map(|cli| cli.command);
        assert_eq!(parse("hugepilot doctor --json").unwrap(), WindowsCommand::Doctor { json: true });
        let command = ["--pages", "thp", "prog", "-x"].map(OsString::from).to_vec();
        assert_eq!(parse("hugepilot run --pages thp prog -x").unwrap(), WindowsCommand::Run { command });
        assert_eq!(parse("hugepilot heat 7").unwrap_err().exit_code(), 2);
    }
}
