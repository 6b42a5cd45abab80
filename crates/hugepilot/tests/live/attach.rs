//! `attach` pilots a process that is already running, until it ends, time is up, or the user stops it.

use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use crate::support::{Ended, PATIENCE, Program, binary, hugepilot, list, number, program_command, send, wait_until};

crate::trials!(
    memory_is_promoted_until_time_is_up,
    the_slowdown_is_bounded,
    it_ends_with_its_process,
    an_interrupt_ends_it_and_leaves_what_was_promoted,
    children_are_piloted_if_asked,
    huge_pages_follow_the_hot_memory_within_their_limit,
    a_process_that_switched_huge_pages_off_is_an_error,
);

/// Short windows; and a larger CPU quota, because a debug build would otherwise rest for seconds to stay within it.
const OFTEN: &str = "--window 200ms --max-cpu 50%";

fn memory_is_promoted_until_time_is_up() {
    let mut program = Program::start("map=128M fill ready read=third");
    let started = Instant::now();
    let json = hugepilot(&format!("attach {} --for 4s --fast --json {OFTEN}", program.pid)).json();
    assert!((4..PATIENCE.as_secs()).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let (applied, huge) = (number(&json, "applied"), number(&json, "huge_after_bytes"));
    assert!((20..=24).contains(&applied) && huge == applied << 21, "{json}");
    assert_eq!((number(&json, "pid"), number(&json, "processes")), (program.pid.into(), 1));
    assert!(number(&json, "rounds") >= 2, "{json}");
    program.assert_unharmed();
}

fn the_slowdown_is_bounded() {
    let mut program = Program::start("map=128M fill ready read=all");
    let words = format!("attach {} --for 3s --max-slowdown 0.5% --allow-stall --json {OFTEN}", program.pid);
    let json = hugepilot(&words).json();
    let (applied, busy) = (number(&json, "applied"), number(&json, "busy_ns"));
    assert!((1..60).contains(&applied), "64 regions take longer at this pace: {json}");
    let seconds = json["seconds"].as_f64().expect("a time");
    assert!(
        (busy - number(&json, "longest_step_ns")) as f64 <= 0.006e9 * seconds,
        "half a percent of the time: {json}"
    );
    program.assert_unharmed();
}

fn huge_pages_follow_the_hot_memory_within_their_limit() {
    let mut program = Program::start("map=192M fill ready read=third,5s read=last");
    let words = format!("attach {} --for 15s --fast --max-huge 64M --json {OFTEN}", program.pid);
    let json = hugepilot(&words).json();
    let heat = hugepilot(&format!("heat {} --window 200ms --json", program.pid)).json();
    let huge: Vec<u64> = list(&heat, "regions")
        .iter()
        .filter(|region| region["huge"] == true)
        .map(|region| number(region, "start"))
        .collect();
    assert!(huge.len() <= 32, "the limit: {} of {json}", huge.len());
    let in_last = huge.iter().filter(|start| **start >= program.start + program.len / 3 * 2).count();
    assert!(in_last >= 28, "{in_last} of {} regions, {json}", huge.len());
    assert!(number(&json, "given_back") >= 28, "{json}");
    program.assert_unharmed();
}

fn it_ends_with_its_process() {
    let program = Program::start("map=64M fill ready read=all,2s");
    let ran = hugepilot(&format!("attach {} --fast {OFTEN}", program.pid));
    assert!(ran.status.success() && ran.stdout.contains("regions promoted"), "{ran:?}");
}

fn an_interrupt_ends_it_and_leaves_what_was_promoted() {
    let mut program = Program::start("map=64M fill ready read=all");
    let words = format!("attach {} --fast {OFTEN}", program.pid);
    let mut command = Command::new(binary());
    let mut child = Ended(command.args(words.split(' ')).stdout(Stdio::piped()).spawn().expect("hugepilot starts"));
    wait_until("all on huge pages", || program.huge_bytes() >= 60 << 20);
    send(child.0.id(), Signal::INT);
    assert!(child.0.wait().expect("it ends").success());
    assert!(program.huge_bytes() >= 60 << 20);
    program.assert_unharmed();
}

fn children_are_piloted_if_asked() {
    let program = program_command("map=64M fill read=all,20s");
    let path = program.get_program().to_str().expect("UTF-8");
    let script = format!("{path} program map=64M fill read=all,20s; true");
    let mut parent = Ended(Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().expect("a shell"));
    let attach =
        |more: &str| hugepilot(&format!("attach {} --for 3s --fast --json {OFTEN}{more}", parent.0.id())).json();
    assert_eq!(number(&attach(""), "applied"), 0);
    assert!(number(&attach(" --children"), "applied") >= 30);
    // Ending the shell would leave its child behind.
    for pid in kernel::process::descendants(&kernel::Root::host(), parent.0.id()).expect("a list") {
        send(pid, Signal::KILL);
    }
    parent.0.wait().expect("it ends");
}

fn a_process_that_switched_huge_pages_off_is_an_error() {
    let program = Program::start("thp-disable map=64M fill ready read=all");
    hugepilot(&format!("attach {}", program.pid)).assert_fails_with(&["PR_SET_THP_DISABLE"]);
    hugepilot("attach 999999999").assert_fails_with(&["999999999"]);
}
