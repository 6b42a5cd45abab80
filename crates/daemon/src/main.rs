//! The daemon's binary: parses arguments and calls the library.

use std::process::ExitCode;

use clap::Parser;
use daemon::args::DaemonArgs;
use daemon::{health, piloting};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    hugepilot_os::memory::return_what_is_freed();
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // Without colors: what it says is read in logs, too.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    let args = DaemonArgs::parse();
    let done = if args.check { health::check(&args.daemon.socket).map_err(Into::into) } else { piloting::pilot(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
