//! `promote --guest`: programs that look like a virtual machine, promoted from their host.
//!
//! Owns: what is promoted, what is left alone, and who is refused. Never touches: a guest, which `guest_in_qemu` boots.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{Program, Ran, hugepilot, number, wait_until};

crate::trials!(
    holes_stay_holes,
    memory_that_is_on_its_way_is_left_alone,
    a_process_without_guest_memory_is_refused,
    kvm_is_refused_unless_it_is_named_a_guest,
    kvm_is_explained_whatever_it_has,
    memory_without_huge_pages_is_told_with_what_to_do,
    a_daemon_promotes_guests,
);

const MIB: u64 = 1 << 20;

/// Promotes a program as a guest.
fn promote(program: &Program) -> Value {
    hugepilot(&format!("promote --guest {} --fast --json --window 200ms", program.pid)).json()
}

fn holes_stay_holes() {
    let mut program = Program::start("map=192M fill free-now=third ready read=last");
    let (rss, start) = (program.rss(), program.start);
    let json = promote(&program);
    // A kernel that does not align large mappings may have merged it with the memory of a library below.
    let block = &json["guest"]["before"]["blocks"][0];
    let block = number(block, "start")..number(block, "start") + number(block, "size_bytes");
    assert!(block.contains(&start), "{json}");
    assert!(program.huge_bytes() >= 124 * MIB && program.rss() <= rss + rss / 100 + MIB, "{json}");
    assert!(number(&json["reasons"], "populated") >= 62, "{json}");
    assert!(json["walks_before_per_second"].is_null() && json["walks_after_per_second"].is_null(), "{json}");
    let text = hugepilot(&format!("promote --guest {} --dry-run", program.pid)).stdout;
    assert!(text.contains("not known: the guest walks") && text.contains("(anonymous)"), "{text}");
    program.assert_unharmed();
}

fn memory_that_is_on_its_way_is_left_alone() {
    let Some(mut program) = Program::try_start("map=128M fill uffd ready read=all") else {
        return eprintln!("userfaultfd cannot be had here: only the unit test of its flags has it");
    };
    let json = promote(&program);
    assert_eq!((number(&json, "applied"), program.huge_bytes()), (0, 0), "{json}");
    assert_eq!(number(&json["reasons"], "userfaultfd"), 64, "{json}");
    assert_eq!(json["guest"]["before"]["blocks"][0]["userfaultfd"], true, "{json}");
    let text = hugepilot(&format!("promote --guest {} --dry-run --window 200ms", program.pid)).stdout;
    assert!(text.contains("migration (postcopy)") && text.contains("run the command again"), "{text}");
    program.assert_unharmed();
}

fn a_process_without_guest_memory_is_refused() {
    let program = Program::start("map=16M fill ready read=all");
    let ran = hugepilot(&format!("promote --guest {}", program.pid));
    ran.assert_fails_with(&["looks like a guest's", "Nothing was changed", "hugepilot explain"]);
}

fn kvm_is_refused_unless_it_is_named_a_guest() {
    let Some(mut program) = Program::try_start("kvm map=128M fill ready read=all") else {
        return eprintln!("no virtual machine can be made here: not tested");
    };
    let pid = program.pid;
    hugepilot(&format!("promote {pid}"))
        .assert_fails_with(&["virtual machine (KVM)", &format!("promote --guest {pid}")]);
    let explained: Ran = hugepilot(&format!("explain {pid} --window 200ms"));
    let answer = explained.stdout.lines().skip_while(|line| !line.starts_with("more huge pages?")).take(2);
    let answer: String = answer.collect();
    assert!(explained.status.success() && answer.contains(&format!("promote --guest {pid}")), "{explained:?}");
    let json = hugepilot(&format!("explain {pid} --window 200ms --json")).json();
    assert_eq!((json["report"].as_str(), json["guest"]["walks_are_seen"].as_bool()), (Some("explain"), Some(false)));
    assert!(number(&json["guest"], "can_be_promoted_bytes") >= 124 * MIB, "{json}");
    let json = promote(&program);
    assert!(number(&json, "applied") >= 62 && program.huge_bytes() >= 124 * MIB, "{json}");
    let back = hugepilot(&format!("give-back {pid} --json")).json();
    assert_eq!((number(&back, "applied"), program.huge_bytes()), (number(&json, "applied"), 0), "{back}");
    program.assert_unharmed();
}

fn kvm_is_explained_whatever_it_has() {
    let Some(program) = Program::try_start("kvm map=16M fill ready read=all") else {
        return eprintln!("no virtual machine can be made here: not tested");
    };
    let explained = hugepilot(&format!("explain {} --window 200ms", program.pid));
    assert!(explained.status.success() && explained.stdout.contains("no memory that looks like"), "{explained:?}");
    assert!(explained.stdout.contains("16 MiB") && !explained.stdout.contains("promote --guest"), "{explained:?}");
}

fn memory_without_huge_pages_is_told_with_what_to_do() {
    let program = Program::start("map=128M nohugepage fill ready read=all");
    let told = hugepilot(&format!("promote --guest {} --dry-run --window 200ms", program.pid)).stdout;
    assert!(told.contains("would do nothing: ") && told.contains("start the guest without that setting"), "{told}");
    assert!(!told.contains("does it"), "{told}");
}

fn a_daemon_promotes_guests() {
    let mut program = Program::start("map=192M fill free-now=third ready read=last");
    let rss = program.rss();
    let daemon = Daemon::start(&format!("[[target]]\npid = {}\nguest = true\n", program.pid));
    wait_until("a guest on huge pages", || program.huge_bytes() >= 124 * MIB);
    assert!(program.rss() <= rss + rss / 100 + MIB);
    wait_until("a scan that finds all huge", || {
        let target = daemon.target(program.pid).expect("a target");
        target["reasons"].get("populated").is_none()
    });
    let target = daemon.target(program.pid).expect("a target");
    assert_eq!((target["mode"].as_str(), target["walks_per_second"].is_null()), (Some("guest"), true), "{target}");
    program.assert_unharmed();
}
