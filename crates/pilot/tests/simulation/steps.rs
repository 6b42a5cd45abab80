//! Consecutive steps in a simulated world: when they end, and how long they pause.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use heat::samples::at;
use heat::units::{Nanos, Pages, Slowdown};
use hugepilot_os::stop::Stop;
use kernel::probe::CollapseTimes;
use kernel::target::Process;
use pilot::act::{ActBounds, Pacer, RegionResult, give_back, promote};
use pilot::decide::{Spent, WhoWaits};
use pilot::engine::{Pilot, Settings};
use pilot::world::{Candidate, Promoted, World};

use crate::machine::{Handle, Rights, Simulated};
use crate::program::Program;

const PROGRAM: Process = Process { pid: 7, start_ticks: 7 };

/// A machine with one program of five regions, all on record.
fn machine() -> Handle {
    let mut machine = Simulated::new(Rng::with_seed(1), Rights { max_growth: None, growth_share: 1.0, max_huge: None });
    machine.programs.insert(PROGRAM, Program::steady(PROGRAM, 5, Duration::ZERO));
    let mut world = Handle(Rc::new(RefCell::new(machine)));
    let all = (0..5).map(|number| (at(number), Promoted::default()));
    world.change_promotions(PROGRAM, &mut |record| record.extend(all.clone())).expect("it is kept in memory");
    world
}

fn candidates(count: u64) -> Vec<Candidate> {
    let candidate = |number| Candidate { start: at(number), who_waits: WhoWaits::AnyThread, present: Pages(0) };
    (0..count).map(candidate).collect()
}

#[test]
fn steps_stop_between_regions_and_when_the_process_ends() {
    let (mut world, stop) = (machine(), Stop::default());
    let turn = ActBounds { until: world.now() + Duration::from_secs(60), stop: stop.clone() };
    let mut pacer = Pacer::new(Slowdown::FAST, world.now());
    let mut reached = 0;
    let mut second_stops = |_: &RegionResult| {
        reached += 1;
        if reached == 2 {
            stop.request();
        }
    };
    let results = promote(&mut world, PROGRAM, &candidates(5), &mut pacer, &turn, &mut second_stops);
    assert!(results.len() == 2 && results.iter().all(RegionResult::is_done), "{results:?}");
    assert!(give_back(&mut world, PROGRAM, &[at(0)], &stop, &mut |_| ()).is_empty(), "stopped already");
    stop.withdraw();
    world.0.borrow_mut().programs.clear();
    let results = promote(&mut world, PROGRAM, &candidates(5), &mut pacer, &turn, &mut |_| ());
    assert!(results.len() == 1 && results[0].target_exited(), "{results:?}");
}

#[test]
fn what_another_hugepilot_has_just_recorded_stays_on_record() {
    let mut world = machine();
    let others = at(9);
    world.change_promotions(PROGRAM, &mut |record| _ = record.insert(others, Promoted::default())).expect("memory");
    let mut pilot = Pilot::once(&mut world, Settings::default(), Stop::default());
    let round = pilot.scan(PROGRAM, false, &Spent::default()).expect("it runs");
    let outcome = pilot.act(PROGRAM, &round, &mut |_| ()).expect("it runs");
    assert!(outcome.applied > 0, "{outcome:?}");
    assert!(world.promotions(PROGRAM).expect("a record").contains_key(&others));
}

#[test]
fn give_back_settles_only_what_was_on_record_before() {
    let mut world = machine();
    let before = world.promotions(PROGRAM).expect("a record");
    let others = at(9);
    world.change_promotions(PROGRAM, &mut |record| _ = record.insert(others, Promoted::default())).expect("memory");
    let mut pilot = Pilot::once(&mut world, Settings::default(), Stop::default());
    assert!(pilot.settle_record(PROGRAM, &before).expect("a record").is_some());
    let left: Vec<_> = world.promotions(PROGRAM).expect("a record").into_keys().collect();
    assert_eq!(left, [others], "none of them is huge");
}

#[test]
fn no_step_is_begun_when_time_is_up_and_the_rest_is_owed_to_the_next_turn() {
    let mut world = machine();
    let mut pacer = Pacer::new(Slowdown(0.005), world.now());
    for _ in 0..2 {
        let turn = ActBounds { until: world.now() + Duration::from_millis(150), stop: Stop::default() };
        let results = promote(&mut world, PROGRAM, &candidates(3), &mut pacer, &turn, &mut |_| ());
        assert_eq!(results.len(), 1, "one step of 0.8 ms, then a rest of 319");
        assert!(pacer.next_step() > turn.until);
        world.sleep_until(pacer.next_step(), &Stop::default()).expect("nobody stops it");
    }
}

#[test]
fn a_program_that_waits_is_given_longer_rests() {
    let rest_after = |waits: f64| {
        let mut world = machine();
        world.0.borrow_mut().waits = Some(waits);
        let mut pacer = Pacer::new(Slowdown(0.2), world.now());
        let turn = ActBounds { until: world.now() + Duration::from_secs(1), stop: Stop::default() };
        promote(&mut world, PROGRAM, &candidates(1), &mut pacer, &turn, &mut |_| ());
        pacer.next_step() - world.now()
    };
    assert!(rest_after(0.5) > 2 * rest_after(0.0), "{:?}, {:?}", rest_after(0.5), rest_after(0.0));
}

#[test]
fn what_more_processes_map_takes_longer() {
    let ms = |number: u64| Nanos(number * 1_000_000);
    let times = CollapseTimes { prepared: ms(1), unprepared: ms(9), preparing: ms(2) };
    let takes = |max_slowdown, processes| {
        let mut world = machine();
        let pilot = Pilot::once(&mut world, Settings { max_slowdown, ..Settings::default() }, Stop::default());
        pilot.time_for(WhoWaits::WhoTouchesIt, processes, &times).0 / 1000
    };
    // A twentieth of the time, and one of two processors.
    assert_eq!([0, 1, 91].map(|processes| takes(Slowdown(0.1), processes)), [10_000, 10_000, 100_000]);
    assert_eq!(takes(Slowdown(0.5), 1), 3_000, "preparing alone takes longer");
}
