//! Programs that manage their own memory through libhps.

use std::fs;
use std::path::PathBuf;

use hps::{Arena, ArenaBacking};
use serde_json::Value;

use super::{Daemon, MIB, OFTEN, target};

use crate::program::Rule;
use crate::support::{Program, Setting, list, number, shell, wait_until};

crate::trials!(
    a_client_converts_what_it_uses,
    the_pilot_leaves_a_client_to_itself,
    a_client_comes_back_to_a_daemon_that_does,
    who_never_reads_is_told_once_and_holds_nobody_up,
    exec_ends_it,
    who_rests_is_woken_when_its_walks_rise,
    a_signal_that_finds_no_room_is_not_needed,
    an_arena_takes_reserved_pages_only_if_it_gets_all,
    locked_memory_that_nobody_uses_is_not_active,
);

/// A daemon without targets.
fn daemon() -> Daemon {
    Daemon::start("[[target]]\nname = 'hpt-nobody'\n")
}

/// The client as the daemon reports it; None if the daemon has no such client.
fn client(daemon: &Daemon, pid: u32) -> Option<Value> {
    list(&daemon.status(), "clients").iter().find(|client| client["pid"] == pid).cloned()
}

/// The sizes of the clients' lists that the daemon has in memory.
fn list_bytes(daemon: &Daemon) -> Vec<u64> {
    let files = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it lives");
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let is_list = |file: &PathBuf| file.read_link().is_ok_and(|to| to.to_string_lossy().contains("hugepilot-list"));
    files.filter(is_list).filter_map(|file| Some(file.metadata().ok()?.len())).collect()
}

fn start(daemon: &Daemon, kind: &str, rest: &str) -> Program {
    Program::start(&format!("map=96M fill track={}{kind} ready {rest}", daemon.socket().display()))
}

fn a_client_converts_what_it_uses() {
    let daemon = daemon();
    let mut program = start(&daemon, "", "read=third");
    let used = program.regions_named(Rule::Third).len() as u64;
    wait_until("what is used is huge", || program.huge_bytes() >= (used - 2) * 2 * MIB);
    let lists = |shown: Value| number(&shown, "lists");
    wait_until("it is shown", || client(&daemon, program.pid).is_some_and(|shown| lists(shown) >= 1));
    assert!(daemon.ask("status").stdout.contains("libhps client"));
    assert!(program.huge_bytes() <= used * 2 * MIB, "what is not used stays as it is");
    wait_until("the memory of its list is given back", || list_bytes(&daemon) == [0]);
    program.assert_unharmed();
    let pid = program.pid;
    drop(program);
    wait_until("it is forgotten", || client(&daemon, pid).is_none());
}

fn the_pilot_leaves_a_client_to_itself() {
    let daemon = daemon();
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = start(&daemon, ",deaf", &format!("read-until={} untrack read=all", go.display()));
    daemon.reload(&format!("{OFTEN}{}", target(&[&program])), "anew");
    wait_until("it is told", || client(&daemon, program.pid).is_some_and(|client| client["lists"] == 1));
    assert_eq!(program.huge_bytes(), 0);
    fs::write(go, "").expect("a file");
    wait_until("it is promoted from outside once it has left", || program.huge_bytes() >= 80 * MIB);
    assert!(client(&daemon, program.pid).is_none());
}

fn a_client_comes_back_to_a_daemon_that_does() {
    let first = daemon();
    let mut program = start(&first, "", "sleep=4s read=all");
    wait_until("it is there", || client(&first, program.pid).is_some());
    let second = Daemon::start_in(first.kill(), "[[target]]\nname = 'hpt-nobody'\n");
    wait_until("it is there again", || client(&second, program.pid).is_some());
    wait_until("what is used is huge", || program.huge_bytes() >= 90 * MIB);
    program.assert_unharmed();
}

fn who_never_reads_is_told_once_and_holds_nobody_up() {
    let daemon = daemon();
    let mut deaf = start(&daemon, ",deaf", "read=all");
    wait_until("it is told", || client(&daemon, deaf.pid).is_some_and(|client| client["lists"] == 1));
    let mut other = start(&daemon, "", "read=all");
    wait_until("another is served", || other.huge_bytes() >= 90 * MIB);
    assert_eq!(client(&daemon, deaf.pid).expect("it is there still")["lists"], 1);
    assert_eq!(deaf.huge_bytes(), 0);
    deaf.assert_unharmed();
    other.assert_unharmed();
}

fn exec_ends_it() {
    let daemon = daemon();
    let mut program = start(&daemon, ",deaf", "exec map=96M fill read=all");
    wait_until("it is forgotten", || client(&daemon, program.pid).is_none());
    std::thread::sleep(std::time::Duration::from_millis(500));
    program.assert_unharmed();
}

fn who_rests_is_woken_when_its_walks_rise() {
    let daemon = daemon();
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let mut program = start(&daemon, ",rest", &format!("read-until={},third read=all", go.display()));
    wait_until("it rests", || client(&daemon, program.pid).is_some_and(|client| client["resting"] == true));
    // The daemon learns its walks at rest within two seconds.
    std::thread::sleep(std::time::Duration::from_secs(5));
    fs::write(go, "").expect("a file");
    wait_until("it is woken, and all is huge", || program.huge_bytes() >= 90 * MIB);
    program.assert_unharmed();
}

fn a_signal_that_finds_no_room_is_not_needed() {
    let daemon = daemon();
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let mut program = start(&daemon, "", &format!("await={} read=all", go.display()));
    let limit =
        |most: &str| assert!(shell(&format!("prlimit --pid {} --sigpending={most}:", program.pid)).status.success());
    limit("0");
    fs::write(go, "").expect("a file");
    wait_until("it finds the list by itself", || program.huge_bytes() >= 90 * MIB);
    program.assert_unharmed();
}

fn an_arena_takes_reserved_pages_only_if_it_gets_all() {
    let _pool = Setting::reserved(4);
    let backing = |mib: u64, for_children| {
        let arena = Arena::create(mib << 20, for_children).expect("there are addresses");
        let piece = arena.take(1000).expect("there is memory");
        assert!(arena.extent().backed_bytes > 0 && piece.as_ptr() as usize >= arena.extent().address as usize);
        (arena.backing(), arena)
    };
    assert_eq!(backing(8, false).0, ArenaBacking::Pool);
    assert_ne!(backing(8, true).0, ArenaBacking::Pool, "a child could come off badly");
    let (first, held) = backing(6, false);
    assert_eq!(first, ArenaBacking::Pool);
    assert_ne!(backing(6, false).0, ArenaBacking::Pool, "two of four are left, and free but promised");
    // The first arena's pages were reserved when it was made, so it does not matter who takes the remaining ones.
    let (rest, _others) = backing(2, false);
    assert_eq!(rest, ArenaBacking::Pool);
    let large = held.take(5 << 20).expect("it was promised");
    assert!(held.give_back(large.as_ptr() as usize));
    assert_eq!(held.extent().huge_bytes, 6 << 20, "each of them is there, so that no access fails");
}

/// The bits of locked memory are not cleared where clearing must not stall the program, as in one of some gigabytes.
fn locked_memory_that_nobody_uses_is_not_active() {
    const LARGE: u64 = 3584 * MIB;
    let free = kernel::memory::Meminfo::read(&kernel::Root::host()).expect("it can be read").available.0;
    if free < 2 * LARGE {
        return eprintln!("skipped: {free} bytes are free, {} are needed", 2 * LARGE);
    }
    let daemon = daemon();
    let socket = daemon.socket();
    let idle = Program::start(&format!("map=3584M fill lock track={},deaf ready sleep=60s", socket.display()));
    let used = Program::start(&format!("map=96M fill track={},deaf ready read=all", socket.display()));
    wait_until("another is told", || client(&daemon, used.pid).is_some_and(|client| client["lists"] == 1));
    // The daemon has scanned it by now: it came first.
    let seen = client(&daemon, idle.pid).expect("it is there");
    assert!(number(&seen, "active_pages") < 2048 && seen["left_alone"].is_null(), "{seen}");
}
