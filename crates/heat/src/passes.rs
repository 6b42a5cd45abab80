//! Which regions a program passed along their addresses while it was observed.
//!
//! Owns: this test of the reads of single regions, as a pure function. Never touches: the system, or whether the program as a whole goes along
//! addresses ([`crate::walks`]).
//!
//! Random walks show from the first read on, and each further read adds fewer pages. A pass leaves a region untouched until it arrives, and then
//! walks each page once. A program that reads a table at random and streams through a log does both at the same time, in different regions. Where a
//! program stood still at first, all its regions seem untouched until later: all of them together tell that. Random reads that begin in some regions
//! alone, and walk nearly all their pages within the window, cannot be told from a pass; nor can regions that were watched by themselves while the
//! program stood still.

use std::ops::Range;

use crate::Region;
use crate::rate::{DELAYS, ReadCount, ReadCounts, observed};
use crate::units::Nanos;
use crate::walks::FULL;

/// A region was passed if an earlier read saw less than one in so many of the pages that random walks would have shown by then: more than the factor
/// to which delays are known, which [`crate::rate::at_pace`] bounds.
const FEWER: f64 = 12.0;
/// Random walks must have shown so many pages: with a standard error of 7, none of a million regions seems passed by chance.
const ENOUGH: f64 = 48.0;
/// So many walked pages tell how the program's pace changed.
const ENOUGH_FOR_PACE: f64 = 1024.0;
/// When all pages were walked, random walks are taken to have been so many a page.
const MOST_OFTEN: f64 = 4.0;
/// Walks of a region have ended if the last read saw at most this many times the pages of the one before.
const ENDED: f64 = 1.02;

/// Marks the regions that were passed.
///
/// Regions in which the pass was when bits were cleared, at the first read, and at the last tell nothing by themselves. They count where they lie
/// beside regions that were passed, if their walks have ended or have just begun: on each side as many at most as those.
pub fn find(regions: &mut [Region], read_counts: &[ReadCounts]) {
    let paces = Paces::of(regions, read_counts);
    let pages: Vec<u32> = regions.iter().map(observed).collect();
    let mut passed: Vec<bool> = regions
        .iter()
        .zip(&pages)
        .zip(read_counts)
        .map(|((region, &pages), reads)| !region.huge && came_late(pages, reads, &paces, FULL))
        .collect();
    let is_beside = |index: usize, other: usize| {
        let (first, second) = (&regions[index.min(other)], &regions[index.max(other)]);
        first.range().end == second.start && first.mapping == second.mapping && !regions[index].huge
    };
    let is_part =
        |index: usize| has_ended(&read_counts[index]) || came_late(pages[index], &read_counts[index], &paces, 0.0);
    for run in runs(&passed) {
        let (most, len) = (run.len(), regions.len());
        let before = (0..run.start).rev().take(most).take_while(|&at| is_beside(at, at + 1) && is_part(at));
        let after = (run.end..len).take(most).take_while(|&at| is_beside(at, at - 1) && is_part(at));
        let beside: Vec<usize> = before.chain(after).collect();
        beside.into_iter().for_each(|at| passed[at] = true);
    }
    regions.iter_mut().zip(passed).for_each(|(region, passed)| region.in_order = passed);
}

/// Neighbors that were passed.
fn runs(passed: &[bool]) -> Vec<Range<usize>> {
    let mut end = 0;
    let runs = passed.chunk_by(|one, other| one == other).map(|chunk| {
        end += chunk.len();
        (chunk[0], end - chunk.len()..end)
    });
    runs.filter(|&(passed, _)| passed).map(|(_, run)| run).collect()
}

/// Whether pages were walked, and hardly any new ones at last.
fn has_ended(read_counts: &ReadCounts) -> bool {
    let mut usable = read_counts.iter().rev().filter(|read| read.delay() > Nanos(0));
    let (last, before) = (usable.next(), usable.next());
    last.zip(before)
        .is_some_and(|(last, before)| last.walked > 0 && f64::from(last.walked) <= ENDED * f64::from(before.walked))
}

/// Whether so large a share of it was walked far later than by random walks.
fn came_late(pages: u32, read_counts: &ReadCounts, paces: &Paces, least: f64) -> bool {
    let usable = || read_counts.iter().enumerate().filter(|(_, read)| read.delay() > Nanos(0));
    usable().filter(|(_, late)| share(pages, late) >= least).any(|(late_at, late)| {
        let walks_per_page = (1.0 - share(pages, late)).recip().ln().min(MOST_OFTEN);
        usable().take_while(|&(early_at, _)| early_at < late_at).any(|(early_at, early)| {
            let times = (early.delay().seconds() / late.delay().seconds()).min(paces.0[early_at][late_at]);
            let at_random = f64::from(pages) * (1.0 - (-walks_per_page * times).exp());
            at_random >= ENOUGH && f64::from(early.walked) * FEWER < at_random
        })
    })
}

/// How much of all pages that a later read saw the earlier one had seen, by the numbers of both; infinite where that is not known.
struct Paces([[f64; READS]; READS]);

const READS: usize = 1 + DELAYS.len();

impl Paces {
    fn of(regions: &[Region], read_counts: &[ReadCounts]) -> Self {
        let pace = |early: usize, late: usize| {
            let both = regions.iter().zip(read_counts).filter(|(region, _)| !region.huge).map(|(_, reads)| reads);
            let read_twice = both.filter(|reads| [early, late].iter().all(|&at| reads[at].delay() > Nanos(0)));
            let [saw_early, saw_late] = read_twice.fold([0.0; 2], |[sum_early, sum_late], reads| {
                [sum_early + f64::from(reads[early].walked), sum_late + f64::from(reads[late].walked)]
            });
            if saw_late < ENOUGH_FOR_PACE { f64::INFINITY } else { saw_early / saw_late }
        };
        let known = |early, late| if early < late { pace(early, late) } else { f64::INFINITY };
        Self(std::array::from_fn(|early| std::array::from_fn(|late| known(early, late))))
    }
}

fn share(pages: u32, read: &ReadCount) -> f64 {
    (f64::from(read.walked) / f64::from(pages.max(1))).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{huge, region};

    const MS: [u64; 5] = [1, 3, 10, 30, 100];

    fn reads(walked: impl Fn(u64) -> u32) -> ReadCounts {
        let mut read_counts = ReadCounts::default();
        for (read, ms) in read_counts.iter_mut().skip(1).zip(MS) {
            *read = ReadCount::new(Nanos(ms * 1_000_000), walked(ms));
        }
        read_counts
    }

    /// A pass that comes to a region so many ms after bits were cleared, and takes so long through it.
    fn pass(comes_ms: f64, takes_ms: f64) -> ReadCounts {
        let until = |ms: f64| ((ms - comes_ms) / takes_ms).clamp(0.0, 1.0) * 512.0;
        reads(|ms| (until(ms as f64) - until(0.0)) as u32)
    }

    fn at_random(walks_per_ms: f64) -> ReadCounts {
        reads(|ms| (512.0 * (1.0 - (-walks_per_ms * ms as f64 / 512.0).exp())).round() as u32)
    }

    fn found(read_counts: &[ReadCounts]) -> Vec<bool> {
        let mut regions: Vec<Region> = (0..read_counts.len() as u64).map(|number| region(number, 0.0, 0)).collect();
        find(&mut regions, read_counts);
        regions.iter().map(|region| region.in_order).collect()
    }

    #[test]
    fn a_pass_is_told_from_random_walks_beside_it() {
        // 150 MB/s: 14 ms for each region; and a table that is walked a million times a second.
        let stream: Vec<ReadCounts> = (0..12).map(|number| pass(14.0 * f64::from(number) - 20.0, 14.0)).collect();
        let table = vec![at_random(2.0); 512];
        let both = found(&[table.clone(), stream, table].concat());
        let passed: Vec<usize> = (0..1036).filter(|&at| both[at]).collect();
        // The first had been passed before. In the second the pass was when bits were cleared, and in the last at the last read.
        assert_eq!(passed, (513..521).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_full_before_the_first_read_counts_beside_a_pass() {
        let hot = reads(|_| 512);
        assert_eq!(found(&vec![hot; 40]), [false; 40]);
        // 5 GB/s: a region each 0.4 ms, of which two are full at the first read.
        let fast: Vec<ReadCounts> = (0..200).map(|number| pass(0.4 * f64::from(number) + 0.1, 0.4)).collect();
        assert_eq!(fast[1], hot, "one cannot be told from the other");
        assert!(found(&fast).iter().all(|&passed| passed));
        // A heap that is hot as a whole, and to which a region is being added.
        let growing = found(&[vec![hot; 40], vec![pass(40.0, 5.0)]].concat());
        assert_eq!(growing.iter().filter(|&&passed| passed).count(), 2, "as many as were seen to be passed");
    }

    #[test]
    fn huge_pages_and_other_mappings_are_no_part_of_a_pass() {
        let of = |first: Region| {
            let mut regions = [first, region(1, 0.0, 0)];
            find(&mut regions, &[reads(|_| 512), pass(20.0, 5.0)]);
            regions.map(|region| region.in_order)
        };
        assert_eq!(of(region(0, 0.0, 0)), [true, true]);
        assert_eq!(of(Region { mapping: Some(1), ..region(0, 0.0, 0) }), [false, true]);
        assert_eq!(of(huge(0, 0.0)), [false, true]);
        let mut alone = [huge(0, 0.0)];
        find(&mut alone, &[pass(20.0, 5.0)]);
        assert!(!alone[0].in_order);
    }

    #[test]
    fn a_program_that_stood_still_at_first_passed_nothing() {
        // A hash table and its items; nothing was walked for the first 8 ms, in which the program waited for a processor.
        let late = |walks_per_ms: f64| {
            reads(|ms| (512.0 * (1.0 - (-walks_per_ms * ms.saturating_sub(8) as f64 / 512.0).exp())).round() as u32)
        };
        assert_eq!(found(&[vec![late(200.0); 20], vec![late(0.5); 400]].concat()), [false; 420]);
        assert_eq!(found(&[late(200.0); 20]), [false; 20]);
        assert_eq!(found(&[late(200.0)]), [true], "a single region tells nothing of the pace, but it lives in the TLB");
    }

    #[test]
    fn one_read_tells_nothing() {
        let mut once = ReadCounts::default();
        once[5] = ReadCount::new(Nanos(100_000_000), 512);
        assert_eq!(found(&[once, ReadCounts::default()]), [false, false]);
    }

    proptest! {
        #[test]
        fn random_walks_are_no_pass(rates in prop::collection::vec(0.0..2000.0f64, 1..20), late in 1.0..6.0f64) {
            // Also if the time of a read is not known better than by a factor of six.
            let walked = |rate: &f64| reads(|ms| {
                let since = if ms == 1 { 1.0 / late } else { ms as f64 };
                (512.0 * (1.0 - (-rate * since / 512.0).exp())).round() as u32
            });
            let read_counts: Vec<ReadCounts> = rates.iter().map(walked).collect();
            prop_assert!(!found(&read_counts).into_iter().any(|passed| passed));
        }

        #[test]
        fn a_pass_is_seen_whenever_it_comes(comes_ms in 5.0..85.0f64, takes_ms in 0.2..12.0f64) {
            prop_assert_eq!(found(&[pass(comes_ms, takes_ms)]), [true]);
        }
    }
}
