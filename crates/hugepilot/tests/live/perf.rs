//! Sampling by the processor. If it has no PMU for that, the kernel's page fault events test the same ring buffer and parser.

use std::collections::BTreeSet;
use std::fs;

use heat::units::BASE_PAGE;
use hugepilot_os::perf::{Event, EventScope, Rate, Sampler, Sampling};
use kernel::{Root, pmu};
use observe::perf_mem::samples::{FIELDS, PerfRecord, records};

use crate::program::Rule;
use crate::support::{Program, hugepilot, list, number, wait_until};

crate::trials!(page_faults_tell_their_addresses, the_hot_part_is_sampled, without_a_pmu_the_error_says_so,);

/// `PERF_COUNT_SW_PAGE_FAULTS`
const PAGE_FAULTS: Event = Event { kind: 1, config: 2, config1: 0, config2: 0 };

fn page_faults_tell_their_addresses() {
    let directory = tempfile::tempdir().expect("a directory");
    let go = directory.path().join("go");
    let program = Program::start(&format!("map=8M nohugepage ready await={} fill=scattered sleep=60s", go.display()));
    let every = Sampling { event: PAGE_FAULTS, leader: None, rate: Rate::OneIn(1), fields: FIELDS, precise: 0 };
    let mut sampler = Sampler::open(&every, EventScope::Thread(program.pid)).expect("page faults can be sampled");
    sampler.enable().expect("it can be switched on");
    fs::write(&go, "").expect("a file");
    let pages = (program.len / BASE_PAGE) as usize;
    let touched: BTreeSet<usize> = (0..pages).filter(|&page| Rule::Scattered.names(page, pages)).collect();
    let mut sampled = BTreeSet::new();
    wait_until("every page that is touched is sampled", || {
        for record in records(sampler.take()) {
            let PerfRecord::Sample(sample) = record else { panic!("{record:?}") };
            assert_eq!((sample.pid, sample.period, sample.source.walked()), (program.pid, 1, false));
            if program.holds(sample.address.0) {
                sampled.insert(((sample.address.0 - program.start) / BASE_PAGE) as usize);
            }
        }
        sampled.len() >= touched.len()
    });
    assert_eq!(sampled, touched);
}

/// Whether this machine's PMU samples memory accesses.
fn has_pmu() -> bool {
    pmu::memory_sampling(&Root::host()).expect("sysfs can be read").is_some()
}

fn the_hot_part_is_sampled() {
    if !has_pmu() {
        return eprintln!("skipped: no PMU here samples memory accesses");
    }
    let program = Program::start("map=128M nohugepage fill ready read=third");
    let json = hugepilot(&format!("heat {} --tracker perf-mem --window 3s --json", program.pid)).json();
    assert_eq!((json["tracker"].as_str(), json["meaning"].as_str()), (Some("perf-mem"), Some("sampled")));
    let hot = program.regions_named(Rule::Third);
    let of_program = list(&json, "regions").iter().filter(|region| program.holds(number(region, "start")));
    let walks = |region: &&serde_json::Value| region["walks_per_second"].as_f64().expect("a rate");
    let (within, without): (Vec<_>, Vec<_>) = of_program.partition(|region| hot.contains(&number(region, "start")));
    let (within, without): (f64, f64) = (within.iter().map(walks).sum(), without.iter().map(walks).sum());
    assert!(within > 1000.0 && within > 20.0 * without, "{within} within, {without} without");
}

fn without_a_pmu_the_error_says_so() {
    if has_pmu() {
        return eprintln!("skipped: this machine has a PMU");
    }
    let program = Program::start("map=4M fill ready read=all");
    let ran = hugepilot(&format!("heat {} --tracker perf-mem", program.pid));
    ran.assert_fails_with(&["no PMU that samples memory accesses", "virtual machines", "page-walk"]);
    let explained = hugepilot(&format!("explain {} --window 300ms --json", program.pid)).json();
    let counts_walks = pmu::walk_events(&Root::host()).expect("sysfs can be read").is_some();
    assert!(
        (counts_walks || explained["walk_cycles_percent"].is_null()) && explained["walk_cost_high_ns"].is_u64(),
        "{explained}"
    );
}
