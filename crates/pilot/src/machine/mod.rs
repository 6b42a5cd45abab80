//! The real world: this machine.
//!
//! Owns: the tracker, prepared pages, the counting of page faults and of waits, and the process being worked on. Never touches: when any of that is
//! done, or to what; the engine decides.

mod collapse;
mod node;
mod prepare;
mod preparer;
mod record;
mod reporting;
pub mod require;
mod trial;
mod trial_mark;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use heat::units::{Address, Bytes, Nanos, Pages, Slowdown};
use heat::{Heat, MemoryState, PageSet, PageSizes, TrackerKind};
use hugepilot_os::nodes::PinnedTo;
use hugepilot_os::run_directory::RUN_DIRECTORY;
use hugepilot_os::stop::{Stop, Stopped};
use kernel::group_memory::{GroupMemory, MemoryGroups};
use kernel::memory::Meminfo;
use kernel::pressure::Pressure;
use kernel::probe::CollapseTimes;
use kernel::process::{FamilyUsage, ProcessStatus, Stat, descendants, own_cpu_time};
use kernel::target::{Process, Target, TargetError};
use kernel::{KernelError, Root, cpu};
use launch::manager::MemoryManager;
use observe::{Contents, FaultRates, Faults, ObserveError, ObserveOptions, Tracker, Waited, Waits, Whose};
use observe::{calibrate, keep_away_from, populated};

use crate::decide::{Allowance, OwnPressure};
use crate::engine::shared_state::ServingTime;
use crate::forecast::{Estimator, Gauges};
use crate::past_trials::{TRIALS, TrialsFile};
use crate::programs::ProcessPlace;
use crate::scope::{Enrolled, Scope};
use crate::world::{Candidate, Held, Promotions, RecordError, Step, World};

pub use node::RegionNodes;
pub use prepare::Preparation;
pub use record::PromotionRecord;
pub use reporting::ReportingHeldBack;
pub use trial::{collapse_times, frees_empty_pages};
pub use trial_mark::{FoundOn, TrialMark, WrittenMark, ensure_no_trial};

/// This machine, observed with one tracker.
pub struct Machine {
    root: Root,
    groups: MemoryGroups,
    tracker: Box<dyn Tracker>,
    preparation: Preparation,
    faults: Faults,
    waits: Waits,
    processors: u64,
    /// The process last worked on, held open.
    open: Option<Rc<Target>>,
    /// Keeps this thread off the processors that the process uses.
    kept_away: Option<PinnedTo>,
    serving_time: ServingTime,
    trials: TrialsFile,
}

impl Machine {
    /// Uses this tracker. Whether prepared pages help is determined before the first region.
    pub fn new(tracker: Box<dyn Tracker>, max_slowdown: Slowdown) -> Self {
        let root = Root::host();
        let processors = cpu::online(&root).map_or(1, |online| online.len() as u64);
        // Where they cannot be read, control groups limit nothing.
        let groups = MemoryGroups::find(&root).unwrap_or_default();
        Self {
            root,
            groups,
            tracker,
            preparation: Preparation::new(max_slowdown),
            faults: Faults::default(),
            waits: Waits::new(),
            processors,
            open: None,
            kept_away: None,
            serving_time: ServingTime::default(),
            trials: TrialsFile::default(),
        }
    }

    /// The same, with threads that answer users.
    pub fn serving(self, serving_time: ServingTime) -> Self {
        Self { serving_time, ..self }
    }

    /// Opens a process, unless another one has its id now. A virtual machine can be surveyed and acted on, and is refused when it is observed.
    fn target(&mut self, process: Process) -> Result<Rc<Target>, TargetError> {
        if let Some(open) = self.open.as_ref().filter(|open| open.process() == process && !open.handle().has_exited()) {
            return Ok(Rc::clone(open));
        }
        let target = Target::open_to_act(process.pid)?;
        if target.process() != process {
            return Err(TargetError::NoSuchProcess { pid: process.pid });
        }
        Ok(Rc::clone(self.open.insert(Rc::new(target))))
    }

    /// Acts on a process that is held open, or reports that it is gone.
    fn step(&mut self, process: Process, take: impl FnOnce(&mut Self, &Target) -> Step) -> Step {
        match self.target(process) {
            Ok(target) => take(self, &target),
            Err(_) => Step {
                result: Err(io::Error::from_raw_os_error(libc::ESRCH)),
                took: Nanos(0),
                held_up: Nanos(0),
                preparing: Nanos(0),
                prepared_on: None,
            },
        }
    }
}

/// What the user allows, with shares of the machine's memory turned into sizes. Errors: /proc/meminfo cannot be read.
pub fn on_this_machine(allowance: Allowance) -> Result<Allowance, KernelError> {
    Ok(allowance.with_ram(Meminfo::read(&Root::host())?.total))
}

impl World for Machine {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn cpu_time(&self) -> Nanos {
        own_cpu_time().saturating_sub(self.serving_time.total())
    }

    fn sleep_until(&mut self, at: Instant, stop: &Stop) -> Result<(), Stopped> {
        stop.sleep_until(at)
    }

    fn memory(&self, own: OwnPressure) -> Option<MemoryState> {
        let memory = Meminfo::read(&self.root).ok()?;
        let pressure = Pressure::read(&self.root).ok().flatten().map(|pressure| own.leave_out(pressure.some));
        Some(MemoryState { total: memory.total, available: memory.available, pressure })
    }

    fn group_memory(&self, process: Process) -> Option<GroupMemory> {
        self.groups.of(&self.root, process.pid).ok().flatten()
    }

    fn processors(&self) -> u64 {
        self.processors
    }

    fn census(&mut self, scope: &mut Scope) -> Vec<Enrolled> {
        scope.census(&self.root, Instant::now())
    }

    fn status(&self, process: Process) -> Option<ProcessStatus> {
        ProcessStatus::read(&self.root, process.pid).ok()
    }

    fn minor_faults(&self, process: Process) -> Option<u64> {
        Stat::read(&self.root, process.pid).ok().map(|stat| stat.minor_faults)
    }

    fn linked_in(&self, process: Process) -> BTreeSet<MemoryManager> {
        MemoryManager::linked_into(&self.root.path(&format!("proc/{}/exe", process.pid)))
    }

    fn descendants(&self, process: Process) -> Result<Vec<Process>, KernelError> {
        let pids = descendants(&self.root, process.pid)?;
        Ok(pids.into_iter().filter_map(|pid| Process::of(&self.root, pid)).collect())
    }

    fn family_usage(&self, process: Process) -> Result<FamilyUsage, KernelError> {
        FamilyUsage::read(&self.root, process.pid)
    }

    fn lives(&self, process: Process) -> bool {
        process.lives()
    }

    fn work_for(&mut self, process: Option<Process>) -> Result<(), TargetError> {
        self.kept_away = None;
        // Opened anew: the process may have switched huge pages off since.
        self.open = None;
        let Some(process) = process else { return Ok(()) };
        self.target(process)?.ensure_huge_pages_enabled()?;
        self.kept_away = keep_away_from(process.pid);
        Ok(())
    }

    fn tracker(&self) -> TrackerKind {
        self.tracker.kind()
    }

    fn observe(&mut self, process: Process, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let target = self.target(process)?;
        target.ensure_walks_are_seen()?;
        self.tracker.observe(&target, options, stop)
    }

    fn survey(&mut self, process: Process) -> Result<Heat, ObserveError> {
        let target = self.target(process)?;
        self.tracker.survey(&target)
    }

    fn survey_growth(&mut self, process: Process) -> Result<Heat, ObserveError> {
        let target = self.target(process)?;
        self.tracker.survey_growth(&target)
    }

    fn estimator(&mut self, process: Process, footprint: Bytes) -> Estimator {
        Estimator::of(calibrate::kept_walk_cost(footprint), self.trials.read(Path::new(TRIALS)), process)
    }

    fn place(&self, process: Process) -> ProcessPlace {
        ProcessPlace::of(&self.root, process.pid)
    }

    fn gauges(&self, process: Process) -> Option<Gauges> {
        Some(Gauges::of_kernel(process.pid))
    }

    fn complete(&self, heat: &mut Heat) {
        populated::complete(&self.root, heat);
    }

    fn smaller_pages(&self, heat: &Heat) -> Option<PageSizes> {
        observe::about_on_smaller_huge_pages(&self.root, heat).ok()
    }

    fn walked_pages(&mut self, process: Process) -> Option<Pages> {
        let target = self.target(process).ok()?;
        self.tracker.walked_pages(&target).ok().flatten()
    }

    fn walked(&mut self, process: Process, each: &mut dyn FnMut(Address, &PageSet)) -> Result<bool, ObserveError> {
        let target = self.target(process)?;
        self.tracker.walked(&target, each)
    }

    fn empty_pages(&mut self, process: Process, regions: &[Address]) -> Vec<Option<u16>> {
        let contents = self.target(process).ok().and_then(|_| Contents::open(&self.root, process.pid).ok());
        match contents {
            Some(mut contents) => regions.iter().map(|&start| contents.empty_pages(start).ok()).collect(),
            None => vec![None; regions.len()],
        }
    }

    fn count_faults(&mut self, processes: &[Process], whose: Whose) {
        self.faults.begin(processes.iter().map(|process| process.pid), whose);
    }

    fn faults(&mut self) -> FaultRates {
        self.faults.end()
    }

    fn watch_waits(&mut self, process: Process) {
        if let Ok(target) = self.target(process) {
            self.waits.watch(&target);
        }
    }

    fn begin_waits(&mut self, process: Process) {
        if let Ok(target) = self.target(process) {
            self.waits.begin(&target);
        }
    }

    fn waited(&mut self) -> Option<f64> {
        self.waits.sample()
    }

    fn end_waits(&mut self) -> Option<Waited> {
        self.waits.end()
    }

    fn collapse(&mut self, process: Process, region: Candidate, stop: &Stop) -> Step {
        self.step(process, |machine, target| {
            let of_guest = target.seems_virtual_machine();
            collapse::collapse(target.handle(), region, of_guest, &mut machine.preparation, machine.processors, stop)
        })
    }

    fn split(&mut self, process: Process, region: Address) -> Step {
        self.step(process, |_, target| collapse::timed_split(target.handle(), region))
    }

    fn collapse_times(&mut self) -> io::Result<CollapseTimes> {
        self.preparation.times()
    }

    fn frees_empty_pages(&mut self) -> Option<bool> {
        frees_empty_pages().ok()
    }

    fn hold_reporting_back(&mut self) -> Option<Held> {
        let held = ReportingHeldBack::begin(&self.root, Path::new(RUN_DIRECTORY))?;
        Some(Box::new(held))
    }

    fn promotions(&self, process: Process) -> Result<Promotions, RecordError> {
        Ok(PromotionRecord::of(process)?.regions)
    }

    fn change_promotions(
        &mut self,
        process: Process,
        change: &mut dyn FnMut(&mut Promotions),
    ) -> Result<(), RecordError> {
        PromotionRecord::update(process, change)
    }
}
