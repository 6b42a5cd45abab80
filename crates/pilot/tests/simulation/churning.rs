//! A program whose allocator splits huge pages again: little of the work is for nothing.
//!
//! Owns: this one machine. Never touches: seeds.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use heat::units::{Bytes, CpuShare, SizeOrShare, Slowdown};
use hugepilot_os::stop::Stop;
use launch::manager::MemoryManager;
use observe::ObserveOptions;
use pilot::decide::{Allowance, Fairness, Reason};
use pilot::engine::shared_state::SharedState;
use pilot::engine::{Fleet, Pilot, Rules, Settings};
use pilot::scope::Scope;

use crate::machine::{Handle, Rights, Simulated};
use crate::program::Program;

const REGIONS: u64 = 400;
const MINUTES: u64 = 60;

/// How the time with it ended.
#[derive(Debug)]
struct Ended {
    /// Regions put on huge pages, and those of them that the program split.
    promoted: u64,
    lost: u64,
    held: u64,
    left_alone: bool,
}

/// An hour of a program that splits so many of its huge pages each minute, here and there.
fn an_hour(split_each_minute: usize) -> Ended {
    after(MINUTES, split_each_minute, BTreeSet::new())
}

/// So many minutes of it, with these allocators in its own file.
fn after(minutes: u64, split_each_minute: usize, linked_in: BTreeSet<MemoryManager>) -> Ended {
    let settings = Settings {
        watch: ObserveOptions::default(),
        allowance: Allowance { max_growth: SizeOrShare::Size(Bytes(0)), ..Allowance::default() },
        max_cpu: CpuShare(0.05),
        max_slowdown: Slowdown::UNASKED,
    };
    let rights = Rights { max_growth: Some(0), growth_share: 0.0, max_huge: None };
    let machine = Rc::new(RefCell::new(Simulated::new(Rng::with_seed(1), rights)));
    let process = machine.borrow_mut().new_process();
    let program = Program { linked_in, ..Program::steady(process, REGIONS, Duration::ZERO) };
    machine.borrow_mut().programs.insert(process, program);
    let mut world = Handle(Rc::clone(&machine));
    let mut pilot = Pilot::lasting(&mut world, settings, Stop::default());
    let state = SharedState::default();
    let rules = Rules { min_size: Bytes(1 << 20), fairness: Fairness::Benefit, give_back: false };
    let mut fleet = Fleet::begin(Scope::new(Vec::new(), Vec::new()), rules, state.clone(), &mut pilot);
    let mut rng = Rng::with_seed(2);
    for minute in 1..=minutes {
        while machine.borrow().clock < Duration::from_secs(60 * minute) {
            fleet.step(&mut pilot, &mut |_| ());
            let next = pilot.world.now() + Duration::from_millis(250);
            pilot.world.sleep_until(next, &Stop::default()).expect("nobody stops it");
        }
        let program = &mut *machine.borrow_mut();
        let program = program.programs.get_mut(&process).expect("it lives");
        let mut huge: Vec<_> = program.areas.values_mut().filter(|area| area.huge).collect();
        rng.shuffle(&mut huge);
        huge.into_iter().take(split_each_minute).for_each(|area| (area.huge, area.ours) = (false, false));
    }
    let state = state.state();
    let held = machine.borrow().programs[&process].held();
    let left_alone = state.targets.iter().any(|target| target.reasons.contains_key(&Reason::KeptSplitting));
    Ended { promoted: state.counts.promoted, lost: state.counts.lost, held, left_alone }
}

#[test]
fn a_program_with_an_allocator_that_gives_back_late_is_watched_first() {
    let promoted_after = |minutes, linked_in| after(minutes, 0, linked_in).promoted;
    assert!(promoted_after(5, BTreeSet::new()) > 50);
    assert_eq!(promoted_after(5, [MemoryManager::Go].into()), 0);
    assert!(promoted_after(12, [MemoryManager::Go].into()) > 50);
}

#[test]
fn who_splits_some_is_promoted_and_who_splits_all_is_left_alone() {
    let calm = an_hour(1);
    assert!(calm.held > REGIONS * 9 / 10 && !calm.left_alone, "after an hour: lost: {calm:?}");
    // What the last minutes split may not have been seen yet.
    assert!((MINUTES - 3..=MINUTES).contains(&calm.lost), "after an hour: lost: {calm:?}");
    let wild = an_hour(REGIONS as usize);
    assert!(wild.left_alone, "after an hour: lost: {wild:?}");
    // All is counted, and what is lost for nothing is less than the program has.
    assert!(wild.lost == wild.promoted && (1..REGIONS).contains(&wild.lost), "after an hour: lost: {wild:?}");
}
