//! The command: parses arguments and hands over to the library.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use hugepilot::cli::{self, args::Cli};

fn main() -> ExitCode {
    // Ends here if a shell asks what could be typed next.
    CompleteEnv::with_factory(Cli::command).complete();
    hugepilot_os::memory::return_what_is_freed();
    daemon::log::to_stderr();
    cli::run(Cli::parse())
}
