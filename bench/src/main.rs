//! hugepilot-bench: measures hugepilot against what an operator would choose instead.
//!
//! Data flows one way: arguments → workload and configurations → rounds of turns → record → comparison → verdict,
//! report, plot. All conclusions are drawn from the record, so that a file of raw results gives the same report again.
#![forbid(unsafe_code)]

mod args;
mod common;
mod compare;
mod comparison;
mod configuration;
mod cost;
mod felt;
mod figures;
mod held;
mod ideal;
mod io;
mod kept;
mod launch;
mod lists;
mod machine;
mod measure;
mod outputs;
mod picture;
mod pilot;
mod plot;
mod pool;
mod postgres;
mod prediction;
mod process;
mod record;
mod report;
mod retell;
mod rounds;
mod run;
mod sample;
mod servers;
mod settings;
mod slowdown;
mod sort;
mod table;
mod tool;
mod tracker;
mod transpose;
mod turn;
mod values;
mod verdict;
mod warm;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match args::Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hugepilot-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
