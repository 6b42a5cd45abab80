//! The paper's question as a simulation: what does it cost to keep all pages on one pair of lists, and what do other designs cost?
//!
//! Owns: the command, and the order of running, reporting and saving. Never touches: the host machine; nothing is measured here, and the same
//! arguments give the same figures everywhere.
//!
//! Data flows one way: trace -> machine with a policy -> account -> throughput -> report, plot.

mod account;
mod list;
mod machine;
mod pages;
mod plot;
mod policy;
mod record;
mod report;
mod shape;
mod simulation;
mod throughput;
mod trace;
mod writeback;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE, SizeError};
use hugepilot_bench::outputs::Outputs;
use hugepilot_bench::rounds::{TICK, share_bar};
use hugepilot_os::stop::{SecondSignal, Stop};

use self::policy::{FULL_COST, PolicyKind};
pub use self::record::ListsRecord;
use self::simulation::{Length, simulate};
use self::trace::{TraceChoice, TraceSetup};
use crate::record::ResearchRecord;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-research lists --quick                          a first result in seconds
  hugepilot-research lists --plot lists.svg --json lists.json
  hugepilot-research lists --trace shared --policies mixed,split --mapped-page-cost 1,8,32,100
  hugepilot-research lists --trace shared --policies mixed,split-by-use-1-1-8-50,split-by-use-1-1-8-100
  hugepilot-research lists --trace crowded --memory 16G,64G --settle 20    as long as the paper's five hours
  hugepilot-research lists --trace cache.hugepilot --memory 4G,8G    what `hugepilot record` saw, beside writers

It is a simulation: it measures nothing, needs no root, and gives the same figures everywhere.";

/// `lists`
#[derive(Clone, Debug, clap::Args)]
pub struct ListsArguments {
    /// Sizes of memory, separated by commas [default: 2G,4G,8G,16G,32G,64G; with --quick 1G,2G,4G]
    #[arg(long, value_delimiter = ',', value_parser = memory)]
    memory: Vec<Bytes>,
    /// Traces, separated by commas: writers, crowded, backup, shared, or a recording of `hugepilot record` [default: the first four]
    #[arg(long, value_delimiter = ',')]
    trace: Vec<TraceChoice>,
    /// Policies, separated by commas: mixed, mixed-2.6.9, split, split-by-use, anon-file, generations [default: all]; with costs in their names,
    /// split-by-use-CODE-READONLY-DATA-SHARED too
    #[arg(long, value_delimiter = ',', value_parser = policy_name)]
    policies: Vec<String>,
    /// What a mapped page costs the splits, in unmapped ones; 100: mapped pages are not aged. Each makes a policy of its own; shared memory
    /// costs split-by-use 100
    #[arg(long, value_delimiter = ',', default_values_t = [8, FULL_COST], value_parser = clap::value_parser!(u32).range(0..=100))]
    mapped_page_cost: Vec<u32>,
    /// What resident programs take of memory, such as 40%
    #[arg(long, default_value = "40%", value_parser = share)]
    resident: f64,
    /// Bytes a second that the disk reads or writes in one go
    #[arg(long, default_value = "100M", value_parser = disk)]
    disk: Bytes,
    /// What a page of the model stands for: a power of two from 4K to 2M
    #[arg(long, default_value = "64K", value_parser = page)]
    page: Bytes,
    /// Where random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often as much as memory is written and read before anything is measured
    #[arg(long, default_value_t = 1.5, value_parser = times)]
    settle: f64,
    /// Intervals of ten seconds that each run measures at least [default: 40; with --quick 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: Option<u32>,
    /// Small memory and short runs: a quick check in seconds
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    outputs: Outputs,
}

impl ListsArguments {
    /// Makes all runs, prints the report, and saves what the user wants saved.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let machine = self.outputs.machine()?;
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let (mut record, ended) = self.simulate(&stop);
        if record.outcomes.is_empty() {
            return ended;
        }
        record.outcomes.sort_by_key(|outcome| (self.place_of(&outcome.trace), outcome.memory_bytes, outcome.policy));
        record.report(machine.as_ref(), &self.outputs)?;
        match ended {
            Err(_) if stop.requested() => bail!("stopped on request; what was simulated so far is kept"),
            ended => ended,
        }
    }

    /// Returns what was completed, and how it ended.
    fn simulate(&self, stop: &Stop) -> (ListsRecord, Result<()>) {
        let mut record = ListsRecord {
            version: ListsRecord::VERSION,
            page_bytes: self.page.0,
            disk_bytes_per_second: self.disk.0,
            resident: self.resident,
            seed: self.seed,
            length: self.length(),
            outcomes: Vec::new(),
        };
        let (traces, sizes, policies) = (self.traces(), self.sizes(), self.kinds());
        // A large memory takes longer; all policies take about equally long.
        let all_memory = sizes.iter().map(|size| size.0 >> 20).sum::<u64>();
        let bar = share_bar(all_memory * (traces.len() * policies.len()) as u64);
        bar.enable_steady_tick(TICK);
        for trace in &traces {
            for &memory in &sizes {
                let setup =
                    TraceSetup { memory, page: self.page, disk: self.disk, resident: self.resident, seed: self.seed };
                for &policy in &policies {
                    bar.set_message(format!("{trace}, {memory}, {policy}"));
                    match simulate(trace, policy, &setup, record.length, stop) {
                        Ok(outcome) => record.outcomes.push(outcome),
                        Err(error) => return (record, Err(error)),
                    }
                    bar.inc(memory.0 >> 20);
                }
            }
        }
        bar.finish_and_clear();
        (record, Ok(()))
    }

    fn length(&self) -> Length {
        let intervals = self.intervals.unwrap_or(if self.quick { 20 } else { 40 }) as usize;
        Length { settle: self.settle, intervals }
    }

    fn traces(&self) -> Vec<TraceChoice> {
        if self.trace.is_empty() { trace::BUILT_IN.to_vec() } else { self.trace.clone() }
    }

    fn place_of(&self, trace: &str) -> usize {
        self.traces().iter().position(|choice| choice.to_string() == trace).unwrap_or(usize::MAX)
    }

    fn sizes(&self) -> Vec<Bytes> {
        let gib = |sizes: &[u64]| sizes.iter().map(|gib| Bytes(gib << 30)).collect();
        match (self.memory.is_empty(), self.quick) {
            (false, _) => self.memory.clone(),
            (true, true) => gib(&[1, 2, 4]),
            (true, false) => gib(&[2, 4, 8, 16, 32, 64]),
        }
    }

    fn kinds(&self) -> Vec<PolicyKind> {
        let all: Vec<String> = policy::NAMES.map(str::to_owned).to_vec();
        let names = if self.policies.is_empty() { &all } else { &self.policies };
        let costs = || self.mapped_page_cost.iter().copied();
        let kinds = names.iter().flat_map(|name| -> Vec<PolicyKind> {
            match name.as_str() {
                "split" => costs().map(PolicyKind::Split).collect(),
                "split-by-use" => costs().map(PolicyKind::split_by_use).collect(),
                name => name.parse().into_iter().collect(),
            }
        });
        kinds.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn policy_name(name: &str) -> Result<String, String> {
    let known = policy::NAMES.contains(&name) || name.parse::<PolicyKind>().is_ok();
    known
        .then(|| name.to_owned())
        .ok_or_else(|| format!("'{name}' is no policy: there are {}", policy::NAMES.join(", ")))
}

fn memory(text: &str) -> Result<Bytes, String> {
    size_within(text, 256 << 20..=1 << 40, "from 256M to 1T")
}

fn disk(text: &str) -> Result<Bytes, String> {
    size_within(text, 1 << 20..=100 << 30, "from 1M to 100G a second")
}

fn page(text: &str) -> Result<Bytes, String> {
    let words = "a power of two from 4K to 2M";
    let bytes = size_within(text, BASE_PAGE..=HUGE_PAGE, words)?;
    bytes.0.is_power_of_two().then_some(bytes).ok_or_else(|| format!("'{text}' is not {words}"))
}

fn size_within(text: &str, allowed: RangeInclusive<u64>, words: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: SizeError| error.to_string())?;
    allowed.contains(&bytes.0).then_some(bytes).ok_or_else(|| format!("'{text}' is not {words}"))
}

fn times(text: &str) -> Result<f64, String> {
    let times = text.parse::<f64>().ok().filter(|times| (0.5..=1000.0).contains(times));
    times.ok_or_else(|| format!("'{text}' is not a number from 0.5 to 1000"))
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
    let percent = percent.filter(|percent| (1.0..=90.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("'{text}' is not a share from 1% to 90%"))
}

#[cfg(test)]
mod tests;
