//! The machine that a seed makes, and the events on it.
//!
//! Owns: the course of one simulation. Never touches: the truth on the machine, other than by events that happen on real ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fastrand::Rng;
use heat::units::{Bytes, CpuShare, HUGE_PAGE, Nanos, SizeOrShare, Slowdown};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Fairness};
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::client::SimulatedClient;
use crate::machine::{Calls, Handle, Killed, Rights, Simulated};
use crate::program::Program;
use crate::promises;

/// Between two steps of the daemon.
const PAUSE: Duration = Duration::from_millis(250);

/// The kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A dozen programs with ordinary behaviour, and a kernel that refuses.
    Ordinary,
    /// Hundreds or thousands of small programs.
    Crowd,
    /// A few programs that want more than there is, forever.
    Contended,
    /// A server of many processes that share memory.
    Server,
    /// One program that runs for a whole day.
    Lonely,
}

/// How a simulation ended.
pub struct Ended {
    pub kind: Kind,
    pub simulated: Duration,
    pub calls: Calls,
    /// The most programs alive at once.
    pub programs: usize,
    pub broken: Vec<String>,
}

/// A running simulation.
pub struct Run {
    pub kind: Kind,
    pub machine: Rc<RefCell<Simulated>>,
    pub settings: Settings,
    pub rules: Rules,
    pub state: SharedState,
    /// When the engine began, and the CPU time spent by then.
    pub began: (Duration, Nanos),
    rng: Rng,
    clients: BTreeMap<Process, SimulatedClient>,
    answers: Vec<(Process, Receiver<Result<u64, String>>)>,
    length: Duration,
    next_event: Duration,
    most_programs: usize,
    /// Steps of all engines so far.
    pub steps: u64,
    /// Processes that lived when the engine began, and those that were ever started by then.
    pub began_with: (u64, u64),
    /// The largest share of a CPU that the engine was allowed since it began.
    pub largest_share: f64,
}

/// Runs the machine of this seed to its end.
pub fn run(seed: u64) -> Ended {
    let mut run = Run::new(seed);
    while !run.is_over() {
        let lived = catch_unwind(AssertUnwindSafe(|| run.live()));
        match lived {
            Ok(()) => {}
            Err(panic) if panic.is::<Killed>() => {}
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned();
                let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
                run.machine.borrow_mut().break_promise(format!("panic: {}", said.unwrap_or_default()));
            }
        }
    }
    let machine = run.machine.borrow();
    let (simulated, calls, broken) = (machine.clock, machine.calls, machine.broken.clone());
    Ended { kind: run.kind, simulated, calls, programs: run.most_programs, broken }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = match rng.u8(..32) {
            0 => Kind::Crowd,
            1..=3 => Kind::Contended,
            4..=6 => Kind::Server,
            7..=22 => Kind::Lonely,
            _ => Kind::Ordinary,
        };
        let length = match kind {
            Kind::Crowd => 120,
            Kind::Contended => 600,
            Kind::Server => 1_800,
            Kind::Ordinary => 2 * 3_600,
            Kind::Lonely => 24 * 3_600,
        };
        let (settings, rules) = chosen(kind, &mut rng);
        let mut machine = Simulated::new(rng.fork(), rights(&settings));
        machine.splits_free = rng.u8(..4) > 0;
        machine.trouble = if kind == Kind::Contended { 0 } else { [0, 0, 8, 64][rng.usize(..4)] };
        let mut run = Self {
            kind,
            machine: Rc::new(RefCell::new(machine)),
            settings,
            rules,
            state: SharedState::default(),
            began: (Duration::ZERO, Nanos(0)),
            began_with: (0, 0),
            rng,
            clients: BTreeMap::new(),
            answers: Vec::new(),
            length: Duration::from_secs(length),
            next_event: Duration::from_secs(1),
            most_programs: 0,
            steps: 0,
            largest_share: 0.0,
        };
        run.populate();
        run
    }

    fn populate(&mut self) {
        let rng = &mut self.rng;
        let count = match self.kind {
            Kind::Crowd => rng.u64(10..5_000),
            Kind::Contended => rng.u64(2..6),
            Kind::Server => rng.u64(6..40),
            Kind::Ordinary => rng.u64(2..14),
            Kind::Lonely => 1,
        };
        let pieces = rng.u64(8..60);
        let machine = &mut *self.machine.borrow_mut();
        for number in 0..count {
            let (process, now) = (machine.new_process(), machine.clock);
            let program = match self.kind {
                Kind::Crowd => Program::new(process, 12, rng, now),
                Kind::Contended => Program::steady(process, rng.u64(20..80), now),
                Kind::Server if number > 1 => Program::sharing(process, 1000, 77, pieces, rng, now),
                Kind::Ordinary | Kind::Server | Kind::Lonely => Program::new(process, 60, rng, now),
            };
            machine.programs.insert(process, program);
        }
    }

    fn is_over(&self) -> bool {
        let machine = self.machine.borrow();
        machine.clock >= self.length || !machine.broken.is_empty()
    }

    /// A daemon lives until it is killed or the time is up.
    fn live(&mut self) {
        self.begin_anew();
        let mut world = Handle(Rc::clone(&self.machine));
        let mut pilot = Pilot::lasting(&mut world, self.settings, Stop::default());
        let scope = || Scope::new(Vec::new(), Vec::new());
        let mut fleet = Fleet::begin(scope(), self.rules, self.state.clone(), &mut pilot);
        while !self.is_over() {
            fleet.step(&mut pilot, &mut |_| ());
            self.steps += 1;
            promises::check(self);
            let next = pilot.world.now() + self.pause();
            pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
            if self.happens() {
                (self.settings, self.rules) = chosen(self.kind, &mut self.rng);
                self.largest_share = self.largest_share.max(self.settings.max_cpu.0);
                pilot.change(self.settings);
                fleet.change(scope(), self.rules, pilot.world.now());
                self.machine.borrow_mut().rights = rights(&self.settings);
            }
        }
    }

    /// With a single program there is no need to hurry.
    fn pause(&self) -> Duration {
        if self.kind == Kind::Lonely { PAUSE * 8 } else { PAUSE }
    }

    /// Starts a new daemon, which knows the machine and nothing else.
    fn begin_anew(&mut self) {
        self.state = SharedState::default();
        (self.clients, self.answers) = (BTreeMap::new(), Vec::new());
        let machine = &mut *self.machine.borrow_mut();
        machine.untouchable.clear();
        machine.asked_back.clear();
        self.began = (machine.clock, machine.watching_cpu());
        self.began_with = (machine.programs.len() as u64, machine.started);
        self.largest_share = self.settings.max_cpu.0;
        let (now, kills) = (machine.clock, self.kind != Kind::Contended);
        machine.programs.values_mut().for_each(|program| program.observed = now);
        machine.killed_after = kills.then(|| self.rng.u32(1..20_000));
    }

    /// Triggers an event now and then. Returns whether the configuration changes.
    fn happens(&mut self) -> bool {
        self.end_pauses_and_requests();
        let changes = self.event();
        self.note_untouchable();
        changes
    }

    fn event(&mut self) -> bool {
        let clock = self.machine.borrow().clock;
        if clock < self.next_event || self.kind == Kind::Contended {
            return false;
        }
        let most = if self.kind == Kind::Crowd { 2_000 } else { 60_000 };
        self.next_event = clock + Duration::from_millis(self.rng.u64(10..most));
        match self.rng.u8(..16) {
            0..=3 => self.starts(),
            4..=6 => self.ends(),
            7 => self.forks(),
            8 => self.is_paused(),
            9 => self.is_given_back(),
            10 => self.client_comes(),
            11 => self.client_leaves(),
            12 => self.machine.borrow_mut().contiguous = self.rng.u64(..2_000) * u64::from(self.rng.u8(..4) > 0),
            13 => self.machine.borrow_mut().others = self.rng.u64(1..64) << 30,
            14 => self.machine.borrow_mut().others = 4 << 30,
            _ => return true,
        }
        false
    }

    fn any_process(&mut self) -> Option<Process> {
        let machine = self.machine.borrow();
        let count = machine.programs.len();
        (count > 0).then(|| *machine.programs.keys().nth(self.rng.usize(..count)).expect("there are so many"))
    }

    fn starts(&mut self) {
        let machine = &mut *self.machine.borrow_mut();
        let is_full = self.kind == Kind::Lonely && !machine.programs.is_empty() || machine.programs.len() >= 5_000;
        if !is_full {
            let (process, now) = (machine.new_process(), machine.clock);
            machine.programs.insert(process, Program::new(process, 60, &mut self.rng, now));
        }
        self.most_programs = self.most_programs.max(machine.programs.len());
    }

    fn ends(&mut self) {
        if let Some(process) = self.any_process() {
            self.machine.borrow_mut().programs.remove(&process);
            if let Some(client) = self.clients.remove(&process) {
                client.leave();
            }
        }
    }

    fn forks(&mut self) {
        let Some(parent) = self.any_process() else { return };
        let machine = &mut *self.machine.borrow_mut();
        if self.kind == Kind::Lonely || machine.programs.len() >= 5_000 {
            return;
        }
        let (process, now) = (machine.new_process(), machine.clock);
        let mut child = machine.programs[&parent].clone();
        (child.process, child.parent, child.born, child.observed) = (process, parent.pid, now, now);
        // The kernel splits the child's huge pages sooner or later.
        for area in child.areas.values_mut() {
            (area.huge, area.ours, area.growth, area.as_is_since) = (false, false, 0, now);
        }
        machine.programs.insert(process, child);
    }

    fn is_paused(&mut self) {
        if let Some(process) = self.any_process() {
            self.state.pause(Some(process));
            self.machine.borrow_mut().untouchable.insert(process);
        }
    }

    fn is_given_back(&mut self) {
        if let Some(process) = self.any_process() {
            self.machine.borrow_mut().asked_back.insert(process);
            self.answers.extend(self.state.request_give_back(process).map(|answer| (process, answer)));
        }
    }

    fn client_comes(&mut self) {
        let Some(process) = self.any_process() else { return };
        let (uid, stalls, busy) = (self.rng.u32(..4), self.rng.bool(), self.rng.u64(..4));
        if let Some(client) = SimulatedClient::come(self.state.clients(), process, uid, stalls, busy) {
            self.clients.insert(process, client);
            self.machine.borrow_mut().untouchable.insert(process);
        }
    }

    fn client_leaves(&mut self) {
        if let Some((_, client)) = self.clients.pop_first() {
            client.leave();
            drop(client);
        }
    }

    fn end_pauses_and_requests(&mut self) {
        let machine = &mut *self.machine.borrow_mut();
        machine.calls.lists += self.clients.values().map(|client| client.take().min(1)).sum::<u64>();
        let first = machine.untouchable.first().copied();
        if let Some(process) = first.filter(|_| self.rng.u8(..64) == 0) {
            self.state.resume(Some(process));
            machine.asked_back.remove(&process);
        }
        for (process, answer) in std::mem::take(&mut self.answers) {
            // It stays paused, so none of its memory is huge because of us after the answer.
            if answer.try_recv().is_ok() {
                machine.untouchable.insert(process);
            } else {
                self.answers.push((process, answer));
            }
        }
    }

    /// A process that is no longer paused and no longer a client is piloted like others from now on.
    fn note_untouchable(&mut self) {
        let machine = &mut *self.machine.borrow_mut();
        for process in machine.untouchable.clone() {
            if !self.state.is_paused(process) && !self.state.clients().hold(process) {
                machine.untouchable.remove(&process);
                machine.programs.get_mut(&process).into_iter().for_each(|program| program.observed = machine.clock);
            }
        }
    }
}

/// What users of such a machine configure.
fn chosen(kind: Kind, rng: &mut Rng) -> (Settings, Rules) {
    let max_growth =
        if rng.bool() { SizeOrShare::Share(0.01 + rng.f64()) } else { SizeOrShare::Size(Bytes(rng.u64(..256) << 20)) };
    let max_huge =
        (kind == Kind::Contended || rng.u8(..3) == 0).then(|| SizeOrShare::Size(Bytes(rng.u64(8..64) * HUGE_PAGE)));
    let fast = kind == Kind::Contended || rng.bool();
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance { max_growth, max_huge, ..Allowance::default() },
        max_cpu: CpuShare([0.01, 0.02, 0.05][rng.usize(..3)]),
        max_slowdown: if fast { Slowdown::FAST } else { Slowdown::UNASKED },
    };
    let fairness = if kind == Kind::Contended || rng.bool() { Fairness::Share } else { Fairness::Benefit };
    let rules = Rules { min_size: Bytes(1 << 20), fairness, give_back: rng.u8(..4) > 0 };
    (settings, rules)
}

fn rights(settings: &Settings) -> Rights {
    let size = |allowed: SizeOrShare| if let SizeOrShare::Size(size) = allowed { Some(size.0) } else { None };
    let Allowance { max_growth, max_huge, .. } = settings.allowance;
    let growth_share = if let SizeOrShare::Share(share) = max_growth { share } else { 0.0 };
    Rights { max_growth: size(max_growth), growth_share, max_huge: max_huge.and_then(size) }
}
