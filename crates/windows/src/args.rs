//! Arguments, parsed purely.
//!
//! Owns: every option and its help. Never touches: what a command does.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  hugepilot doctor                     may this account have large pages, and are there any?
  hugepilot doctor --json
  hugepilot grant                      in an elevated prompt: this account may have large pages from its next sign-in on

hugepilot observes and promotes other programs' memory on Linux only: Windows has no way to. A program asks for large pages itself, when
it allocates. Exit status: 0 done, 1 error, 2 wrong usage.";

const GRANT: &str = "\
Examples:
  hugepilot grant                      this account
  hugepilot grant DESKTOP\\me           another one, as for a prompt that runs under an administrator's
  hugepilot grant \"NT SERVICE\\NAME\"    a service's own account
  hugepilot grant --undo               takes it away again

What it changes is the policy \"Lock pages in memory\" (SeLockMemoryPrivilege): Local Security Policy > Local Policies > User Rights
Assignment, which home editions have no window for. Only elevated administrators may: start the prompt by \"Run as administrator\". The
account must sign out and in again afterwards. On machines of a domain a group policy may set it back.";

/// Says whether programs can have large pages on this machine and what is missing, and gives accounts the right to them.
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
    /// Give an account the right to lock pages in memory, which large pages take; in an elevated prompt
    #[command(after_help = GRANT)]
    Grant {
        /// The account, NAME, DOMAIN\NAME or NAME@DOMAIN [default: that of this prompt]
        account: Option<String>,
        /// Take the right away again
        #[arg(long)]
        undo: bool,
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
        let grant = |account: Option<&str>, undo| WindowsCommand::Grant { account: account.map(str::to_owned), undo };
        assert_eq!(parse("hugepilot grant").unwrap(), grant(None, false));
        assert_eq!(parse(r"hugepilot grant --undo DESK\me").unwrap(), grant(Some(r"DESK\me"), true));
        assert_eq!(parse("hugepilot heat 7").unwrap_err().exit_code(), 2);
    }
}
