//! Tests that only a virtual machine of the tests' own can be put through: `tests/vm` runs these; elsewhere they are skipped.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use kernel::Root;
use kernel::memory::Meminfo;
use kernel::pressure::Pressure;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};

use super::{Daemon, MIB, named, target, wait_until_huge};
use crate::support::{Program, wait_until};

crate::trials!(a_clock_that_jumps, no_contiguous_memory,);

const PAGE: usize = 4096;

/// Whether the machine belongs to the tests; says so if it does not.
fn is_ours() -> bool {
    let ours = std::env::var_os("HUGEPILOT_VM").is_some();
    if !ours {
        eprintln!("the machine is not the tests' own, as in tests/vm: not tested here");
    }
    ours
}

fn set_clock(seconds: u64) {
    let status = Command::new("date").args(["-s", &format!("@{seconds}")]).status().expect("date");
    assert!(status.success());
}

fn a_clock_that_jumps() {
    const DAY: u64 = 86_400;
    if !is_ours() {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let folder = tempfile::tempdir().expect("a folder");
    let start = || Program::command(&mut named(folder.path(), "hpt-clock", "map=32M fill ready read=all"));
    let mut early = start();
    let daemon = Daemon::start("[[target]]\nname = 'hpt-clock'\n");
    wait_until_huge(&early, 28 * MIB);
    for seconds in [now + 365 * DAY, now - 365 * DAY] {
        set_clock(seconds);
        let mut late = start();
        wait_until_huge(&late, 28 * MIB);
        late.assert_unharmed();
    }
    set_clock(now);
    assert!(daemon.target(early.pid).is_some());
    early.assert_unharmed();
}

/// Takes nearly all memory and gives every second page back. Free memory is then in fragments that compaction cannot join, because it must not move
/// locked pages.
fn take_contiguous_memory() -> AlignedMemory {
    fs::write("/proc/sys/vm/compact_unevictable_allowed", "0").expect("a setting");
    let free = || fs::read_to_string("/proc/meminfo").expect("it is there");
    let mut memory =
        AlignedMemory::anonymous((Meminfo::read(&Root::host()).expect("it is there").available.0 * 15 / 16) as usize)
            .unwrap_or_else(|error| panic!("{error}: {}", free()));
    let len = memory.bytes().len();
    memory.advise(0, len, OwnAdvice::NoHugePage).expect("it is ours");
    memory.bytes_mut().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    for offset in (0..len).step_by(2 * PAGE) {
        memory.advise(offset, PAGE, OwnAdvice::DontNeed).expect("it is ours");
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT).expect("root may lock");
    memory
}

/// Takes the contiguous memory that the kernel has kept; once it is used up, faults get base pages.
fn take_the_last_of_it() -> AlignedMemory {
    let mut memory = AlignedMemory::anonymous(512 * MIB as usize).expect("addresses");
    let len = memory.bytes().len();
    memory.advise(0, len, OwnAdvice::HugePage).expect("it is ours");
    memory.bytes_mut().iter_mut().step_by(2 * MIB as usize).for_each(|byte| *byte = 1);
    memory
}

fn no_contiguous_memory() {
    if !is_ours() {
        return;
    }
    let taken = take_contiguous_memory();
    let mut program = Program::start("map=256M fill ready read=all");
    let last = take_the_last_of_it();
    // Taking it stalled programs, and under memory pressure nothing is promoted anyway.
    wait_until("no pressure", || {
        let pressure = Pressure::read(&Root::host()).expect("it can be read");
        pressure.is_none_or(|pressure| pressure.some < 0.05)
    });
    let daemon = Daemon::start(&target(&[&program]));
    let refused = || daemon.status()["counts"]["refused"]["no_contiguous_memory"].as_u64().unwrap_or(0);
    wait_until("it is refused", || refused() > 0);
    let held_back = || daemon.status()["held_back"].as_str().unwrap_or_default().to_owned();
    wait_until("it backs off", || held_back().contains("contiguous"));
    assert!(program.huge_bytes() < 240 * MIB);
    let before = refused();
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert!(refused() - before <= 10, "it tries ever more rarely");
    program.assert_unharmed();
    munlockall().expect("it is ours");
    drop((taken, last));
    // Refused regions rest, longer after repeated refusals.
    let meanwhile = program.huge_bytes();
    wait_until_huge(&program, meanwhile + 8 * MIB);
    program.assert_unharmed();
}
