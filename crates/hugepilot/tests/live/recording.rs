//! `record`, `replay` and pictures: what was observed can be shown again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::heat::RUN_AHEAD;
use crate::program::Rule;
use crate::support::{Ended, Program, Ran, binary, hugepilot, list, number, send, wait_until};

crate::trials!(
    a_recording_replays_what_was_seen,
    a_plan_from_a_recording_is_the_one_made_there,
    a_signal_and_the_end_of_the_program_end_a_recording_properly,
    a_recording_that_was_killed_still_shows_what_came_before,
    files_are_never_overwritten_nor_believed,
    a_picture_is_drawn,
    memory_that_comes_and_goes_while_it_is_watched_is_seen,
    a_program_that_forks_while_it_is_watched,
    a_program_that_ends_while_it_is_watched,
    a_program_that_execs_while_it_is_watched,
    both_programs_are_in_the_recording_of_an_exec,
);

/// Records a program for two seconds.
pub fn recorded(folder: &Path, steps: &str) -> (Program, String) {
    let program = Program::start(steps);
    let file = folder.join("recording").to_str().expect("UTF-8").to_owned();
    let ran = hugepilot(&format!("record -o {file} {} --for 2s --every 400ms --window 300ms", program.pid));
    assert!(ran.status.success() && ran.stdout.contains("observations of process"), "{ran:?}");
    (program, file)
}

fn a_recording_replays_what_was_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, file) = recorded(folder.path(), "map=64M nohugepage fill ready read=third");
    // On a busy machine the program may not run at all during one of them.
    let observations = observations(Path::new(&file));
    let hot = program.regions_named(Rule::Third);
    let is_hot = |region: &&Value| hot.contains(&number(region, "start"));
    let seen = |json: &&Value| -> u64 {
        list(json, "regions").iter().filter(is_hot).map(|region| number(region, "pages_walked")).sum()
    };
    let json = observations.iter().max_by_key(seen).expect("there are some");
    assert_eq!(number(json, "pid"), u64::from(program.pid));
    let regions = list(json, "regions").iter().filter(|region| program.holds(number(region, "start")));
    for region in regions {
        let walked = number(region, "pages_walked") > RUN_AHEAD as u64;
        assert_eq!((number(region, "pages_present"), walked), (512, is_hot(&region)), "{region}");
    }
    let text = hugepilot(&format!("replay {file} --observation 2"));
    assert!(text.status.success() && text.stdout.contains("observation 2 of"), "{text:?}");
    hugepilot(&format!("replay {file} --observation 99")).assert_fails_with(&["observations", "from 1"]);
}

fn a_plan_from_a_recording_is_the_one_made_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, file) = recorded(folder.path(), "map=64M fill ready read=third");
    let json = hugepilot(&format!("replay {file} --plan --json")).json();
    let promoted = list(&json, "decisions").iter().filter(|decision| decision["verdict"] == "promote");
    let promoted: Vec<u64> = promoted.map(|decision| number(decision, "start")).collect();
    let hot = program.regions_named(Rule::Third);
    let covered = json["reasons"]["covered"].as_u64().unwrap_or(0) as usize;
    assert!(!promoted.is_empty() && promoted.len() + covered >= 9, "{json}");
    assert!(promoted.iter().filter(|start| program.holds(**start)).all(|start| hot.contains(start)), "{json}");
    assert_eq!(program.huge_bytes(), 0);
}

fn a_signal_and_the_end_of_the_program_end_a_recording_properly() {
    let folder = tempfile::tempdir().expect("a folder");
    for ends in ["signal", "exit"] {
        let go = folder.path().join("go");
        let program = Program::start(&format!("map=16M fill ready await={} exit=0", go.display()));
        let recorder = Recorder::of(&program, folder.path().join(ends));
        recorder.wait_for_an_observation();
        if ends == "signal" {
            send(recorder.child.0.id(), Signal::INT);
        } else {
            fs::write(&go, "").expect("a file");
        }
        let file = recorder.finish();
        let replayed = hugepilot(&format!("replay {}", file.display()));
        assert!(replayed.status.success() && replayed.stderr.is_empty(), "{ends}: {replayed:?}");
    }
}

fn a_recording_that_was_killed_still_shows_what_came_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("killed");
    let program = Program::start("map=16M fill ready read=all");
    let mut recorder = Recorder::of(&program, file.clone());
    recorder.wait_for_an_observation();
    send(recorder.child.0.id(), Signal::KILL);
    recorder.child.0.wait().expect("it ends");
    let ran = hugepilot(&format!("replay {}", file.display()));
    assert!(ran.status.success() && ran.stdout.contains("recording of"), "{ran:?}");
    assert!(ran.stderr.contains("ends early"), "{ran:?}");
}

fn files_are_never_overwritten_nor_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine");
    fs::write(&file, "precious").expect("a file");
    let program = Program::start("map=4M fill ready read=all");
    let name = file.display();
    hugepilot(&format!("record -o {name} {}", program.pid)).assert_fails_with(&["is there already", "another name"]);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "precious");
    hugepilot(&format!("replay {name}")).assert_fails_with(&["not a recording", "hugepilot record"]);
    hugepilot("replay /no/such/file").assert_fails_with(&["cannot read", "/no/such/file"]);
}

fn a_picture_is_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = Program::start("map=16M fill ready read=all");
    let (png, html) = (folder.path().join("a.png"), folder.path().join("a.html"));
    let words =
        format!("heat {} --window 200ms --for 600ms --plot {} --html {}", program.pid, png.display(), html.display());
    let ran = hugepilot(&words);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(&fs::read(png).expect("a picture")[..8], b"\x89PNG\r\n\x1a\n");
    assert!(fs::read_to_string(html).expect("a page").contains("\"cells\":[["));
    let failed = hugepilot(&format!("heat {} --window 100ms --plot /no/such/folder/a.png", program.pid));
    failed.assert_fails_with(&["/no/such/folder/a.png"]);
    let none: Option<Value> = serde_json::from_str(&failed.stdout).ok();
    assert_eq!(none, None);
}

/// A running `record`.
struct Recorder {
    child: Ended,
    file: PathBuf,
}

impl Recorder {
    /// Starts recording a program, with scans in quick succession.
    fn of(program: &Program, file: PathBuf) -> Self {
        let mut command = Command::new(binary());
        command.args(["record", &program.pid.to_string(), "--every", "200ms", "--window", "100ms", "-o"]).arg(&file);
        let child = command.stdout(Stdio::null()).spawn().expect("hugepilot starts");
        Self { child: Ended(child), file }
    }

    fn wait_for_an_observation(&self) {
        wait_until("an observation", || fs::metadata(&self.file).is_ok_and(|file| file.len() > 500));
    }

    /// Waits until an observation shows the program with about this many MiB present; its other memory takes a few MiB.
    fn wait_for_mebibytes(&self, mib: u64) {
        wait_until("its size is recorded", || {
            let size = observations(&self.file).last().map(|json| number(json, "pages_present") * 4096);
            size.is_some_and(|size| (mib << 20..(mib + 8) << 20).contains(&size))
        });
    }

    /// Waits until it ends by itself.
    fn finish(mut self) -> PathBuf {
        assert!(self.child.0.wait().expect("it ends").success());
        self.file
    }
}

/// A recording's observations, in order.
fn observations(file: &Path) -> Vec<Value> {
    let of = |number: usize| hugepilot(&format!("replay {} --observation {number} --json", file.display()));
    (1..).map(of).take_while(|ran| ran.status.success()).map(|ran| ran.json()).collect()
}

fn memory_that_comes_and_goes_while_it_is_watched_is_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    for (steps, first, last) in [
        ("map=8M nohugepage fill ready await=GO map=32M nohugepage fill sleep=60s", 8, 40),
        ("map=8M nohugepage fill map=32M nohugepage fill ready await=GO unmap sleep=60s", 40, 8),
    ] {
        let go = folder.path().join(format!("go-{last}"));
        let program = Program::start(&steps.replace("GO", &go.display().to_string()));
        let recorder = Recorder::of(&program, folder.path().join(format!("to-{last}")));
        recorder.wait_for_mebibytes(first);
        fs::write(&go, "").expect("a file");
        recorder.wait_for_mebibytes(last);
        send(recorder.child.0.id(), Signal::INT);
        recorder.finish();
    }
}

/// A program that waits for its files `A` and `B`, and hugepilot running this command on it.
fn watched(folder: &Path, steps: &str, words: &str) -> (Program, Child) {
    watched_saying(folder, steps, words, "warn")
}

/// The same, where hugepilot logs from this level on.
fn watched_saying(folder: &Path, steps: &str, words: &str, level: &str) -> (Program, Child) {
    let steps: Vec<String> =
        steps.split(' ').map(|step| step.replace('/', &format!("{}/", folder.display()))).collect();
    let program = Program::start(&steps.join(" "));
    let mut command = Command::new(binary());
    command.args(words.replace("PID", &program.pid.to_string()).split(' ')).env("RUST_LOG", level);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hugepilot starts");
    (program, child)
}

fn a_program_that_forks_while_it_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let steps = "map=32M nohugepage fill ready await=/go fork read=all";
    let (mut program, child) = watched(folder.path(), steps, "heat PID --for 3s --window 100ms --json");
    program.wait_until_watched();
    fs::write(folder.path().join("go"), "").expect("a file");
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    // A processor keeps some pages in its TLB.
    assert!(number(&ran.json(), "pages_walked") >= 6000, "{ran:?}");
    program.assert_unharmed();
}

fn a_program_that_ends_while_it_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let steps = "map=64M nohugepage fill ready await=/end exit=0";
    let words = "heat PID --for 20s --window 100ms --json";
    let (_program, mut child) = watched_saying(folder.path(), steps, words, "debug");
    // Cleared bits would not tell that the first scan is over: the machine itself may clear them.
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let is_over = said.any(|line| {
        let line = line.expect("it is text");
        assert!(!line.contains('\x1b'), "colors in what is no terminal: {line}");
        line.contains("spent; free again")
    });
    assert!(is_over, "it says what a scan has spent");
    fs::write(folder.path().join("end"), "").expect("a file");
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    assert!(number(&ran.json(), "pages_present") >= 4096, "what was seen counts: {ran:?}");
}

fn a_program_that_execs_while_it_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let steps = "map=16M fill ready await=/go exec map=64M fill sleep=60s";
    let (program, child) = watched(folder.path(), steps, "heat PID --for 20s --window 5s");
    program.wait_until_watched();
    fs::write(folder.path().join("go"), "").expect("a file");
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    ran.assert_fails_with(&["replaced its program (exec)", "run the command again"]);
}

fn both_programs_are_in_the_recording_of_an_exec() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let steps = format!("map=16M fill ready await={} exec map=64M fill sleep=60s", go.display());
    let program = Program::start(&steps);
    let recorder = Recorder::of(&program, folder.path().join("exec"));
    recorder.wait_for_mebibytes(16);
    fs::write(&go, "").expect("a file");
    recorder.wait_for_mebibytes(64);
    send(recorder.child.0.id(), Signal::INT);
    recorder.finish();
}
