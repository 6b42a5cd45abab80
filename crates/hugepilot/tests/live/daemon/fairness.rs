//! Each program's share of a budget that is too small for all, and the fate of huge pages that are no longer used.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Daemon, MIB, named, target, wait_until_huge};
use crate::support::{PATIENCE, Program, number, wait_for, wait_until};

crate::trials!(
    a_late_starter_gets_its_share_and_more_once_the_other_rests,
    sparse_memory_is_given_back_once_it_is_not_used,
    sparse_memory_is_kept_if_told_so,
);

/// What each of two programs maps. A third of a quarter of it, in base pages, is more than the 4,096 entries of a TLB; it would seem idle otherwise.
const EACH: u64 = 256 * MIB;

/// A budget large enough for one of the two.
const RULES: &str = "max-huge = '256M'\nfairness = 'share'\n[[target]]\nname = 'hpt-share-*'\n";

fn start(folder: &Path, name: &str, steps: &str) -> Program {
    Program::command(&mut named(folder, name, steps))
}

fn a_late_starter_gets_its_share_and_more_once_the_other_rests() {
    let folder = tempfile::tempdir().expect("a folder");
    // The two gain differently per region, and each starts first once.
    for order in [["all", "scattered"], ["scattered", "all"]] {
        let daemon = Daemon::start(RULES);
        let rest = folder.path().join(format!("{}-rests", order[0]));
        let begin = |rule: &str, then: &str| {
            start(folder.path(), &format!("hpt-share-{}", &rule[..3]), &format!("map={EACH} fill ready {then}"))
        };
        let mut early = begin(order[0], &format!("read-until={},{} sleep=300s", rest.display(), order[0]));
        wait_until_huge(&early, EACH / 4 * 3);
        let mut late = begin(order[1], &format!("read={}", order[1]));
        let came = Instant::now();
        let share = EACH / 5 * 2..=EACH / 5 * 3;
        let fair = || share.contains(&late.huge_bytes()) && share.contains(&early.huge_bytes());
        wait_until("a fair share", fair);
        assert!(came.elapsed() < Duration::from_secs(30), "{:?}", came.elapsed());
        // A program that is not scheduled for a while claims less.
        let stays = (0..4).filter(|_| {
            daemon.wait_for_scans(2);
            fair()
        });
        assert!(stays.count() >= 3, "it does not stay so: {}", daemon.status());
        fs::write(rest, "").expect("a file");
        // Until the one that rests is scanned again, half a minute may pass.
        wait_for("most of it", 2 * PATIENCE, || late.huge_bytes() >= EACH / 4 * 3);
        assert!(early.huge_bytes() <= EACH / 4, "{}", daemon.status());
        early.assert_unharmed();
        late.assert_unharmed();
    }
}

/// The part of 320 MiB that the first round promotes even if a huge page takes 10 ms. Afterwards the TLB may hold the remaining base pages, which
/// then seem idle.
const PART: u64 = 40 * MIB;

/// A daemon that lets sparse memory grow freely, and a program that uses sparse memory until the file exists: more pages than a TLB holds.
fn with_sparse_memory(rules: &str, rest: &Path) -> (Daemon, Program, u64) {
    // 2,560 pages: more than most TLBs hold, and every 32nd page, so that they share few sets of a TLB that holds 4,096; otherwise there would be next
    // to no page walks.
    let steps = format!("map=320M fill=sparse ready read-until={},sparse sleep=300s", rest.display());
    let program = Program::start(&steps);
    let before = program.rss();
    let daemon = Daemon::start(&format!("max-growth = '1G'\nmin-size = '1M'\n{rules}{}", target(&[&program])));
    wait_until_huge(&program, PART);
    assert!(program.rss() >= before + PART / 10 * 9);
    (daemon, program, before)
}

fn sparse_memory_is_given_back_once_it_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let rest = folder.path().join("rest");
    let (daemon, mut program, before) = with_sparse_memory("", &rest);
    daemon.scan_again(4);
    assert!(program.huge_bytes() >= PART, "it is used: {}", daemon.status());
    assert_eq!(number(&daemon.status()["counts"], "given_back"), 0);
    fs::write(rest, "").expect("a file");
    daemon.scan_again(4);
    wait_for("all given back", 4 * PATIENCE, || program.huge_bytes() == 0);
    if daemon.status()["frees_empty_pages"] == true {
        assert!(program.rss() <= before + 8 * MIB, "{before} bytes became {}", program.rss());
    } else {
        eprintln!("this kernel frees no empty pages of huge pages that it splits (seen on 6.1): growth is not checked");
    }
    program.assert_unharmed();
}

fn sparse_memory_is_kept_if_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let rest = folder.path().join("rest");
    let (daemon, mut program, _) = with_sparse_memory("give-back = false\n", &rest);
    fs::write(rest, "").expect("a file");
    // As many scans as it takes to detect waste.
    daemon.scan_again(5);
    assert!(program.huge_bytes() >= PART);
    program.assert_unharmed();
}
