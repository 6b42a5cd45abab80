//! Which regions a program passed along their addresses while it was observed.
//!
//! Owns: this test of the reads of single regions, as a pure function. Never touches: the system, or whether the program as a whole goes along
//! addresses ([`crate::walks`]).
//!
//! Random walks show from the first read on, and each further read adds fewer pages. A pass leaves a region untouched until it arrives, and then walks
//! each page once. A program that reads a table at random and streams through a log does both at the same time, in different regions. Where a program
//! stood still at first, all its regions seem untouched until later: all of them together tell that.

use std::ops::Range;

use crate::Region;
use crate::rate::{DELAYS, ReadCount, ReadCounts, observed};
use crate::units::Nanos;

/// A region was passed if an earlier read saw less than one in so many of the pages that random walks would have shown by then. Delays are known to
/// less than that.
const FEWER: f64 = 8.0;
/// Random walks must have shown so many pages: with a standard error of 7, none of a million regions seems passed by chance.
const ENOUGH: f64 = 48.0;
/// A region is full if at least this share of its pages was walked.
const FULL: f64 = 0.9;
/// So many walked pages tell how the program's pace changed.
const ENOUGH_FOR_PACE: f64 = 1024.0;
/// When all pages were walked, random walks are taken to have been so many a page.
const MOST_OFTEN: f64 = 4.0;

/// Marks the regions that were passed.
///
/// Regions that were full at the first read tell nothing by themselves. They count where they lie beside regions that were passed, as many at most as
/// those; and so do the two in which the pass was when bits were cleared, and when they were first read.
pub(crate) fn find(regions: &mut [Region], read_counts: &[ReadCounts]) {
    let paces = Paces::of(regions, read_counts);
    let both = regions.iter().zip(read_counts);
    let mut passed: Vec<bool> =
        both.map(|(region, reads)| !region.huge && is_passed(observed(region), reads, &paces)).collect();
    let is_beside = |index: usize, other: usize| {
        let (first, second) = (&regions[index.min(other)], &regions[index.max(other)]);
        first.range().end == second.start && first.mapping == second.mapping && !regions[index].huge
    };
    let is_full = |&index: &usize| is_full_at_first(observed(&regions[index]), &read_counts[index]);
    for run in runs(&passed) {
        let (most, len) = (run.len() + 2, regions.len());
        let before = (0..run.start).rev().take(most).take_while(|&index| is_beside(index, index + 1));
        let after = (run.end..len).take(most).take_while(|&index| is_beside(index, index - 1));
        for beside in [before.collect::<Vec<_>>(), after.collect()] {
            let partly = usize::from(beside.first().is_some_and(|first| !is_full(first)));
            let full = beside.iter().skip(partly).take(run.len()).take_while(|index| is_full(index)).count();
            beside.iter().take(partly + full + full.min(1)).for_each(|&index| passed[index] = true);
        }
    }
    for ((region, read_counts), passed) in regions.iter_mut().zip(read_counts).zip(passed) {
        region.in_order = passed && read_counts.iter().any(|read| read.walked > 0);
    }
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

fn is_full_at_first(pages: u32, read_counts: &ReadCounts) -> bool {
    read_counts.iter().find(|read| read.delay() > Nanos(0)).is_some_and(|read| share(pages, read) >= FULL)
}

/// Whether it became full far later than by random walks.
fn is_passed(pages: u32, read_counts: &ReadCounts, paces: &Paces) -> bool {
    let usable = || read_counts.iter().enumerate().filter(|(_, read)| read.delay() > Nanos(0));
    usable().filter(|(_, late)| share(pages, late) >= FULL).any(|(late_at, late)| {
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
        let mut regions: Vec<Region> = (0..1036).map(|number| region(number, 0.0, 0)).collect();
        regions[512..524].iter_mut().for_each(|region| region.mapping = Some(1));
        find(&mut regions, &[table.clone(), stream, table].concat());
        let passed: Vec<usize> = (0..1036).filter(|&index| regions[index].in_order).collect();
        // The first was passed before, and in the second the pass was when bits were cleared.
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
        assert_eq!(growing.iter().filter(|&&passed| passed).count(), 3, "hardly more than were seen to be passed");
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
        assert_eq!(found(&[late(200.0)]), [true], "a single region tells nothing of the program's pace");
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
