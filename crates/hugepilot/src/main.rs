//! The command: parses arguments and hands over to the library.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use hugepilot::cli::{self, args::Cli};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    // Ends here if a shell asks what could be typed next.
    CompleteEnv::with_factory(Cli::command).complete();
    hugepilot_os::memory::return_what_is_freed();
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // Without colors: what it says is read in logs, too.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    cli::run(Cli::parse())
}
