//! Giving back on request: what the requester is told, and what the state says then.
//!
//! Owns: this one machine. Never touches: seeds.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use heat::samples::at;
use heat::units::{Bytes, CpuShare, HUGE_PAGE, SizeOrShare, Slowdown};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Reason};
use pilot::engine::shared_state::{DecisionResult, SharedState, TargetState};
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;
use pilot::world::Promoted;

use crate::machine::{Handle, Simulated};
use crate::program::Area;

const REGIONS: u64 = 20;

/// One program, piloted by a fast fleet, and what happens to it.
struct Course<'a> {
    machine: Rc<RefCell<Simulated>>,
    fleet: Fleet,
    pilot: Pilot<'a>,
    state: SharedState,
    process: Process,
}

impl Course<'_> {
    fn step(&mut self) {
        self.fleet.step(&mut self.pilot, &mut |_| ());
        let next = self.pilot.world.now() + Duration::from_millis(250);
        self.pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
    }

    fn target(&self) -> TargetState {
        self.state.state().targets.into_iter().next().expect("a target")
    }

    fn run_until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            self.step();
            if !self.state.state().targets.is_empty() && is_true(self) {
                return;
            }
        }
        panic!("waited in vain until {what}: {:?}", self.state.state());
    }

    fn promote(&mut self) {
        self.run_until("something is promoted", |course| course.target().promoted_bytes > Bytes(0));
    }

    fn give_back(&mut self) -> Result<u64, String> {
        let answer = self.state.request_give_back(self.process).expect("room for a request");
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        self.step();
        answer.try_recv().expect("each step answers requests")
    }
}

fn with_a_program(regions: u64, test: impl FnOnce(&mut Course<'_>)) {
    let (machine, process) = Simulated::with_one_program(regions);
    machine.borrow_mut().asked_back.insert(process);
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance { max_growth: SizeOrShare::Size(Bytes(8 << 30)), ..Allowance::default() },
        max_cpu: CpuShare(0.05),
        max_slowdown: Slowdown::FAST,
    };
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let rules = Rules { min_size: Bytes(1 << 20), ..Rules::default() };
    let state = SharedState::default();
    let fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state.clone(), &mut pilot);
    test(&mut Course { machine: Rc::clone(&machine), fleet, pilot, state, process });
    assert_eq!(machine.borrow().broken, [""; 0]);
}

#[test]
fn waste_of_gigabytes_is_given_back_within_minutes() {
    let regions = 2_560;
    with_a_program(regions, |course| {
        let change = |course: &Course<'_>, each: &dyn Fn(&mut Area)| {
            let machine = &mut *course.machine.borrow_mut();
            let now = machine.clock;
            let areas = machine.programs.get_mut(&course.process).expect("it runs").areas.values_mut();
            areas.for_each(|area| {
                each(area);
                area.as_is_since = now;
            });
        };
        let huge = |course: &Course<'_>| course.target().huge_bytes;
        change(course, &|area| area.present = 64);
        course.run_until("most of it is promoted", |course| huge(course) > Bytes(regions * HUGE_PAGE).share(0.9));
        change(course, &|area| area.walks = 0.0);
        let idle_since = course.machine.borrow().clock;
        course.run_until("all of it is given back", |course| huge(course) == Bytes(0));
        let took = course.machine.borrow().clock - idle_since;
        assert!(took < Duration::from_secs(300), "{took:?}");
    });
}

#[test]
fn who_asks_twice_is_told_that_nothing_is_left() {
    with_a_program(REGIONS, |course| {
        course.promote();
        // A region that was planned, and never moved.
        let planned = (at(999), Promoted::default());
        let process = course.process;
        course.pilot.world.change_promotions(process, &mut |record| record.extend([planned])).expect("it is in memory");
        assert_eq!(course.give_back(), Ok(REGIONS));
        assert_eq!(course.give_back(), Ok(0));
    });
}

#[test]
fn what_is_given_back_is_no_longer_told_to_be_huge() {
    with_a_program(REGIONS, |course| {
        course.promote();
        // The next plan finds all of it on huge pages.
        (0..400).for_each(|_| course.step());
        assert!(!course.target().reasons.is_empty() && course.target().walks_per_second.is_some());
        assert!(course.target().walks_per_second_before.is_some());
        assert_eq!(course.give_back(), Ok(REGIONS));
        let told = course.target();
        assert_eq!(told.walks_per_second_before, None, "nothing is promoted that it was before");
        assert!(told.paused && told.huge_bytes == Bytes(0) && told.promoted_bytes == Bytes(0), "{told:?}");
        let last = told.last_decisions.last().expect("it is among them");
        assert_eq!((last.done, last.reason), (DecisionResult::GivenBack, Reason::Requested));
        assert!(told.reasons.is_empty() && told.mostly_kept.is_none(), "{:?} of the last plan", told.reasons);
        assert_eq!(told.walks_per_second, None, "as it walked on huge pages");
        course.state.resume(Some(course.process));
        course.promote();
        assert!(course.target().walks_per_second_before.is_some());
        assert_eq!(course.give_back(), Ok(REGIONS), "it was promoted anew");
    });
}
