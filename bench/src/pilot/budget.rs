//! The scenario `budget`: a quarter of the memory may be huge, and the harness knows which quarter is best.
//!
//! Owns: its workload and configurations. Never touches: how they are measured, which is as for every other workload.

use anyhow::Result;

use super::arguments::PilotArguments;
use crate::common::Common;
use crate::configuration::Configuration::{
    AllButOracle, Default, DefaultAgain, Ideal, KhugepagedQuarter, Oracle, Piloted,
};
use crate::measure;
use crate::outputs::Outputs;
use crate::workload::{Hot, HotPattern};

/// From the pilot's start to the measurement: by then it has scanned and promoted.
const WAIT: f64 = 8.0;

/// Measures it.
pub fn measure(arguments: &PilotArguments) -> Result<()> {
    let common = Common {
        quick: arguments.quick,
        rounds: Some(arguments.rounds(20, 3)),
        configurations: Vec::new(),
        one_process: false,
        seed: arguments.seed,
        seconds: 4.0,
        settle: 1.0,
        wait: WAIT,
        operations: None,
        outputs: Outputs { keep: arguments.keep.clone(), ..Outputs::default() },
        hugepilot: arguments.hugepilot.clone(),
    };
    let workload =
        Hot { name: "pilot budget", size: arguments.size(), pattern: HotPattern::Zipfian, seed: arguments.seed };
    let usual = [Default, DefaultAgain, KhugepagedQuarter, Piloted, Oracle, AllButOracle, Ideal];
    measure::measure(&common, &usual, 0, &[Box::new(workload)])
}
