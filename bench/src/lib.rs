//! hugepilot-bench: measures hugepilot against what an operator would choose instead.
//!
//! Owns: the program as a library. Other harnesses share what is public besides its command line, so that they prepare, save, compare and draw in the
//! same way. Never touches: what those measure.
//!
//! Data flows one way: arguments → workload and configurations → rounds of turns → record → comparison → verdict, report, plot. All conclusions are
//! drawn from the record, so a file of raw results gives the same report again.
#![forbid(unsafe_code)]

// First, because the modules below use its macro.
#[macro_use]
mod values;

mod args;
mod beside;
mod common;
mod compare;
mod comparison;
mod configuration;
mod cost;
mod crowd;
mod document;
mod felt;
mod figures;
mod frontier;
mod ideal;
mod io;
pub mod kept;
mod launch;
pub mod machine;
mod mapped;
mod measure;
pub mod outputs;
mod pilot;
mod plot;
mod pool;
mod postgres;
mod printed;
pub mod process;
mod programs;
mod real_time;
mod record;
mod report;
mod retell;
pub mod rounds;
mod run;
pub mod sample;
pub mod settings;
mod slowdown;
pub mod table;
mod tool;
mod tracker;
mod turn;
pub mod verdict;
pub mod warm;
pub mod workload;

pub use args::Arguments;
