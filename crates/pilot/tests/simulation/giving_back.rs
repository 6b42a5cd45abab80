//! Giving back on request: what the requester is told, and what the state says then.
//!
//! Owns: this one machine. Never touches: seeds.

use std::rc::Rc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use heat::samples::at;
use heat::units::{Bytes, CpuShare, Slowdown};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Reason};
use pilot::engine::shared_state::{DecisionResult, SharedState, TargetState};
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;
use pilot::world::Promoted;

use crate::machine::{Handle, Simulated};

const REGIONS: u64 = 20;

/// One program, piloted by a fast fleet, and what happens to it.
struct Course<'a> {
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

    fn promote(&mut self) {
        for _ in 0..2_000 {
            self.step();
            if self.state.state().targets.first().is_some_and(|target| target.promoted_bytes > Bytes(0)) {
                return;
            }
        }
        panic!("nothing is promoted: {:?}", self.state.state());
    }

    fn give_back(&mut self) -> Result<u64, String> {
        let answer = self.state.request_give_back(self.process).expect("room for a request");
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        self.step();
        answer.try_recv().expect("each step answers requests")
    }
}

fn with_a_program(test: impl FnOnce(&mut Course<'_>)) {
    let (machine, process) = Simulated::with_one_program(REGIONS);
    machine.borrow_mut().asked_back.insert(process);
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance::default(),
        max_cpu: CpuShare(0.05),
        max_slowdown: Slowdown::FAST,
    };
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let rules = Rules { min_size: Bytes(1 << 20), ..Rules::default() };
    let state = SharedState::default();
    let fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state.clone(), &mut pilot);
    test(&mut Course { fleet, pilot, state, process });
    assert_eq!(machine.borrow().broken, [""; 0]);
}

#[test]
fn who_asks_twice_is_told_that_nothing_is_left() {
    with_a_program(|course| {
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
    with_a_program(|course| {
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
