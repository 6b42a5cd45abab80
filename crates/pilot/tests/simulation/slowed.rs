//! What makes promoting slow, as the state tells it.
//!
//! Owns: this one machine. Never touches: seeds.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use heat::units::{Bytes, CpuShare, Nanos, Slowdown};
use hugepilot_os::stop::Stop;
use observe::ObserveOptions;
use pilot::decide::Allowance;
use pilot::engine::shared_state::{SharedState, SlowedBy};
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::machine::{Handle, Simulated};

/// Two steps in a turn of ten seconds.
const CAREFUL: Slowdown = Slowdown(4e-4);

/// What is told within five minutes of a program of so many regions, on a machine whose programs wait this much longer, after this much CPU time was
/// spent.
fn told(regions: u64, max_slowdown: Slowdown, waits: f64, spent: Nanos) -> HashSet<String> {
    let (machine, _) = Simulated::with_one_program(regions);
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
    for regions in [20, 4_000] {
        let told = told(regions, Slowdown::FAST, 0.0, Nanos(0));
        assert_eq!(told, HashSet::new(), "{regions} are promoted as fast as they can be");
    }
    assert_eq!(told(20, CAREFUL, 0.0, Nanos(0)), only(SlowedBy::MaxSlowdown));
    assert!(told(20, CAREFUL, 0.5, Nanos(0)).contains("BusyPrograms"));
    assert_eq!(told(20, Slowdown::FAST, 0.0, Nanos(20_000_000_000)), only(SlowedBy::MaxCpu));
}
