//! Memory that several targets share.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Daemon, MIB, target};
use crate::support::{Program, number, wait_until};

crate::trials!(a_memfd_is_promoted_once_and_mapped_huge_in_both);

fn a_memfd_is_promoted_once_and_mapped_huge_in_both() {
    let file = File::from(memfd_create("hugepilot-shared", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(64 * MIB).expect("room");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut one = Program::start(&format!("file={path} fill ready read=all"));
    let mut other = Program::start(&format!("file={path} ready read=all"));
    let daemon = Daemon::start(&format!("max-huge = '1G'\n{}", target(&[&one, &other])));
    wait_until("huge in both", || one.huge_bytes() >= 60 * MIB && other.huge_bytes() >= 60 * MIB);
    let shown = || [one.pid, other.pid].map(|pid| daemon.target(pid).map_or(0, |target| number(&target, "huge_bytes")));
    wait_until("it shows both", || shown().iter().all(|&huge| huge >= 60 * MIB));
    let status = daemon.status();
    assert!((60 * MIB..=64 * MIB).contains(&number(&status["budget"], "huge_bytes")), "counted once: {status}");
    assert!(number(&status["counts"], "promoted") <= 32, "promoted once: {status}");
    one.assert_unharmed();
    other.assert_unharmed();
}
