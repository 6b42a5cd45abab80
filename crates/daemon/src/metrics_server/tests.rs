//! Tests over real sockets on the loopback interface.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use pilot::engine::shared_state::{Counts, State, TargetState};

use super::*;

fn server() -> (SharedState, MetricsServer) {
    let shared_state = SharedState::default();
    let server = MetricsServer::start(shared_state.clone(), &"127.0.0.1:0".parse().unwrap()).expect("a free port");
    (shared_state, server)
}

fn address(server: &MetricsServer) -> SocketAddr {
    let MetricsPlace::Loopback(address) = *server.place() else { panic!("it is an address") };
    address
}

fn connected(server: &MetricsServer) -> TcpStream {
    let stream = TcpStream::connect(address(server)).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Everything up to the server's close, or up to a broken connection.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn asked(server: &MetricsServer, request: &str) -> String {
    let mut stream = connected(server);
    stream.write_all(request.as_bytes()).unwrap();
    answer(&mut stream)
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn metrics_are_those_of_the_last_second_with_their_length_and_kind() {
    let (shared_state, server) = server();
    for scans in [1, 2] {
        std::thread::sleep(Duration::from_millis(1_100 * (scans - 1)));
        shared_state.show(State { counts: Counts { scans, ..Counts::default() }, ..State::default() });
        let answer = asked(&server, GET);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(body.contains(&format!("\nhugepilot_scans_total {scans}.0\n")) && body.ends_with("# EOF\n"), "{body}");
    }
}

#[test]
fn other_requests_are_told_what_is_wrong() {
    let (_, server) = server();
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
        (&"a".repeat(MOST_REQUEST), "431"),
    ] {
        let answer = asked(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn a_request_may_come_in_pieces() {
    let (_, server) = server();
    let mut stream = connected(&server);
    stream.set_nodelay(true).unwrap();
    for piece in GET.as_bytes().chunks(11) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(answer(&mut stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_large_answer_arrives_whole_at_a_reader_who_starts_late() {
    let (shared_state, server) = server();
    show_much(&shared_state);
    let mut stream = connected(&server);
    stream.write_all(GET.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let answer = answer(&mut stream);
    assert!(answer.len() > 5 << 20 && answer.ends_with("# EOF\n"), "{} bytes", answer.len());
}

#[test]
fn silent_and_stuck_clients_are_closed_and_others_served_afterwards() {
    let (_, server) = server();
    let mut silent: Vec<TcpStream> = (0..4 * MOST_CONNECTIONS).map(|_| connected(&server)).collect();
    silent[1].write_all(b"GET /metrics").unwrap();
    let asked_at = Instant::now();
    assert!(asked(&server, GET).starts_with("HTTP/1.1 200 "), "others make room");
    assert!(asked_at.elapsed() < Duration::from_secs(2), "before their time is over");
    assert!(silent.iter_mut().all(|silent| answer(silent).is_empty()));
    drop(silent);
    assert!(asked(&server, GET).starts_with("HTTP/1.1 200 "));
}

/// Connections that have asked and never read, although the answer is longer than what the kernel buffers.
fn deaf(server: &MetricsServer, count: usize) -> Vec<TcpStream> {
    let ask = |_| {
        let mut stream = connected(server);
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 1).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        stream
    };
    (0..count).map(ask).collect()
}

/// So many targets that nobody who does not read gets the whole answer.
fn show_much(shared_state: &SharedState) {
    let target = |pid| TargetState { pid, name: format!("{pid}{}", "n".repeat(1_000)), ..TargetState::default() };
    shared_state.show(State { targets: (0..1_000).map(target).collect(), ..State::default() });
}

#[test]
fn who_asks_and_does_not_read_makes_room_too() {
    let (shared_state, listener) = (SharedState::default(), Listener::at(&"127.0.0.1:0".parse().unwrap()));
    show_much(&shared_state);
    let (listener, MetricsPlace::Loopback(address), _) = listener.unwrap() else { panic!("it is an address") };
    let (ended, _end) = io::pipe().unwrap();
    let mut counter = Counter::new(listener, ended, shared_state);
    let asks = || {
        let mut stream = TcpStream::connect(address).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 1).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let _deaf: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| asks()).collect();
    (0..2 * MOST_CONNECTIONS).for_each(|_| counter.step());
    assert_eq!(counter.connections.len(), MOST_CONNECTIONS, "all places are taken by those who do not read");
    let mut next = asks();
    (0..2).for_each(|_| counter.step());
    let mut beginning = [0; 12];
    next.read_exact(&mut beginning).expect("it is answered while they are still within their time");
    assert_eq!(&beginning, b"HTTP/1.1 200");
    assert_eq!(counter.connections.len(), MOST_CONNECTIONS);
}

#[test]
fn metrics_are_read_whole_beside_those_who_do_not_read() {
    let (shared_state, server) = server();
    show_much(&shared_state);
    let _deaf = deaf(&server, MOST_CONNECTIONS);
    let answer = asked(&server, GET);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{} bytes", answer.len());
}

#[test]
fn a_flood_of_requests_takes_a_tenth_of_a_cpu() {
    let (shared_state, listener) = (SharedState::default(), Listener::at(&"127.0.0.1:0".parse().unwrap()));
    let (listener, MetricsPlace::Loopback(address), _) = listener.unwrap() else { panic!("it is an address") };
    let (ended, end) = io::pipe().unwrap();
    let served = shared_state.serving_time().clone();
    let mut counter = Counter::new(listener, ended, shared_state);
    let began = Instant::now();
    let counter = std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            counter.serve();
            counter
        });
        while began.elapsed() < Duration::from_secs(2) {
            let flood: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
            flood.iter().for_each(|mut stream| drop(stream.write_all(GET.as_bytes())));
            flood.into_iter().for_each(|mut stream| drop(stream.read(&mut [0; 64])));
        }
        drop(end);
        serving.join().unwrap()
    });
    // Counted: the time until its rest ends is at least ten times the CPU time, however slow this machine is.
    let until_rested = began.elapsed() + counter.rest.left(Instant::now()).unwrap_or_default();
    let served = served.total().duration();
    assert!(served > Duration::from_millis(5), "{served:?} is no flood");
    assert!(served.mul_f64(9.5) < until_rested, "{served:?} in {until_rested:?}");
}

#[test]
fn clients_that_leave_early_hurt_nobody() {
    let (_, server) = server();
    for _ in 0..100 {
        drop(connected(&server));
        let mut leaving = connected(&server);
        let _ = leaving.write_all(GET.as_bytes());
    }
    assert!(asked(&server, GET).starts_with("HTTP/1.1 200 "));
}

#[test]
fn dropping_it_ends_it_at_once_and_frees_its_port() {
    let (_, server) = server();
    let address = address(&server);
    let mut waiting = connected(&server);
    waiting.write_all(b"GET /met").unwrap();
    drop(server);
    assert_eq!(answer(&mut waiting), "");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn only_this_machine_is_served() {
    for address in ["0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100", "[::ffff:192.0.2.1]:9100"] {
        let place = MetricsPlace::Loopback(address.parse().unwrap());
        let error = MetricsServer::start(SharedState::default(), &place).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains("127.0.0.1:9100"), "{error}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let (_, server) = server();
    let address = address(&server);
    let error = MetricsServer::start(SharedState::default(), &MetricsPlace::Loopback(address)).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("a port or a path that nobody else"), "{error}");
}

#[test]
fn a_socket_has_the_mode_that_was_asked_for_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let place = MetricsPlace::Socket { path: path.clone(), mode: 0o640 };
    let server = MetricsServer::start(SharedState::default(), &place).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(GET.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let error = MetricsServer::start(SharedState::default(), &place).unwrap_err().to_string();
    assert!(error.contains("metrics.sock") && error.contains("nobody else"), "{error}");
    drop(server);
    assert!(!path.exists());
}

fn moved(server: &mut Option<MetricsServer>, place: &MetricsPlace) -> Result<(), String> {
    MetricsServer::change(server, &SharedState::default(), Some(place)).map_err(|error| error.to_string())
}

#[test]
fn the_old_place_is_left_only_for_one_that_is_served() {
    let ((_, first), (_, taken)) = (server(), server());
    let before = first.place().clone();
    let mut server = Some(first);
    let error = moved(&mut server, taken.place()).unwrap_err();
    assert!(error.contains(&taken.place().to_string()), "{error}");
    let goes_on = server.as_ref().expect("it goes on");
    assert_eq!(goes_on.place(), &before);
    assert!(asked(goes_on, GET).starts_with("HTTP/1.1 200 "));
    moved(&mut server, &"127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(asked(server.as_ref().unwrap(), GET).starts_with("HTTP/1.1 200 "));
    let MetricsPlace::Loopback(before) = before else { panic!("it is an address") };
    assert!(TcpStream::connect(before).is_err(), "the old place is left");
    MetricsServer::change(&mut server, &SharedState::default(), None).unwrap();
    assert!(server.is_none());
}

#[test]
fn another_mode_of_a_socket_is_set_while_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let place = |mode| MetricsPlace::Socket { path: path.clone(), mode };
    let mut server = Some(MetricsServer::start(SharedState::default(), &place(0o600)).unwrap());
    moved(&mut server, &place(0o660)).unwrap();
    assert_eq!(server.as_ref().unwrap().place(), &place(0o660));
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o660);
    assert!(UnixStream::connect(&path).is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    let as_found = mode();
    assert!(moved(&mut server, &place(0o606)).is_err(), "it is not its socket any more");
    assert_eq!((mode(), server.as_ref().unwrap().place()), (as_found, &place(0o660)));
}

#[test]
fn a_directory_that_is_missing_is_named_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("nodir");
    let place = MetricsPlace::Socket { path: directory.join("metrics.sock"), mode: 0o600 };
    let error = MetricsServer::start(SharedState::default(), &place).unwrap_err().to_string();
    assert!(error.contains(&format!("no directory {}. Create it", directory.display())), "{error}");
    assert!(!directory.exists());
}
