//! `heat --children` and `heat --cgroup`: shared memory appears once, with each process's mappings.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use heat::units::HUGE_PAGE;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Cgroup, Ended, Program, Ran, Setting, hugepilot, list, number, send, wait_until, wait_until_watched,
};

crate::trials!(
    memory_shared_by_fork_is_one_object_with_two_mappings,
    a_file_in_memory_is_one_object_in_a_control_group,
    reserved_huge_pages_are_there_once_and_unobserved,
    who_cannot_be_observed_is_said,
    a_process_that_ends_meanwhile_is_left_out,
    a_process_that_execs_meanwhile_is_left_out,
    a_signal_keeps_what_was_seen,
    text_for_people_names_both_mappings,
    groups_that_are_not_there,
);

const MIB: u64 = 1 << 20;

/// A program that shares 64 MiB with a child, which reads all of it. The program reads a third of it, and has 16 MiB of its own.
const SHARING: &str = "map=16M nohugepage fill shmem=64M fill fork-reader ready read=third";

fn family(program: &Program) -> Value {
    hugepilot(&format!("heat {} --children --window 300ms --json", program.pid)).json()
}

/// The shared object of this name with the most memory present.
fn object<'a>(json: &'a Value, name: &str) -> &'a Value {
    let named =
        list(json, "shared").iter().filter(|object| object["name"].as_str().is_some_and(|it| it.contains(name)));
    named.max_by_key(|object| number(object, "pages_present")).unwrap_or_else(|| panic!("no '{name}' in {json}"))
}

fn walks(json: &Value) -> f64 {
    json["walks_per_second"].as_f64().unwrap_or_else(|| panic!("no walks in {json}"))
}

fn sum(items: &[Value], value: impl Fn(&Value) -> f64) -> f64 {
    items.iter().map(value).sum()
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * (1.0 + one.abs())
}

fn memory_shared_by_fork_is_one_object_with_two_mappings() {
    for (kind, name) in [("shmem", "/dev/zero"), ("memfd", "/memfd:"), ("sysv", "/SYSV00000000")] {
        let program = Program::start(&SHARING.replace("shmem", kind));
        let json = family(&program);
        let shared = object(&json, name);
        assert_eq!((number(shared, "pages_present") * 4096, number(shared, "huge_bytes")), (64 * MIB, 0), "{shared}");
        let mappings = list(shared, "mappings");
        let places = mappings.iter().map(|mapping| (number(mapping, "start"), number(mapping, "len")));
        assert_eq!(places.collect::<Vec<_>>(), [(program.start, 64 * MIB); 2], "{shared}");
        let pids: BTreeSet<u64> = mappings.iter().map(|mapping| number(mapping, "pid")).collect();
        assert!(pids.len() == 2 && pids.contains(&program.pid.into()), "{shared}");
        assert!(mappings.iter().all(|mapping| walks(mapping) > 0.0), "both read it: {shared}");
        assert_eq!(list(shared, "regions").len() as u64, 64 * MIB / HUGE_PAGE);
        assert!(close(sum(mappings, walks), walks(shared)), "{shared}");
        assert_totals(&json, 2);
    }
}

/// Totals are sums, with shared memory counted once.
fn assert_totals(json: &Value, processes: u64) {
    let (totals, all, shared) = (&json["totals"], list(json, "processes"), list(json, "shared"));
    assert_eq!((number(totals, "processes"), all.len() as u64), (processes, processes), "{json}");
    assert!(close(walks(totals), sum(all, walks)), "{totals}");
    assert!(close(walks(&totals["private"]), sum(all, |process| walks(&process["private"]))), "{totals}");
    assert!(close(walks(&totals["shared"]), sum(shared, walks)), "{totals}");
    let present = |item: &Value| number(item, "pages_present") as f64;
    let once = sum(all, |process| present(&process["private"])) + sum(shared, present);
    assert!(close(present(totals), once), "{totals}");
    assert!(present(totals) < sum(all, present), "shared memory was counted twice: {totals}");
}

fn a_file_in_memory_is_one_object_in_a_control_group() {
    let Some(group) = Cgroup::new() else {
        return eprintln!("no group of the memory controller can be made here: not tested");
    };
    let folder = tempfile::Builder::new().prefix("hugepilot").tempdir_in("/dev/shm").expect("a folder in memory");
    let path = folder.path().join("cache");
    File::create(&path).and_then(|file| file.set_len(32 * MIB)).expect("a file in memory");
    // The second is in a child group.
    let below = group.path.join("below");
    fs::create_dir(&below).expect("a group below");
    let steps =
        |group: &Path, fill| format!("join-cgroup={} file={} {fill}ready read=all", group.display(), path.display());
    let programs = [Program::start(&steps(&group.path, "fill ")), Program::start(&steps(&below, ""))];
    for named in [group.path.display().to_string(), format!("/{}", group.path.file_name().unwrap().display())] {
        let json = hugepilot(&format!("heat --cgroup {named} --window 300ms --json")).json();
        let shared = object(&json, path.to_str().expect("UTF-8"));
        assert_eq!(number(shared, "pages_present") * 4096, 32 * MIB, "{shared}");
        let mut found: Vec<u64> = list(shared, "mappings").iter().map(|mapping| number(mapping, "pid")).collect();
        let mut pids = programs.each_ref().map(|program| u64::from(program.pid));
        found.sort_unstable();
        pids.sort_unstable();
        assert_eq!(found, pids, "{shared}");
        assert_totals(&json, 2);
    }
    drop(programs);
    wait_until("an empty group", || fs::remove_dir(&below).is_ok());
    let empty = hugepilot(&format!("heat --cgroup {}", group.path.display()));
    empty.assert_fails_with(&["holds no process", "choose a group above"]);
}

fn reserved_huge_pages_are_there_once_and_unobserved() {
    let _pool = Setting::reserved(17);
    let Some(program) = Program::try_start("pool=32M fill fork-reader ready read=resident") else {
        return eprintln!("no 17 huge pages can be reserved here: not tested");
    };
    let json = family(&program);
    let shared = object(&json, "/anon_hugepage");
    assert_eq!(
        (number(shared, "pages_present") * 4096, number(shared, "huge_bytes")),
        (32 * MIB, 32 * MIB),
        "{shared}"
    );
    // Nobody can clear their bits, which say "walked" forever: unobservable memory must not seem hot.
    assert_eq!((number(shared, "pages_walked"), walks(shared)), (0, 0.0), "{shared}");
    assert_eq!(number(&json["totals"], "pages_unobserved") * 4096, 64 * MIB, "{json}");
    assert!(list(shared, "regions").iter().all(|region| number(region, "huge_in") == 2), "{shared}");
    assert_totals(&json, 2);
}

fn who_cannot_be_observed_is_said() {
    // A zombie: the shell that started it has become a program that never calls wait().
    let script = "true & exec sleep 60";
    let parent = Ended(Command::new("sh").args(["-c", script]).spawn().expect("a shell"));
    let pid = parent.0.id();
    wait_until("sleep runs", || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"));
    let mut json = Value::Null;
    wait_until("a zombie", || {
        json = hugepilot(&format!("heat {pid} --children --window 100ms --json")).json();
        list(&json, "left_out").iter().any(|left| left["reason"].as_str().is_some_and(|why| why.contains("zombie")))
    });
    assert_eq!(number(&json["totals"], "processes"), 1, "{json}");
    hugepilot("heat 2 --children").assert_fails_with(&["no process of the group could be observed", "process 2"]);
}

/// An idle parent and child with 8 MiB each; the child takes these steps. `$GO` is a file that does not exist yet.
struct Pair {
    parent: Ended,
    child: u32,
    folder: tempfile::TempDir,
}

impl Pair {
    fn start(steps: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program =
            format!("{} program map=8M nohugepage fill", std::env::current_exe().expect("our path").display());
        let rest = "ready sleep=60s";
        let script = format!("{program} {steps} & echo $! > $CHILD; exec {program} {rest}");
        let (go, child) = (folder.path().join("go"), folder.path().join("child"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("GO", go).env("CHILD", &child).stdout(Stdio::piped());
        let mut parent = Ended(command.spawn().expect("a shell"));
        let mut lines = BufReader::new(parent.0.stdout.take().expect("piped")).lines();
        assert_eq!(lines.by_ref().take(2).filter(|line| line.is_ok()).count(), 2, "both are ready");
        let child = fs::read_to_string(child).expect("the shell wrote it").trim().parse().expect("a process id");
        Self { parent, child, folder }
    }

    /// Starts a scan of both, the parent first.
    fn watch(&self) -> Child {
        let mut command = Command::new(crate::support::binary());
        command.args(["heat", &self.parent.0.id().to_string(), "--children", "--window", "3s"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("hugepilot starts")
    }

    fn go(&self) {
        fs::write(self.folder.path().join("go"), "").expect("a file");
    }
}

fn assert_only_one_was_seen(hugepilot: Child, reasons: &[&str]) {
    let ran = Ran::of(hugepilot.wait_with_output().expect("it ends"));
    assert!(ran.status.success() && ran.stdout.contains("1 process, "), "{ran:?}");
    let why = ran.stdout.lines().find(|line| line.starts_with("  left out: "));
    assert!(why.is_some_and(|line| reasons.iter().any(|reason| line.contains(reason))), "{ran:?}");
}

fn a_process_that_ends_meanwhile_is_left_out() {
    let pair = Pair::start("ready await=$GO exit=0");
    let hugepilot = pair.watch();
    wait_until_watched(pair.parent.0.id(), 8 * MIB);
    pair.go();
    assert_only_one_was_seen(hugepilot, &["exited", "has ended", "zombie"]);
}

fn a_process_that_execs_meanwhile_is_left_out() {
    let pair = Pair::start("ready await=$GO exec map=4M fill sleep=60s");
    let hugepilot = pair.watch();
    wait_until_watched(pair.child, 8 * MIB);
    pair.go();
    assert_only_one_was_seen(hugepilot, &["(exec)"]);
}

fn a_signal_keeps_what_was_seen() {
    let pair = Pair::start("ready sleep=60s");
    let hugepilot = pair.watch();
    wait_until_watched(pair.child, 8 * MIB);
    send(hugepilot.id(), Signal::INT);
    assert_only_one_was_seen(hugepilot, &["stopped by a signal"]);
}

fn text_for_people_names_both_mappings() {
    let program = Program::start(SHARING);
    let ran = hugepilot(&format!("heat {} --children --window 300ms", program.pid));
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    let title = ran.stdout.lines().position(|line| line.contains("/dev/zero (deleted) (inode ")).expect("the object");
    let mappings: Vec<&str> = ran.stdout.lines().skip(title + 1).take(2).collect();
    assert!(mappings.iter().all(|line| line.contains(": 64 MiB at 0x")), "{}", ran.stdout);
    assert!(mappings.iter().any(|line| line.contains(&format!("  in {}: ", program.pid))), "{}", ran.stdout);
}

fn groups_that_are_not_there() {
    hugepilot("heat --cgroup /no/such/group").assert_fails_with(&["'/no/such/group'", "/proc/PID/cgroup"]);
    hugepilot("heat --cgroup /../../proc").assert_fails_with(&["no control group '/../../proc'"]);
    hugepilot("heat 4194999 --children").assert_fails_with(&["no process 4194999 here", "pid namespace"]);
}
