//! What a daemon takes for itself: rights, memory, file descriptors; and the metrics that tell of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use heat::units::Bytes;

use super::{Daemon, MIB, target, wait_until_huge};
use crate::support::{PATIENCE, Program, wait_for};

crate::trials!(
    metrics_are_served_without_cap_sys_admin,
    memory_and_file_descriptors_are_bounded,
    much_memory_is_watched_with_little,
);

/// `CAP_SYS_ADMIN` in `linux/capability.h`.
const SYS_ADMIN: u64 = 1 << 21;

fn metrics_are_served_without_cap_sys_admin() {
    let program = Program::start("map=64M fill ready read=all");
    // A port that was free just now.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let daemon = Daemon::start(&format!("metrics = '{address}'\n{}", target(&[&program])));
    wait_until_huge(&program, 60 * MIB);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it lives");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    let capabilities = u64::from_str_radix(capabilities.trim(), 16).expect("hexadecimal");
    assert!(capabilities != 0 && capabilities & SYS_ADMIN == 0, "{capabilities:#x}");
    let mut stream = TcpStream::connect(address).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\nhugepilot_targets 1.0\n"), "{answer}");
}

fn memory_and_file_descriptors_are_bounded() {
    let mut program = Program::start("map=512M fill ready read=all");
    let daemon = Daemon::start(&target(&[&program]));
    wait_until_huge(&program, 500 * MIB);
    let open = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it lives").count();
    let before = open();
    daemon.scan_again(10);
    assert!(open() <= before, "{before} file descriptors became {}", open());
    let most = most_resident(&daemon);
    assert!(most <= Bytes(32 * MIB), "{most} at most");
    program.assert_unharmed();
}

fn much_memory_is_watched_with_little() {
    let mut program = Program::start("map=128G fill=lone ready read=lone");
    let daemon = Daemon::start(&target(&[&program]));
    let scanned = || daemon.status()["counts"]["scans"].as_u64().is_some_and(|scans| scans > 0);
    // A build for tests works on so much for half a minute, with the CPUs to itself.
    wait_for("it was scanned", 3 * PATIENCE, scanned);
    let most = most_resident(&daemon);
    assert!(most <= Bytes((32 + 2 * 4) * MIB), "{most} at most");
    program.assert_unharmed();
}

fn most_resident(daemon: &Daemon) -> Bytes {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it lives");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    Bytes(most.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10)
}
