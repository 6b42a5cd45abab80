//! One step at a time: who is served in it, and what it costs. Peers are made up, so these tests need no rights.

use std::io::{Read, Write};

use kernel::Root;
use kernel::target::Process;
use pilot::engine::shared_state::{State, TargetState};
use tempfile::TempDir;

use super::*;

/// Twenty seconds of rest.
const LONG: Nanos = Nanos(1_000_000_000);

/// A server without its thread.
struct Still {
    desk: Desk,
    path: std::path::PathBuf,
    /// The server would end without it.
    _alive: UnixStream,
    _bound: Bound,
    _directory: TempDir,
}

impl Still {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let (listener, bound) = unix_socket::listen(&path, 0o600).unwrap();
        let (alive, end) = UnixStream::pair().unwrap();
        let desk = Desk::new(listener, end, SharedState::default(), Bounds::default());
        Self { desk, path, _alive: alive, _bound: bound, _directory: directory }
    }

    /// A client of this user that has asked for the status.
    fn asks(&mut self, uid: u32) -> UnixStream {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"{\"version\":1,\"command\":\"status\"}\n").unwrap();
        client.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(server, &self.desk.bounds).unwrap();
        connection.peer.uid = uid;
        self.desk.connections.push(connection);
        client
    }

    /// Serves whoever can proceed.
    fn step(&mut self) -> Served {
        let ready = self.desk.wait().expect("it goes on");
        let served = self.desk.go_on(&ready);
        self.desk.connections.retain(|connection| !connection.is_over());
        served
    }
}

fn is_answered(mut client: &UnixStream) -> bool {
    client.read(&mut [0; 1 << 16]).is_ok_and(|count| count > 0)
}

/// Targets of our own that live, so each must be verified.
fn many_targets(uid: u32) -> State {
    let own = Process::of(&Root::host(), std::process::id()).unwrap();
    let target = || TargetState { pid: own.pid, start_ticks: own.start_ticks, uid, ..TargetState::default() };
    State { version: 1, targets: (0..2_000).map(|_| target()).collect(), ..State::default() }
}

#[test]
fn a_step_answers_root_and_one_connection_of_each_other_user() {
    let mut still = Still::new();
    let clients = [7, 7, 7, 8, 0, 0].map(|uid| (uid, still.asks(uid)));
    still.step();
    let answered = || clients.iter().map(|(uid, client)| (*uid, is_answered(client))).filter(|(_, answered)| *answered);
    let users = |answered: Vec<(u32, bool)>| answered.into_iter().map(|(uid, _)| uid).collect::<Vec<_>>();
    assert_eq!(users(answered().collect()), [7, 8, 0, 0]);
    still.step();
    assert_eq!(users(answered().collect()), [7]);
    still.step();
    assert_eq!(users(answered().collect()), [7]);
}

#[test]
fn roots_turn_is_first_and_a_users_connections_take_turns() {
    let mut still = Still::new();
    let _clients = [7, 7, 0, 8, 7].map(|uid| still.asks(uid));
    still.desk.connections[0].served_in = 3;
    still.desk.connections[1].served_in = 2;
    still.desk.connections[4].served_in = 1;
    let (of_root, of_others) = still.desk.turns(&[true; 5]);
    assert_eq!(of_root, [2]);
    assert_eq!(of_others, [3, 4], "who has waited longest");
    assert_eq!(still.desk.turns(&[true, true, false, false, false]), (vec![], vec![1]));
}

#[test]
fn a_long_step_leaves_the_others_to_the_next() {
    let mut still = Still::new();
    // Even those who see none of the targets cost a copy of the state.
    still.desk.shared_state.show(many_targets(7));
    let clients: Vec<UnixStream> = (10_000..10_400).map(|uid| still.asks(uid)).collect();
    let spent = still.step().others;
    let answered = clients.iter().filter(|client| is_answered(client)).count();
    assert!(answered > 0 && answered < clients.len(), "{answered} in {spent:?}");
}

#[test]
fn root_and_newcomers_do_not_wait_for_what_others_cost() {
    let mut still = Still::new();
    still.desk.rest_from_others.add(LONG, Instant::now());
    let user = still.asks(7);
    let root = still.asks(0);
    still.step();
    assert!(is_answered(&root) && !is_answered(&user));
    // It would wait for the rest to end otherwise.
    let _newcomer = UnixStream::connect(&still.path).unwrap();
    assert_eq!(still.desk.wait(), Some(vec![false]));
    still.desk.rest_from_others = Rest::new(CPU_FOR_OTHERS);
    still.step();
    assert!(is_answered(&user));
}

#[test]
fn however_long_a_step_was_the_rest_keeps_to_the_share() {
    let mut still = Still::new();
    still.desk.shared_state.show(many_targets(7));
    let (mut cost, mut rested) = (Nanos(0), Duration::ZERO);
    for _ in 0..5 {
        let _client = still.asks(7);
        let begun = thread_cpu_time();
        let served = still.step();
        let step = thread_cpu_time().saturating_sub(begun);
        still.desk.settle(step, &served);
        cost.0 += step.0;
        let late = Instant::now() + Bounds::default().reply;
        assert!(
            still.desk.connections.iter().all(|connection| connection.deadline > late),
            "the rest is not their time"
        );
        rested += still.desk.rest_from_others.left(Instant::now()).expect("it costs much");
        still.desk.rest_from_others = Rest::new(CPU_FOR_OTHERS);
        still.desk.connections.clear();
    }
    assert!(cost > Nanos(5_000_000), "{cost:?} is not worth a rest");
    assert!(rested > 9 * cost.duration(), "{cost:?} and {rested:?} of rest");
}
