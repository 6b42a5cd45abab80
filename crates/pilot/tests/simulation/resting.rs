//! Programs whose plans are unfinished while the engine rests for longer than a turn: what is left of a plan costs nothing meanwhile.
//!
//! Owns: this one machine. Never touches: seeds.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use heat::units::{Bytes, CpuShare, SizeOrShare, Slowdown};
use hugepilot_os::stop::Stop;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Fairness};
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::machine::{Handle, Rights, Simulated};
use crate::program::Program;

const PROGRAMS: u64 = 40;
/// A step of 0.8 ms is followed by 40 s of rest; a turn lasts ten.
const CAREFUL: Slowdown = Slowdown(2e-5);

#[test]
fn unfinished_plans_leave_the_cpu_time_to_scans() {
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance { max_growth: SizeOrShare::Size(Bytes(0)), ..Allowance::default() },
        max_cpu: CpuShare(0.01),
        max_slowdown: CAREFUL,
    };
    let rights = Rights { max_growth: Some(0), growth_share: 0.0, max_huge: None };
    let machine = Rc::new(RefCell::new(Simulated::new(Rng::with_seed(1), rights)));
    for _ in 0..PROGRAMS {
        let process = machine.borrow_mut().new_process();
        machine.borrow_mut().programs.insert(process, Program::steady(process, 20, Duration::ZERO));
    }
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let rules = Rules { min_size: Bytes(1 << 20), fairness: Fairness::Benefit, give_back: false };
    let mut fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, SharedState::default(), &mut pilot);
    while machine.borrow().clock < Duration::from_secs(600) {
        fleet.step(&mut pilot, &mut |_| ());
        let next = pilot.world.now() + Duration::from_millis(250);
        pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
    }
    let machine = machine.borrow();
    assert!(machine.calls.collapsed < 2 * PROGRAMS, "{:?}: starved: the plans are to stay unfinished", machine.calls);
    let starved = machine.programs.values().filter(|program| program.observed < Duration::from_secs(420)).count();
    assert_eq!(starved, 0, "starved, of {PROGRAMS}: {:?}", machine.calls);
}
