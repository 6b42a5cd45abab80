//! The command: parses arguments and hands over to the library.

use std::process::ExitCode;

use clap::Parser;
use hugepilot::cli::{self, args::Cli};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    hugepilot_os::memory::return_what_is_freed();
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    cli::run(Cli::parse())
}
