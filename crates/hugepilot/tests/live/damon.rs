//! DAMON: set up only in the virtual machine (tests/vm), because another machine may be using its own at any time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::program::Rule;
use crate::support::{Program, binary, hugepilot, list, number, send, shell, wait_until};

crate::trials!(
    the_hot_part_is_found,
    the_hot_part_is_found_in_physical_memory,
    one_in_use_is_left_alone,
    what_a_killed_hugepilot_left_is_put_back,
    auto_takes_it_where_bpf_is_refused,
);

const THREADS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

/// Whether DAMON may be set up here; if not, says why the test is skipped.
fn is_free() -> bool {
    match fs::read_to_string(THREADS) {
        Err(_) => eprintln!("skipped: this kernel has no DAMON"),
        Ok(_) if std::env::var_os("HUGEPILOT_VM").is_none() => {
            eprintln!("skipped: only for the virtual machine (make vm-test)")
        }
        Ok(_) => return true,
    }
    false
}

fn heat(program: &Program, tracker: &str, window: &str) -> Value {
    hugepilot(&format!("heat {} --tracker {tracker} --window {window} --json", program.pid)).json()
}

fn the_hot_part_is_found() {
    finds_the_hot_part("damon-vaddr", "6s");
}

fn the_hot_part_is_found_in_physical_memory() {
    finds_the_hot_part("damon-paddr", "10s");
}

fn finds_the_hot_part(tracker: &str, window: &str) {
    if !is_free() {
        return;
    }
    let program = Program::start("map=128M nohugepage fill ready read=third");
    // DAMON splits its regions at random, so scans are added up until the result is clear. A tracker that knew nothing would find twice as many walks
    // outside that third as in it.
    let mut scans = Vec::new();
    let found = (0..6).any(|_| {
        scans.push(walks_of_the_third(&program, tracker, window));
        let (within, without) = scans.iter().fold((0.0, 0.0), |sum, scan| (sum.0 + scan.0, sum.1 + scan.1));
        within > 2.0 * without
    });
    assert!(found, "within and without: {scans:?}");
    assert_eq!(fs::read_to_string(THREADS).expect("it is there").trim(), "0", "it was put back");
}

/// Walks a second in the memory that the program reads, and in the rest.
fn walks_of_the_third(program: &Program, tracker: &str, window: &str) -> (f64, f64) {
    let json = heat(program, tracker, window);
    assert_eq!((&json["tracker"], &json["meaning"]), (&Value::from(tracker), &Value::from("sampled")));
    let hot = program.regions_named(Rule::Third);
    let walks = |region: &Value| region["walks_per_second"].as_f64().expect("a rate");
    let of_program = list(&json, "regions").iter().filter(|region| program.holds(number(region, "start")));
    let (within, without): (Vec<&Value>, Vec<&Value>) =
        of_program.partition(|region| hot.contains(&number(region, "start")));
    let sum = |regions: &[&Value]| regions.iter().map(|region| walks(region)).sum::<f64>();
    (sum(&within), sum(&without))
}

fn one_in_use_is_left_alone() {
    if !Path::new(THREADS).exists() {
        eprintln!("skipped: this kernel has no DAMON");
        return;
    }
    let program = Program::start("map=4M fill ready read=all");
    let ours = is_free();
    if ours {
        fs::write(THREADS, "1").expect("DAMON can be set up");
    } else if fs::read_to_string(THREADS).expect("it is there").trim() == "0" {
        return;
    }
    let before = fs::read_to_string(THREADS).expect("it is there");
    for tracker in ["damon-vaddr", "damon-paddr"] {
        let ran = hugepilot(&format!("heat {} --tracker {tracker}", program.pid));
        ran.assert_fails_with(&["DAMON is in use by someone else", "left alone", "page-walk"]);
    }
    assert_eq!(fs::read_to_string(THREADS).expect("it is there"), before);
    if ours {
        fs::write(THREADS, "0").expect("DAMON can be put back");
    }
}

fn what_a_killed_hugepilot_left_is_put_back() {
    if !is_free() {
        return;
    }
    let program = Program::start("map=64M nohugepage fill ready read=all");
    for tracker in ["damon-vaddr", "damon-paddr"] {
        killed_and_put_back(&program, tracker);
    }
}

fn killed_and_put_back(program: &Program, tracker: &str) {
    let mut command = Command::new(binary());
    command.args(["heat", &program.pid.to_string(), "--tracker", tracker, "--window", "1m"]);
    let mut child = command.stdout(Stdio::null()).spawn().expect("hugepilot starts");
    wait_until("DAMON is set up", || fs::read_to_string(THREADS).is_ok_and(|threads| threads.trim() == "1"));
    send(child.id(), Signal::KILL);
    child.wait().expect("it ends");
    assert_eq!(fs::read_to_string(THREADS).expect("it is there").trim(), "1");
    heat(program, tracker, "1s");
    assert_eq!(fs::read_to_string(THREADS).expect("it is there").trim(), "0");
}

fn auto_takes_it_where_bpf_is_refused() {
    if !is_free() {
        return;
    }
    let program = Program::start("map=128M fill=all ready read=all");
    // BTF is hidden, so that no BPF program loads.
    let hidden = "unshare -m sh -c 'mount -t tmpfs none /sys/kernel/btf && exec $HUGEPILOT";
    let json = shell(&format!("{hidden} heat {} --window 2s --json'", program.pid)).json();
    assert_eq!(json["tracker"], "damon-vaddr");
    // In such a short window DAMON's samples may all miss some of the memory.
    let mut promoted = Vec::new();
    let all_huge = (0..6).any(|_| {
        let ran = shell(&format!("{hidden} promote {} --window 2s --json'", program.pid)).json();
        promoted.push(number(&ran, "applied"));
        program.huge_bytes() >= 120 << 20
    });
    assert!(all_huge, "regions made huge: {promoted:?}");
    let ran = shell(&format!("{hidden} give-back {} --json'", program.pid)).json();
    assert!(number(&ran, "applied") >= 60 && program.huge_bytes() == 0, "{ran}");
}
