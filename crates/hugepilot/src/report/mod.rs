//! Report: what was observed, planned and done, for people and for programs.
//!
//! Owns: every word and every JSON field that commands print. Never touches: the system, a terminal, or a decision; each report is a pure function of
//! data, and the caller says how wide the terminal is and whether it shows colour.

/// An object with these fields, in this order. Attributes for serde precede the field.
macro_rules! object {
    ($($(#[$attribute:meta])* $name:ident $(: $value:expr)?),* $(,)?) => {{
        #[derive(serde::Serialize)]
        struct Object<$($name),*> {
            $($(#[$attribute])* $name: $name),*
        }
        Object { $($name $(: $value)?),* }
    }};
}

pub mod heat_grid;
pub mod heat_map;
pub mod json;
pub mod live;
pub mod page_counts;
mod pool_words;
pub mod reclaim_plot;
pub mod scan_page;
#[cfg(test)]
mod scan_samples;
mod scan_words;
mod table;
pub mod text;
pub mod trial_plot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use heat::clearing::Clearing;
use heat::statistics::Interval;
use heat::units::{Bytes, HUGE_PAGE, Nanos, Slowdown};
use heat::{Heat, Mapping, Snapshot, WalkShare};
use launch::Prepared;
use launch::cached_file::{CacheError, CachedFile};
use launch::manager::Managed;
use launch::verify::Verification;
use observe::Census;
use pilot::act::Outcome;
use pilot::decide::{GainPercent, GrowthLimit, GuestMemory, Plan, Reason};
use pilot::engine::Family;
use pilot::explain::Explanation;
use pilot::forecast::{Doubt, Forecast, ForecastBasis};
use pilot::programs::scan::ScanFinding;
use pilot::programs::{GroupBy, RunningProgram};
use pilot::words::printable;
use pool::{Change, Edit, NextStep};
use reclaim::{MemoryReading, ReclaimState};
use serde::Serialize;
use trial::replicas::{FEWEST, ReplicaTrial, Replicas};
use trial::{Arm, Moved, Trial, TrialRules, TrialVerdict};

/// How much a report for people says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// What most readers need.
    #[default]
    Usual,
    /// Everything.
    Full,
}

/// Files that were read into the page cache, or dropped from it.
#[derive(Debug)]
pub struct CacheReport<'a> {
    /// Each with what came of it.
    pub files: &'a [(&'a Path, Result<CacheOutcome, CacheError>)],
}

impl CacheReport<'_> {
    /// How many were left as they are.
    pub fn failed(&self) -> usize {
        self.files.iter().filter(|(_, outcome)| outcome.is_err()).count()
    }

    /// Whether files were read, and nothing of them is on huge pages.
    pub fn nothing_is_huge(&self) -> bool {
        self.read().next().is_some() && self.read().all(|cached| cached.huge == Bytes(0))
    }

    /// Those that were read.
    pub fn read(&self) -> impl Iterator<Item = &CachedFile> {
        self.files.iter().filter_map(|(_, outcome)| match outcome {
            Ok(CacheOutcome::Read(cached)) => Some(cached),
            _ => None,
        })
    }
}

/// What came of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOutcome {
    /// It was read.
    Read(CachedFile),
    /// It was dropped.
    Dropped {
        /// What stayed nevertheless; None if the kernel does not tell.
        stays: Option<Bytes>,
    },
}

/// A recording that was made.
#[derive(Clone, Copy, Debug)]
pub struct RecordReport<'a> {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// How many observations it holds.
    pub observations: u64,
    /// How long it took.
    pub elapsed: Nanos,
    /// The size of the file.
    pub size: Bytes,
    /// The file.
    pub path: &'a Path,
}

/// What could be promoted if the program were restarted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AfterRestart {
    /// Memory that would be worth promoting.
    #[serde(rename = "would_pay_bytes")]
    pub would_pay: Bytes,
    /// The speed that the program should gain by it; None if that is unknown.
    #[serde(rename = "expected_gain_percent")]
    pub gain: Option<GainPercent>,
}

/// What carrying out a plan should take, estimated from trial collapses of our own memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Regions to promote.
    pub regions: u64,
    /// The memory growth that promoting them causes.
    pub growth: Bytes,
    /// Wall time for all of them, if the program need not be spared.
    pub elapsed: Nanos,
    /// The most that the program may be slowed down.
    pub max_slowdown: Slowdown,
    /// The longest that the target should have to wait for one region.
    pub longest_stall: Nanos,
}

/// A dry run: what would be done, and why.
#[derive(Clone, Copy, Debug)]
pub struct PlanReport<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The processes that share memory with it.
    pub family: Family,
    /// The memory growth allowed.
    pub growth_limit: GrowthLimit,
    /// How accessed bits were cleared for it.
    pub clearing: Option<Clearing>,
    /// The speed that the program should gain.
    pub forecast: Forecast,
    /// What that rests on; None for a recording, which does not tell all of it, and where nothing is promoted.
    pub basis: Option<ForecastBasis>,
    /// Why that may be nothing.
    pub doubt: Option<Doubt>,
    /// What carrying it out should take; None if nothing was measured.
    pub expectation: Option<Expectation>,
}

/// Which memory is on huge pages, why the rest is not, and whether more would help.
#[derive(Clone, Copy, Debug)]
pub struct ExplainReport<'a> {
    /// What was observed.
    pub heat: &'a Heat,
    /// Mapping by mapping.
    pub explanation: &'a Explanation,
    /// The processes that share memory with it.
    pub family: Family,
    /// The speed that the plan should gain.
    pub forecast: Forecast,
    /// What that rests on.
    pub basis: ForecastBasis,
    /// Why that may be nothing.
    pub doubt: Option<Doubt>,
    /// What could be on huge pages if the program were restarted with its shared memory aligned, and after its files were read on huge pages; None if
    /// that is nothing more.
    pub after_restart: Option<AfterRestart>,
    /// The share of its CPU time that page faults take at most which promoting does not save; None if they are few.
    pub fault_share: Option<f64>,
    /// Where what a page walk costs comes from, for people.
    pub cost_from: &'static str,
    /// The share of the process's cycles in which a page walk was under way; None where the processor does not count them.
    pub walk_share: Option<WalkShare>,
    /// What holds if it seems to run a virtual machine, whose guest memory can be promoted without knowing its heat.
    pub virtual_machine: Option<VirtualMachineReport<'a>>,
    /// Whether the kernel can replace pages of a file beneath a program that maps them; None if that is not known, or does not matter.
    pub collapses_files: Option<bool>,
    /// The allocators and runtimes that manage its memory by rules of their own.
    pub managers: &'a [Managed],
}

/// A process that seems to run a virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct VirtualMachineReport<'a> {
    /// The memory of its guest; without blocks if none was found.
    pub guest: &'a GuestMemory,
    /// What `promote --guest` would do.
    pub plan: &'a Plan,
    /// Whether the host sees the guest's page walks; not under KVM.
    pub walks_are_seen: bool,
}

impl VirtualMachineReport<'_> {
    /// The guest memory that `promote --guest` would put on huge pages.
    fn can_be_promoted(&self) -> Bytes {
        Bytes(self.plan.promotions().count() as u64 * HUGE_PAGE)
    }
}

/// What huge pages would do for the programs of this machine.
#[derive(Clone, Copy, Debug)]
pub struct ScanReport<'a> {
    /// Each program with its finding, in order.
    pub found: &'a [(RunningProgram, ScanFinding)],
    /// What makes a row.
    pub by: GroupBy,
    /// What has less memory was left out.
    pub smallest: Bytes,
}

/// A promotion: what was done, and what it changed.
#[derive(Clone, Copy, Debug)]
pub struct PromoteReport<'a> {
    /// The plan that was carried out.
    pub plan: &'a Plan,
    /// Processes that share its memory, itself included.
    pub processes: u64,
    /// The memory growth that was allowed.
    pub growth_limit: GrowthLimit,
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// The process before.
    pub before: Snapshot,
    /// The process afterwards; None if it has ended, or a signal ended the command.
    pub after: Option<Snapshot>,
    /// Wall time of the whole command, both observations included.
    pub elapsed: Nanos,
    /// The memory of its guest; None if it was not promoted as a virtual machine.
    pub guest: Option<GuestReport<'a>>,
}

/// A guest's memory before and after a promotion.
#[derive(Clone, Copy, Debug)]
pub struct GuestReport<'a> {
    /// Before.
    pub before: &'a GuestMemory,
    /// Afterwards; None if the process has ended.
    pub after: Option<&'a GuestMemory>,
}

/// A dry run for a virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct GuestPlanReport<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The memory of its guest.
    pub guest: &'a GuestMemory,
    /// What carrying it out should take; None if nothing was measured.
    pub expectation: Option<Expectation>,
}

/// Huge pages given back.
#[derive(Clone, Copy, Debug)]
pub struct GiveBackReport<'a> {
    /// The process.
    pub pid: u32,
    /// The outcome of splitting.
    pub outcome: &'a Outcome,
    /// The process before.
    pub before: Snapshot,
    /// The process afterwards; None if it has ended.
    pub after: Option<Snapshot>,
    /// Whether this kernel frees the empty base pages of a huge page that it splits; None if no probe could find out.
    pub frees_empty_pages: Option<bool>,
}

/// What a trial counts if it is told nothing.
pub const SYSTEM_CALLS: &str = "system calls";

/// Huge pages tried on some replicas of a workload.
#[derive(Clone, Copy, Debug)]
pub struct FleetTrialReport<'a> {
    /// What was asked for.
    pub trial: &'a ReplicaTrial,
    /// The replicas found.
    pub replicas: &'a Replicas,
}

impl FleetTrialReport<'_> {
    /// How many times as good the promoted replicas are; None if they are too few for an interval of 95 %.
    pub fn gain(&self) -> Option<Interval> {
        self.replicas.gain(self.trial.better).filter(|gain| gain.pairs >= FEWEST)
    }
}

/// Huge pages tried on a running program.
#[derive(Clone, Copy, Debug)]
pub struct TrialReport<'a> {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// All that was measured.
    pub trial: &'a Trial,
    /// What it has shown.
    pub verdict: TrialVerdict,
    /// Whether it went on to its end; otherwise a signal or an error ended it.
    pub is_over: bool,
    /// Memory that every switch put on huge pages.
    pub switched: Bytes,
    /// All memory that was to be switched.
    pub to_switch: Bytes,
    /// How it was last put on huge pages; None if it never was.
    pub moved: Option<Moved>,
    /// The rules by which it went.
    pub rules: &'a TrialRules,
    /// The longest stall of the program while memory was promoted; where waiting was not measured, the longest collapse.
    pub longest_stall: Nanos,
    /// What was counted.
    pub counted: &'a str,
    /// What memory is left on.
    pub left: Arm,
    /// What it was found on.
    pub found: Arm,
    /// Whether nothing was really switched.
    pub placebo: bool,
    /// What was expected before.
    pub expected: &'a Expected,
}

/// What a trial was expected to show.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The forecast.
    pub forecast: Forecast,
    /// The same without what past trials showed.
    pub by_model: Forecast,
    /// What that rests on.
    pub basis: ForecastBasis,
}

/// What `run` did.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// The command and its arguments, as typed.
    pub command: &'a [String],
    /// Exit status of the command; None if a signal ended it.
    pub exit_status: Option<i32>,
    /// The signal that ended the command; None if it exited.
    pub signal: Option<i32>,
    /// What the pilot did.
    pub pilot_summary: PilotReport<'a>,
    /// What it was started with; None if nothing was added.
    pub launch: Option<LaunchReport<'a>>,
}

/// A program that was started on huge pages.
#[derive(Clone, Copy, Debug)]
pub struct LaunchReport<'a> {
    /// What it was started with.
    pub prepared: &'a Prepared,
    /// How much of its memory was huge, and why the rest was not.
    pub account: &'a Verification,
}

/// The outcome of piloting a process and its descendants.
#[derive(Clone, Copy, Debug)]
pub struct PilotReport<'a> {
    /// How often the pilot observed and decided.
    pub rounds: u64,
    /// How many processes were observed; snapshots are their sums.
    pub processes: usize,
    /// The outcome of all rounds together.
    pub outcome: &'a Outcome,
    /// Regions given back.
    pub given_back: u64,
    /// Regions put on huge pages that were split or released again, by the programs or for lack of memory.
    pub lost: u64,
    /// Memory growth that the promotions caused, less what was given back.
    pub growth: Bytes,
    /// The state before anything was promoted; None if the program ended before that, or some had been promoted before the pilot began.
    pub before: Option<Snapshot>,
    /// The state in the last round; None if there was none.
    pub after: Option<Snapshot>,
    /// Why processes were not observed, each reason once.
    pub left_alone: &'a BTreeSet<String>,
    /// Regions by the reason that the last plan gave.
    pub reasons: &'a BTreeMap<Reason, u64>,
    /// Which of them explains most of what was kept.
    pub mostly_kept: Option<Reason>,
    /// The most memory that any process had, if all were too small to be observed.
    pub too_small: Option<Bytes>,
    /// CPU time spent by the pilot, promotions included.
    pub pilot: Nanos,
    /// How long the pilot ran.
    pub elapsed: Nanos,
}

/// What memory is used for, and how it is reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimStatusReport<'a> {
    /// What memory is used for, or why that is unknown.
    pub census: Result<&'a Census, &'a str>,
    /// Free and contiguous memory.
    pub now: &'a MemoryReading,
    /// The state of reclaim, or its last state if it has ended; None if it has not run since boot.
    pub state: Option<&'a ReclaimState>,
    /// Whether it is still running.
    pub is_alive: bool,
}

/// What `pool set` would change.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlanReport<'a> {
    /// Each pool's change.
    pub changes: &'a [Change],
    /// Memory that programs could get now; `None` for the changes of one memory node.
    pub available: Option<Bytes>,
}

impl PoolPlanReport<'_> {
    /// Memory that the pools take at most: pages that exist already, as surplus, take none.
    fn needed(&self) -> Bytes {
        let grown = self.changes.iter().map(|change| change.to.saturating_sub(change.from));
        let sizes = self.changes.iter().map(|change| change.page_size.0);
        Bytes(grown.zip(sizes).map(|(pages, size)| pages.saturating_mul(size)).fold(0, u64::saturating_add))
    }
}

/// The files that make pools of huge pages survive a reboot.
#[derive(Clone, Copy, Debug)]
pub struct PersistReport<'a> {
    /// What happens to each file.
    pub edits: &'a [Edit],
    /// What is left to do afterwards.
    pub next_steps: &'a [NextStep],
    /// Whether the files were written.
    pub applied: bool,
    /// Whether the files are removed, so that nothing survives a reboot any more.
    pub removes: bool,
}

/// A mapping's name, for people; None stands for a mapping that is gone.
fn mapping_name(mapping: Option<&Mapping>, limit: usize) -> String {
    match mapping {
        None => "(went away)".to_owned(),
        Some(mapping) if mapping.name.is_empty() => "(anonymous)".to_owned(),
        Some(mapping) => printable(&mapping.name, limit),
    }
}

#[cfg(test)]
mod pool_samples;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod trial_samples;
