//! Raw results: everything that a run measured, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: conclusions; each report draws them from the file anew.

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::pool::PoolUse;
use crate::sample::{MemoryPoint, ProgramMemory};
use crate::table::distinct;
use crate::workload::{FrontierPoint, SearchWork, ThroughputPoint};

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// 1; a file with another number is rejected.
    pub version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// One for each workload and each of its patterns.
    pub runs: Vec<Run>,
}

/// One workload under several configurations, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Such as `memcached` or `sweep skewed`.
    pub workload: String,
    /// A description of its setup.
    pub description: String,
    /// The unit of throughput, such as `reads`.
    pub unit: String,
    /// Rounds requested; the file has fewer turns if the run was stopped.
    pub rounds: u32,
    /// The seed for the order of configurations and for the workload's random numbers.
    pub seed: u64,
    /// Whether all configurations of a round were measured in one process.
    #[serde(default)]
    pub one_process: bool,
    /// What can be gained at most for how much memory where pages stay where they are; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frontier: Vec<FrontierPoint>,
    /// Configurations that this machine could not measure, each with the reason.
    #[serde(default)]
    pub missing: Vec<String>,
    /// In the order in which they ran.
    pub turns: Vec<Turn>,
}

/// One configuration, measured once. Times within the turn count from when the program was ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Counted from 0.
    pub round: u32,
    /// What was measured.
    pub configuration: Configuration,
    /// Wall time of the whole turn, including warming, starting and ending.
    pub seconds: f64,
    /// Touching memory before the program was started.
    pub warm_seconds: f64,
    /// Starting and populating the program.
    pub start_seconds: f64,
    /// When the tool started, or would have.
    pub act_seconds: f64,
    /// When measuring began.
    pub window_start_seconds: f64,
    /// When measuring ended.
    pub window_end_seconds: f64,
    /// Operations a second in the window.
    pub throughput: f64,
    /// Median latency in the window, if the workload has requests.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency in the window.
    pub p99_ns: Option<u64>,
    /// CPU time of the program per operation in the window.
    pub cpu_ns_per_operation: f64,
    /// The share of the window in which the program had a CPU: 1 means that the load kept it busy.
    pub cpu_share: f64,
    /// Memory just before the tool started, or would have.
    pub before: ProgramMemory,
    /// Memory just after measuring.
    pub after: ProgramMemory,
    /// Memory available before the program was started.
    pub available_at_start_bytes: u64,
    /// The tool's own report, if a tool acted.
    pub tool: Option<ToolRun>,
    /// The share on huge pages, after measuring, of the quarter of memory that the program reads most; None if that quarter is unknown.
    #[serde(default)]
    pub hottest_huge_share: Option<f64>,
    /// The cost and results of searching in the window, if the program searches.
    #[serde(default)]
    pub search: Option<SearchWork>,
    /// The pool of reserved huge pages that it was started with, if the configuration needs one.
    #[serde(default)]
    pub pool: Option<PoolUse>,
    /// Throughput during the turn.
    pub throughput_over_time: Vec<ThroughputPoint>,
    /// Memory during the turn.
    pub memory_over_time: Vec<MemoryPoint>,
}

/// What a tool did to the running program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolRun {
    /// From its start to its end.
    pub seconds: f64,
    /// Its JSON output.
    pub output: serde_json::Value,
}

impl WorkloadRecord {
    /// An empty record for this machine.
    pub fn new(machine: MachineDescription) -> Self {
        Self { version: VERSION, machine, runs: Vec::new() }
    }
}

impl Run {
    /// The turns of one configuration.
    pub fn turns_of(&self, configuration: Configuration) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.configuration == configuration)
    }

    /// The configurations that have turns, in their fixed order.
    pub fn configurations(&self) -> Vec<Configuration> {
        distinct(self.turns.iter().map(|turn| turn.configuration))
    }
}
