//! The command line: an edge, which translates and decides nothing.
//!
//! Owns: arguments ([`args`]) and one file a command. Never touches: how anything is observed, decided or done.

pub mod args;

use std::process::ExitCode;

use args::{Cli, Command};

/// Runs one command. The status is 0 for success and 1 for an error; usage errors (2) end the process in parsing.
pub fn run(cli: Cli) -> ExitCode {
    let name = match cli.command {
        Command::Heat(_) => "heat",
        Command::Promote(_) => "promote",
        Command::GiveBack(_) => "give-back",
        Command::Run(_) => "run",
        Command::Doctor(_) => "doctor",
    };
    eprintln!("hugepilot: '{name}' is not built yet");
    ExitCode::FAILURE
}
