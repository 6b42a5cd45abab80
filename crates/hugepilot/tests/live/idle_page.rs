//! `idle-page`: runs where the kernel tracks idle pages (`make vm-idle-page` boots such a kernel), and is skipped elsewhere.

use std::path::Path;

use heat::{Heat, Meaning};
use observe::{IdlePage, PageWalk};
use serde_json::Value;

use crate::heat::{assert_found, assert_regions_found, collapse, observe_with};
use crate::program::Rule;
use crate::support::{Program, hugepilot, list, number, shell};

crate::trials!(
    the_walked_third_is_found,
    scattered_pages_are_told_from_their_neighbours,
    shared_memory_is_seen,
    huge_pages_are_seen_and_left_whole,
    what_another_program_walks_counts,
    nearly_all_memory_is_observed,
    doctor_names_it,
    auto_takes_it_where_bpf_is_refused,
);

/// Whether the kernel tracks idle pages; if not, says why the test is skipped.
fn is_there() -> bool {
    let there = Path::new("/sys/kernel/mm/page_idle/bitmap").exists();
    if !there {
        eprintln!("skipped: this kernel marks no idle pages (CONFIG_IDLE_PAGE_TRACKING)");
    }
    there
}

fn observe(program: &Program) -> Heat {
    observe_with(&mut IdlePage::new().expect("a tracker"), program, false)
}

fn the_walked_third_is_found() {
    if !is_there() {
        return;
    }
    let mut program = Program::start("map=256M nohugepage fill ready read=third");
    let heat = observe(&program);
    assert_eq!(heat.meaning, Meaning::Walked);
    assert_found(&heat, &program, Rule::Third);
    assert_regions_found(&heat, &program, Rule::Third);
    program.assert_unharmed();
}

fn scattered_pages_are_told_from_their_neighbours() {
    if !is_there() {
        return;
    }
    let program = Program::start("map=128M nohugepage fill ready read=scattered");
    assert_found(&observe(&program), &program, Rule::Scattered);
}

fn shared_memory_is_seen() {
    if !is_there() {
        return;
    }
    let program = Program::start("shmem=128M fill ready read=third");
    assert_found(&observe(&program), &program, Rule::Third);
}

fn huge_pages_are_seen_and_left_whole() {
    if !is_there() {
        return;
    }
    let mut program = Program::start("map=128M fill ready read=third");
    let half: Vec<u64> = program.regions().step_by(2).collect();
    collapse(&program, &half);
    let heat = observe(&program);
    let hot = program.regions_named(Rule::Third);
    for region in heat.regions.iter().filter(|region| program.holds(region.start.0)) {
        assert_eq!(region.huge, half.contains(&region.start.0), "{region:?}");
        // Eleven huge pages may all stay in the TLB, but memory that is not read never seems walked.
        assert!(hot.contains(&region.start.0) || region.walks_per_second == 0.0, "{region:?}");
    }
    assert_eq!(program.huge_bytes(), 64 << 20, "observing split huge pages");
    program.assert_unharmed();
}

fn what_another_program_walks_counts() {
    if !is_there() {
        return;
    }
    let program = Program::start("shmem=64M fill fork-reader ready sleep=60s");
    let walked = |heat: Heat| {
        let own = heat.regions.iter().filter(|region| program.holds(region.start.0));
        own.map(|region| region.walked.len()).sum::<usize>()
    };
    assert!(walked(observe(&program)) >= 16_000);
    assert_eq!(walked(observe_with(&mut PageWalk::new().expect("a tracker"), &program, true)), 0);
}

/// The kernel does not report the machine's last page frames if they do not fill a word; a program this large holds them.
fn nearly_all_memory_is_observed() {
    if !is_there() {
        return;
    }
    let program = Program::start("map=1G nohugepage fill ready read=third");
    let own = observe(&program).regions.into_iter().filter(|region| program.holds(region.start.0));
    let unobserved = own.map(|region| usize::from(region.unobserved)).sum::<usize>();
    // And up to 31 new pages per processor, in a batch that is not yet on an LRU list.
    assert!(unobserved < 64 + 32, "{unobserved} pages unobserved");
}

fn doctor_names_it() {
    if !is_there() {
        return;
    }
    let json = hugepilot("doctor --json").json();
    let check = list(&json, "checks").iter().find(|check| check["name"] == "tracker").expect("a check");
    let meaning = check["meaning"].as_str().expect("words");
    assert!(meaning.contains("idle-page: takes longer"), "{check}");
}

fn auto_takes_it_where_bpf_is_refused() {
    if !is_there() {
        return;
    }
    if Path::new("/sys/kernel/mm/damon").exists() {
        eprintln!("skipped: this kernel has DAMON, which auto prefers");
        return;
    }
    let mut program = Program::start("map=128M fill ready read=third");
    // BTF is hidden, so that no BPF program loads.
    let hidden = "unshare -m sh -c 'mount -t tmpfs none /sys/kernel/btf && exec $HUGEPILOT";
    let json = shell(&format!("{hidden} heat {} --json'", program.pid)).json();
    assert_eq!((&json["tracker"], &json["meaning"]), (&Value::from("idle-page"), &Value::from("walked")));
    let ran = shell(&format!("{hidden} promote {} --json'", program.pid)).json();
    // A third of 64 regions, and some more at its borders.
    assert!((20..=23).contains(&number(&ran, "applied")), "{ran}");
    assert_eq!(program.huge_bytes(), number(&ran, "applied") << 21);
    program.assert_unharmed();
}
