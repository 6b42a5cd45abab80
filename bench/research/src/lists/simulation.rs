//! One run of a trace, a size of memory and a policy, and its results.
//!
//! Owns: how long a run is, and its sums. Never touches: how any of the three works.
//!
//! A run first fills memory and continues until lists have settled. It is then measured in intervals of ten seconds of the trace, so that throughput
//! has a variation.

use anyhow::Result;
use heat::units::{BASE_PAGE, Bytes};
use hugepilot_os::stop::Stop;
use serde::{Deserialize, Serialize};

use super::account::Account;
use super::machine::SimulatedMachine;
use super::policy::PolicyKind;
use super::throughput::throughput;
use super::trace::{TICKS_PER_SECOND, TraceChoice, TraceSetup};

const INTERVAL_TICKS: u32 = 10 * TICKS_PER_SECOND;
/// The least amount written and read during the measurement, relative to memory.
const MEASURE: f64 = 1.0;
/// Bytes in a MiB.
const MIB: f64 = (1 << 20) as f64;

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Length {
    /// The amount written and read before the measurement, relative to memory.
    pub settle: f64,
    /// The minimum number of intervals measured.
    pub intervals: usize,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulationOutcome {
    /// The trace's name.
    pub trace: String,
    /// A description of the trace.
    pub description: String,
    /// The machine's memory.
    pub memory_bytes: u64,
    /// The policy.
    pub policy: PolicyKind,
    /// Everything that happened during the measurement, in base pages.
    pub account: Account,
    /// The predicted throughput of each interval, in MiB a second.
    pub throughput: Vec<f64>,
    /// Pages scanned per page reclaimed, for each interval; None if nothing was reclaimed.
    pub scanned: Vec<Option<f64>>,
}

/// Runs it. Errors: the trace cannot be read, or a stop was requested.
pub fn simulate(
    trace: &TraceChoice,
    policy: PolicyKind,
    setup: &TraceSetup,
    length: Length,
    stop: &Stop,
) -> Result<SimulationOutcome> {
    let mut source = trace.open(setup)?;
    let mut machine =
        SimulatedMachine::new(setup.pages(setup.memory), setup.page.0 / BASE_PAGE, &source.layout, policy);
    let mut outcome = SimulationOutcome {
        trace: trace.to_string(),
        description: source.description.clone(),
        memory_bytes: setup.memory.0,
        policy,
        account: Account::default(),
        throughput: Vec::new(),
        scanned: Vec::new(),
    };
    let mut events = Vec::new();
    let mut interval = || -> Result<Account> {
        for _ in 0..INTERVAL_TICKS {
            source.tick(&mut events)?;
            machine.tick(&events);
        }
        stop.check()?;
        Ok(machine.take_account())
    };
    // This must also end if everything is refused.
    let passed = |account: &Account| ((account.moved + account.refused) * BASE_PAGE) as f64 / setup.memory.0 as f64;
    let mut settled = 0.0;
    while settled < length.settle {
        settled += passed(&interval()?);
    }
    let mut measured = 0.0;
    while outcome.throughput.len() < length.intervals || measured < MEASURE {
        let account = interval()?;
        measured += passed(&account);
        outcome.add(account, setup.disk);
    }
    Ok(outcome)
}

impl SimulationOutcome {
    fn add(&mut self, account: Account, disk: Bytes) {
        self.account += account;
        self.throughput.push(four_digits(throughput(&account, disk) / MIB));
        self.scanned.push(account.scanned_per_reclaimed().map(four_digits));
    }

    /// Over all intervals, in MiB a second. (Not the mean of their throughputs: a slow interval lasts longer.)
    pub fn mean_throughput(&self, disk: Bytes) -> f64 {
        throughput(&self.account, disk) / MIB
    }

    /// The standard deviation of the intervals' throughput, relative to their mean.
    pub fn variation(&self) -> f64 {
        let count = self.throughput.len().max(1) as f64;
        let mean = self.throughput.iter().sum::<f64>() / count;
        let square = |value: &f64| (value - mean) * (value - mean);
        let deviation = (self.throughput.iter().map(square).sum::<f64>() / count).sqrt();
        if mean > 0.0 { deviation / mean } else { 0.0 }
    }

    /// The most pages scanned per page reclaimed in any interval.
    pub fn most_scanned(&self) -> Option<f64> {
        self.scanned.iter().flatten().copied().reduce(f64::max)
    }
}

/// Predictions are no more precise than that, and short numbers compress well.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests;
