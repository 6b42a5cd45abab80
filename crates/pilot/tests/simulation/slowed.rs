//! What makes promoting slow, as the state tells it.
//!
//! Owns: this one machine. Never touches: seeds.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use heat::units::{Bytes, CpuShare, Nanos, Slowdown};
use hugepilot_os::stop::Stop;
use observe::ObserveOptions;
use pilot::decide::Allowance;
use pilot::engine::shared_state::{SharedState, SlowedBy};
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::machine::{Handle, Rights, Simulated};
use crate::program::Program;

/// Two steps in a turn of ten seconds.
const CAREFUL: Slowdown = Slowdown(4e-4);

/// What is told within five minutes on a machine whose programs wait this much longer, after this much CPU time was spent.
fn told(max_slowdown: Slowdown, waits: f64, spent: Nanos) -> HashSet<String> {
    let rights = Rights { max_growth: None, growth_share: 1.0, max_huge: None };
    let machine = Rc::new(RefCell::new(Simulated::new(Rng::with_seed(1), rights)));
    let process = machine.borrow_mut().new_process();
    machine.borrow_mut().programs.insert(process, Program::steady(process, 20, Duration::ZERO));
    machine.borrow_mut().waits = Some(waits);
    let (watch, allowance) = (ObserveOptions::default(), Allowance::default());
    let settings = Settings { watch, allowance, max_cpu: CpuShare(0.05), max_slowdown };
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let rules = Rules { min_size: Bytes(1 << 20), ..Rules::default() };
    let state = SharedState::default();
    let mut fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state.clone(), &mut pilot);
    machine.borrow_mut().spend(spent);
    let mut told = HashSet::new();
    while machine.borrow().clock < Duration::from_secs(300) {
        fleet.step(&mut pilot, &mut |_| ());
        told.extend(state.state().slowed_by.into_iter().map(|limit| format!("{limit:?}")));
        let next = pilot.world.now() + Duration::from_millis(250);
        pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
    }
    assert!(state.state().counts.promoted > 0);
    told
}

#[test]
fn the_limit_that_slows_promoting_is_told() {
    let only = |limit: SlowedBy| HashSet::from([format!("{limit:?}")]);
    assert_eq!(told(Slowdown::FAST, 0.0, Nanos(0)), HashSet::new(), "all is promoted in a turn");
    assert_eq!(told(CAREFUL, 0.0, Nanos(0)), only(SlowedBy::MaxSlowdown));
    assert!(told(CAREFUL, 0.5, Nanos(0)).contains("BusyPrograms"));
    assert_eq!(told(Slowdown::FAST, 0.0, Nanos(20_000_000_000)), only(SlowedBy::MaxCpu));
}
