//! The harness on the real kernel: small runs of every workload, and what is left behind after each kind of end.
//!
//! One test, because the machine has one set of settings and the harness refuses to run twice at once. It asserts what
//! happened, never how fast.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hugepilot_os::PidFd;
use rustix::process::Signal;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const REPORTING: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// Marks our children among all processes.
const SEED: &str = "--seed=70314159";

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugepilot-bench"));
    command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Whether any process was started with our seed, other than this test.
fn our_processes() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| contains(&line, SEED.as_bytes())))
        .count()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not happen within 30 s");
}

/// Starts a long turn under THP=always and waits until it is under way.
fn start_long_turn() -> Child {
    let arguments = ["chase", "--size=64M", "--pattern=dependent", "--configurations=always", "--seconds=600", SEED];
    let child = bench(&arguments).spawn().unwrap();
    until("the child of the harness", || our_processes() >= 2);
    assert!(fs::read_to_string(ENABLED).unwrap().contains("[always]"));
    child
}

fn run_all_workloads(directory: &Path, as_found: &str) {
    let json = directory.join("results.json");
    let plot = directory.join("plot.svg");
    let files = [format!("--json={}", json.display()), format!("--plot={}", plot.display())];
    let common = ["--rounds=1", "--seconds=0.5", "--settle=0.1", "--wait=0.1", "--configurations=default,ideal,always"];
    let mut workloads = vec![
        vec!["chase", "--size=64M", "--pattern=independent"],
        vec!["sweep", "--size=32M", "--pattern=sequential,scattered"],
        vec!["fingerprint", "--songs=100", "--threads=1,2"],
        vec!["local", "--pattern=breadth-first"],
    ];
    if Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_ok() {
        workloads.push(vec!["memcached", "--items=20000"]);
    } else {
        eprintln!("not tested: memcached is not installed");
    }
    for workload in workloads {
        let output = bench(&workload).args(common).args(&files).output().unwrap();
        assert!(output.status.success(), "{workload:?}: {}", String::from_utf8_lossy(&output.stderr));
        let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        for run in results["runs"].as_array().unwrap() {
            let turns = run["turns"].as_array().unwrap();
            assert_eq!(turns.len(), 3, "{workload:?}");
            for search in turns.iter().map(|turn| &turn["search"]).filter(|search| !search.is_null()) {
                assert!(search["queries"].as_u64() > Some(0) && search["found"] == search["queries"], "{search}");
            }
            let huge =
                |name| turns.iter().find(|turn| turn["configuration"] == name).unwrap()["after"]["huge_bytes"].as_u64();
            assert!(huge("ideal").unwrap() > 0, "{workload:?}: nothing was collapsed");
            assert!(
                huge("default").unwrap() == 0 || as_found.contains("[always]"),
                "{workload:?}: the default has huge pages"
            );
        }
        let again = bench(&["report", json.to_str().unwrap()]).output().unwrap();
        assert_eq!(again.stdout, output.stdout, "{workload:?}: the report differs when it is made again");
        assert!(fs::read_to_string(&plot).unwrap().contains("<svg"));
    }
}

/// Ways to start the search from outside: what is there is measured, and pools are as before.
fn start_in_each_way(directory: &Path) {
    let json = directory.join("starts.json");
    let before = pools();
    let configurations =
        "--configurations=libhugetlbfs,tunables-thp,tunables-pool,tunables-pool-1g,jemalloc,mimalloc,mimalloc-1g";
    let mut run = bench(&["fingerprint", "--songs=100", "--threads=1", "--rounds=1", "--seconds=0.5", configurations]);
    let output = run.args(["--settle=0.1", "--wait=0.1", &format!("--json={}", json.display())]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(pools(), before);
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let (run, report) = (&results["runs"][0], String::from_utf8_lossy(&output.stdout).into_owned());
    let turns = run["turns"].as_array().unwrap();
    assert_eq!(turns.len() + run["missing"].as_array().unwrap().len(), 7);
    for turn in turns {
        let bytes = |name: &str| turn["after"][name].as_u64().unwrap();
        let (name, huge) = (turn["configuration"].as_str().unwrap(), bytes("huge_bytes"));
        let obtained = turn["pool"]["obtained"] == turn["pool"]["wanted"];
        match name {
            "tunables-pool" | "tunables-pool-1g" | "mimalloc-1g" if obtained => {
                assert!(huge > 64 << 20, "{name}: {turn}");
            }
            // Their libraries may miss what they were told; the report must not.
            "libhugetlbfs" | "tunables-thp" => {
                let told = report.contains(&format!("{name}: asked for huge pages"));
                assert_eq!(huge * 100 < bytes("own_bytes"), told, "{report}");
            }
            _ => eprintln!("{name}: {huge} bytes on huge pages"),
        }
    }
}

fn pools() -> [String; 2] {
    let size = |page| fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-{page}kB/nr_hugepages"));
    [2 << 10, 1 << 20].map(|page| size(page).unwrap_or_default())
}

/// The counter-example, where hugepilot was built too.
fn have_it_explained(directory: &Path) {
    let hugepilot = Path::new(env!("CARGO_BIN_EXE_hugepilot-bench")).with_file_name("hugepilot");
    if !hugepilot.is_file() {
        eprintln!("not tested: {} is not built", hugepilot.display());
        return;
    }
    let json = directory.join("explained.json");
    let mut run = bench(&["local", "--rounds=1", "--seconds=0.5", "--wait=0.1", "--configurations=explained"]);
    let output = run.arg(format!("--json={}", json.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    for run in results["runs"].as_array().unwrap() {
        let told = &run["turns"][0]["tool"]["output"];
        assert_eq!(told["would_pay_bytes"].as_u64(), Some(0), "{}: {told}", run["workload"]);
    }
}

fn reporting() -> String {
    fs::read_to_string(REPORTING).unwrap_or_default()
}

/// A program that is promoted twice while it is measured, on warm memory: its raw results are kept, and settings are as before.
fn feel_a_promotion(directory: &Path) {
    let hugepilot = Path::new(env!("CARGO_BIN_EXE_hugepilot-bench")).with_file_name("hugepilot");
    if !hugepilot.is_file() {
        eprintln!("not tested: {} is not built", hugepilot.display());
        return;
    }
    let before = reporting();
    let (json, runs) = (directory.join("felt.json"), directory.join("runs"));
    let mut run = bench(&["felt", "reader", "--quick", "--gib=0.125", "--rounds=2", "--seconds=0.6", "--host=warm"]);
    run.arg(format!("--json={}", json.display())).arg(format!("--keep={}", runs.display()));
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(reporting(), before);
    let results: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let turns = results["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    for turn in turns {
        let windows = |phase: &str| turn[phase]["windows"].as_array().unwrap().len();
        assert!(turn["promoted"]["bytes"].as_u64() > Some(64 << 20), "{turn}");
        assert!(windows("alone") > 0 && windows("promotion") > 0, "{turn}");
        assert!(turn["promotion"]["latency"]["p99_ns"].as_u64() > Some(0), "{turn}");
    }
    let kept = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path().join("felt-reader-1.json.zst");
    let again = bench(&["report", kept.to_str().unwrap()]).output().unwrap();
    assert_eq!(again.stdout, output.stdout, "the report differs when it is made again");

    let long = ["felt", "reader", "--quick", "--gib=0.125", "--seconds=600", "--host=warm", SEED];
    let mut interrupted = bench(&long).spawn().unwrap();
    until("the child of the harness", || our_processes() >= 2);
    PidFd::open(interrupted.id()).unwrap().signal(Signal::INT).unwrap();
    assert_eq!(interrupted.wait().unwrap().code(), Some(1));
    assert_eq!((our_processes(), reporting()), (0, before));
}

#[test]
fn the_harness_runs_and_leaves_nothing_behind() {
    hugepilot_os::trial::obey_signals();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: needs root");
        return;
    }
    let as_found = fs::read_to_string(ENABLED).unwrap();
    let probe = bench(&["chase", "--size=1000T", "--configurations=default"]).output().unwrap();
    let message = String::from_utf8_lossy(&probe.stderr);
    if message.contains("another hugepilot-bench") {
        eprintln!("not tested: {message}");
        return;
    }
    assert!(!probe.status.success());

    let directory = tempfile::tempdir().unwrap();
    run_all_workloads(directory.path(), &as_found);
    start_in_each_way(directory.path());
    have_it_explained(directory.path());
    feel_a_promotion(directory.path());
    assert_eq!(fs::read_to_string(ENABLED).unwrap(), as_found);

    let mut interrupted = start_long_turn();
    PidFd::open(interrupted.id()).unwrap().signal(Signal::INT).unwrap();
    assert_eq!(interrupted.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_to_string(ENABLED).unwrap(), as_found);
    assert_eq!(our_processes(), 0);

    let mut killed = start_long_turn();
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the end of the killed harness's child", || our_processes() == 0);
    let next =
        ["chase", "--size=64M", "--pattern=dependent", "--configurations=default", "--rounds=1", "--seconds=0.3"];
    assert!(bench(&next).output().unwrap().status.success());
    assert_eq!(fs::read_to_string(ENABLED).unwrap(), as_found);
}
