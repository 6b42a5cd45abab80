//! hugepilot-research: reproduces the results of papers by simulations and small models.
//!
//! Owns: the models, and which of the papers' results they show. Never touches: how results are measured, saved, compared and drawn; that is the
//! library of hugepilot-bench.
#![forbid(unsafe_code)]

mod args;
mod lists;
mod record;
mod retell;
mod sort;
mod transpose;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match args::ResearchArguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
