//! `record`, `replay` and pictures: what was seen can be looked at again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::program::Rule;
use crate::support::{Program, Setting, binary, hugepilot, list, number, send, wait_until};

crate::trials!(
    a_recording_replays_what_was_seen,
    a_plan_from_a_recording_is_the_one_made_there,
    a_signal_and_the_end_of_the_program_end_a_recording_properly,
    a_recording_that_was_killed_still_shows_what_came_before,
    files_are_never_overwritten_nor_believed,
    a_picture_is_drawn,
    memory_that_comes_and_goes_while_it_is_watched_is_seen,
    a_program_that_forks_execs_or_ends_while_it_is_watched,
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
    let json = hugepilot(&format!("replay {file} --json")).json();
    assert_eq!(number(&json, "pid"), u64::from(program.pid));
    let hot = program.regions_named(Rule::Third);
    let regions = list(&json, "regions").iter().filter(|region| program.holds(number(region, "start")));
    for region in regions {
        let walked = number(region, "pages_walked") > 0;
        assert_eq!(
            (number(region, "pages_present"), walked),
            (512, hot.contains(&number(region, "start"))),
            "{region}"
        );
    }
    let text = hugepilot(&format!("replay {file} --observation 2"));
    assert!(text.status.success() && text.stdout.contains("observation 2 of"), "{text:?}");
    hugepilot(&format!("replay {file} --observation 99")).assert_fails_with(&["observations", "from 1"]);
}

fn a_plan_from_a_recording_is_the_one_made_there() {
    let _madvise = Setting::huge_pages("madvise");
    let folder = tempfile::tempdir().expect("a folder");
    let (program, file) = recorded(folder.path(), "map=64M fill ready read=third");
    let json = hugepilot(&format!("replay {file} --plan --json")).json();
    let promoted = list(&json, "decisions").iter().filter(|decision| decision["verdict"] == "promote");
    let promoted: Vec<u64> = promoted.map(|decision| number(decision, "start")).collect();
    let hot = program.regions_named(Rule::Third);
    assert!(
        promoted.len() >= 9 && promoted.iter().filter(|start| program.holds(**start)).all(|start| hot.contains(start))
    );
    assert_eq!(program.huge_bytes(), 0);
}

fn a_signal_and_the_end_of_the_program_end_a_recording_properly() {
    let folder = tempfile::tempdir().expect("a folder");
    for ends in ["signal", "exit"] {
        let file = folder.path().join(ends);
        let program = Program::start("map=16M fill ready read=all,3s");
        let mut command = Command::new(binary());
        command.args(["record", &program.pid.to_string(), "--every", "300ms", "--window", "200ms", "-o"]).arg(&file);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hugepilot starts");
        wait_until("an observation", || fs::metadata(&file).is_ok_and(|file| file.len() > 500));
        if ends == "signal" {
            send(child.id(), Signal::INT);
        }
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{ends}: {output:?}");
        let replayed = hugepilot(&format!("replay {}", file.display()));
        assert!(replayed.status.success() && replayed.stderr.is_empty(), "{ends}: {replayed:?}");
    }
}

fn a_recording_that_was_killed_still_shows_what_came_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("killed");
    let program = Program::start("map=16M fill ready read=all");
    let mut command = Command::new(binary());
    command.args(["record", &program.pid.to_string(), "--every", "300ms", "--window", "200ms", "-o"]).arg(&file);
    let mut child = command.stdout(Stdio::null()).spawn().expect("hugepilot starts");
    wait_until("an observation", || fs::metadata(&file).is_ok_and(|file| file.len() > 500));
    send(child.id(), Signal::KILL);
    child.wait().expect("it ends");
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
        format!("heat {} --window 200ms --for 600ms --png {} --html {}", program.pid, png.display(), html.display());
    let ran = hugepilot(&words);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(&fs::read(png).expect("a picture")[..8], b"\x89PNG\r\n\x1a\n");
    assert!(fs::read_to_string(html).expect("a page").contains("\"cells\":[["));
    let failed = hugepilot(&format!("heat {} --window 100ms --png /no/such/folder/a.png", program.pid));
    failed.assert_fails_with(&["/no/such/folder/a.png"]);
    let none: Option<Value> = serde_json::from_str(&failed.stdout).ok();
    assert_eq!(none, None);
}

/// The bytes present in a recording's observations, one after the other.
fn present(file: &Path) -> Vec<u64> {
    let of = |number: usize| hugepilot(&format!("replay {} --observation {number} --json", file.display()));
    let all = (1..).map(of).take_while(|ran| ran.status.success());
    all.map(|ran| number(&ran.json(), "pages_present") * 4096).collect()
}

fn memory_that_comes_and_goes_while_it_is_watched_is_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    for (steps, first, last) in [
        ("map=8M nohugepage fill ready sleep=1s map=32M nohugepage fill sleep=60s", 8, 40),
        ("map=8M nohugepage fill map=32M nohugepage fill ready sleep=1s unmap sleep=60s", 40, 8),
    ] {
        let (program, file) = (Program::start(steps), folder.path().join(format!("to-{last}")));
        let words = format!("record -o {} {} --for 2500ms --every 200ms --window 100ms", file.display(), program.pid);
        assert!(hugepilot(&words).status.success());
        let sizes = present(&file);
        // What else the program has takes a few MiB.
        let about = |size: u64, mib: u64| (mib << 20..(mib + 8) << 20).contains(&size);
        assert!(about(sizes[0], first) && about(sizes[sizes.len() - 1], last), "{sizes:?}");
    }
}

fn a_program_that_forks_execs_or_ends_while_it_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let watched = |steps: &str, words: &str| {
        let program = Program::start(steps);
        (hugepilot(&words.replace("PID", &program.pid.to_string())), program)
    };
    let (ran, mut program) =
        watched("map=16M fill ready read=all,500ms fork read=all", "heat PID --for 2s --window 100ms --json");
    // A processor keeps some pages in its TLB.
    assert!(number(&ran.json(), "pages_walked") >= 3000, "{ran:?}");
    program.assert_unharmed();
    let (ran, _) = watched("map=16M fill ready read=all,800ms exit=0", "heat PID --for 20s --window 100ms --json");
    assert!(number(&ran.json(), "pages_present") >= 4096, "what was seen counts: {ran:?}");
    let steps = "map=16M fill ready sleep=800ms exec map=64M fill sleep=60s";
    let (ran, _) = watched(steps, "heat PID --for 20s --window 2s");
    ran.assert_fails_with(&["replaced its program (exec)", "run the command again"]);
    let file = folder.path().join("exec");
    let words = format!("record -o {} PID --for 3s --every 200ms --window 100ms", file.display());
    let (ran, _) = watched(steps, &words);
    assert!(ran.status.success(), "{ran:?}");
    let sizes = present(&file);
    assert!(sizes[0] < 32 << 20 && sizes[sizes.len() - 1] >= 64 << 20, "both programs are in it: {sizes:?}");
}
