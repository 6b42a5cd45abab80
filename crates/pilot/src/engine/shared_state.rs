//! What the pilot publishes, and the requests that it receives.
//!
//! Owns: the state that the loop and its edges (the control socket, metrics) share. Never touches: sockets, memory, or what the
//! loop does with a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use heat::units::{Address, Bytes, Nanos};
use heat::{HeldBack, PageSizes, RefusalReason, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use reclaim::ReclaimState;
use serde::{Deserialize, Serialize};

use crate::clients::Clients;
use crate::decide::{Fairness, GainPercent, Reason};
pub use crate::engine::serving_time::ServingTime;
use crate::scope::{Assignment, Assignments, PilotMode};

/// The most requests that wait for the loop; further ones are refused.
const MOST_REQUESTS: usize = 64;
/// Owners of assignments.
const MOST_OWNERS: usize = 16;

/// Upper bounds of the classes in which collapses are counted by duration, in nanoseconds; one more class has no bound.
pub const COLLAPSE_CLASSES: [Nanos; 8] = [
    Nanos(500_000),
    Nanos(1_000_000),
    Nanos(2_000_000),
    Nanos(4_000_000),
    Nanos(8_000_000),
    Nanos(15_000_000),
    Nanos(50_000_000),
    Nanos(200_000_000),
];

/// The state of a pilot at one moment. Its fields are the format of `hugepilot status --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The version of the fields: 1.
    pub version: u32,
    /// The tracker; None before the first scan.
    pub tracker: Option<TrackerKind>,
    /// Share of time for which promoting may hold a program up, 0.01 for 1 %.
    pub max_slowdown: f64,
    /// How the limit on huge pages is divided.
    pub fairness: Fairness,
    /// Whether everything is paused.
    pub paused: bool,
    /// Since the pilot began.
    pub up_ns: Nanos,
    /// Since these figures were taken: they are not while a program is scanned, or its regions are promoted.
    #[serde(default)]
    pub taken_ns_ago: Nanos,
    /// Since the loop was last seen to move on; None before the first step.
    #[serde(default)]
    pub last_step_ns_ago: Option<Nanos>,
    /// Why nothing is promoted at present; None if nothing holds it back.
    pub held_back: Option<HeldBack>,
    /// What makes promoting slow at present.
    #[serde(default)]
    pub slowed_by: Vec<SlowedBy>,
    /// Why the configuration stayed as it was at the last reload; None if it was read.
    #[serde(default)]
    pub reload_refused: Option<String>,
    /// Why metrics are not served where the configuration says; None if they are, or nowhere is asked for.
    #[serde(default)]
    pub metrics_not_served: Option<String>,
    /// Another daemon that pilots this machine, too; None if there is none, or if that one tells of this.
    #[serde(default)]
    pub other_daemon: Option<OtherDaemon>,
    /// Whether splitting a huge page frees its empty pages on this kernel; None if that could not be tried.
    pub frees_empty_pages: Option<bool>,
    /// What may be spent, and what has been.
    pub budget: BudgetState,
    /// What was done since the pilot began, in all targets, including those that have ended.
    pub counts: Counts,
    /// The targets that live.
    pub targets: Vec<TargetState>,
    /// Programs that manage their huge pages themselves, and are told which of their memory is active.
    #[serde(default)]
    pub clients: Vec<ClientState>,
    /// The state of reclaim; None where memory is not reclaimed.
    #[serde(default)]
    pub reclaim: Option<ReclaimState>,
}

/// Another daemon of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDaemon {
    /// Its process.
    pub pid: u32,
    /// Its control socket.
    pub socket: String,
}

/// One program that manages its huge pages itself (libhps).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientState {
    /// Its process.
    pub pid: u32,
    /// Clock ticks after boot at which it started.
    pub start_ticks: u64,
    /// The owner of the process.
    pub uid: u32,
    /// Whether it is resting until its walks rise.
    pub resting: bool,
    /// Base pages that were active at the last scan.
    pub active_pages: u64,
    /// Lists of active pages that it has been given.
    pub lists: u64,
    /// Why the last attempt to observe it failed.
    #[serde(default)]
    pub left_alone: Option<String>,
}

/// What may be spent, and what has been.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetState {
    /// Most memory on huge pages in all targets together; None for no such limit.
    pub max_huge_bytes: Option<Bytes>,
    /// Memory on huge pages in all targets together.
    pub huge_bytes: Bytes,
    /// Most memory growth in all targets together; None where it is a share of each, or unlimited.
    #[serde(default)]
    pub max_growth_bytes: Option<Bytes>,
    /// Memory growth from promotions not given back.
    pub growth_bytes: Bytes,
    /// Share of one CPU that observing and deciding may take, 0 to 1.
    pub max_cpu: f64,
    /// CPU time of the pilot, collapsing included.
    pub cpu_ns: Nanos,
    /// Time spent in collapsing.
    pub busy_ns: Nanos,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Scans of a target.
    pub scans: u64,
    /// Regions put on huge pages.
    pub promoted: u64,
    /// Regions that the kernel refused, by reason.
    pub refused: BTreeMap<RefusalReason, u64>,
    /// Regions given back.
    pub given_back: u64,
    /// Regions put on huge pages that were split, or released without being unmapped: by their programs, or for lack of memory.
    #[serde(default)]
    pub lost: u64,
    /// Collapses by how long they took: one count for each of [`COLLAPSE_CLASSES`], then those that took longer.
    pub collapse_classes: Vec<u64>,
}

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetState {
    /// Its process.
    pub pid: u32,
    /// Clock ticks after boot at which it started.
    pub start_ticks: u64,
    /// The process's name.
    pub name: String,
    /// The systemd service or scope that it runs in.
    #[serde(default)]
    pub unit: Option<String>,
    /// The first digits of its container's id.
    #[serde(default)]
    pub container: Option<String>,
    /// The owner of the process.
    pub uid: u32,
    /// Its weight against other targets when memory on huge pages is divided by weight.
    pub weight: f64,
    /// What is done to it.
    #[serde(default)]
    pub mode: PilotMode,
    /// What its metrics are labelled with, where its control group was assigned labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Why nothing is promoted in it at present, although its mode says so; None if nothing in its control group holds it back.
    #[serde(default)]
    pub held_back: Option<TargetHeldBack>,
    /// What it would gain, where it is only observed and has been scanned.
    #[serde(default)]
    pub forecast: Option<ForecastState>,
    /// The processors that it kept busy at the last scan; None before that.
    #[serde(default)]
    pub busy_cpus: Option<f64>,
    /// Whether it is paused on request.
    pub paused: bool,
    /// Resident memory.
    pub rss_bytes: Bytes,
    /// The same with its proportion of what targets share, so that shared memory counts once in a sum over targets (as with the kernel's Pss).
    #[serde(default)]
    pub proportional_bytes: Bytes,
    /// Memory on huge pages, no matter how it got there.
    pub huge_bytes: Bytes,
    /// The same with its proportion of what targets share.
    #[serde(default)]
    pub proportional_huge_bytes: Bytes,
    /// Memory that this pilot put on huge pages and has not given back.
    pub promoted_bytes: Bytes,
    /// Memory growth that promoting took.
    pub growth_bytes: Bytes,
    /// The most that it may grow by promoting; None before its first plan.
    #[serde(default)]
    pub may_grow_bytes: Option<Bytes>,
    /// Memory that it may have on huge pages at present; None for no limit, and before its first plan.
    pub may_have_bytes: Option<Bytes>,
    /// Page walks a second at the last scan before anything was promoted; None until something is, and where an earlier daemon did that.
    pub walks_per_second_before: Option<f64>,
    /// Page walks a second at the last scan.
    pub walks_per_second: Option<f64>,
    /// Savings of the regions that are on huge pages now, as of their promotion: page walks a second, with page faults and page tables converted to
    /// page walks.
    pub walks_saved_per_second: f64,
    /// Page faults a second on shared memory that huge pages would save, of all processes that map it, at the last scan.
    pub faults_per_second: f64,
    /// Memory on huge pages of 8 KiB to 1 MiB at the last scan, by their size; None if unknown.
    #[serde(default)]
    pub smaller_huge_bytes: Option<PageSizes>,
    /// Memory that its page tables take.
    pub page_tables_bytes: Bytes,
    /// Time since the last scan; None if it has not been scanned yet.
    pub scanned_ns_ago: Option<Nanos>,
    /// Time until the next scan.
    pub next_scan_in_ns: Nanos,
    /// Why the last attempt to observe it failed.
    pub left_alone: Option<String>,
    /// Regions by the reason given at the last scan.
    pub reasons: BTreeMap<Reason, u64>,
    /// Which of them explains most of what was kept: of most page walks, where there are some.
    #[serde(default)]
    pub mostly_kept: Option<Reason>,
    /// The last few actions, oldest first.
    pub last_decisions: Vec<DecisionState>,
}

/// What makes promoting slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowedBy {
    /// Regions wait for their turn, at the pace that the limit on slowdown allows.
    MaxSlowdown,
    /// Regions wait for their turn, at a lower pace, because programs waited for processors, memory or locks.
    BusyPrograms,
    /// Scans are late, because the CPU time for observing is spent.
    MaxCpu,
}

/// Why nothing is promoted in one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetHeldBack {
    /// Its control group is within a tenth of its memory limit.
    NearMemoryLimit,
    /// The kernel has killed a process of its control group for lack of memory since it became a target.
    OomKilled,
}

/// What promoting would do for a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastState {
    /// The speed that it would gain, in percent; None if it used no CPU time, or had to wait for it too much to tell.
    pub gain_percent: Option<GainPercent>,
    /// The share of the time in which it was ready to run that it waited for a processor, if that was too much to tell.
    #[serde(default)]
    pub waited_share: Option<f64>,
    /// Memory that would be put on huge pages.
    pub would_pay_bytes: Bytes,
    /// Memory growth by that.
    pub growth_bytes: Bytes,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionResult {
    /// The region was put on a huge page.
    Promoted,
    /// Its huge page was split.
    GivenBack,
    /// The kernel refused it.
    Refused,
}

/// An action on a region, and its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionState {
    /// Time since then.
    pub ns_ago: Nanos,
    /// Where the region starts.
    pub start: Address,
    /// The result.
    pub done: DecisionResult,
    /// Why it was decided.
    pub reason: Reason,
    /// Why the kernel refused it.
    pub refused: Option<RefusalReason>,
    /// Its page walks a second at that time.
    pub walks_per_second: f64,
}

impl State {
    /// The same figures, `later`: times since then are longer.
    fn aged(mut self, later: Nanos) -> Self {
        self.taken_ns_ago += later;
        self.up_ns += later;
        for target in &mut self.targets {
            target.scanned_ns_ago = target.scanned_ns_ago.map(|ago| ago + later);
            target.next_scan_in_ns = target.next_scan_in_ns.saturating_sub(later);
            target.last_decisions.iter_mut().for_each(|decision| decision.ns_ago += later);
        }
        self
    }
}

impl TargetState {
    /// The process, distinguished from a later one with the same id.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// A request to the loop, and where to answer.
#[derive(Debug)]
pub struct GiveBackRequest {
    /// The process whose promoted regions are to be given back; it is already paused.
    pub give_back: Process,
    /// Receives the number of regions given back, or why none were.
    pub answer: SyncSender<Result<u64, String>>,
}

/// Shared by the loop and its edges.
#[derive(Clone, Debug, Default)]
pub struct SharedState {
    pinned: Arc<Mutex<Pinned>>,
    /// Tells the loop to interrupt its work, because of a request.
    call: Stop,
    clients: Clients,
    serving_time: ServingTime,
}

#[derive(Debug, Default)]
struct Pinned {
    state: State,
    shown: Option<Instant>,
    stepped: Option<Instant>,
    reclaim: Option<ReclaimState>,
    reload_refused: Option<String>,
    metrics_not_served: Option<String>,
    other_daemon: Option<OtherDaemon>,
    paused: bool,
    paused_processes: BTreeSet<Process>,
    requests: Vec<GiveBackRequest>,
    assigned: BTreeMap<String, Vec<Arc<Assignment>>>,
    assigned_anew: bool,
    /// The process that the loop works on.
    at_work: Option<Process>,
    records_at_end: Option<RecordsAtEnd>,
}

/// What becomes of the records of promotions when the pilot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsAtEnd {
    /// The next pilot continues from them.
    Keep,
    /// hugepilot is being uninstalled.
    Remove,
}

impl SharedState {
    /// Publishes the loop's state. The shared state adds its own pauses, and what else was published.
    pub fn show(&self, state: State) {
        let mut pinned = self.pinned();
        (pinned.state, pinned.shown) = (state, Some(Instant::now()));
    }

    /// The loop moves on.
    pub fn stepped(&self) {
        self.pinned().stepped = Some(Instant::now());
    }

    /// Publishes the state of reclaim.
    pub fn show_reclaim(&self, reclaim: Option<ReclaimState>) {
        self.pinned().reclaim = reclaim;
    }

    /// Publishes what came of the last reload of the configuration: why it was refused, if it was.
    pub fn show_reload(&self, refused: Option<String>) {
        self.pinned().reload_refused = refused;
    }

    /// Publishes why metrics are not served, if they are not.
    pub fn show_metrics(&self, not_served: Option<String>) {
        self.pinned().metrics_not_served = not_served;
    }

    /// Publishes which other daemon pilots this machine, too.
    pub fn show_other_daemon(&self, other: Option<OtherDaemon>) {
        self.pinned().other_daemon = other;
    }

    /// The state shown last, with its times as of now.
    pub fn state(&self) -> State {
        let pinned = self.pinned();
        let mut state = State {
            paused: pinned.paused,
            reclaim: pinned.reclaim.clone(),
            reload_refused: pinned.reload_refused.clone(),
            metrics_not_served: pinned.metrics_not_served.clone(),
            other_daemon: pinned.other_daemon.clone(),
            last_step_ns_ago: pinned.stepped.map(Nanos::since),
            ..pinned.state.clone().aged(pinned.shown.map_or(Nanos(0), Nanos::since))
        };
        for target in &mut state.targets {
            target.paused = pinned.paused || pinned.paused_processes.contains(&target.process());
        }
        state
    }

    /// The loop begins to work on a process, or stops; earlier interruptions are cleared.
    pub fn work_on(&self, process: Option<Process>) {
        let mut pinned = self.pinned();
        pinned.at_work = process;
        self.call.withdraw();
    }

    /// Leaves one process, or all, alone until [`SharedState::resume`].
    pub fn pause(&self, process: Option<Process>) {
        let mut pinned = self.pinned();
        match process {
            Some(process) => {
                pinned.paused_processes.insert(process);
            }
            None => pinned.paused = true,
        }
        if process.is_none() || pinned.at_work == process {
            self.call.request();
        }
    }

    /// Ends the pause of one process, or the pause of all; those paused one by one stay so.
    pub fn resume(&self, process: Option<Process>) {
        let mut pinned = self.pinned();
        match process {
            Some(process) => {
                pinned.paused_processes.remove(&process);
            }
            None => pinned.paused = false,
        }
    }

    /// Whether the loop must leave the process alone.
    pub fn is_paused(&self, process: Process) -> bool {
        let pinned = self.pinned();
        pinned.paused || pinned.paused_processes.contains(&process)
    }

    /// Asks the loop to give back what it promoted in a process. Pauses the process, which would otherwise be promoted again; the answer comes when
    /// that is done. None: too many requests wait already, and nothing was changed.
    pub fn request_give_back(&self, process: Process) -> Option<Receiver<Result<u64, String>>> {
        let mut pinned = self.pinned();
        if pinned.requests.len() >= MOST_REQUESTS {
            return None;
        }
        let (answer, receiver) = sync_channel(1);
        pinned.paused_processes.insert(process);
        pinned.requests.push(GiveBackRequest { give_back: process, answer });
        if pinned.at_work == Some(process) {
            self.call.request();
        }
        Some(receiver)
    }

    /// The requests since the last call; the loop answers each.
    pub fn take_requests(&self) -> Vec<GiveBackRequest> {
        std::mem::take(&mut self.pinned().requests)
    }

    /// What is to become of the records; the last who says so decides, unless somebody assigns groups afterwards.
    pub fn set_records_at_end(&self, records: RecordsAtEnd) {
        self.pinned().records_at_end = Some(records);
    }

    /// What is to become of the records; None while nobody said so.
    pub fn records_at_end(&self) -> Option<RecordsAtEnd> {
        self.pinned().records_at_end
    }

    /// Assigns control groups in place of what this owner assigned before; nothing if that is the same. What several owners assign one group, the
    /// first by name decides. Returns false, and changes nothing, if there are too many owners.
    pub fn assign(&self, owner: &str, assignments: Vec<Assignment>) -> bool {
        let mut pinned = self.pinned();
        // An agent that goes on has another word at its end.
        pinned.records_at_end = None;
        let before = pinned.assigned.get(owner).map_or(&[][..], Vec::as_slice);
        if before.iter().map(Arc::as_ref).eq(&assignments) {
            return true;
        }
        if !pinned.assigned.contains_key(owner) && pinned.assigned.len() >= MOST_OWNERS {
            return false;
        }
        match assignments.is_empty() {
            true => drop(pinned.assigned.remove(owner)),
            false => drop(pinned.assigned.insert(owner.to_owned(), assignments.into_iter().map(Arc::new).collect())),
        }
        pinned.assigned_anew = true;
        true
    }

    /// What all owners have assigned, if that has changed since the last call.
    pub fn take_assignments(&self) -> Option<Assignments> {
        let mut pinned = self.pinned();
        let all = |pinned: &Pinned| Assignments::new(pinned.assigned.values().flatten().cloned());
        std::mem::take(&mut pinned.assigned_anew).then(|| all(&pinned))
    }

    /// Requested when the process that the loop works on is paused or to be given back, or all are paused: long operations then end early. Users'
    /// requests about their own processes end no other process's turn.
    pub fn call(&self) -> &Stop {
        &self.call
    }

    /// Programs that asked which of their memory is active.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The CPU time of the threads that answer users.
    pub fn serving_time(&self) -> &ServingTime {
        &self.serving_time
    }

    /// Drops the pauses of processes that have ended.
    pub fn forget_ended(&self, lives: impl Fn(&Process) -> bool) {
        self.pinned().paused_processes.retain(lives);
    }

    fn pinned(&self) -> MutexGuard<'_, Pinned> {
        // A thread that panicked while holding the lock left every field intact.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
