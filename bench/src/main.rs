//! hugepilot-bench as a program.
//!
//! Owns: its exit status. Never touches: what it does; that is the library's.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use hugepilot_bench::Arguments;

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
