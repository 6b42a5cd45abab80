//! Server and client over real sockets: what each user may do, and what hostile clients cannot do.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use hps::wire::{Notice, Track};
use hugepilot_os::socket::receive_with;
use kernel::Root;
use kernel::process::ProcessStatus;
use kernel::target::Process;
use pilot::engine::shared_state::{RecordsAtEnd, SharedState, State, TargetState};
use rustix::net::{RecvFlags, recv};
use rustix::process::{Uid, geteuid};
use tempfile::TempDir;

use crate::control::capped::LimitName;
use crate::control::connection::Bounds;
use crate::control::protocol::{LONGEST_REQUEST, Reply};
use crate::control::server::{MOST_CONNECTIONS, MOST_OF_ONE, MOST_OF_OTHERS};
use crate::control::target_set::{GroupTarget, MOST_SET, TargetSet};
use crate::control::{ControlClient, ControlError, ControlServer};

const NOBODY: u32 = 65534;
const SHORT: Bounds = Bounds {
    request: Duration::from_millis(300),
    answer: Duration::from_millis(600),
    reply: Duration::from_millis(600),
    unread: 64 << 20,
};

/// A server with shared state, in a directory that every user can access.
struct Service {
    server: Option<ControlServer>,
    shared_state: SharedState,
    directory: TempDir,
}

impl Service {
    fn start(bounds: Bounds) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let shared_state = SharedState::default();
        let path = directory.path().join("hugepilot/control.sock");
        let server = Some(ControlServer::start_with(shared_state.clone(), &path, bounds).unwrap());
        Self { server, shared_state, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("hugepilot/control.sock")
    }

    fn client(&self) -> ControlClient {
        ControlClient::at(&self.path())
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn show(&self, targets: &[Process]) {
        let targets = targets.iter().map(|process| TargetState {
            pid: process.pid,
            start_ticks: process.start_ticks,
            uid: ProcessStatus::read(&Root::host(), process.pid).map(|status| status.uid).unwrap_or_default(),
            ..TargetState::default()
        });
        self.shared_state.show(State { version: 1, targets: targets.collect(), ..State::default() });
    }

    /// Waits until all slots are free again.
    fn settle(&self) {
        let late = Instant::now() + Duration::from_secs(10);
        while self.client().status().is_err() {
            assert!(Instant::now() < late, "nobody is served any more");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A program of some user that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn of(uid: u32) -> Self {
        let mut command = Command::new("sleep");
        command.arg("300");
        if uid != geteuid().as_raw() {
            command.gid(uid).uid(uid);
        }
        Self(command.spawn().expect("sleep is there"))
    }

    fn process(&self) -> Process {
        Process::of(&Root::host(), self.0.id()).expect("it runs")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ran");
    }
}

/// Runs `work` on a thread of another user; None if this process may not.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> Option<T> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    let on_thread = || {
        let uid = Uid::from_raw(uid);
        // Changes this thread only; the kernel reports its user to the peer.
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
        work()
    };
    thread::scope(|scope| scope.spawn(on_thread).join().map_err(std::panic::resume_unwind).ok())
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ControlError>) -> String {
    match result {
        Err(ControlError::Refused { why }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn read_all(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset after the reply does no harm.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn error_of(line: &[u8]) -> String {
    match Reply::parse(line) {
        Ok(Reply::Error(why)) => why,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn status_pause_and_resume_reach_the_shared_state() {
    let service = Service::start(Bounds::default());
    let sleeper = Sleeper::of(geteuid().as_raw());
    let process = sleeper.process();
    service.show(&[process]);
    let client = service.client();
    assert_eq!(client.status().unwrap().targets, service.shared_state.state().targets);
    client.pause(Some(process.pid)).unwrap();
    assert!(service.shared_state.is_paused(process) && client.status().unwrap().targets[0].paused);
    assert!(!client.resume(Some(process.pid)).unwrap());
    assert!(!service.shared_state.is_paused(process));
    if geteuid().is_root() {
        client.pause(None).unwrap();
        assert!(client.status().unwrap().paused);
        assert!(client.resume(Some(process.pid)).unwrap(), "everything is paused still");
        client.resume(None).unwrap();
        assert!(!service.shared_state.is_paused(process));
    }
}

#[test]
fn giving_back_waits_for_the_loop_and_others_do_not() {
    let service = Service::start(Bounds::default());
    let sleeper = Sleeper::of(geteuid().as_raw());
    let process = sleeper.process();
    service.show(&[process]);
    thread::scope(|scope| {
        let told = scope.spawn(|| service.client().give_back(process.pid));
        let requests = loop {
            let requests = service.shared_state.take_requests();
            if !requests.is_empty() {
                break requests;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(service.client().status().unwrap().targets[0].paused, "or it would be promoted again");
        assert_eq!(requests[0].give_back, process);
        requests[0].answer.send(Ok(512)).unwrap();
        assert_eq!(told.join().unwrap().unwrap(), 512);
        let told = scope.spawn(|| service.client().give_back(process.pid));
        loop {
            let requests = service.shared_state.take_requests();
            if let Some(request) = requests.first() {
                break request.answer.send(Err("it is 32-bit".to_owned())).unwrap();
            }
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(refusal(told.join().unwrap()), "it is 32-bit");
    });
}

#[test]
fn a_loop_that_does_not_answer_or_ends_is_told() {
    let service = Service::start(SHORT);
    let sleeper = Sleeper::of(geteuid().as_raw());
    let process = sleeper.process();
    service.show(&[process]);
    assert!(refusal(service.client().give_back(process.pid)).contains("the pilot is busy"));
    drop(service.shared_state.take_requests());
    thread::scope(|scope| {
        let told = scope.spawn(|| service.client().give_back(process.pid));
        while service.shared_state.take_requests().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(refusal(told.join().unwrap()).contains("the pilot ended"));
    });
}

#[test]
fn users_command_their_own_processes_and_no_others() {
    let Some(()) = as_user(NOBODY, || ()) else { return };
    let service = Service::start(Bounds::default());
    let (own, roots) = (Sleeper::of(NOBODY), Sleeper::of(0));
    let (own, roots) = (own.process(), roots.process());
    service.show(&[own, roots]);
    let client = service.client();
    let asked = as_user(NOBODY, || {
        let seen: Vec<u32> = client.status().unwrap().targets.iter().map(|target| target.pid).collect();
        assert_eq!(seen, [own.pid]);
        client.pause(Some(own.pid)).unwrap();
        let foreign = refusal(client.pause(Some(roots.pid)));
        assert!(foreign.starts_with(&format!("process {} is no target of yours here", roots.pid)), "{foreign}");
        // Nobody learns whether a process is piloted.
        let unknown = refusal(client.pause(Some(1))).replace("process 1 ", &format!("process {} ", roots.pid));
        assert_eq!(unknown, foreign);
        assert_eq!([refusal(client.resume(Some(roots.pid))), refusal(client.give_back(roots.pid))], [&*foreign; 2]);
        assert!(refusal(client.pause(None)).starts_with("only root"));
        assert!(refusal(client.resume(None)).starts_with("only root"));
    });
    asked.expect("root");
    assert!(service.shared_state.is_paused(own) && !service.shared_state.is_paused(roots));
    assert!(service.shared_state.take_requests().is_empty());
    assert_eq!(client.status().unwrap().targets.len(), 2);
    client.resume(Some(own.pid)).unwrap();
    assert!(!service.shared_state.is_paused(own));
}

#[test]
fn root_sets_targets_many_at_once_and_nobody_else_does() {
    let Some(()) = as_user(NOBODY, || ()) else { return };
    let service = Service::start(Bounds::default());
    let set = |cgroup: &str, count| {
        let target = |number| GroupTarget {
            cgroups: vec![format!("{cgroup}/{number}")],
            labels: [("pod".to_owned(), "p".repeat(200))].into(),
            ..GroupTarget::default()
        };
        TargetSet { owner: "kubernetes".to_owned(), targets: (0..count).map(target).collect() }
    };
    let assigned = |groups: [&str; 2]| {
        let assigned = service.shared_state.take_assignments()?;
        Some(groups.map(|group| assigned.of([&group.to_owned()]).is_some()))
    };
    let refused = as_user(NOBODY, || refusal(service.client().set_targets(set("/a", 1)))).expect("root");
    assert!(refused.contains("only root may set targets"), "{refused}");
    let refused = as_user(NOBODY, || refusal(service.client().set_records_at_end(RecordsAtEnd::Remove))).expect("root");
    assert!(refused.contains("only root says") && service.shared_state.records_at_end().is_none(), "{refused}");
    let many = as_user(NOBODY, || service.client().set_targets(set("/a", MOST_SET)).unwrap_err().to_string());
    assert!(many.expect("root").contains("longer than 4096 bytes"));
    assert_eq!(assigned(["/a/0", "/a/1"]), None, "nothing was changed");
    service.client().set_targets(set("/a", MOST_SET)).expect("it is much longer than any other request");
    assert_eq!(assigned(["/a/0", "/a/2047"]), Some([true, true]));
    service.shared_state.show(State { max_slowdown: 0.01, ..State::default() });
    let mut greedy = set("/b", 1);
    greedy.targets[0].max_slowdown = Some("5%".to_owned());
    let capped = service.client().set_targets(greedy).expect("in place of the former");
    let told: Vec<_> = capped.iter().map(|each| (each.target, each.limit, each.to.as_str())).collect();
    assert_eq!(told, [(1, LimitName::MaxSlowdown, "1%")]);
    assert_eq!(assigned(["/a/0", "/b/0"]), Some([false, true]));
    let wrong = refusal(service.client().set_targets(set("b", 1)));
    assert!(wrong.contains("'b/0' of target 1 is not a control group"), "{wrong}");
}

#[test]
fn a_process_with_the_rights_of_two_users_is_roots() {
    let Some(()) = as_user(NOBODY, || ()) else { return };
    let service = Service::start(Bounds::default());
    for [real, effective] in [[NOBODY, 0], [0, NOBODY]] {
        let mut program = Command::new("setpriv");
        program.args(["--ruid", &real.to_string(), "--euid", &effective.to_string(), "sleep", "300"]);
        let sleeper = Sleeper(program.spawn().expect("setpriv is there"));
        let (process, late) = (sleeper.process(), Instant::now() + Duration::from_secs(5));
        while fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap() != "sleep\n" {
            assert!(Instant::now() < late);
            thread::sleep(Duration::from_millis(5));
        }
        service.show(&[process]);
        let client = service.client();
        let refused = as_user(NOBODY, || refusal(client.pause(Some(process.pid)))).expect("root");
        assert!(refused.contains("no target of yours"), "{real} {effective}");
        client.pause(Some(process.pid)).unwrap();
    }
}

#[test]
fn a_later_process_with_the_same_id_is_not_meant() {
    let service = Service::start(Bounds::default());
    let sleeper = Sleeper::of(geteuid().as_raw());
    let earlier = Process { start_ticks: sleeper.process().start_ticks - 1, ..sleeper.process() };
    service.show(&[earlier]);
    assert!(refusal(service.client().pause(Some(earlier.pid))).contains("no target of yours"));
    let ended = sleeper.process();
    drop(sleeper);
    service.show(&[ended]);
    assert!(refusal(service.client().pause(Some(ended.pid))).contains("no target of yours"));
}

#[test]
fn what_is_no_request_is_answered_with_what_is_expected() {
    let service = Service::start(Bounds::default());
    for (sent, expected) in [
        (&b"melt\n"[..], "Expected is a line such as"),
        (b"{\"version\":9,\"command\":\"status\"}\n", "expected is version 1"),
        (b"\xff\xfe\0\n{\"version\":1,\"command\":\"status\"}\n", "Expected is a line such as"),
        (&[b'x'; 3 * LONGEST_REQUEST], "longer than 4096 bytes"),
    ] {
        let mut stream = service.connect();
        stream.write_all(sent).unwrap();
        assert!(error_of(&read_all(stream)).contains(expected), "{expected}");
    }
    let mut ended = service.connect();
    ended.write_all(b"{\"version\":1,\"command\":\"status\"}").unwrap();
    ended.shutdown(Shutdown::Write).unwrap();
    assert!(matches!(Reply::parse(&read_all(ended)), Ok(Reply::State(_))), "the end of input ends a line, too");
}

#[test]
fn random_bytes_and_half_messages_hurt_nobody() {
    let service = Service::start(SHORT);
    let mut held = Vec::new();
    let mut random: u64 = 88172645463325252;
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..97)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            })
            .collect();
        let mut stream = service.connect();
        let _ = stream.write_all(&bytes);
        held.push(stream);
        let mut half = service.connect();
        let _ = half.write_all(b"{\"version\":1,");
    }
    service.settle();
    assert_eq!(service.client().status().unwrap(), service.shared_state.state());
}

#[test]
fn a_client_that_never_ends_its_request_is_sent_away() {
    let service = Service::start(SHORT);
    let mut stream = service.connect();
    let began = Instant::now();
    // Sending a byte now and then does not extend the deadline.
    while stream.write_all(b" ").is_ok() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is served still");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_client_that_never_reads_is_sent_away_and_others_are_served_meanwhile() {
    let service = Service::start(SHORT);
    let targets = (0..4_000).map(|pid| TargetState { pid, name: "x".repeat(15), ..TargetState::default() });
    service.shared_state.show(State { targets: targets.collect(), ..State::default() });
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let mut stream = service.connect();
        stream.write_all(b"{\"version\":1,\"command\":\"status\"}\n").unwrap();
        deaf.push(stream);
    }
    if geteuid().is_root() {
        assert_eq!(service.client().status().unwrap().targets.len(), 4_000);
    }
    thread::sleep(SHORT.reply * 3);
    for stream in deaf {
        let line = read_all(stream);
        assert!(Reply::parse(&line).is_err(), "it was cut off");
    }
}

#[test]
fn replies_that_nobody_reads_are_bounded() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root sees targets that are not its own");
    }
    // More than the kernel buffers, and long enough that three replies fit and a fourth does not.
    let service = Service::start(Bounds { unread: 7 << 19, ..Bounds::default() });
    let targets = (0..64).map(|pid| TargetState { pid, name: "x".repeat(16 << 10), ..TargetState::default() });
    service.shared_state.show(State { targets: targets.collect(), ..State::default() });
    let ask = || {
        let mut stream = service.connect();
        stream.write_all(b"{\"version\":1,\"command\":\"status\"}\n").unwrap();
        // Once its beginning has arrived, the server has buffered all of it.
        recv(&stream, &mut [0], RecvFlags::PEEK).unwrap();
        stream
    };
    let deaf = [ask(), ask(), ask()];
    assert!(refusal(service.client().status()).contains("not read yet"));
    drop(deaf);
    service.settle();
    assert_eq!(service.client().status().unwrap().targets.len(), 64);
}

#[test]
fn ten_thousand_connections_are_taken_and_then_root_is_served() {
    let service = Service::start(SHORT);
    let mut held = VecDeque::new();
    for _ in 0..10_000 {
        held.push_back(service.connect());
        if held.len() > 500 {
            held.pop_front();
        }
    }
    service.settle();
}

#[test]
fn a_user_has_few_places_and_all_users_together_leave_some_to_root() {
    let Some(()) = as_user(NOBODY, || ()) else { return };
    let service = Service::start(Bounds { request: Duration::from_secs(60), ..Bounds::default() });
    let too_many = "too many connections at once";
    let mut held = Vec::new();
    let users = (MOST_OF_OTHERS / MOST_OF_ONE) as u32;
    for uid in NOBODY - users..NOBODY {
        let taken = as_user(uid, || {
            let taken: Vec<_> = (0..MOST_OF_ONE).map(|_| service.connect()).collect();
            assert!(refusal(service.client().status()).contains(too_many));
            taken
        });
        held.extend(taken.expect("root"));
    }
    let one_more = as_user(NOBODY, || refusal(service.client().status())).expect("root");
    assert!(one_more.contains(too_many), "each user has few, and together they have not all");
    assert_eq!(held.len(), MOST_OF_OTHERS);
    service.client().status().unwrap();
    held.extend((0..MOST_CONNECTIONS - MOST_OF_OTHERS).map(|_| service.connect()));
    assert!(refusal(service.client().status()).contains(too_many), "even root's are bounded");
    drop(held);
    service.settle();
}

#[test]
fn the_socket_is_for_everybody_and_goes_with_the_server() {
    let mut service = Service::start(Bounds::default());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(service.path()), 0o666);
    assert_eq!(mode(service.path().parent().unwrap().to_owned()), 0o755);
    let answering = ControlServer::start(SharedState::default(), &service.path()).unwrap_err();
    assert!(matches!(answering, ControlError::Taken { .. }), "{answering}");
    let held = service.connect();
    drop(service.server.take());
    assert!(read_all(held).is_empty());
    assert!(fs::read_dir(service.path().parent().unwrap()).unwrap().next().is_none(), "nothing is left");
    assert!(matches!(service.client().status(), Err(ControlError::NoDaemon { .. })));
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_another_file_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(ControlClient::at(&path).status(), Err(ControlError::NoDaemon { .. })));
    let server = ControlServer::start(SharedState::default(), &path).unwrap();
    ControlClient::at(&path).status().unwrap();
    // The socket that replaced it stays.
    fs::remove_file(&path).unwrap();
    let another = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
    drop(another);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    assert!(matches!(ControlServer::start(SharedState::default(), &path), Err(ControlError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_daemon_that_does_not_accept_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let _hangs = UnixListener::bind(&path).unwrap();
    let error = ControlServer::start(SharedState::default(), &path).unwrap_err();
    assert!(matches!(error, ControlError::Taken { .. }), "{error}");
}

#[test]
fn where_no_socket_can_be_made_the_error_says_the_next_step() {
    for path in ["/proc/hugepilot/control.sock", "/proc/control.sock"] {
        let error = ControlServer::start(SharedState::default(), path.as_ref()).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("RuntimeDirectory=hugepilot"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("x".repeat(120));
    let error = ControlServer::start(SharedState::default(), &long).unwrap_err();
    assert!(matches!(error, ControlError::Listen { .. }), "{error}");
}

fn track_line() -> Vec<u8> {
    let (signal, interval_ms) = (hps::wire::usual_signal(), 1000);
    Track { signal, thread: None, threshold_pages: 1, interval_ms, ranges: Vec::new() }.line()
}

/// The connection of a tracked client after the reply, with the descriptor that was sent.
fn tracked(service: &Service) -> (UnixStream, OwnedFd) {
    let mut stream = service.connect();
    stream.write_all(&track_line()).unwrap();
    let mut reply = [0; 4096];
    let (count, list) = receive_with(&stream, &mut reply).unwrap();
    assert!(matches!(Reply::parse(&reply[..count]), Ok(Reply::Tracked {})));
    (stream, list.expect("the list comes along"))
}

fn wait_for(holds: impl Fn() -> bool) {
    let late = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < late);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_is_tracked_stays_until_it_goes_and_is_heard_meanwhile() {
    let service = Service::start(SHORT);
    let clients = service.shared_state.clients();
    let (mut stream, _list) = tracked(&service);
    // Longer than the limit for any other client.
    thread::sleep(SHORT.reply + SHORT.request);
    let line = [Notice::Taken(3).line(), Notice::Rest.line()].concat();
    let (one, other) = line.split_at(line.len() / 2);
    stream.write_all(one).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert!(!clients.all()[0].1.resting);
    stream.write_all(other).unwrap();
    wait_for(|| clients.all()[0].1.resting);
    assert_eq!(clients.all()[0].1.process.pid, std::process::id());
    assert!(refusal_of_track(&service).contains("is tracked already"));
    drop(stream);
    wait_for(|| clients.all().is_empty());
    let (mut stream, _list) = tracked(&service);
    stream.write_all(b"{\"version\":2,\"notice\":\"melt\"}\n").unwrap();
    assert!(read_all(stream).is_empty(), "what is no notice ends it");
    wait_for(|| clients.all().is_empty());
    let (mut stream, _list) = tracked(&service);
    let _ = stream.write_all(&[b' '; 3 * LONGEST_REQUEST]);
    wait_for(|| clients.all().is_empty());
    let (mut stream, _list) = tracked(&service);
    stream.write_all(&Notice::Rest.line().repeat(60)).unwrap();
    wait_for(|| clients.all()[0].1.resting);
    let _ = stream.write_all(&Notice::Watch.line().repeat(60));
    wait_for(|| clients.all().is_empty());
}

fn refusal_of_track(service: &Service) -> String {
    let mut stream = service.connect();
    stream.write_all(&track_line()).unwrap();
    error_of(&read_all(stream))
}

#[test]
fn those_who_are_tracked_take_no_places_from_those_who_ask() {
    let Some(()) = as_user(NOBODY, || ()) else { return };
    let service = Service::start(Bounds { request: Duration::from_secs(60), ..Bounds::default() });
    let _tracked = tracked(&service);
    let held = as_user(NOBODY, || (0..MOST_OF_ONE).map(|_| service.connect()).collect::<Vec<_>>());
    assert_eq!(held.expect("root").len(), MOST_OF_ONE);
    service.client().status().unwrap();
    let shown = as_user(NOBODY - 1, || service.client().status().unwrap().clients).expect("root");
    assert!(shown.is_empty(), "another user's clients are not shown");
}
