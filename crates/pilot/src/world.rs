//! The world: all that the engine learns from the machine, and all that it does to it.
//!
//! Owns: that list, as one trait. Never touches: anything. [`crate::machine::Machine`] is the real world; tests simulate others, in which hours pass
//! in a second.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use heat::units::{Address, Bytes, Nanos, Pages};
use heat::{Heat, MemoryState, PageSet, PageSizes, TrackerKind};
use hugepilot_os::stop::{Stop, Stopped};
use kernel::group_memory::GroupMemory;
use kernel::probe::CollapseTimes;
use kernel::process::{FamilyUsage, ProcessStatus};
use kernel::target::{Process, TargetError};
use kernel::{KernelError, nodes::Node};
use launch::manager::MemoryManager;
use observe::{FaultRates, ObserveError, ObserveOptions, Waited, Whose};
use serde::{Deserialize, Serialize};

use crate::decide::{OwnPressure, WhoWaits};
use crate::forecast::{Estimator, Gauges};
use crate::programs::ProcessPlace;
use crate::scope::{Enrolled, Scope};

/// A region to promote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it starts.
    pub start: Address,
    /// Which threads wait for it meanwhile.
    pub who_waits: WhoWaits,
    /// Its base pages in the process's page tables when it was planned. If a guest has fewer left, a balloon took some since, and a huge page would
    /// fill them again.
    pub present: Pages,
}

impl From<Candidate> for Address {
    fn from(candidate: Candidate) -> Self {
        candidate.start
    }
}

/// The kernel's answer to one call for one region.
#[derive(Debug)]
pub struct Step {
    /// Its answer.
    pub result: io::Result<()>,
    /// How long it took; threads that needed the region waited as long.
    pub took: Nanos,
    /// How long that counts as holding the whole target up.
    pub held_up: Nanos,
    /// Time spent preparing it, which held nothing up.
    pub preparing: Nanos,
    /// The memory node of the prepared page, on a machine with several.
    pub prepared_on: Option<Node>,
}

/// What a region was promoted for, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promoted {
    /// Its page walks a second; 0 if it was only mapped huge like the same memory in another process.
    pub walks_per_second: f64,
    /// Memory growth that it took.
    pub growth_bytes: Bytes,
}

/// What hugepilot promoted in a process, by where each region starts.
pub type Promotions = BTreeMap<Address, Promoted>;

/// Why the record of promotions could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} the record of promotions {path}: {cause}{step}", path = path.display())]
pub struct RecordError {
    pub(crate) doing: &'static str,
    pub(crate) path: std::path::PathBuf,
    pub(crate) cause: io::Error,
    pub(crate) step: &'static str,
}

/// Dropping it ends what [`World::hold_reporting_back`] began.
pub type Held = Box<dyn std::any::Any>;

/// What the engine needs from the machine. Processes are identified by [`Process`], never by the id alone.
pub trait World {
    /// The current time.
    fn now(&self) -> Instant;

    /// CPU time used by this program, without that of threads that answer users. It may go back a little, by what these have not reported yet.
    fn cpu_time(&self) -> Nanos;

    /// Rests until then. Errors: a stop was requested.
    fn sleep_until(&mut self, at: Instant, stop: &Stop) -> Result<(), Stopped>;

    /// The machine's memory, without our own pressure; None where it cannot be read.
    fn memory(&self, own: OwnPressure) -> Option<MemoryState>;

    /// The memory of the control group that a process is in; None where that cannot be read.
    fn group_memory(&self, process: Process) -> Option<GroupMemory>;

    /// Online processors.
    fn processors(&self) -> u64;

    /// The living processes in the scope.
    fn census(&mut self, scope: &mut Scope) -> Vec<Enrolled>;

    /// The kernel's status of a process; None after it has ended.
    fn status(&self, process: Process) -> Option<ProcessStatus>;

    /// Page faults that a process has had so far without reading from a disk; None after it has ended.
    fn minor_faults(&self, process: Process) -> Option<u64>;

    /// The allocators in the file of a process's program, other than libraries; none after it has ended.
    fn linked_in(&self, process: Process) -> BTreeSet<MemoryManager>;

    /// The children of a process, their children and so on. Errors: processes cannot be listed.
    fn descendants(&self, process: Process) -> Result<Vec<Process>, KernelError>;

    /// The resources that a process and its descendants have used so far. Errors: processes cannot be listed.
    fn family_usage(&self, process: Process) -> Result<FamilyUsage, KernelError>;

    /// Whether a process is still running.
    fn lives(&self, process: Process) -> bool;

    /// Begins work for this process, or ends it (None). Errors: the process cannot be observed, or may not have huge pages.
    fn work_for(&mut self, process: Option<Process>) -> Result<(), TargetError>;

    /// The tracker in use.
    fn tracker(&self) -> TrackerKind;

    /// Observes for one window. Errors: as [`observe::Tracker::observe`].
    fn observe(&mut self, process: Process, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError>;

    /// What is present and what is huge, without observing. Errors: as [`observe::Tracker::survey`].
    fn survey(&mut self, process: Process) -> Result<Heat, ObserveError>;

    /// The same, with what promoting each region would take. Errors: as [`observe::Tracker::survey`].
    fn survey_growth(&mut self, process: Process) -> Result<Heat, ObserveError>;

    /// What to estimate a process's gain with if it walks for so much memory: with costs as measured here since boot, otherwise as other machines
    /// showed. Measures nothing.
    fn estimator(&mut self, process: Process, footprint: Bytes) -> Estimator;

    /// Where a process runs.
    fn place(&self, process: Process) -> ProcessPlace;

    /// Begins to count what the scheduler says about a process; None where nothing does.
    fn gauges(&self, process: Process) -> Option<Gauges>;

    /// Adds the shared memory that other processes have populated.
    fn complete(&self, heat: &mut Heat);

    /// Memory on huge pages below 2 MiB, by their size, judged by a part of it; None where the kernel does not tell.
    fn smaller_pages(&self, heat: &Heat) -> Option<PageSizes>;

    /// Base pages walked since they were last cleared; None where that cannot be told.
    fn walked_pages(&mut self, process: Process) -> Option<Pages>;

    /// The same, region by region; false where that cannot be told. Errors: the process cannot be read.
    fn walked(&mut self, process: Process, each: &mut dyn FnMut(Address, &PageSet)) -> Result<bool, ObserveError>;

    /// Base pages of each region that hold nothing but zeros; None for regions that cannot be read.
    fn empty_pages(&mut self, process: Process, regions: &[Address]) -> Vec<Option<u16>>;

    /// Counts page faults from now on.
    fn count_faults(&mut self, processes: &[Process], whose: Whose);

    /// Stops counting; returns page faults a second since it began.
    fn faults(&mut self) -> FaultRates;

    /// From now on measures how long a program waits by itself.
    fn watch_waits(&mut self, process: Process);

    /// From now on, waits count as ours.
    fn begin_waits(&mut self, process: Process);

    /// The extra waiting of the program lately, as a share of the time in which it wanted to run; None while that is not known.
    fn waited(&mut self) -> Option<f64>;

    /// How long its threads waited for the lock of its memory since [`World::begin_waits`].
    fn end_waits(&mut self) -> Option<Waited>;

    /// Puts one region on a huge page.
    fn collapse(&mut self, process: Process, region: Candidate, stop: &Stop) -> Step;

    /// Splits one huge page.
    fn split(&mut self, process: Process, region: Address) -> Step;

    /// How long a collapse takes, tried on memory of our own. Errors: no huge page could be had.
    fn collapse_times(&mut self) -> io::Result<CollapseTimes>;

    /// Whether a split frees empty pages on this kernel; None if that could not be tried.
    fn frees_empty_pages(&mut self) -> Option<bool>;

    /// Keeps free memory from being reported to the host until the result is dropped.
    fn hold_reporting_back(&mut self) -> Option<Held>;

    /// The recorded promotions in a process. Errors: the record cannot be read.
    fn promotions(&self, process: Process) -> Result<Promotions, RecordError>;

    /// Changes the record, whole or not at all. Errors: it cannot be read or written.
    fn change_promotions(
        &mut self,
        process: Process,
        change: &mut dyn FnMut(&mut Promotions),
    ) -> Result<(), RecordError>;
}
