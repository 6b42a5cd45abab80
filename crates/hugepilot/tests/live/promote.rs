//! `promote` puts memory on huge pages where that helps, and no other memory.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::program::Rule;
use crate::support::{
    PATIENCE, Program, Setting, binary, huge_bytes_of, hugepilot, in_some_try, list, number, send, wait_for, wait_until,
};

crate::trials!(
    exactly_the_hot_third_is_promoted,
    a_dry_run_changes_nothing,
    sparse_memory_stays_sparse_without_growth_allowed,
    sparse_memory_is_promoted_within_the_growth_allowed,
    the_huge_page_limit_binds,
    memory_that_lives_in_the_tlb_is_left_alone,
    shared_memory_is_promoted,
    what_a_family_shares_is_promoted_through_one,
    growth_is_a_share_of_what_children_populated_too,
    memory_shared_by_fork_is_kept_unless_asked_for,
    lazily_freed_memory_is_kept_unless_asked_for,
    lazily_freed_memory_that_was_written_again_is_the_programs,
    zero_pages_count_as_growth,
    memory_without_huge_pages_and_stacks_are_kept,
    the_slowdown_allowed_sets_the_pace,
    what_the_program_felt_is_told,
    what_to_expect_is_said_before_acting,
    a_signal_stops_between_regions_and_leaves_a_record,
    a_promotion_that_is_killed_leaves_a_record,
    nothing_is_reported_to_the_host_until_a_promotion_ends_however_it_does,
    a_target_that_ends_midway_is_no_failure_of_ours,
    a_target_that_calls_exec_midway_is_told,
    memory_that_changes_meanwhile_is_left_alone,
);

const MIB: u64 = 1 << 20;
const REPORTED_ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// Higher than the order of any block.
const NOTHING_REPORTED: &str = "11";

fn promote(program: &Program, options: &str) -> Value {
    // Tests that are not about the pace run as fast as possible.
    let pace = if options.contains("--max-slowdown") { "" } else { "--fast " };
    hugepilot(format!("promote {} --json --window 300ms {pace}{options}", program.pid).trim_end()).json()
}

/// A dry run's decisions about the program's mapping.
fn decisions(program: &Program, options: &str) -> Vec<Value> {
    let json = promote(program, &format!("--dry-run {options}"));
    let about = |decision: &&Value| program.holds(number(decision, "start"));
    list(&json, "decisions").iter().filter(about).cloned().collect()
}

/// Asserts that every region of the program's mapping is kept, and for this reason.
fn assert_kept(program: &Program, options: &str, reason: &str) {
    program.wait_until_at_work();
    let mut reasons = BTreeSet::new();
    let is_told = in_some_try(|| {
        let decisions = decisions(program, options);
        assert_eq!(decisions.len() as u64, program.len / (2 * MIB));
        let promoted = decisions.iter().find(|decision| decision["verdict"] != "keep");
        assert!(promoted.is_none(), "{promoted:?}");
        reasons = decisions.iter().map(|decision| decision["reason"].to_string()).collect();
        decisions.iter().all(|decision| decision["reason"] == reason)
    });
    assert!(is_told, "kept for {reasons:?}");
}

fn exactly_the_hot_third_is_promoted() {
    let mut program = Program::start("map=384M fill ready read=third");
    let json = promote(&program, "--max-growth 0");
    let (tried, applied) = (number(&json, "tried"), number(&json, "applied"));
    assert_eq!((tried, list(&json, "refused").len()), (applied, 0), "{json}");
    // All 64 hot regions except those with the last 0.5 % of page walks; none of the other 128.
    assert!((32..=66).contains(&applied) && applied + regions_of(&json, &["covered"]) >= 60, "{json}");
    assert_eq!(program.huge_bytes(), applied * 2 * MIB);
    assert_eq!(number(&json, "huge_after_bytes") - number(&json, "huge_before_bytes"), applied * 2 * MIB);
    assert!(number(&json, "rss_after_bytes") <= number(&json, "rss_before_bytes") + MIB / 8, "{json}");
    for name in ["rss_before_bytes", "rss_after_bytes", "busy_ns", "longest_step_ns"] {
        assert!(number(&json, name) > 0, "{json}");
    }
    let walks = |name: &str| json[name].as_f64().expect("a rate");
    let after =
        || hugepilot(&format!("heat {} --json --window 300ms", program.pid)).json()["walks_per_second"].as_f64();
    let fewer = |after: f64| after < walks("walks_before_per_second") / 10.0;
    assert!(fewer(walks("walks_after_per_second")) || in_some_try(|| after().is_some_and(fewer)), "{json}");
    assert!(walks("seconds") >= 0.6);
    program.assert_unharmed();
}

fn a_dry_run_changes_nothing() {
    let program = Program::start("map=64M fill ready read=third");
    let json = promote(&program, "--dry-run");
    assert_eq!(json["dry_run"], true);
    let decided = |name: &str, value: &str| -> Vec<u64> {
        let such = list(&json, "decisions").iter().filter(|decision| decision[name] == value);
        such.map(|decision| number(decision, "start")).collect()
    };
    let (promoted, covered) = (decided("verdict", "promote"), decided("reason", "covered"));
    let hot = program.regions_named(Rule::Third);
    let in_hot = |starts: &[u64]| starts.iter().filter(|start| hot.contains(start)).count();
    assert!(in_hot(&promoted) >= 1 && in_hot(&promoted) + in_hot(&covered) >= 9, "{json}");
    assert!(promoted.iter().all(|start| !program.holds(*start) || hot.contains(start)), "{json}");
    let gain = &json["expected_gain_percent"];
    assert!(gain["low"].as_f64().expect("a number") <= gain["high"].as_f64().expect("a number"), "{json}");
    assert_eq!(program.huge_bytes(), 0);
    assert!(hugepilot(&format!("give-back {}", program.pid)).stderr.contains("promoted nothing"));
}

/// On a slow machine few regions may hold nearly all walks of such a short window.
fn assert_promoted(json: &Value, least: u64) {
    let pays = regions_of(json, &["pays"]);
    assert!(pays >= 1 && number(json, "applied") == pays, "{json}");
    assert!(pays + regions_of(json, &["covered"]) >= least, "{json}");
}

/// The number of regions with one of these reasons.
fn regions_of(json: &Value, reasons: &[&str]) -> u64 {
    reasons.iter().filter_map(|reason| json["reasons"][reason].as_u64()).sum()
}

fn sparse_memory_stays_sparse_without_growth_allowed() {
    let program = Program::start("map=1G fill=sparse ready read=sparse");
    let json = promote(&program, "--max-growth 0");
    assert!(number(&json["reasons"], "growth_limit") >= 510, "{json}");
    assert_eq!((number(&json, "tried"), program.huge_bytes()), (0, 0), "{json}");
}

fn sparse_memory_is_promoted_within_the_growth_allowed() {
    let program = Program::start("map=1G fill=sparse ready read=sparse");
    let json = promote(&program, "--max-growth 10M");
    // Each region grows by 496 base pages.
    assert_eq!(number(&json, "applied"), 10 * MIB / (496 * 4096), "{json}");
    assert!(number(&json, "rss_after_bytes") <= number(&json, "rss_before_bytes") + 10 * MIB + MIB / 8, "{json}");
}

fn the_huge_page_limit_binds() {
    let program = Program::start("map=64M fill ready read=all");
    let limited = || promote(&program, "--max-huge 21M");
    let reached = in_some_try(|| {
        let json = limited();
        assert!(program.huge_bytes() <= 20 * MIB, "{json}");
        program.huge_bytes() == 20 * MIB
    });
    assert!(reached, "{} bytes on huge pages", program.huge_bytes());
    let json = limited();
    assert_eq!(number(&json, "tried"), 0, "what is huge already counts: {json}");
    assert!(regions_of(&json, &["huge_limit", "covered"]) >= 20, "{json}");
}

fn memory_that_lives_in_the_tlb_is_left_alone() {
    let program = Program::start("map=64M fill ready read=resident");
    let json = promote(&program, "");
    assert_eq!((number(&json, "tried"), program.huge_bytes()), (0, 0), "{json}");
    let text = hugepilot(&format!("promote {} --window 300ms", program.pid));
    // Which of the two it is depends on how often the program was preempted, which empties the TLB.
    let said = ["the TLB holds the memory", "too few page walks to pay"];
    assert!(text.status.success() && said.iter().any(|reason| text.stdout.contains(reason)), "{text:?}");
}

fn shared_memory_is_promoted() {
    let mut program = Program::start("shmem=64M fill ready read=all");
    let json = promote(&program, "");
    assert_promoted(&json, 30);
    assert_eq!(program.huge_bytes(), number(&json, "applied") * 2 * MIB, "{json}");
    program.assert_unharmed();
}

fn what_a_family_shares_is_promoted_through_one() {
    let mut program = Program::start("shmem=64M fill fork-reader ready read=all");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", program.pid)).expect("it lives");
    let child: u32 = children.trim().parse().expect("one child");
    let plan = promote(&program, "--children --dry-run");
    assert_eq!((number(&plan, "processes"), number(&plan, "processes_observed")), (2, 2), "{plan}");
    let pays = list(&plan, "decisions").iter().filter(|decision| decision["reason"] == "pays");
    assert!(pays.clone().count() >= 30 && pays.clone().all(|decision| number(decision, "page_tables") == 2), "{plan}");
    assert!(number(&plan, "page_tables_saved_bytes") >= 60 * 4096, "{plan}");
    let json = promote(&program, "--children");
    assert_promoted(&json, 30);
    wait_until("the child maps it huge by its own page faults", || huge_bytes_of(child) >= 60 * MIB);
    program.assert_unharmed();
}

fn growth_is_a_share_of_what_children_populated_too() {
    // As a database server's first process, which has next to nothing of the buffers in its page tables.
    let program = Program::start("shmem=64M fill fork-reader free-now=all ready sleep=1000s");
    let plan = promote(&program, "--dry-run --max-growth 1%");
    let (memory, limit) = (number(&plan, "max_growth_of_bytes"), number(&plan, "max_growth_bytes"));
    assert!((64 * MIB..96 * MIB).contains(&memory) && limit.abs_diff(memory / 100) <= 1, "{plan}");
    assert!(program.rss() < 32 * MIB, "it has it not in its own page tables");
}

fn memory_shared_by_fork_is_kept_unless_asked_for() {
    let mut program = Program::start("map=32M fill fork ready read=all");
    assert_kept(&program, "", "shared");
    assert_eq!(number(&promote(&program, ""), "applied"), 0);
    let ran = hugepilot(&format!("promote {} --json --window 300ms --include-shared --max-growth 64M", program.pid));
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let refused = list(&json, "refused").iter().filter(|refusal| refusal["errno"] == 22).count() as u64;
    // On a slow machine few regions hold nearly all walks of such a short window. Older kernels (seen on 6.1 and 6.12) refuse memory in which no page
    // may be written without a fault.
    let pays = number(&json["reasons"], "pays");
    assert!(pays >= 1 && (number(&json, "applied") == pays || refused == pays), "{json}");
    program.assert_unharmed();
}

fn lazily_freed_memory_is_kept_unless_asked_for() {
    // Half of the pages are freed; the program reads the others. An emulated processor walks each page only after a task switch: of
    // less memory it might walk too few in a second to count.
    let program = Program::start("map=128M fill free=half ready read=odd");
    assert_kept(&program, "", "lazily_freed");
    let json = promote(&program, "--include-shared --max-growth 256M");
    assert_promoted(&json, 60);
}

fn lazily_freed_memory_that_was_written_again_is_the_programs() {
    let program = Program::start("map=32M fill free=all fill ready read=all");
    let decisions = decisions(&program, "--max-growth 0");
    let pays = decisions.iter().filter(|decision| decision["reason"] == "pays" || decision["reason"] == "covered");
    assert!(pays.count() >= 15, "{decisions:?}");
    assert!(decisions.iter().all(|decision| number(decision, "growth_bytes") == 0), "{decisions:?}");
}

fn zero_pages_count_as_growth() {
    // Under any other mode khugepaged may collapse them first.
    let _never = Setting::huge_pages("never");
    // As much as above, so that an emulated processor walks enough of it.
    let program = Program::start("map=128M nohugepage fill=half read-zeros=odd hugepage ready read=half");
    assert_kept(&program, "--max-growth 0", "growth_limit");
    let decisions = decisions(&program, "--max-growth 256M");
    assert!(decisions.iter().all(|decision| number(decision, "growth_bytes") == MIB), "{decisions:?}");
}

fn memory_without_huge_pages_and_stacks_are_kept() {
    assert_kept(&Program::start("map=32M nohugepage fill ready read=all"), "", "no_huge_page");
    let program = Program::start("map=4M fill stack=32M ready read=all");
    let json = promote(&program, "--dry-run");
    // Kernels since 6.7 exclude stacks themselves.
    let stack = |decision: &&Value| ["stack", "no_huge_page"].contains(&decision["reason"].as_str().unwrap_or(""));
    let stacks = list(&json, "decisions").iter().filter(stack);
    let walked = stacks.filter(|decision| decision["walks_per_second"].as_f64() > Some(0.0));
    assert!(walked.count() >= 10, "{json}");
    promote(&program, "--max-growth 1G");
    assert!(program.huge_bytes() <= program.len);
}

fn the_slowdown_allowed_sets_the_pace() {
    let program = Program::start("map=64M fill ready read=all");
    let json = promote(&program, "--max-slowdown 0.5% --allow-stall --max-huge 8M");
    let applied = number(&json, "applied");
    assert!((2..=4).contains(&applied), "{json}");
    // A rest follows each region but the last, so this holds on any machine, however fast.
    let (busy, longest) = (number(&json, "busy_ns"), number(&json, "longest_step_ns"));
    let elapsed = json["seconds"].as_f64().expect("seconds") * 1e9;
    assert!(elapsed >= 600.0 * (busy - longest) as f64, "{json}");
}

fn what_the_program_felt_is_told() {
    let program = Program::start("map=64M fill ready read=all");
    let json = promote(&program, "--max-slowdown 5%");
    // Whether pages are prepared depends on the machine.
    assert!(number(&json, "applied") >= 20 && json["preparing_ns"].is_u64(), "{json}");
    // The program reads its memory all the time, so it runs into a collapse now and then.
    let (stall, share) = (number(&json, "longest_stall_ns"), json["held_up_share"].as_f64().expect("a share"));
    assert!(stall > 0 && (0.0..1.0).contains(&share), "{json}");
    let times = ["step_median_ns", "step_p90_ns"].map(|name| number(&json, name));
    assert!(0 < times[0] && times[0] <= times[1], "{json}");
    let again = Program::start("map=64M fill ready read=all");
    let ran = hugepilot(&format!("promote {} --fast --window 300ms", again.pid));
    assert!(ran.stderr.contains("promoting fast: the program may lose 40% of its speed meanwhile"), "{ran:?}");
    assert!(ran.stdout.contains("longest stall"), "{ran:?}");
}

fn what_to_expect_is_said_before_acting() {
    let program = Program::start("map=64M fill ready read=all");
    let ran = hugepilot(&format!("promote {} --window 300ms", program.pid));
    assert!(ran.status.success(), "{ran:?}");
    let mut lines = ran.stdout.lines();
    let first = lines.next().expect("a line");
    assert!(first.starts_with("expect ") && first.contains(", in stalls of about "), "{first}");
    let second = lines.next().expect("a second line");
    assert!(second.starts_with("expected gain: "), "{second}");
}

/// A slow promotion of much memory that has already promoted some.
fn begun(program: &Program) -> Child {
    program.wait_until_at_work();
    let mut ended = String::new();
    for _ in 0..5 {
        let mut child = slow_promotion(program);
        let mut over = false;
        // It rests while there is no contiguous memory.
        wait_for("the first huge page", 3 * PATIENCE, || {
            over = child.try_wait().expect("its state").is_some();
            over || program.huge_bytes() > 0
        });
        if !over {
            return child;
        }
        // A busy machine may have kept the program from reading during the scan, so that nothing seemed to pay.
        ended = format!("{:?}", child.wait_with_output().expect("its output"));
    }
    panic!("it ended without a huge page: {ended}");
}

fn slow_promotion(program: &Program) -> Child {
    let options = ["--json", "--max-slowdown", "0.1%", "--allow-stall", "--window", "300ms"];
    let mut command = Command::new(binary());
    command.arg("promote").arg(program.pid.to_string()).args(options);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hugepilot starts");
    // Its report must fit, for it is read only after the program has ended.
    let stdout = child.stdout.as_ref().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(stdout, MIB as usize).expect("a larger pipe");
    child
}

fn a_signal_stops_between_regions_and_leaves_a_record() {
    let mut program = Program::start("map=512M fill ready read=all");
    for signal in [Signal::INT, Signal::TERM] {
        let child = begun(&program);
        send(child.id(), signal);
        let output = child.wait_with_output().expect("it ends");
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let undo = format!("hugepilot give-back {}", program.pid);
        assert!(stderr.contains("stopped by a signal after") && stderr.contains(&undo), "{stderr}");
        let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
        assert!(number(&json, "applied") >= 1 && number(&json, "not_reached") >= 100, "{json}");
        let given_back = hugepilot(&format!("{} --json", undo.trim_start_matches("hugepilot "))).json();
        assert_eq!(number(&given_back, "applied"), number(&json, "applied"));
        assert_eq!(program.huge_bytes(), 0);
    }
    program.assert_unharmed();
}

fn a_promotion_that_is_killed_leaves_a_record() {
    let mut program = Program::start("map=512M fill ready read=all");
    let mut child = begun(&program);
    send(child.id(), Signal::KILL);
    child.wait().expect("it ends");
    assert!(program.huge_bytes() > 0);
    hugepilot(&format!("give-back {}", program.pid)).status.success().then_some(()).expect("a record");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

/// The smallest order of free blocks that is reported to the host; None if it cannot be changed.
fn reported_order() -> Option<String> {
    let usual = fs::read_to_string(REPORTED_ORDER).ok()?;
    fs::write(REPORTED_ORDER, NOTHING_REPORTED).ok()?;
    fs::write(REPORTED_ORDER, &usual).expect("the usual order");
    Some(usual)
}

fn nothing_is_reported_to_the_host_until_a_promotion_ends_however_it_does() {
    let Some(usual) = reported_order() else { return eprintln!("skipped: free memory is not reported to a host here") };
    let now = || fs::read_to_string(REPORTED_ORDER).expect("it was there");
    for signal in [Signal::TERM, Signal::KILL] {
        let program = Program::start("map=512M fill ready read=all");
        let mut child = begun(&program);
        assert_eq!(now().trim(), NOTHING_REPORTED);
        send(child.id(), signal);
        child.wait().expect("it ends");
        wait_until("free memory is reported again", || now() == usual);
    }
}

fn a_target_that_calls_exec_midway_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let steps = format!("map=512M fill ready read-until={} exec map=64M fill read=all", go.display());
    let program = Program::start(&steps);
    let child = begun(&program);
    fs::write(go, "").expect("a file");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    assert!(stderr.contains("replaced its program (exec)"), "{stderr}");
}

fn memory_that_changes_meanwhile_is_left_alone() {
    // At this pace 256 regions take minutes, so memory freed now is scanned again before it is promoted.
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let steps = format!("map=512M fill ready read-until={} free-now=half read=odd", go.display());
    let program = Program::start(&steps);
    let child = begun(&program);
    fs::write(go, "").expect("a file");
    let output = child.wait_with_output().expect("it ends, for nothing is left to do");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let changed = list(&json, "refused").iter().filter(|refusal| refusal["reason"] == "changed");
    assert!(changed.count() >= 100, "{json}");
    assert!(program.rss() < 400 * MIB, "{} MiB resident", program.rss() / MIB);
}

fn a_target_that_ends_midway_is_no_failure_of_ours() {
    let program = Program::start("map=512M fill ready read=all");
    let child = begun(&program);
    drop(program);
    let started = std::time::Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(started.elapsed() < PATIENCE);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(number(&json, "applied") >= 1 && number(&json, "not_reached") >= 1, "{json}");
    assert_eq!(json["rss_after_bytes"], Value::Null);
    let refused = list(&json, "refused");
    assert!(refused.iter().all(|refusal| refusal["reason"] == "exited"), "{json}");
}
