//! The one binary. It parses arguments and hands over to the library.

use std::process::ExitCode;

use clap::Parser;
use hugepilot::cli::{self, args::Cli};

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
