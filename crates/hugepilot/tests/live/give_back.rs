//! `give-back` undoes exactly what promote did.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Program, binary, hugepilot, in_some_try, number, send, wait_until};

crate::trials!(
    what_was_promoted_is_undone_and_nothing_else,
    empty_pages_are_freed,
    data_survives_promoting_and_giving_back_again_and_again,
    all_takes_what_hugepilot_did_not_make,
    nothing_promoted_is_no_failure,
    a_signal_stops_between_regions_and_the_rest_can_be_given_back_later,
    text_for_people_tells_before_and_after,
    what_others_map_stays_huge_and_is_not_called_split,
);

const MIB: u64 = 1 << 20;

/// Promotes at least this many regions, and returns how many it promoted. In a single scan few regions may seem to hold nearly all walks.
fn promote(program: &Program, least: u64, options: &str) -> u64 {
    let command = format!("promote {} --fast --json --window 200ms {options}", program.pid);
    let mut applied = 0;
    let enough = in_some_try(|| {
        applied += number(&hugepilot(command.trim_end()).json(), "applied");
        applied >= least
    });
    assert!(enough, "{applied} of {least} regions");
    applied
}

fn what_was_promoted_is_undone_and_nothing_else() {
    // The program itself requested huge pages for the first mapping.
    let mut program = Program::start("map=16M hugepage fill map=64M fill ready read=all");
    let own = program.huge_bytes();
    assert!(own >= 16 * MIB);
    let applied = promote(&program, 30, "");
    let json = hugepilot(&format!("give-back {} --json", program.pid)).json();
    assert_eq!((number(&json, "tried"), number(&json, "applied")), (applied, applied), "{json}");
    assert_eq!(number(&json, "huge_before_bytes") - number(&json, "huge_after_bytes"), applied * 2 * MIB, "{json}");
    assert_eq!(program.huge_bytes(), own);
    let again = hugepilot(&format!("give-back {}", program.pid));
    assert!(again.status.success() && again.stderr.contains("promoted nothing"), "{again:?}");
    assert!(again.stderr.contains("--all"), "{again:?}");
    program.assert_unharmed();
}

fn what_others_map_stays_huge_and_is_not_called_split() {
    let program = Program::start("shmem=64M fill fork-reader ready read=all");
    promote(&program, 30, "--children");
    let output = hugepilot(&format!("give-back {}", program.pid));
    assert!(output.stdout.contains("other processes map the same huge page"), "{}", output.stdout);
    output.assert_fails_with(&["refused all"]);
    assert!(program.huge_bytes() >= 60 * MIB);
}

fn empty_pages_are_freed() {
    let mut program = Program::start("map=1G fill=sparse ready read=sparse");
    let before = program.rss();
    promote(&program, 40, "--max-growth 100M");
    assert!(program.rss() >= before + 80 * MIB);
    let json = hugepilot(&format!("give-back {} --json", program.pid)).json();
    if json["frees_empty_pages"] == false {
        eprintln!("this kernel frees no empty pages of huge pages that it splits (seen on 6.1): growth is not checked");
    } else {
        assert_eq!(json["frees_empty_pages"], true, "{json}");
        assert!(program.rss() <= before + MIB, "{before} bytes became {}: {json}", program.rss());
    }
    program.assert_unharmed();
}

fn data_survives_promoting_and_giving_back_again_and_again() {
    let mut program = Program::start("map=96M fill shmem=16M fill ready read=all");
    for _ in 0..5 {
        promote(&program, 40, "");
        hugepilot(&format!("give-back {} --json", program.pid)).json();
        program.assert_unharmed();
    }
}

fn all_takes_what_hugepilot_did_not_make() {
    let mut program = Program::start("map=16M hugepage fill ready read=all");
    assert!(program.huge_bytes() >= 16 * MIB);
    let json = hugepilot(&format!("give-back {} --all --json", program.pid)).json();
    assert!(number(&json, "applied") >= 8, "{json}");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

fn nothing_promoted_is_no_failure() {
    let program = Program::start("map=4M fill ready read=all");
    let ran = hugepilot(&format!("give-back {}", program.pid));
    assert!(ran.status.success() && ran.stderr.contains("promoted nothing"), "{ran:?}");
}

fn a_signal_stops_between_regions_and_the_rest_can_be_given_back_later() {
    let mut program = Program::start("map=2G fill ready read=all");
    // A signal may arrive too late: splitting all of them takes a fifth of a second.
    assert!(in_some_try(|| give_back_in_two(&program)), "it was never stopped midway");
    program.assert_unharmed();
}

/// Sends a signal midway; returns whether it arrived in time. In the end nothing is huge.
fn give_back_in_two(program: &Program) -> bool {
    let applied = promote(program, 512, "");
    let huge = program.huge_bytes();
    let mut command = Command::new(binary());
    command.args(["give-back", &program.pid.to_string(), "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("hugepilot starts");
    wait_until("the first split", || program.huge_bytes() < huge);
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rest = number(&json, "not_reached");
    assert_eq!(number(&json, "applied"), applied - rest, "{json}");
    if rest == 0 {
        assert_eq!(program.huge_bytes(), 0, "{output:?}");
        return false;
    }
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"), "{output:?}");
    let again = hugepilot(&format!("give-back {} --json", program.pid)).json();
    assert_eq!((number(&again, "applied"), program.huge_bytes()), (rest, 0));
    true
}

fn text_for_people_tells_before_and_after() {
    let program = Program::start("map=64M fill ready read=all");
    promote(&program, 10, "--max-huge 20M");
    let ran = hugepilot(&format!("give-back {}", program.pid));
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert!(ran.stdout.contains("10 regions tried, 10 split (20 MiB), 0 refused"), "{}", ran.stdout);
}
