//! `trial` switches memory by turns, says what that changes, and leaves it as asked, however it ends.

use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cgroup, Program, binary, hugepilot, list, number, program_command, send, wait_until};

crate::trials!(
    memory_is_switched_by_turns_and_left_as_asked,
    a_signal_leaves_memory_as_it_was_found,
    nobody_else_moves_the_memory_meanwhile,
    what_a_killed_trial_left_is_given_back,
    a_trial_after_a_killed_one_knows_what_that_had_found,
    a_placebo_switches_nothing,
    a_program_is_found_by_its_name,
    a_program_is_found_by_its_file_its_control_group_and_its_container,
    who_does_nothing_that_is_counted_is_told,
    system_calls_are_counted_in_another_pid_namespace,
    a_program_that_would_gain_nothing_is_not_tried,
    what_came_of_a_trial_corrects_later_forecasts,
    memory_that_the_kernel_does_not_split_is_not_tried,
);

const MIB: u64 = 1 << 20;

/// A number that grows with the program's CPU time, so that huge pages do not change it.
fn clock_of(program: &Program) -> String {
    format!("cut -d ' ' -f 14 /proc/{}/stat", program.pid)
}

/// Whose outcome corrects no forecast of another test.
fn trial(program: &Program, options: &str) -> Command {
    trial_that_is_kept(program, &format!("{options} --no-calibration"))
}

fn trial_that_is_kept(program: &Program, options: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["trial", &program.pid.to_string(), "--rate", &clock_of(program), "--number", "total"]);
    command.args(["--window", "500ms", "--fast", "--json"]).args(options.split_whitespace());
    command
}

fn begun(program: &Program, options: &str) -> Child {
    let child = trial(program, options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until("it switches to huge pages", || program.huge_bytes() >= 30 * MIB);
    child
}

fn memory_is_switched_by_turns_and_left_as_asked() {
    let mut program = Program::start("map=32M fill ready read=all");
    let output = trial(&program, "--for 20s --leave promoted").output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let windows = list(&json, "windows");
    for pair in windows.chunks(2) {
        assert_ne!(pair[0]["arm"], pair[1]["arm"], "{json}");
    }
    // From the fourth pair on, and once more if time was up.
    let (pairs, course) = (number(&json, "pairs"), list(&json, "course"));
    assert!(pairs >= 4 && (pairs - 3..=pairs - 2).contains(&(course.len() as u64)), "{json}");
    assert_eq!(course[course.len() - 1]["high"], json["change"]["high"], "{json}");
    assert!(number(&json, "switched_bytes") >= 30 * MIB && json["found"] == "base" && json["left"] == "huge", "{json}");
    assert!(json["expected_gain_percent"]["high"].as_f64().is_some(), "{json}");
    assert!(json["expected_from"]["walks_saved_per_second"].as_f64().is_some_and(|walks| walks > 0.0), "{json}");
    assert!(json["verdict"] != "gain" && json["verdict"] != "loss", "a clock runs as fast on huge pages: {json}");
    assert!(program.huge_bytes() >= 30 * MIB);
    // A later trial tries the same memory, and leaves it as that found it.
    let output = trial(&program, "--for 1s --leave as-found").output().expect("it ends");
    let again: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(again["found"] == "huge" && again["left"] == "huge" && program.huge_bytes() >= 30 * MIB, "{again}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("promoted earlier"), "{output:?}");
    hugepilot(&format!("give-back {}", program.pid)).status.success().then_some(()).expect("it is on record");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

/// The machine's record of trials, set aside until this is dropped.
struct RecordAside(Option<Vec<u8>>);

const RECORD: &str = "/var/lib/hugepilot/trials.json";

impl RecordAside {
    fn set() -> Self {
        let record = std::fs::read(RECORD).ok();
        let _ = std::fs::remove_file(RECORD);
        Self(record)
    }
}

impl Drop for RecordAside {
    fn drop(&mut self) {
        let _ = match &self.0 {
            Some(record) => std::fs::write(RECORD, record),
            None => std::fs::remove_file(RECORD),
        };
    }
}

fn what_came_of_a_trial_corrects_later_forecasts() {
    let _aside = RecordAside::set();
    let program = Program::start("map=32M fill ready read=all");
    let output = trial_that_is_kept(&program, "--for 20s --leave as-found").output().expect("it ends");
    let trial: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(trial["expected_gain_from"], "model", "{trial}");
    let record: Value = serde_json::from_slice(&std::fs::read(RECORD).expect("it is kept")).expect("JSON");
    assert_eq!(number(&record[0]["program"]["process"]["process"], "pid"), u64::from(program.pid), "{record}");
    let explained = |options: &str| {
        let output = hugepilot(format!("explain {} --json {options}", program.pid).trim_end());
        serde_json::from_str::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let (corrected, by_model) = (explained(""), explained("--no-calibration"));
    assert_eq!(
        (&corrected["expected_gain_from"], &by_model["expected_gain_from"]),
        (&"its_trial".into(), &"model".into())
    );
    // What was counted was a clock, which gains nothing; what the model thinks likely of so small a program is hardly more.
    let most = |json: &Value| json["expected_gain_percent"]["high"].as_f64().expect("a forecast");
    assert!(most(&corrected) < most(&by_model), "{corrected} {by_model}");
}

fn memory_that_the_kernel_does_not_split_is_not_tried() {
    let program = Program::start("shmem=64M fill fork-reader ready read=all");
    let unread = tempfile::tempdir().expect("a directory");
    let output = trial(&program, "--for 5s --children").output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot be tried by turns") && stderr.contains("promote"), "{stderr}");
    let counts = format!("touch {}; echo 1", unread.path().join("read").display());
    let mut alone = Command::new(binary());
    let output = alone.args(["trial", &program.pid.to_string(), "--rate", &counts]).output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("several processes share the memory"), "also without --children: {stderr}");
    // To find out what a number is takes four seconds or more, and to observe three.
    assert!(!unread.path().join("read").exists(), "it was refused after that");
    assert_eq!(program.huge_bytes(), 0);
    let promoted = hugepilot(&format!("promote {} --children --max-slowdown 40%", program.pid));
    assert!(promoted.status.success(), "{promoted:?}");
    let huge = program.huge_bytes();
    assert!(huge > 2 * MIB, "{promoted:?}");
    let again = trial(&program, "--for 5s --children").output().expect("it ends");
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("does not split these huge pages again"), "{stderr}");
    assert_eq!(program.huge_bytes(), huge, "{stderr}");
}

fn a_signal_leaves_memory_as_it_was_found() {
    let mut program = Program::start("map=32M fill ready read=all");
    let child = begun(&program, "");
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("ended early: stopped by a signal"), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert!(json["left"] == "base" && json["is_over"] == false, "{json}");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

fn nobody_else_moves_the_memory_meanwhile() {
    let program = Program::start("map=32M fill ready read=all");
    // So closely that it does not end by itself.
    let child = begun(&program, "--for 1m --to 0.1%");
    for command in ["promote", "give-back", "attach --for 1s"] {
        let (name, options) = command.split_once(' ').unwrap_or((command, ""));
        hugepilot(format!("{name} {} {options}", program.pid).trim_end())
            .assert_fails_with(&["a trial of process", "wait for its end"]);
    }
    send(child.id(), Signal::INT);
    child.wait_with_output().expect("it ends");
}

fn what_a_killed_trial_left_is_given_back() {
    let mut program = Program::start("map=32M fill ready read=all");
    let mut child = begun(&program, "");
    send(child.id(), Signal::KILL);
    child.wait().expect("it ends");
    hugepilot(&format!("give-back {}", program.pid)).status.success().then_some(()).expect("it is on record");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

fn a_trial_after_a_killed_one_knows_what_that_had_found() {
    let mut program = Program::start("map=32M fill ready read=all");
    let mut child = begun(&program, "");
    send(child.id(), Signal::KILL);
    child.wait().expect("it ends");
    let output = trial(&program, "--for 4s --leave as-found").output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(json["left"], "base", "{output:?}");
    assert_eq!(program.huge_bytes(), 0);
    let marks = |pid: u32| format!("trial-{pid}-");
    let left = std::fs::read_dir("/run/hugepilot").expect("it is there").filter_map(|entry| entry.ok());
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(&marks(program.pid))));
    program.assert_unharmed();
}

fn a_placebo_switches_nothing() {
    let program = Program::start("map=32M fill ready read=all");
    let output = trial(&program, "--placebo --for 1s --leave promoted").output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(json["placebo"] == true && list(&json, "windows").len() >= 2, "{json}");
    assert!(number(&json, "switched_bytes") == 0 && json["left"] == "base", "{json}");
    assert_eq!(program.huge_bytes(), 0);
}

fn a_program_is_found_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let steps = program_command("map=32M fill ready read=all");
    let link = folder.path().join("hpt-tried");
    std::os::unix::fs::symlink(steps.get_program(), &link).expect("a link");
    let program = Program::command(Command::new(&link).args(steps.get_args()));
    let found = |name: &str| {
        let mut command = Command::new(binary());
        command.args(["trial", "--name", name, "--rate", &clock_of(&program), "--number", "total"]);
        command.args(["--placebo", "--window", "500ms", "--for", "1s", "--json"]).output().expect("it ends")
    };
    let json: Value = serde_json::from_slice(&found("hpt-tri*").stdout).expect("a report");
    assert_eq!(number(&json, "pid"), u64::from(program.pid));
    let nobody = found("hpt-nobody");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("no running program matches"), "{nobody:?}");
}

/// A placebo's report on whatever program these options find.
fn placebo_on(options: &[&str], counted: &Program) -> Value {
    let mut command = Command::new(binary());
    command.arg("trial").args(options).args(["--rate", &clock_of(counted), "--number", "total"]);
    let output = command.args(["--placebo", "--window", "500ms", "--for", "1s", "--json"]).output().expect("it ends");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn a_program_is_found_by_its_file_its_control_group_and_its_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let steps = program_command("map=32M fill ready read=all");
    let copy = folder.path().join("tried");
    std::fs::copy(steps.get_program(), &copy).expect("a copy");
    let program = Program::command(Command::new(&copy).args(steps.get_args()));
    let json = placebo_on(&["--exe", copy.to_str().expect("UTF-8")], &program);
    assert_eq!(number(&json, "pid"), u64::from(program.pid));
    let Some(group) = Cgroup::new() else {
        return eprintln!("no group of the memory controller can be made here: groups and containers are not tested");
    };
    let container = group.path.join("docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope");
    std::fs::create_dir(&container).expect("a group below");
    let contained = Program::start(&format!("join-cgroup={} map=32M fill ready read=all", container.display()));
    let named = format!("/{}", group.path.file_name().expect("a name").display());
    for options in [["--cgroup", &named], ["--container", "0123456789ab"]] {
        assert_eq!(number(&placebo_on(&options, &contained), "pid"), u64::from(contained.pid), "{options:?}");
    }
    drop(contained);
    wait_until("an empty group", || std::fs::remove_dir(&container).is_ok());
}

fn who_does_nothing_that_is_counted_is_told() {
    let program = Program::start("map=32M fill ready read=all");
    let ran = hugepilot(&format!("trial {} --window 500ms --fast", program.pid));
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stderr.contains("makes hardly any system calls; count its work by a command (--rate)"), "{ran:?}");
    assert_eq!(program.huge_bytes(), 0, "as it was found");
}

/// In a container, a process has another id than the one by which the kernel's tracepoints know it.
fn system_calls_are_counted_in_another_pid_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r#""$0" program map=32M fill remap ready read=all > "$1" &
        until [ -s "$1" ]; do kill -0 $! || exit 1; sleep 0.1; done
        "$2" trial $! --window 500ms --fast --no-calibration --for 10s --json; status=$?; kill $!; exit $status"#;
    let program = std::env::current_exe().expect("our own path");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .args([program, folder.path().join("ready"), binary().into()])
        .output()
        .expect("util-linux is there");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let windows = list(&json, "windows");
    let counted = |window: &&Value| window["work"].as_f64().is_some_and(|work| work > 50.0);
    assert!(output.status.success() && !windows.is_empty(), "{json}");
    assert_eq!(windows.iter().filter(counted).count(), windows.len(), "{json}");
}

fn a_program_that_would_gain_nothing_is_not_tried() {
    let program = Program::start("map=4M fill ready sleep=3600s");
    let ran = hugepilot(&format!("trial {}", program.pid));
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stderr.contains("nothing to try") && ran.stderr.contains("reason"), "{ran:?}");
}
