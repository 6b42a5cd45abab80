//! The daemon's binary: parses arguments and calls the library.

use std::process::ExitCode;

use clap::Parser;
use daemon::args::DaemonArgs;
use daemon::{health, log, piloting};

fn main() -> ExitCode {
    hugepilot_os::memory::return_what_is_freed();
    log::to_stderr();
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
