//! Arguments that every workload takes.
//!
//! Owns: these arguments and their defaults. Never touches: the system; they only state what was requested.

use std::path::PathBuf;

use clap::Args;

use crate::configuration::Configuration;
use crate::outputs::Outputs;
use crate::values::seconds;

/// What every workload can be told.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Three rounds and a small program: a quick check, not a published result.
    #[arg(long)]
    pub quick: bool,
    /// Rounds; each configuration has one turn in each [default: 20, with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// The configurations, separated by commas [default: those that suit the workload].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub configurations: Vec<Configuration>,
    /// Measure all configurations of a round in one process, one after the other: for what differs less than two processes do.
    #[arg(long)]
    pub one_process: bool,
    /// Where the order of turns and all random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds of measuring in each turn.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of load before the tool acts.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub settle: f64,
    /// Seconds from the tool's start to measuring; less than the tool takes makes windows that are not alike.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub wait: f64,
    /// Measure from the act on until so many operations are done, so that what the tool costs meanwhile counts [default: a window
    /// after the tool is done].
    #[arg(long, value_name = "NUMBER", conflicts_with = "one_process", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Where results go.
    #[command(flatten)]
    pub outputs: Outputs,
    /// The hugepilot binary [default: beside this program].
    #[arg(long, value_name = "PATH")]
    pub hugepilot: Option<PathBuf>,
}
