//! The arguments of `pilot`.
//!
//! Owns: its arguments, and what scenarios derive from them. Never touches: what a scenario does.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heat::units::Bytes;

/// `pilot`
#[derive(Clone, Debug, Args)]
pub struct PilotArguments {
    /// The scenarios, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) only: Vec<Scene>,
    /// Few rounds, short waits and small programs: a quick check, not a published result
    #[arg(long)]
    pub(super) quick: bool,
    /// Rounds of each scenario [default: 20 for budget and steady, 6 for the others; with --quick 3, and 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: Option<u32>,
    /// Where the order of turns and all random numbers start
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Keeps the raw results and reports below a directory, in one named after day and machine
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    pub(super) keep: Option<PathBuf>,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub(super) hugepilot: Option<PathBuf>,
}

/// A scenario, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scene {
    /// A quarter of the memory may be huge: against the best choice of that quarter.
    Budget,
    /// A second program comes when the first has all huge pages.
    LateStarter,
    /// What is hot moves.
    Moved,
    /// Nothing changes any more: what the pilot costs.
    Steady,
}

impl PilotArguments {
    /// The requested rounds, or the default.
    pub(super) fn rounds(&self, usual: u32, quick: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { quick } else { usual })
    }

    /// The size of the programs.
    pub(super) fn size(&self) -> Bytes {
        Bytes(if self.quick { 1 << 30 } else { 4 << 30 })
    }
}
