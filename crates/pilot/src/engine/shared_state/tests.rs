//! Requests, pauses and assignments, and who sees them.

use super::*;

const ONE: Process = Process { pid: 1, start_ticks: 10 };
const OTHER: Process = Process { pid: 1, start_ticks: 20 };

#[test]
fn figures_that_are_shown_later_say_so_and_their_times_go_on() {
    let target = TargetState {
        scanned_ns_ago: Some(Nanos(3)),
        next_scan_in_ns: Nanos(1),
        walks_per_second: Some(9.0),
        ..TargetState::default()
    };
    let aged = State { up_ns: Nanos(5), targets: vec![target.clone()], ..State::default() }.aged(Nanos(2));
    assert_eq!((aged.taken_ns_ago, aged.up_ns), (Nanos(2), Nanos(7)));
    let later = TargetState { scanned_ns_ago: Some(Nanos(5)), next_scan_in_ns: Nanos(0), ..target };
    assert_eq!(aged.targets, [later]);
}

#[test]
fn a_pause_is_of_a_process_and_not_of_the_next_one_with_its_id() {
    let shared_state = SharedState::default();
    let target =
        |process: Process| TargetState { pid: process.pid, start_ticks: process.start_ticks, ..TargetState::default() };
    shared_state.show(State { targets: vec![target(ONE), target(OTHER)], ..State::default() });
    shared_state.pause(Some(ONE));
    assert_eq!([ONE, OTHER].map(|process| shared_state.is_paused(process)), [true, false]);
    let shown = shared_state.state();
    assert_eq!((shown.paused, shown.targets[0].paused, shown.targets[1].paused), (false, true, false));
    shared_state.pause(None);
    assert!(shared_state.is_paused(OTHER) && shared_state.state().targets[1].paused);
    shared_state.resume(None);
    assert_eq!([ONE, OTHER].map(|process| shared_state.is_paused(process)), [true, false], "one by one stays");
    shared_state.forget_ended(|process| *process != ONE);
    assert!(!shared_state.is_paused(ONE));
    shared_state.pause(Some(OTHER));
    shared_state.resume(Some(OTHER));
    assert!(!shared_state.is_paused(OTHER));
}

#[test]
fn only_what_concerns_it_ends_a_turn() {
    let shared_state = SharedState::default();
    let called = |act: &dyn Fn()| {
        shared_state.work_on(Some(ONE));
        act();
        shared_state.call().requested()
    };
    assert!(!called(&|| shared_state.pause(Some(OTHER))) && !called(&|| drop(shared_state.request_give_back(OTHER))));
    assert!(called(&|| shared_state.pause(Some(ONE))) && called(&|| drop(shared_state.request_give_back(ONE))));
    assert!(called(&|| shared_state.pause(None)));
    shared_state.work_on(None);
    assert!(!shared_state.call().requested());
}

#[test]
fn an_owner_replaces_what_it_assigned_and_nothing_of_others() {
    let shared_state = SharedState::default();
    let of = |group: &str, owner_weight| Assignment { weight: owner_weight, ..Assignment::sample(&[group]) };
    let weight = |assigned: &Assignments, group: &str| Some(assigned.of([&group.to_owned()])?.weight);
    assert!(shared_state.take_assignments().is_none());
    assert!(
        shared_state.assign("b", vec![of("/1", 2.0), of("/2", 2.0)]) && shared_state.assign("a", vec![of("/1", 1.0)])
    );
    let assigned = shared_state.take_assignments().expect("they are new");
    assert_eq!(["/1", "/2"].map(|group| weight(&assigned, group)), [Some(1.0), Some(2.0)], "the first by name");
    assert!(shared_state.assign("a", vec![of("/1", 1.0)]) && shared_state.take_assignments().is_none(), "the same");
    assert!(shared_state.assign("a", vec![of("/3", 1.0)]) && shared_state.assign("b", Vec::new()));
    let assigned = shared_state.take_assignments().expect("they are new");
    assert_eq!(["/1", "/2", "/3"].map(|group| weight(&assigned, group)), [None, None, Some(1.0)]);
    assert!((1..MOST_OWNERS).all(|owner| shared_state.assign(&owner.to_string(), vec![of("/9", 1.0)])));
    assert!(!shared_state.assign("c", vec![of("/9", 1.0)]) && shared_state.assign("a", vec![of("/9", 1.0)]));
}

#[test]
fn requests_are_answered_and_bounded() {
    let shared_state = SharedState::default();
    let answer = shared_state.request_give_back(ONE).expect("room");
    let requests = shared_state.take_requests();
    assert_eq!((requests.len(), requests[0].give_back), (1, ONE));
    assert!(shared_state.is_paused(ONE), "or it would be promoted again");
    requests[0].answer.send(Ok(3)).expect("someone waits");
    assert_eq!(answer.recv().unwrap(), Ok(3));
    assert!(shared_state.take_requests().is_empty());
    let waiting: Vec<_> = (0..MOST_REQUESTS).map(|_| shared_state.request_give_back(ONE).expect("room")).collect();
    assert!(shared_state.request_give_back(OTHER).is_none() && !shared_state.is_paused(OTHER));
    drop(shared_state.take_requests());
    assert!(waiting[0].recv().is_err(), "whoever is not answered learns so");
}
