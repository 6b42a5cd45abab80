//! What newcomers wait for, and pay for.
//!
//! Owns: machines with one program. Never touches: seeds.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use heat::units::{Bytes, CpuShare, Nanos, SizeOrShare, Slowdown};
use hugepilot_os::stop::Stop;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Fairness};
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::client::SimulatedClient;
use crate::machine::{Handle, Rights, Simulated};
use crate::program::Program;

/// A client pays for its own lists, and for nothing that the daemon did before.
#[test]
fn it_does_not_pay_for_the_daemons_start() {
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance { max_growth: SizeOrShare::Size(Bytes(0)), ..Allowance::default() },
        max_cpu: CpuShare(0.01),
        max_slowdown: Slowdown::UNASKED,
    };
    let rights = Rights { max_growth: Some(0), growth_share: 0.0, max_huge: None };
    let machine = Rc::new(RefCell::new(Simulated::new(Rng::with_seed(1), rights)));
    let process = machine.borrow_mut().new_process();
    machine.borrow_mut().programs.insert(process, Program::steady(process, 20, Duration::ZERO));
    machine.borrow_mut().untouchable.insert(process);
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let state = SharedState::default();
    let client = SimulatedClient::come(state.clients(), process, 0, false, 0).expect("there is room");
    let rules = Rules { min_size: Bytes(1 << 20), fairness: Fairness::Benefit, give_back: false };
    let mut fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state, &mut pilot);
    machine.borrow_mut().spend(Nanos(1_000_000_000));
    for _ in 0..200 {
        fleet.step(&mut pilot, &mut |_| ());
        client.take();
        let next = pilot.world.now() + Duration::from_millis(100);
        pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
    }
    // A second of CPU time would be two hundred seconds of a client's half of 1 %.
    assert!(client.take() >= 3, "{} lists in 20 s", client.take());
}

#[test]
fn turns_are_short_while_programs_come() {
    let (machine, _) = Simulated::with_one_program(4_000);
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance::default(),
        max_cpu: CpuShare(0.05),
        max_slowdown: Slowdown(0.01),
    };
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let rules = Rules { min_size: Bytes(1 << 20), ..Rules::default() };
    let state = SharedState::default();
    let mut fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state.clone(), &mut pilot);
    let mut longest = Duration::ZERO;
    while machine.borrow().clock < Duration::from_secs(8) {
        let began = machine.borrow().clock;
        fleet.step(&mut pilot, &mut |_| ());
        longest = longest.max(machine.borrow().clock - began);
        let next = pilot.world.now() + Duration::from_millis(250);
        pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
    }
    let promoted = state.state().counts.promoted;
    assert!(promoted > 0 && longest < Duration::from_secs(4), "{promoted} promoted, the longest step took {longest:?}");
}
