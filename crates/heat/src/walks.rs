//! What the early reads tell about all page walks together: how many are certain, and whether they are scattered.
//!
//! Where reads come late, walks along addresses show in regions that fill up one after the other ([`outside_passes`]).
//!
//! Owns: these measures, as pure functions. Never touches: the system, or the rate of a single region.
//!
//! *Certain*: where clearing flushed the TLB, a bit means that the page was accessed. The TLB can have held no more of the accessed pages than it has
//! entries, so the others were walked (docs/DESIGN.md, fact 3).
//!
//! *Scattered*: a cache line of the page table holds eight entries. Walks along addresses share lines and cost next to nothing; scattered walks fetch
//! a line each. Random walks also share lines by chance, more so the denser they are, so the lines seen in each region are compared with those that
//! as many random walks in it would have touched. Where all pages were walked within milliseconds, walks went along them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::rate::{DELAYS, ReadCounts};
use crate::units::Nanos;

/// What is known of the page walks of all observed base pages together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walks {
    /// Page walks a second that are certain: excluding every page that the TLB may have held.
    pub at_least_per_second: f64,
    /// Page walks a second if each first walk slows the program down as much as it does in the worst case on this machine.
    pub at_most_per_second: f64,
    /// How scattered the walks are: 0 along addresses, 1 at random. None if regions do not fill up one after the other, and the
    /// first read came too late.
    pub scattered: Option<f64>,
}

/// Where at most this share of walks is scattered, all go along addresses. Cache lines alone do not prove that: hot pages may lie side by side.
pub const MOSTLY_IN_ORDER: f64 = 0.1;

/// TLB entries where the processor does not tell: more than any server processor had for base pages by 2024 (4,192 on AMD Zen 5).
pub const TLB_ENTRIES: u64 = 5120;

/// Base pages of one region, and what the reads saw of them.
pub struct SeenPages<'a> {
    /// Base pages whose bits are meaningful.
    pub observed: u32,
    /// What the reads of the window saw.
    pub read_counts: &'a ReadCounts,
    /// What reads before those saw.
    pub early: &'a EarlyReads,
}

impl SeenPages<'_> {
    fn share_walked(&self, read: usize) -> f64 {
        f64::from(self.read_counts[read].walked) / f64::from(self.observed.max(1))
    }

    fn last_within(&self, reads: &Range<usize>, delay_us: u16) -> Option<EarlyRead> {
        self.early[reads.clone()].iter().rev().copied().find(|read| (1..=delay_us).contains(&read.delay_us))
    }
}

/// What one early read saw of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyRead {
    delay_us: u16,
    walked: u16,
    lines: u8,
}

/// One while other memory was still being cleared, and one for each of the first delays.
pub type EarlyReads = [EarlyRead; 1 + EARLY];

/// The reads at 1, 3 and 10 ms.
pub const EARLY: usize = 3;
/// Regions count that were read within so many microseconds; the longer the time, the more pages were walked by chance.
const SOON: [u16; 3] = [2_000, 5_000, 15_000];
/// Walked pages that must have been seen: lines are then counted to some 3 %.
const ENOUGH: u64 = 1024;
/// Entries in a cache line of the page table.
const ENTRIES_PER_LINE: f64 = 8.0;

impl EarlyRead {
    /// `delay`: since the bits were cleared. None if it came too late to tell.
    pub fn new(delay: Nanos, walked: usize, lines: usize) -> Option<Self> {
        let delay_us = u16::try_from(delay.0.div_ceil(1000)).ok()?;
        Some(Self { delay_us, walked: walked as u16, lines: lines as u8 })
    }

    fn walks_per_second(self) -> f64 {
        f64::from(self.walked) / f64::from(self.delay_us.max(1)) * 1e6
    }

    /// How scattered the walks of a region of so many pages are, give or take a few lines.
    fn scattered(self, pages: u32) -> f64 {
        let (walked, pages) = (f64::from(self.walked), f64::from(pages.max(1)));
        if walked >= pages * FULL {
            return 0.0;
        }
        let in_order = walked / ENTRIES_PER_LINE;
        let at_random = pages / ENTRIES_PER_LINE * (1.0 - (1.0 - walked / pages).powf(ENTRIES_PER_LINE));
        if at_random > in_order { (f64::from(self.lines) - in_order) / (at_random - in_order) } else { 0.0 }
    }
}

/// The certain share of the walks rated in a group of regions, `tlb_entries` of whose pages may never have been walked.
pub fn certain_share<'a>(
    seen: impl Iterator<Item = SeenPages<'a>> + Clone,
    rated_per_second: f64,
    tlb_entries: f64,
) -> f64 {
    let certain_by = |read: usize| {
        let (mut pages, mut per_second) = (0.0, 0.0);
        for read_count in
            seen.clone().map(|seen| seen.read_counts[read]).filter(|read_count| read_count.delay() > Nanos(0))
        {
            pages += f64::from(read_count.walked);
            per_second += f64::from(read_count.walked) / read_count.delay().seconds();
        }
        if pages > tlb_entries { per_second * (1.0 - tlb_entries / pages) } else { 0.0 }
    };
    let certain = (0..1 + DELAYS.len()).map(certain_by).fold(0.0, f64::max);
    if rated_per_second > 0.0 { (certain / rated_per_second).min(1.0) } else { 0.0 }
}

/// How scattered the walks are, by the regions that were read soonest after they were cleared; see [`Walks::scattered`].
///
/// Reads during the clearing count only if all others came too late: hot memory, which a program passes within a millisecond, is not yet full then.
pub fn scattered<'a>(seen: impl Iterator<Item = SeenPages<'a>> + Clone) -> Option<f64> {
    let by_reads = |reads: Range<usize>| {
        SOON.into_iter().find_map(|soon| {
            let (mut walked, mut all, mut scattered) = (0, 0.0, 0.0);
            let read_soon = |seen: SeenPages<'a>| Some((seen.observed, seen.last_within(&reads, soon)?));
            for (observed, read) in seen.clone().filter_map(read_soon) {
                walked += u64::from(read.walked);
                all += read.walks_per_second();
                scattered += read.walks_per_second() * read.scattered(observed);
            }
            (walked >= ENOUGH).then(|| (scattered / all).clamp(0.0, 1.0))
        })
    };
    by_reads(1..1 + EARLY).or_else(|| by_reads(0..1))
}

/// Regions that tell whether a program goes along addresses.
const ENOUGH_REGIONS: usize = 32;
/// A region is full if at least this share of its pages was walked, and empty if at most the rest was.
pub(crate) const FULL: f64 = 0.9;
/// Of regions that are walked along addresses, only those at the front of a pass are neither.
const AT_THE_FRONT: f64 = 0.1;

/// How full regions were at one read.
struct Fill {
    full: usize,
    empty: usize,
    all: usize,
}

impl Fill {
    /// None if too few were read.
    fn of(regions: &[SeenPages<'_>], read: usize) -> Option<Self> {
        let was_read = regions.iter().filter(|seen| seen.read_counts[read].delay() > Nanos(0));
        let shares: Vec<f64> = was_read.map(|seen| seen.share_walked(read)).collect();
        let count = |is_counted: fn(f64) -> bool| shares.iter().filter(|&&share| is_counted(share)).count();
        let fill =
            Self { full: count(|share| share >= FULL), empty: count(|share| share <= 1.0 - FULL), all: shares.len() };
        (fill.all >= ENOUGH_REGIONS).then_some(fill)
    }

    /// Hardly any region was partly walked.
    fn is_sharp(&self) -> bool {
        (self.all - self.full - self.empty) as f64 <= self.all as f64 * AT_THE_FRONT
    }

    /// Some were full, and some empty.
    fn is_divided(&self) -> bool {
        self.full.min(self.empty) as f64 >= self.all as f64 * AT_THE_FRONT
    }
}

/// How scattered the walks are, for reads that came too late to see it from cache lines ([`scattered`]); None where that cannot be told, or all are.
///
/// Of the regions that were full in the end, walks along addresses have made some full by an earlier read, left the others empty, and hardly any partly
/// walked; random walks fill all at once. What was walked in other regions is scattered: a Java program passes along new memory, and reads old memory
/// at random.
pub fn outside_passes<'a>(seen: impl Iterator<Item = SeenPages<'a>>) -> Option<f64> {
    let last = DELAYS.len();
    let walked =
        |seen: &[SeenPages<'_>]| seen.iter().fold(0.0, |sum, seen| sum + f64::from(seen.read_counts[last].walked));
    let (filled, others): (Vec<_>, Vec<_>) = seen.partition(|seen| seen.share_walked(last) >= FULL);
    let scattered = walked(&others) / (walked(&filled) + walked(&others)).max(1.0);
    // Memory that is walked at random, some of it soon and some late, seems so at one read, but not at two.
    let reads: Vec<Fill> = (0..last).filter_map(|read| Fill::of(&filled, read)).collect();
    let in_passes = reads.len() >= 2 && reads.iter().all(Fill::is_sharp) && reads.iter().any(Fill::is_divided);
    in_passes.then_some(scattered)
}

/// How scattered the walks are: what [`outside_passes`] found, without which they are not taken to go along addresses, or else [`scattered`].
pub fn by_both(by_lines: Option<f64>, by_regions: Option<f64>) -> Option<f64> {
    by_regions.or(by_lines.map(|share| share.max(MOSTLY_IN_ORDER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::ReadCount;
    use proptest::prelude::*;

    /// A region read at 1 ms, with the final result of all its reads.
    struct Read {
        early: EarlyReads,
        read_counts: ReadCounts,
    }

    fn read(walked: &[usize], in_the_end: u32) -> Read {
        let mut lines = [false; 64];
        walked.iter().for_each(|page| lines[page / 8] = true);
        let lines = lines.iter().filter(|&&line| line).count();
        let early = EarlyRead::new(Nanos(1_000_000), walked.len(), lines).unwrap();
        let mut read_counts = ReadCounts::default();
        read_counts[1] = ReadCount::new(Nanos(1_000_000), walked.len() as u32);
        read_counts[DELAYS.len()] = ReadCount::new(Nanos(100_000_000), in_the_end);
        let none = EarlyRead::default();
        Read { early: [none, early, none, none], read_counts }
    }

    fn seen(reads: &[Read]) -> impl Iterator<Item = SeenPages<'_>> + Clone {
        reads.iter().map(|read| SeenPages { observed: 512, read_counts: &read.read_counts, early: &read.early })
    }

    /// Regions in which each page was walked with this probability.
    fn at_random(regions: usize, chance: f64, seed: u64) -> Vec<Read> {
        let mut state = seed;
        let mut hit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64) < chance * (1u64 << 53) as f64
        };
        (0..regions).map(|_| read(&(0..512).filter(|_| hit()).collect::<Vec<_>>(), 512)).collect()
    }

    #[test]
    fn walks_along_addresses_are_told_from_scattered_ones() {
        // A twentieth of the regions completely, the others not at all: a program on its way through memory.
        let all: Vec<usize> = (0..512).collect();
        let in_order: Vec<Read> = (0..400).map(|number| read(if number % 20 == 0 { &all } else { &[] }, 512)).collect();
        assert!(scattered(seen(&in_order)).unwrap() < 0.02);
        let part: Vec<usize> = (0..200).collect();
        assert!(scattered(seen(&(0..20).map(|_| read(&part, 512)).collect::<Vec<_>>())).unwrap() < 0.02);
        // Every eighth page, so that no two share a line.
        let apart: Vec<usize> = (0..512).step_by(8).collect();
        let strided: Vec<Read> = (0..400).map(|number| read(if number % 20 == 0 { &apart } else { &[] }, 64)).collect();
        assert_eq!(scattered(seen(&strided)), Some(1.0));
        // Half and half.
        let mixed: Vec<Read> = in_order.into_iter().chain(at_random(400, 0.05, 7)).collect();
        let mixed = scattered(seen(&mixed)).unwrap();
        assert!((0.35..0.65).contains(&mixed), "{mixed}");
    }

    #[test]
    fn hot_memory_is_not_taken_for_a_pass_along_addresses() {
        // RocksDB: within milliseconds, most of its index was walked, and little of its values.
        let both: Vec<Read> = at_random(10, 0.75, 5).into_iter().chain(at_random(400, 0.01, 3)).collect();
        let found = scattered(seen(&both)).unwrap();
        assert!(found > 0.9, "{found}");
    }

    #[test]
    fn what_says_nothing_is_unknown() {
        assert_eq!(scattered(seen(&at_random(30, 0.05, 1))), None, "too few walks");
        let late = EarlyRead::new(Nanos(16_000_000), 400, 64).unwrap();
        let late: Vec<Read> =
            at_random(30, 0.5, 1).into_iter().map(|read| Read { early: [late; 1 + EARLY], ..read }).collect();
        assert_eq!(scattered(seen(&late)), None, "hot memory is full by then");
        let interim = EarlyRead::new(Nanos(900_000), 40, 37).unwrap();
        let both = |read: Read| Read { early: [interim, late[0].early[1], late[0].early[1], late[0].early[1]], ..read };
        let both: Vec<Read> = at_random(30, 0.5, 1).into_iter().map(both).collect();
        assert!(scattered(seen(&both)).unwrap() > 0.9, "what was read during the clearing tells");
        assert_eq!(EarlyRead::new(Nanos(66_000_000), 1, 1), None);
    }

    #[test]
    fn what_the_tlb_may_have_held_is_not_certain() {
        let reads = at_random(100, 0.1, 3);
        let rated = 5.12e6;
        let share = |entries| certain_share(seen(&reads), rated, entries);
        assert!((share(0.0) - 1.0).abs() < 0.05, "{}", share(0.0));
        assert!((share(1024.0) - 0.8).abs() < 0.05, "{}", share(1024.0));
        // Of all 51,200 pages that the last read saw, fewer are distinguishable from the TLB's.
        assert!((share(25_600.0) - 0.05).abs() < 0.01, "{}", share(25_600.0));
        assert_eq!((share(51_200.0), certain_share(seen(&reads), 0.0, 0.0)), (0.0, 0.0));
    }

    #[test]
    fn passes_are_seen_however_late_the_first_read_comes() {
        let at = |walked: [u32; 3]| {
            let mut read_counts = ReadCounts::default();
            for (read, (ms, walked)) in [24, 30, 100].into_iter().zip(walked).enumerate() {
                read_counts[3 + read] = ReadCount::new(Nanos(ms * 1_000_000), walked);
            }
            Read { early: EarlyReads::default(), read_counts }
        };
        let of = |regions: &[(usize, [u32; 3])]| {
            let reads: Vec<Read> =
                regions.iter().flat_map(|&(count, walked)| (0..count).map(move |_| at(walked))).collect();
            outside_passes(seen(&reads))
        };
        let stream = [(180, [512, 512, 512]), (2, [200, 512, 512]), (45, [0, 512, 512]), (29, [0, 0, 512])];
        assert_eq!(of(&stream), Some(0.0));
        assert_eq!(of(&[(256, [360, 390, 512])]), None, "at random");
        assert_eq!(of(&[(100, [512, 512, 512]), (156, [0, 0, 40])]), None, "hot and cold memory");
        assert_eq!(of(&[(100, [512, 512, 512]), (156, [40, 230, 500])]), None, "hot and lukewarm memory");
        assert_eq!(of(&[(20, [512, 512, 512]), (10, [0, 0, 512])]), None, "too few to tell");
        let beside_random_reads = of(&[(20, [512, 512, 512]), (20, [0, 0, 512]), (400, [60, 80, 200])]);
        assert!((beside_random_reads.expect("passes") - 0.796).abs() < 0.001, "{beside_random_reads:?}");
    }

    #[test]
    fn cache_lines_alone_do_not_prove_that_walks_go_along_addresses() {
        assert_eq!(by_both(Some(0.01), None), Some(MOSTLY_IN_ORDER), "H2 in a JVM was taken for a stream");
        assert_eq!(by_both(Some(0.7), None), Some(0.7));
        assert_eq!(by_both(Some(0.9), Some(0.0)), Some(0.0), "beside a stream, little else is partly walked");
        assert_eq!((by_both(None, Some(0.2)), by_both(None, None)), (Some(0.2), None));
    }

    proptest! {
        #[test]
        fn scattered_walks_count_as_scattered_at_any_density(chance in 0.02..0.8f64, seed in 1..u64::MAX) {
            let found = scattered(seen(&at_random(200, chance, seed))).unwrap();
            prop_assert!(found > 0.9, "{found} at {chance}");
        }

        #[test]
        fn the_certain_share_falls_with_the_size_of_the_tlb(chance in 0.0..1.0f64, one in 0.0..1e5f64, more in 0.0..1e5f64) {
            let reads = at_random(20, chance, 5);
            let share = |entries| certain_share(seen(&reads), 1e6, entries);
            prop_assert!(share(one) >= share(one + more) && share(one) <= 1.0);
        }
    }
}
