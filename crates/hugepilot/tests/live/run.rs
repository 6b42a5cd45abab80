//! `run`: a piloted program behaves as it would without the pilot, and its memory gets huge pages.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::CORRUPTED;
use crate::support::{Program, Ran, binary, finish, hugepilot, list, number, program_command, send, shell};

crate::trials!(
    the_exit_status_is_the_programs,
    a_signal_that_ended_the_program_shows_in_the_status,
    signals_are_passed_on,
    an_interrupt_from_the_terminal_reaches_the_program_once,
    ignored_signals_stay_ignored,
    input_output_and_errors_are_the_programs_own,
    options_after_the_program_are_the_programs,
    memory_is_promoted_and_the_summary_says_so,
    memory_allocated_later_is_promoted_too,
    children_of_the_program_are_piloted,
    a_program_that_ends_at_once_is_still_summed_up,
    a_program_that_cannot_be_started_is_an_error,
    a_summary_that_cannot_be_written_keeps_the_program_from_starting,
    a_program_that_switched_huge_pages_off_is_left_alone,
    a_virtual_machine_is_left_alone,
    a_program_that_stays_small_is_left_alone,
    a_size_holds_for_all_processes_together,
);

/// `hugepilot run` of one of our programs, with the command that starts it.
fn run_program(options: &[&str], steps: &str) -> Command {
    let program = program_command(steps);
    let mut command = Command::new(binary());
    command.arg("run").args(options).arg("--").arg(program.get_program()).args(program.get_args());
    command
}

/// Short windows; and a larger CPU quota, because a debug build would otherwise rest for seconds to stay within it.
const OFTEN: &str = "--window 200ms --max-cpu 50%";

/// Runs one of our programs under the pilot until it ends, and reads the summary.
fn summary_of(steps: &str) -> (Ran, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("summary.json");
    let mut options: Vec<&str> = OFTEN.split(' ').collect();
    options.extend(["--max-growth", "10%", "--summary-json", file.to_str().expect("UTF-8")]);
    let ran = finish(&mut run_program(&options, steps));
    (ran, read_summary(&file))
}

fn read_summary(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("a summary");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["version"], 1);
    json
}

fn the_exit_status_is_the_programs() {
    for status in [0, 7, 255] {
        assert_eq!(shell(&format!("$HUGEPILOT run -- sh -c 'exit {status}'")).status.code(), Some(status));
    }
}

fn a_signal_that_ended_the_program_shows_in_the_status() {
    for (signal, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let ran = shell(&format!("$HUGEPILOT run -- sh -c 'kill -{signal} $$'"));
        assert_eq!(ran.status.code(), Some(128 + number), "{ran:?}");
    }
}

fn signals_are_passed_on() {
    let signals = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
    for (signal, name) in signals.into_iter().zip(["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"]) {
        // It gives up after some ten seconds, so that a signal that is not passed on fails the test and does not hang it.
        let wait = "for i in $(seq 500); do sleep 0.02; done";
        let script = format!("trap 'echo caught {name}; exit 42' {name}; echo ready; {wait}");
        let mut child = piped(Command::new(binary()).args(["run", "--", "sh", "-c", &script]));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "ready");
        send(child.id(), signal);
        assert_eq!(lines.next().expect("a line").expect("text"), format!("caught {name}"));
        assert_eq!(child.wait().expect("it ends").code(), Some(42), "{name}");
    }
}

fn an_interrupt_from_the_terminal_reaches_the_program_once() {
    // script(1) gives its command a separate terminal, whose line discipline turns the byte 3 into a signal.
    // The shell is busy, because a waiting shell would take two signals for one.
    let busy = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
    let program = format!("trap 'echo caught' INT; echo ready; {busy}; exit 42");
    // script runs it with $SHELL; a shell that stayed in between, as dash does, would also get the signal and end.
    let command = format!("exec {} run -- sh -c \"{}\"", binary(), program.replace('$', "\\$"));
    let mut child = piped(Command::new("script").args(["--quiet", "--return", "--command", &command, "/dev/null"]));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // hugepilot may print a line about what to expect first.
    let ready = lines.by_ref().map_while(Result::ok).find(|line| !line.starts_with("hugepilot: "));
    assert_eq!(ready.expect("a line").trim_end(), "ready");
    child.stdin.as_mut().expect("piped").write_all(b"\x03").expect("a terminal that listens");
    let caught = lines.map_while(Result::ok).filter(|line| line.trim_end().ends_with("caught")).count();
    assert_eq!((child.wait().expect("it ends").code(), caught), (Some(42), 1));
}

fn ignored_signals_stay_ignored() {
    let script = "trap '' HUP; exec $HUGEPILOT run -- sh -c 'echo ready; read line; exit 5'";
    let mut child = piped(Command::new("sh").args(["-c", script]).env("HUGEPILOT", binary()));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    send(child.id(), Signal::HUP);
    send(child.id(), Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    child.stdin.take().expect("piped").write_all(b"\n").expect("a program that listens");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hugepilot starts")
}

fn input_output_and_errors_are_the_programs_own() {
    let mut child = piped(Command::new(binary()).args(["run", "--", "sh", "-c", "cat; echo oops >&2"]));
    child.stdin.take().expect("piped").write_all(b"one\0two\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"one\0two\n");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    let (own, ours): (Vec<&str>, Vec<&str>) = stderr.lines().partition(|line| !line.starts_with("hugepilot: "));
    assert_eq!((own, ours.is_empty()), (vec!["oops"], false), "{stderr}");
}

fn options_after_the_program_are_the_programs() {
    let ran = hugepilot("run echo --json -x");
    assert_eq!((ran.status.code(), ran.stdout.as_str()), (Some(0), "--json -x\n"), "{ran:?}");
}

fn memory_is_promoted_and_the_summary_says_so() {
    let (ran, json) = summary_of("map=128M fill read-until-huge=40M,third read=third,6s exit=7");
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    assert_eq!((number(&json, "exit_status"), &json["signal"]), (7, &Value::Null));
    assert_eq!(list(&json, "command").last(), Some(&Value::from("exit=7")));
    let (applied, huge) = (number(&json, "applied"), number(&json, "huge_after_bytes"));
    assert!((20..=24).contains(&applied) && huge == applied << 21, "{json}");
    assert!(number(&json, "rounds") >= 2 && number(&json, "pilot_cpu_ns") > 0, "{json}");
    let walks = |name: &str| json[name].as_f64().expect("a rate");
    assert!(walks("walks_after_per_second") < walks("walks_before_per_second") / 3.0, "{json}");
    assert!(walks("seconds") >= 6.0);
    let summary: Vec<&str> = ran.stderr.lines().collect();
    assert!(summary.len() <= 6 && summary.iter().all(|line| line.starts_with("hugepilot: ")), "{summary:?}");
    assert!(ran.stderr.contains(&format!("{applied} regions promoted")), "{summary:?}");
}

fn memory_allocated_later_is_promoted_too() {
    let (ran, json) = summary_of("map=64M fill read-until-huge=64M map=64M fill read-until-huge=124M");
    assert_ne!(ran.status.code(), Some(CORRUPTED.into()));
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(number(&json, "applied") >= 60, "{json}");
}

fn children_of_the_program_are_piloted() {
    let program = program_command("map=64M fill read=all,8s");
    let path = program.get_program().to_str().expect("UTF-8");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("summary.json");
    let ran = shell(&format!(
        "$HUGEPILOT run {OFTEN} --summary-json {} -- sh -c '{path} program map=64M fill read-until-huge=60M; exit 3'",
        file.display()
    ));
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert!(number(&read_summary(&file), "applied") >= 30);
}

fn a_program_that_ends_at_once_is_still_summed_up() {
    let ran = hugepilot("run -- true");
    assert!(ran.status.success() && ran.stderr.contains("ended before it could be observed"), "{ran:?}");
}

fn a_program_that_cannot_be_started_is_an_error() {
    hugepilot("run -- no-such-program-anywhere").assert_fails_with(&[
        "no-such-program-anywhere",
        "no such program",
        "PATH",
    ]);
    hugepilot("run -- /etc/passwd").assert_fails_with(&["/etc/passwd", "not executable", "chmod +x"]);
    hugepilot("run -- /tmp").assert_fails_with(&["/tmp"]);
}

fn a_summary_that_cannot_be_written_keeps_the_program_from_starting() {
    let ran = hugepilot("run --summary-json /no/such/folder/summary.json -- echo started");
    ran.assert_fails_with(&["/no/such/folder/summary.json", "not started"]);
    assert_eq!(ran.stdout, "");
}

fn a_program_that_switched_huge_pages_off_is_left_alone() {
    let (ran, json) = summary_of("thp-disable map=64M fill read=all,2s");
    assert_eq!((number(&json, "applied"), number(&json, "rounds")), (0, 0), "{json}");
    assert!(ran.stderr.contains("left alone: process") && ran.stderr.contains("PR_SET_THP_DISABLE"), "{ran:?}");
    assert_eq!(list(&json, "left_alone").len(), 1, "{json}");
}

fn a_virtual_machine_is_left_alone() {
    if Program::try_start("kvm map=4M ready").is_none() {
        eprintln!("no virtual machine can be made here: only the unit test of `holds_kvm` has it");
        return;
    }
    let (ran, json) = summary_of("kvm map=64M fill read=all,2s");
    assert_eq!(number(&json, "rounds"), 0, "{json}");
    assert!(ran.stderr.contains("left alone: process") && ran.stderr.contains("virtual machine"), "{ran:?}");
}

fn a_program_that_stays_small_is_left_alone() {
    let ran = hugepilot("run -- sleep 2");
    assert!(ran.status.success() && ran.stderr.contains("too small to be observed"), "{ran:?}");
}

fn a_size_holds_for_all_processes_together() {
    let program = program_command("map=64M fill read=all,4s");
    let path = program.get_program().to_str().expect("UTF-8");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("summary.json");
    let one = format!("{path} program map=64M fill read=all,4s");
    let ran = shell(&format!(
        "$HUGEPILOT run {OFTEN} --max-huge 42M --summary-json {} -- sh -c '{one} & {one} & wait'",
        file.display()
    ));
    assert!(ran.status.success() && ran.stderr.contains("sums over 2 processes"), "{ran:?}");
    let json = read_summary(&file);
    assert_eq!(number(&json, "processes"), 2, "{json}");
    // Fewer, or none, if a program ended while one's regions were making room for the other's; alone each would have 42 MiB.
    assert!(number(&json, "applied") > 0 && number(&json, "huge_after_bytes") <= 42 << 20, "{json}");
}
