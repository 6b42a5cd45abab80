//! Whole runs: that they are repeatable, and which parts of the paper's shape they show.

use super::*;

const GIB: u64 = 1 << 30;

/// Large model pages, so that it is quick.
fn run(trace: &TraceChoice, policy: PolicyKind, memory: u64) -> SimulationOutcome {
    let setup =
        TraceSetup { memory: Bytes(memory), page: Bytes(1 << 20), disk: Bytes(100 << 20), resident: 0.4, seed: 1 };
    simulate(trace, policy, &setup, Length { settle: 1.5, intervals: 10 }, &Stop::default()).unwrap()
}

fn mib_per_second(outcome: &SimulationOutcome) -> f64 {
    outcome.mean_throughput(Bytes(100 << 20))
}

#[test]
fn the_same_arguments_give_the_same_figures() {
    for trace in crate::lists::trace::BUILT_IN {
        for policy in [PolicyKind::Mixed, PolicyKind::Split(100), PolicyKind::AnonFile, PolicyKind::Generations] {
            let one = run(&trace, policy, GIB);
            assert_eq!(one, run(&trace, policy, GIB), "{trace} {policy}");
            assert!(one.account.scan.reclaimed > 0 && one.throughput.len() >= 10, "{trace} {policy}");
        }
    }
}

#[test]
fn where_programs_fill_memory_mixed_lists_get_slower_with_it_and_split_ones_do_not() {
    // The paper's figures 1 and 5: process pages that are aged come back, and more of them the longer a list takes to cycle.
    let of = |policy, gib| run(&TraceChoice::Crowded, policy, gib * GIB);
    let mixed = [4, 8, 16].map(|gib| of(PolicyKind::MixedLater, gib));
    let split = [4, 8, 16].map(|gib| of(PolicyKind::split_by_use(100), gib));
    assert!(mixed.windows(2).all(|pair| mib_per_second(&pair[1]) < 0.99 * mib_per_second(&pair[0])));
    assert!(split.windows(2).all(|pair| mib_per_second(&pair[1]) > 0.99 * mib_per_second(&pair[0])));
    for (mixed, split) in mixed.iter().zip(&split) {
        assert!(mib_per_second(split) > mib_per_second(mixed));
        assert!(split.account.scanned_per_reclaimed() < mixed.account.scanned_per_reclaimed());
        assert!(split.variation() < mixed.variation());
        assert_eq!(split.account.refaults[..4], [0; 4], "no mapped page goes");
    }
}

#[test]
fn what_the_paper_says_of_scanning_is_not_what_the_lists_do() {
    // With more memory, Linux 2.6.6 scans less per page that it reclaims: the amount of active list scanned in a pass does not depend on memory, but
    // the amount of inactive list does.
    let scanned =
        |gib| run(&TraceChoice::Writers, PolicyKind::Mixed, gib * GIB).account.scanned_per_reclaimed().unwrap();
    assert!(scanned(2) > scanned(4) && scanned(4) > scanned(16));
    // If mapped pages have less than 80 % of memory, none of them is aged, and the disk is the bottleneck, not the lists.
    let [small, large] = [4, 16].map(|gib| mib_per_second(&run(&TraceChoice::Writers, PolicyKind::Mixed, gib * GIB)));
    assert!((large / small - 1.0).abs() < 0.01, "{small} {large}");
}
