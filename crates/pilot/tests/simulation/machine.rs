//! A simulated machine: time, programs, and a kernel that refuses.
//!
//! Owns: the ground truth, and the checks that need only a single call. Never touches: the engine's memory; what outlives the engine is on
//! "disk" here.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use heat::units::{Address, Bytes, HUGE_PAGE, Nanos, Pages};
use heat::{Heat, MemoryState, PageSet, PageSizes, TrackerKind, WalkCost};
use hugepilot_os::stop::{Stop, Stopped};
use kernel::KernelError;
use kernel::group_memory::GroupMemory;
use kernel::probe::CollapseTimes;
use kernel::process::{FamilyUsage, ProcessStatus};
use kernel::target::{Process, TargetError};
use launch::manager::MemoryManager;
use observe::{FaultRates, ObserveError, ObserveOptions, Waited, Whose};
use pilot::decide::OwnPressure;
use pilot::forecast::{Estimator, Gauges};
use pilot::programs::ProcessPlace;
use pilot::scope::{Enrolled, Scope};
use pilot::world::{Candidate, Held, Promotions, RecordError, Step, World};

use crate::program::{PAGES, Program};

/// The daemon is killed and forgets everything.
pub struct Killed;

/// CPU time of one call.
const STATUS: Nanos = Nanos(3_000);
const SURVEY: Nanos = Nanos(300_000);
const OBSERVE: Nanos = Nanos(20_000_000);
const OF_A_REGION: Nanos = Nanos(2_000);
const COLLAPSE: Nanos = Nanos(800_000);
const SPLIT: Nanos = Nanos(300_000);

/// What may be promoted, and the limits.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// Limit on the growth of all programs together in bytes; None if the limit is a share of each.
    pub max_growth: Option<u64>,
    /// The share of its resident memory by which each process may grow, if that is the limit.
    pub growth_share: f64,
    /// Limit on memory on huge pages of all programs together, in bytes.
    pub max_huge: Option<u64>,
}

/// The ground truth.
pub struct Simulated {
    base: Instant,
    /// Time since it began.
    pub clock: Duration,
    pub rng: Rng,
    pub programs: BTreeMap<Process, Program>,
    /// The records of promotions, which outlive the daemon.
    records: BTreeMap<Process, Promotions>,
    pub total: u64,
    /// Memory of other programs.
    pub others: u64,
    /// Free huge pages available without compaction.
    pub contiguous: u64,
    pub splits_free: bool,
    /// When the engine last saw that memory is short.
    short_at: Cell<Option<Duration>>,
    pub rights: Rights,
    /// Processes that must not be touched: paused ones, and clients.
    pub untouchable: BTreeSet<Process>,
    /// Processes whose memory may be given back whatever they do, because somebody requested it.
    pub asked_back: BTreeSet<Process>,
    cpu: Nanos,
    /// Of it, the time for collapses and splits.
    pub acting: Nanos,
    /// Calls until the daemon is killed.
    pub killed_after: Option<u32>,
    /// The share of calls that fail, 0 to 255.
    pub trouble: u8,
    pub broken: Vec<String>,
    /// How much longer programs wait than on their own; None if that is random.
    pub waits: Option<f64>,
    pub calls: Calls,
    /// Processes that were ever started.
    pub started: u64,
    next_pid: u32,
}

/// The machine as the engine sees it; the simulation, which triggers events, shares it.
pub struct Handle(pub Rc<RefCell<Simulated>>);

/// Which calls were made, so a simulation in which nothing happens is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    pub observed: u64,
    pub collapsed: u64,
    pub refused: u64,
    pub split: u64,
    pub killed: u64,
    pub lists: u64,
}

impl Simulated {
    /// With one program of so many regions, which grows within no limit.
    pub fn with_one_program(regions: u64) -> (Rc<RefCell<Self>>, Process) {
        let rights = Rights { max_growth: None, growth_share: f64::INFINITY, max_huge: None };
        let mut machine = Self::new(Rng::with_seed(1), rights);
        let process = machine.new_process();
        machine.programs.insert(process, Program::steady(process, regions, Duration::ZERO));
        (Rc::new(RefCell::new(machine)), process)
    }

    pub fn new(rng: Rng, rights: Rights) -> Self {
        Self {
            base: Instant::now(),
            clock: Duration::ZERO,
            rng,
            programs: BTreeMap::new(),
            records: BTreeMap::new(),
            total: 64 << 30,
            others: 4 << 30,
            contiguous: 1 << 14,
            splits_free: true,
            short_at: Cell::new(None),
            rights,
            untouchable: BTreeSet::new(),
            asked_back: BTreeSet::new(),
            cpu: Nanos(0),
            acting: Nanos(0),
            killed_after: None,
            trouble: 0,
            broken: Vec::new(),
            waits: None,
            calls: Calls::default(),
            started: 0,
            next_pid: 1000,
        }
    }

    /// A new process; now and then with the id of one that has ended.
    pub fn new_process(&mut self) -> Process {
        let reuses = self.rng.u8(..4) == 0;
        let pid = if reuses { self.rng.u32(1000..=self.next_pid) } else { self.next_pid + 1 };
        let taken = self.programs.keys().any(|process| process.pid == pid);
        let pid = if taken { self.next_pid + 1 } else { pid };
        self.next_pid = self.next_pid.max(pid);
        self.started += 1;
        Process { pid, start_ticks: self.clock.as_millis() as u64 / 10 + u64::from(pid) }
    }

    /// CPU time of everything except actions.
    pub fn watching_cpu(&self) -> Nanos {
        Nanos(self.cpu.0 - self.acting.0)
    }

    /// Lets time pass and programs change.
    pub fn pass(&mut self, time: Duration) {
        self.clock += time;
        let Self { programs, rng, clock, .. } = self;
        for program in programs.values_mut().filter(|program| program.next_change <= *clock) {
            program.change(rng, *clock);
        }
    }

    pub fn break_promise(&mut self, promise: String) {
        if self.broken.len() < 10 {
            self.broken.push(format!("after {:.1?}: {promise}", self.clock));
        }
    }

    /// The engine takes CPU time.
    pub fn spend(&mut self, cpu: Nanos) {
        self.cpu += cpu;
    }

    /// The engine may be killed before or after any call that changes something.
    fn may_be_killed(&mut self) {
        if let Some(left) = &mut self.killed_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.killed_after = None;
                self.calls.killed += 1;
                std::panic::resume_unwind(Box::new(Killed));
            }
        }
    }

    fn fails(&mut self) -> bool {
        self.rng.u8(..) < self.trouble
    }

    fn used(&self) -> u64 {
        self.others + self.programs.values().map(Program::rss).sum::<u64>()
    }

    /// Memory of all programs that is on huge pages because of us.
    pub fn held(&self) -> u64 {
        let private = self.programs.values().filter(|program| program.object.is_none()).map(Program::held).sum::<u64>();
        // There is only one object; a piece of it is one huge page, however many processes map it.
        let sharing = self.programs.values().filter(|program| program.object.is_some());
        let pieces: BTreeSet<u64> = sharing.flat_map(Program::held_areas).collect();
        (private + pieces.len() as u64) * HUGE_PAGE
    }

    /// Whether a process has this piece of the object on a huge page already, so others need only map it.
    fn is_huge_elsewhere(&mut self, object: Option<u64>, start: Address) -> bool {
        let mut sharing = self.programs.values_mut().filter(|program| object.is_some() && program.object == object);
        sharing.any(|program| program.area_at(start).is_some_and(|area| area.huge))
    }

    fn refusal(&mut self, process: Process, start: Address) -> Option<i32> {
        if self.contiguous == 0 {
            return Some(libc::ENOMEM);
        }
        if self.fails() {
            let answers = [libc::EINVAL, libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EPERM, libc::EIO];
            return Some(answers[self.rng.usize(..answers.len())]);
        }
        let Some(program) = self.programs.get_mut(&process) else { return Some(libc::ESRCH) };
        let off = program.huge_pages_off;
        match program.area_at(start) {
            Some(area) if area.obstacle.is_none() && !off => None,
            _ => Some(libc::EINVAL),
        }
    }

    /// What must hold before a region is promoted.
    fn check_collapse(&mut self, process: Process, start: Address) {
        if !self.records.get(&process).is_some_and(|record| record.contains_key(&start)) {
            self.break_promise(format!("record: {process:?} {start} is promoted, and not on record"));
        }
        if self.untouchable.contains(&process) {
            self.break_promise(format!("forbidden: {process:?}, which is paused or a client, is promoted"));
        }
        let Some(program) = self.programs.get_mut(&process) else { return };
        let (seen_at, off) = (program.observed, program.huge_pages_off && program.next_change > Duration::MAX);
        let forbidden =
            program.area_at(start).is_some_and(|area| area.obstacle.is_some() && area.as_is_since < seen_at);
        if forbidden || off {
            self.break_promise(format!("forbidden: {process:?} {start} has an obstacle that could be seen"));
        }
    }

    /// What must hold afterwards.
    fn check_limits(&mut self, process: Process, grew: bool, held_before: u64) {
        let Rights { max_growth, growth_share, max_huge } = self.rights;
        let held = self.held();
        if let Some(max) = max_huge.filter(|&max| held > max && held > held_before) {
            self.break_promise(format!("limit: {held} bytes are huge by us, of {max}"));
        }
        if !grew {
            return;
        }
        let program = &self.programs[&process];
        let (grown, allowed) = match max_growth {
            Some(max) => (self.programs.values().map(Program::grown).sum(), max),
            None => (program.grown(), (program.rss_at_scan as f64 * growth_share) as u64),
        };
        if grown > allowed {
            self.break_promise(format!("limit: memory grew by {grown} bytes, of {allowed}, with {process:?}"));
        }
    }

    /// What must hold before a huge page is split.
    fn check_split(&mut self, process: Process, start: Address) {
        if self.asked_back.contains(&process) || self.rights.max_huge.is_some() || self.was_short() {
            return;
        }
        if self.untouchable.contains(&process) {
            self.break_promise(format!("forbidden: {process:?}, which is paused or a client, is given back"));
        }
        let Some(program) = self.programs.get_mut(&process) else { return };
        let observed = program.observed;
        let Some(area) = program.area_at(start) else { return };
        if area.walks > 0.0 && area.as_is_since < observed {
            let walks = area.walks;
            self.break_promise(format!("in use: {process:?} {start} with {walks} walks a second is given back"));
        }
    }

    /// Whether the engine saw recently that memory is short.
    fn was_short(&self) -> bool {
        self.short_at.get().is_some_and(|at| self.clock - at < Duration::from_secs(15))
    }

    fn is_short(&self) -> bool {
        let state = MemoryState { total: Bytes(self.total), available: self.available(), pressure: None };
        state.shortage().is_some()
    }

    fn available(&self) -> Bytes {
        Bytes(self.total.saturating_sub(self.used()))
    }

    fn gone(process: Process) -> TargetError {
        TargetError::NoSuchProcess { pid: process.pid }
    }
}

fn step(result: io::Result<()>, took: Nanos) -> Step {
    Step { result, took, held_up: took, preparing: Nanos(0), prepared_on: None }
}

impl World for Handle {
    fn now(&self) -> Instant {
        let machine = &*self.0.borrow();
        machine.base + machine.clock
    }

    fn cpu_time(&self) -> Nanos {
        let machine = &*self.0.borrow();
        machine.cpu
    }

    fn sleep_until(&mut self, at: Instant, stop: &Stop) -> Result<(), Stopped> {
        let machine = &mut *self.0.borrow_mut();
        stop.check()?;
        machine.pass(at.saturating_duration_since(machine.base + machine.clock));
        Ok(())
    }

    fn memory(&self, own: OwnPressure) -> Option<MemoryState> {
        let machine = &*self.0.borrow();
        if machine.is_short() {
            machine.short_at.set(Some(machine.clock));
        }
        let pressure = Some(own.leave_out(0.0));
        Some(MemoryState { total: Bytes(machine.total), available: machine.available(), pressure })
    }

    fn group_memory(&self, _: Process) -> Option<GroupMemory> {
        None
    }

    fn processors(&self) -> u64 {
        2
    }

    fn census(&mut self, _: &mut Scope) -> Vec<Enrolled> {
        let machine = &mut *self.0.borrow_mut();
        machine.spend(Nanos(machine.programs.len() as u64 * STATUS.0));
        let enrolled = |program: &Program| Enrolled {
            process: program.process,
            weight: 1.0,
            mode: program.mode(),
            assigned: None,
        };
        machine.programs.values().map(enrolled).collect()
    }

    fn status(&self, process: Process) -> Option<ProcessStatus> {
        let machine = &*self.0.borrow();
        machine.programs.get(&process).map(Program::status)
    }

    fn minor_faults(&self, _: Process) -> Option<u64> {
        None
    }

    fn linked_in(&self, process: Process) -> BTreeSet<MemoryManager> {
        self.0.borrow().programs.get(&process).map(|program| program.linked_in.clone()).unwrap_or_default()
    }

    fn descendants(&self, process: Process) -> Result<Vec<Process>, KernelError> {
        let machine = &mut *self.0.borrow_mut();
        let children = machine.programs.values().filter(|program| program.parent == process.pid);
        Ok(children.map(|program| program.process).collect())
    }

    fn family_usage(&self, _: Process) -> Result<FamilyUsage, KernelError> {
        Ok(FamilyUsage::default())
    }

    fn lives(&self, process: Process) -> bool {
        let machine = &*self.0.borrow();
        machine.programs.contains_key(&process)
    }

    fn work_for(&mut self, process: Option<Process>) -> Result<(), TargetError> {
        let machine = &mut *self.0.borrow_mut();
        let Some(process) = process else { return Ok(()) };
        let program = machine.programs.get_mut(&process).ok_or_else(|| Simulated::gone(process))?;
        if program.huge_pages_off {
            program.observed = machine.clock;
            return Err(TargetError::HugePagesOff { pid: process.pid, name: program.name.clone() });
        }
        Ok(())
    }

    fn tracker(&self) -> TrackerKind {
        TrackerKind::PageWalk
    }

    fn observe(&mut self, process: Process, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let machine = &mut *self.0.borrow_mut();
        stop.check()?;
        let window = options.window;
        machine.pass(window.duration());
        let (clock, fails) = (machine.clock, machine.fails());
        let program = machine.programs.get_mut(&process).ok_or_else(|| Simulated::gone(process))?;
        program.observed = clock;
        program.rss_at_scan = program.rss();
        let heat = program.heat(options.tell_use_of_huge, window);
        machine.spend(OBSERVE + Nanos(heat.regions.len() as u64 * OF_A_REGION.0));
        machine.calls.observed += 1;
        if heat.regions.len() > options.most_regions {
            return Err(ObserveError::TooManyRegions { pid: process.pid, most: options.most_regions });
        }
        if fails { Err(ObserveError::Exec { pid: process.pid }) } else { Ok(heat) }
    }

    fn survey(&mut self, process: Process) -> Result<Heat, ObserveError> {
        let machine = &mut *self.0.borrow_mut();
        let program = machine.programs.get(&process).ok_or_else(|| Simulated::gone(process))?;
        let mut heat = program.heat(false, Nanos(0));
        heat.regions.iter_mut().for_each(|region| region.walks_per_second = 0.0);
        machine.spend(SURVEY);
        Ok(heat)
    }

    fn survey_growth(&mut self, process: Process) -> Result<Heat, ObserveError> {
        let heat = self.survey(process)?;
        let machine = &mut *self.0.borrow_mut();
        let (clock, fails) = (machine.clock, machine.fails());
        let program = machine.programs.get_mut(&process).ok_or_else(|| Simulated::gone(process))?;
        (program.observed, program.rss_at_scan) = (clock, program.rss());
        if fails { Err(ObserveError::Exec { pid: process.pid }) } else { Ok(heat) }
    }

    fn estimator(&mut self, _process: Process, _footprint: Bytes) -> Estimator {
        Estimator::of_model(WalkCost::UNCALIBRATED)
    }

    fn place(&self, _: Process) -> ProcessPlace {
        ProcessPlace::default()
    }

    fn gauges(&self, _: Process) -> Option<Gauges> {
        None
    }

    fn complete(&self, _: &mut Heat) {}

    fn smaller_pages(&self, _: &Heat) -> Option<PageSizes> {
        None
    }

    fn walked_pages(&mut self, process: Process) -> Option<Pages> {
        let machine = &mut *self.0.borrow_mut();
        let pages = machine.programs.get(&process)?.areas.values().filter(|area| !area.huge && area.walks > 0.0);
        let pages = pages.map(|area| u64::from(area.present)).sum();
        machine.spend(SURVEY);
        Some(Pages(pages))
    }

    fn walked(&mut self, process: Process, each: &mut dyn FnMut(Address, &PageSet)) -> Result<bool, ObserveError> {
        let machine = &mut *self.0.borrow_mut();
        machine.spend(SURVEY);
        let program = machine.programs.get(&process).ok_or_else(|| Simulated::gone(process))?;
        let heat = program.heat(false, Nanos(0));
        heat.regions.iter().for_each(|region| each(region.start, &region.walked));
        Ok(true)
    }

    fn empty_pages(&mut self, process: Process, regions: &[Address]) -> Vec<Option<u16>> {
        let machine = &mut *self.0.borrow_mut();
        machine.spend(Nanos(regions.len() as u64 * SURVEY.0));
        let Some(program) = machine.programs.get_mut(&process) else { return vec![None; regions.len()] };
        regions.iter().map(|&start| program.area_at(start).map(|area| area.empty)).collect()
    }

    fn count_faults(&mut self, _: &[Process], _: Whose) {}

    fn faults(&mut self) -> FaultRates {
        FaultRates::new()
    }

    fn watch_waits(&mut self, _: Process) {}

    fn begin_waits(&mut self, _: Process) {}

    fn waited(&mut self) -> Option<f64> {
        let machine = &mut *self.0.borrow_mut();
        let by_chance = (machine.rng.u8(..8) == 0).then(|| machine.rng.f64() * 0.3);
        machine.waits.or(by_chance)
    }

    fn end_waits(&mut self) -> Option<Waited> {
        None
    }

    fn collapse(&mut self, process: Process, region: Candidate, _: &Stop) -> Step {
        let machine = &mut *self.0.borrow_mut();
        machine.may_be_killed();
        let stalls = machine.rng.u8(..) < machine.trouble / 8;
        let took = if stalls { Nanos(COLLAPSE.0 * 100) } else { COLLAPSE };
        machine.check_collapse(process, region.start);
        machine.pass(took.duration());
        (machine.cpu, machine.acting) = (machine.cpu + took, machine.acting + took);
        if let Some(errno) = machine.refusal(process, region.start) {
            machine.calls.refused += 1;
            return step(Err(io::Error::from_raw_os_error(errno)), took);
        }
        machine.contiguous -= 1;
        let held_before = machine.held();
        let program = machine.programs.get_mut(&process).expect("it was not refused");
        let (object, observed) = (program.object, program.observed);
        let is_mapped_only = machine.is_huge_elsewhere(object, region.start);
        let program = machine.programs.get_mut(&process).expect("it was not refused");
        let area = program.area_at(region.start).expect("it was not refused");
        let grew = PAGES - area.present;
        // Changes since the last observation cannot be known.
        let is_known = area.as_is_since < observed;
        (area.ours, area.growth) = (
            area.ours || !area.huge && !is_mapped_only,
            if area.huge {
                area.growth
            } else if is_known {
                grew
            } else {
                0
            },
        );
        (area.huge, area.present, area.empty) = (true, PAGES, area.empty + grew);
        machine.calls.collapsed += 1;
        // Other processes that map the object touch its pages again, and map them huge.
        for other in machine.programs.values_mut().filter(|other| object.is_some() && other.object == object) {
            other.area_at(region.start).into_iter().for_each(|area| area.huge = true);
        }
        machine.check_limits(process, is_known && grew > 0, held_before);
        machine.may_be_killed();
        step(Ok(()), took)
    }

    fn split(&mut self, process: Process, start: Address) -> Step {
        let machine = &mut *self.0.borrow_mut();
        machine.may_be_killed();
        machine.check_split(process, start);
        machine.pass(SPLIT.duration());
        (machine.cpu, machine.acting) = (machine.cpu + SPLIT, machine.acting + SPLIT);
        let (fails, frees) = (machine.fails(), machine.splits_free);
        let Some(area) = machine.programs.get_mut(&process).and_then(|program| program.area_at(start)) else {
            return step(Err(io::Error::from_raw_os_error(libc::ESRCH)), SPLIT);
        };
        if fails || !area.huge {
            return step(Err(io::Error::from_raw_os_error(libc::EINVAL)), SPLIT);
        }
        (area.huge, area.ours, area.growth) = (false, false, 0);
        if frees {
            (area.present, area.empty) = (area.present - area.empty, 0);
        }
        machine.contiguous += u64::from(machine.rng.bool());
        machine.calls.split += 1;
        machine.may_be_killed();
        step(Ok(()), SPLIT)
    }

    fn collapse_times(&mut self) -> io::Result<CollapseTimes> {
        Ok(CollapseTimes { prepared: COLLAPSE, unprepared: COLLAPSE, preparing: Nanos(0) })
    }

    fn frees_empty_pages(&mut self) -> Option<bool> {
        let machine = &mut *self.0.borrow_mut();
        Some(machine.splits_free)
    }

    fn hold_reporting_back(&mut self) -> Option<Held> {
        None
    }

    fn promotions(&self, process: Process) -> Result<Promotions, RecordError> {
        let machine = &mut *self.0.borrow_mut();
        Ok(machine.records.get(&process).cloned().unwrap_or_default())
    }

    fn change_promotions(
        &mut self,
        process: Process,
        change: &mut dyn FnMut(&mut Promotions),
    ) -> Result<(), RecordError> {
        let machine = &mut *self.0.borrow_mut();
        machine.may_be_killed();
        change(machine.records.entry(process).or_default());
        machine.records.retain(|process, record| !record.is_empty() && machine.programs.contains_key(process));
        machine.may_be_killed();
        Ok(())
    }
}
