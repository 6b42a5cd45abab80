//! From "how many pages of a region were walked after 1, 3, 10 .. ms" to page walks a second.
//!
//! Owns: the estimate, as a pure function. Never touches: the system.
//!
//! A bit tells that a page was walked at least once, so a late read undercounts pages that are walked often, and an early read sees few pages at all.
//! The rate sought is the slope at time zero: it is taken from the earliest read that saw enough pages, corrected for pages that were walked more
//! than once by assuming that walks of the pages seen are random (Poisson).

use std::time::Duration;

use crate::Region;
use crate::units::Nanos;
use crate::walks::MOSTLY_IN_ORDER;

/// Delays after clearing at which bits are read; rates are based on these.
pub const DELAYS: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
];

/// The observations of a group of pages: before the first delay, if the tracker can, then at each delay.
pub type ReadCounts = [ReadCount; 1 + DELAYS.len()];

/// A read's count is trusted if it saw this many pages walked: the standard error is then 1/√16, a quarter.
const ENOUGH: u32 = 16;

/// When nearly all pages were walked, the count is only a lower bound: it is read as at most this share, three walks per page.
const SATURATED: f64 = 0.95;

/// One read of a group of pages. Small, because there are six for each observed 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCount {
    delay_us: u32,
    /// Pages whose bit was set by then.
    pub walked: u32,
}

impl ReadCount {
    /// `delay`: time since the pages' bits were cleared; more than an hour counts as one.
    pub fn new(delay: Nanos, walked: u32) -> Self {
        Self { delay_us: u32::try_from(delay.0.div_ceil(1000)).unwrap_or(u32::MAX), walked }
    }

    /// Time since the pages' bits were cleared; 0 if nothing was read.
    pub fn delay(&self) -> Nanos {
        Nanos(u64::from(self.delay_us) * 1000)
    }
}

/// A read counts only if the program had a tenth of its pace since the bits were cleared. The clock is read only now and then, and in between the
/// program may have run at any time: short times are uncertain, and rates computed from them far too high.
const LEAST_PACE: u64 = 10;

/// Converts delays to those at the program's own pace, and drops reads for which that is not known; the last one always counts, at a tenth of its
/// delay or more.
pub fn at_pace(read_counts: &mut ReadCounts, pace: impl Fn(Nanos) -> Nanos) {
    let last = read_counts.len() - 1;
    for (number, read_count) in
        read_counts.iter_mut().enumerate().filter(|(_, read_count)| read_count.delay() > Nanos(0))
    {
        let (delay, least) = (pace(read_count.delay()), Nanos(read_count.delay().0 / LEAST_PACE));
        let counts = delay >= least || number == last;
        *read_count = if counts { ReadCount::new(delay.max(least), read_count.walked) } else { ReadCount::default() };
    }
}

/// Rates each region by its observations. Each page of those that were passed ([`crate::passes`]) was walked once.
pub fn rate(regions: &mut [Region], read_counts: &[ReadCounts]) {
    for (region, read_counts) in regions.iter_mut().zip(read_counts).filter(|(region, _)| !region.huge) {
        let rated = if region.in_order { once_each } else { walks_per_second };
        region.walks_per_second = rated(observed(region), read_counts);
    }
    agree_in_sum(regions, read_counts);
    share_among_huge(regions, read_counts);
}

/// Pages whose bits are meaningful.
pub(crate) fn observed(region: &Region) -> u32 {
    (region.present.len() as u32).saturating_sub(region.unobserved.into())
}

/// The walked pages that all regions together must show: the standard error is then 1/√100, a tenth.
const ENOUGH_TOGETHER: u64 = 100;

/// Scales the regions' rates so that their sum agrees with one read of all of them together, which can be far earlier than the read used for each
/// alone. Regions with few walked pages are scaled separately.
///
/// Each region's rate is based on the first read that saw enough of it, and such a read tends to have seen too much: up to three times as much, in
/// regions with one walked page. A late read, in turn, counts a page once that was walked often.
fn agree_in_sum(regions: &mut [Region], read_counts: &[ReadCounts]) {
    let has_few = |read_counts: &ReadCounts| read_counts.iter().all(|read_count| read_count.walked < ENOUGH);
    for few in [true, false] {
        let both = regions.iter_mut().zip(read_counts);
        let is_alike = |region: &Region, seen| !region.huge && !region.in_order && has_few(seen) == few;
        let mut alike: Vec<_> = both.filter(|(region, seen)| is_alike(region, seen)).collect();
        let times = times_as_often_together(&alike);
        alike.iter_mut().for_each(|(region, _)| region.walks_per_second *= times);
    }
}

/// The factor between what all regions together were seen to walk and the sum of their own rates; 1 where that is not known better.
fn times_as_often_together(regions: &[(&mut Region, &ReadCounts)]) -> f64 {
    let seen_by = |read: usize| regions.iter().map(|(_, read_counts)| u64::from(read_counts[read].walked)).sum::<u64>();
    let Some(read) = (0..1 + DELAYS.len()).find(|&read| seen_by(read) >= ENOUGH_TOGETHER) else { return 1.0 };
    let (mut alone, mut together) = (0.0, 0.0);
    for (region, read_counts) in regions.iter().filter(|(_, read_counts)| read_counts[read].delay() > Nanos(0)) {
        alone += region.walks_per_second;
        together += walks_by(observed(region), read_counts[read].walked) / read_counts[read].delay().seconds();
    }
    if alone > 0.0 && together > 0.0 { together / alone } else { 1.0 }
}

/// Corrects the rates of a program that walks along addresses, but for a `scattered` share of its walks. A pass walks each page once, so a
/// region that was walked completely was not walked often: pages that one read saw and the read before did not are all that was walked in between.
/// Read as random walks, a stream of 3 million pages a second seemed to walk 57 million times. (Clearing takes as long as a pass through the memory
/// that it clears, so how soon after it a page was walked tells nothing of a stream.)
///
/// Of a program that does nothing else, regions are walked as often as each other. Beside scattered walks those that were passed
/// ([`crate::passes`]) are rated well already.
pub fn undo_order(regions: &mut [Region], read_counts: &[ReadCounts], scattered: f64) {
    let seen_between = |read: usize| {
        let base = regions.iter().zip(read_counts).filter(|(region, _)| !region.huge);
        base.filter_map(|(_, read_counts)| new_pages_a_second(&read_counts[..=read])).sum::<f64>()
    };
    let in_order = (1..1 + DELAYS.len()).map(seen_between).fold(0.0, f64::max);
    if in_order <= 0.0 || in_order >= base_rates(regions) {
        return;
    }
    let walked = |read_counts: &ReadCounts| f64::from(read_counts[DELAYS.len()].walked);
    let both = || regions.iter().zip(read_counts).filter(|(region, _)| !region.huge);
    let of_each_page = in_order / both().map(|(_, read_counts)| walked(read_counts)).sum::<f64>().max(1.0);
    let is_alone = scattered < MOSTLY_IN_ORDER;
    let to_correct = |region: &Region| !region.huge && (is_alone || !region.in_order);
    for (region, read_counts) in regions.iter_mut().zip(read_counts).filter(|(region, _)| to_correct(region)) {
        let of_passes = of_each_page * walked(read_counts);
        region.walks_per_second = scattered * region.walks_per_second + (1.0 - scattered) * of_passes;
    }
}

/// Pages that the last of these reads saw and the one before did not, by the time in between; None without both.
fn new_pages_a_second(read_counts: &[ReadCount]) -> Option<f64> {
    let (last, before) = read_counts.split_last()?;
    let before = before.iter().rev().find(|before| before.delay() > Nanos(0))?;
    let between = last.delay().seconds() - before.delay().seconds();
    (between > 0.0).then(|| f64::from(last.walked.saturating_sub(before.walked)) / between)
}

/// Page walks a second of what is on base pages and was not passed.
pub fn rates_at_random(regions: &[Region]) -> f64 {
    let at_random = regions.iter().filter(|region| !region.huge && !region.in_order);
    at_random.map(|region| region.walks_per_second).sum()
}

/// Page walks a second of all that is on base pages.
pub fn base_rates(regions: &[Region]) -> f64 {
    regions.iter().filter(|region| !region.huge).map(|region| region.walks_per_second).sum()
}

/// The extra time of a first walk, shortly after clearing, derived from programs whose number of walks is known: 80 ns where reads wait for each
/// other, and 150 to 175 where they do not (Intel Emerald Rapids); 140 on AMD Zen 4. A program may lose several times that by all of its first walks:
/// [`super::first_walk`].
const FIRST_WALK: Nanos = Nanos(140);

/// About the most walks a second seen of a program on one CPU doing nothing else.
const FASTEST: f64 = 60e6;

/// A program that keeps less of a CPU busy waits most of the time: while observed it does the same work, and only takes a little longer.
const WAITS: f64 = 0.1;

/// Corrects for the effect of observing: a walk to a page whose bit is clear takes [`FIRST_WALK`] longer, so a program that walks often does so less
/// often just while it is counted: of 46 million walks a second 6 million were seen. `busy_cpus`: how many CPUs the program keeps busy.
pub fn undo_slowdown(regions: &mut [Region], busy_cpus: f64) {
    let factor = slowdown(regions, busy_cpus, FIRST_WALK);
    regions.iter_mut().filter(|region| !region.huge).for_each(|region| region.walks_per_second *= factor);
}

/// The factor by which the program would walk more often if it were not observed, given the extra time of each first walk.
pub fn slowdown(regions: &[Region], busy_cpus: f64, first_walk: Nanos) -> f64 {
    let seen = base_rates(regions);
    if seen <= 0.0 || busy_cpus < WAITS {
        return 1.0;
    }
    let left_over = (1.0 - seen * first_walk.seconds() / busy_cpus).max(f64::MIN_POSITIVE);
    left_over.recip().min(FASTEST * busy_cpus / seen).max(1.0)
}

/// Page walks a second of a group of `pages` pages, from reads in the order of their delays.
fn walks_per_second(pages: u32, read_counts: &[ReadCount]) -> f64 {
    telling_read(read_counts)
        .map(|read| &read_counts[read])
        .map_or(0.0, |read_count| walks_by(pages, read_count.walked) / read_count.delay().seconds())
}

/// Page walks a second of a region that was passed: each page was walked once.
fn once_each(_: u32, read_counts: &[ReadCount]) -> f64 {
    let last = read_counts.iter().rfind(|read_count| read_count.delay() > Nanos(0));
    last.map_or(0.0, |last| f64::from(last.walked) / last.delay().seconds())
}

/// The earliest read that saw enough pages or, where there are few, most of the pages seen at all; thus the one hot page of a region counts by how
/// soon it was walked. (This rates a lone page up to three times too high.)
fn telling_read(read_counts: &[ReadCount]) -> Option<usize> {
    let usable = |read_count: &ReadCount| read_count.delay().0 > 0;
    let last = read_counts.iter().rposition(usable)?;
    let most = (read_counts[last].walked * 3).div_ceil(5);
    let enough = read_counts.iter().position(|read_count| usable(read_count) && read_count.walked >= ENOUGH.min(most));
    enough.or(Some(last))
}

/// Gives each huge page its share of the walks of all huge pages together.
///
/// One bit says little: a huge page is walked or not. All of the process's huge pages are therefore counted as one group, and those walked by the
/// read that counts share the group's walks evenly.
fn share_among_huge(regions: &mut [Region], read_counts: &[ReadCounts]) {
    let huge = || regions.iter().zip(read_counts).filter(|(region, _)| region.huge).map(|(_, read_counts)| read_counts);
    let pooled: ReadCounts = std::array::from_fn(|read| pool(huge().map(|read_counts| &read_counts[read])));
    let Some(read) = telling_read(&pooled) else { return };
    let walks = walks_by(huge().count() as u32, pooled[read].walked) / pooled[read].delay().seconds();
    let huge = regions.iter_mut().zip(read_counts).filter(|(region, _)| region.huge);
    for (region, read_counts) in huge.filter(|(_, read_counts)| read_counts[read].walked > 0) {
        region.walks_per_second = walks * f64::from(read_counts[read].walked) / f64::from(pooled[read].walked);
    }
}

/// The combined count of pages with different delays in one read.
fn pool<'a>(read_counts: impl Iterator<Item = &'a ReadCount>) -> ReadCount {
    let (mut count, mut delays, mut walked) = (0u64, 0u128, 0u32);
    for read_count in read_counts.filter(|read_count| read_count.delay().0 > 0) {
        count += 1;
        delays += u128::from(read_count.delay().0);
        walked += read_count.walked;
    }
    ReadCount::new(Nanos((delays / u128::from(count.max(1))) as u64), walked)
}

/// Expected walks if `walked` of `pages` pages were walked at least once, all with the same mean rate.
fn walks_by(pages: u32, walked: u32) -> f64 {
    if pages == 0 {
        return 0.0;
    }
    let share = (f64::from(walked) / f64::from(pages)).min(SATURATED);
    f64::from(pages) * (1.0 - share).recip().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes;
    use crate::samples::{huge, region};
    use proptest::prelude::*;

    const DELAYS_MS: [u64; 5] = [1, 3, 10, 30, 100];

    /// The expected reads if each of `pages` pages is walked at random `rate` times a second.
    fn expected(pages: u32, rate: f64) -> Vec<ReadCount> {
        let seen = |ms: u64| (f64::from(pages) * (1.0 - (-rate * ms as f64 / 1e3).exp())).round() as u32;
        DELAYS_MS.iter().map(|&ms| ReadCount::new(Nanos(ms * 1_000_000), seen(ms))).collect()
    }

    #[test]
    fn an_even_rate_is_found_again() {
        for rate in [10.0, 100.0, 1000.0] {
            let found = walks_per_second(512, &expected(512, rate));
            assert!((found / (512.0 * rate) - 1.0).abs() < 0.1, "{rate}: {found}");
        }
    }

    #[test]
    fn hot_pages_among_cold_ones_are_seen_by_the_early_read() {
        let hot = expected(20, 5000.0);
        let cold = expected(492, 1.0);
        let both: Vec<ReadCount> =
            hot.iter().zip(&cold).map(|(h, c)| ReadCount::new(h.delay(), h.walked + c.walked)).collect();
        assert!(walks_per_second(512, &both) > 15_000.0);
    }

    #[test]
    fn one_hot_page_in_a_cold_region_is_hot() {
        let seen_at_once: Vec<ReadCount> =
            DELAYS_MS.iter().map(|&ms| ReadCount::new(Nanos(ms * 1_000_000), 1)).collect();
        assert!(walks_per_second(512, &seen_at_once) >= 1000.0);
        let seen_late = [ReadCount::new(Nanos(1_000_000), 0), ReadCount::new(Nanos(100_000_000), 1)];
        assert!(walks_per_second(512, &seen_late) < 11.0);
    }

    #[test]
    fn what_watching_slows_down_is_made_good() {
        let rates = |rates: [f64; 2], busy_cpus| {
            let mut regions = [region(0, rates[0], 0), region(1, rates[1], 0), huge(2, 5.0)];
            undo_slowdown(&mut regions, busy_cpus);
            regions.map(|region| region.walks_per_second.round())
        };
        // 4 million first walks a second take 0.56 of a CPU; the remaining time has as many.
        assert_eq!(rates([1e6, 3e6], 1.0), [2_272_727.0, 6_818_182.0, 5.0]);
        assert_eq!(rates([1e3, 0.0], 1.0), [1000.0, 0.0, 5.0]);
        assert_eq!(rates([3.55e6, 3.55e6], 1.0), [30e6, 30e6, 5.0], "there is a limit");
        assert_eq!(rates([100e6, 0.0], 1.0), [100e6, 0.0, 5.0], "nothing is taken away");
        assert_eq!(rates([1e6, 0.0], 0.0), [1e6, 0.0, 5.0]);
        assert_eq!(rates([3e5, 3e5], 0.09), [3e5, 3e5, 5.0], "it waits most of the time");
    }

    #[test]
    fn a_stream_walks_each_page_once() {
        // 2 million pages a second through 1,024 regions, 600 of which were passed while bits were cleared; in each further ms, 4 become full.
        let read_counts: Vec<ReadCounts> = (0..1024)
            .map(|number| {
                let mut read_counts = ReadCounts::default();
                for (read_count, ms) in read_counts.iter_mut().skip(1).zip(DELAYS_MS) {
                    *read_count = ReadCount::new(Nanos(ms * 1_000_000), if number < 600 + 4 * ms { 512 } else { 0 });
                }
                read_counts
            })
            .collect();
        let total_if = |scattered| {
            let mut regions: Vec<Region> = (0..1024).map(|number| region(number, 0.0, 0)).collect();
            passes::find(&mut regions, &read_counts);
            rate(&mut regions, &read_counts);
            undo_order(&mut regions, &read_counts, scattered);
            if scattered == 0.0 {
                let walked = regions.iter().map(|region| region.walks_per_second).filter(|&walks| walks > 0.0);
                let (least, most) =
                    walked.fold((f64::MAX, 0.0), |(least, most), walks| (walks.min(least), walks.max(most)));
                assert!((most / least - 1.0).abs() < 1e-6, "{least} to {most}");
            }
            regions.iter().map(|region| region.walks_per_second).sum::<f64>()
        };
        assert!((total_if(0.0) / 2.048e6 - 1.0).abs() < 1e-6, "{}", total_if(0.0));
        assert!(total_if(1.0) > 50e6, "{}: as random walks", total_if(1.0));
        assert!(total_if(0.5) > 0.4 * total_if(1.0) && total_if(0.5) < 0.6 * total_if(1.0));
    }

    #[test]
    fn what_was_passed_was_walked_once_and_tells_nothing_of_the_rest() {
        let reads = |walked: [u32; 5]| {
            let mut read_counts = ReadCounts::default();
            for ((read_count, ms), walked) in read_counts.iter_mut().skip(1).zip(DELAYS_MS).zip(walked) {
                *read_count = ReadCount::new(Nanos(ms * 1_000_000), walked);
            }
            read_counts
        };
        // A table that is walked 20 times a ms, and a log that is passed after 30 ms.
        let table = vec![reads([20, 58, 164, 353, 501]); 20];
        let read_counts = [table.clone(), vec![reads([0, 0, 0, 0, 512]); 20]].concat();
        let mut regions: Vec<Region> = (0..40).map(|number| region(number, 0.0, 0)).collect();
        passes::find(&mut regions, &read_counts);
        rate(&mut regions, &read_counts);
        assert!(regions[20..].iter().all(|region| region.in_order && region.walks_per_second == 5120.0));
        let mut alone: Vec<Region> = (0..20).map(|number| region(number, 0.0, 0)).collect();
        rate(&mut alone, &table);
        assert!(regions[..20].iter().zip(&alone).all(|(one, other)| one.walks_per_second == other.walks_per_second));
        assert!((19_000.0..22_000.0).contains(&alone[0].walks_per_second), "{}", alone[0].walks_per_second);
        assert_eq!(rates_at_random(&regions), base_rates(&alone));
    }

    #[test]
    fn all_together_know_better_than_each_alone() {
        let seen = |counts: [u32; 3]| {
            let mut read_counts = ReadCounts::default();
            for ((read_count, ms), walked) in read_counts.iter_mut().skip(1).zip([1, 10, 100]).zip(counts) {
                *read_count = ReadCount::new(Nanos(ms * 1_000_000), walked);
            }
            read_counts
        };
        // 1,000 regions with a hot page each, and one that was seen late.
        let mut regions: Vec<Region> = (0..1001).map(|number| region(number, 0.0, 0)).collect();
        let mut read_counts = vec![seen([1, 2, 8]); 1000];
        read_counts.push(seen([30, 40, 50]));
        rate(&mut regions, &read_counts);
        let total: f64 = regions.iter().map(|region| region.walks_per_second).sum();
        assert!((total / 1_030_000.0 - 1.0).abs() < 0.02, "{total}");
        assert!(regions[1000].walks_per_second > 20.0 * regions[0].walks_per_second);
        // Pages with meaningless bits count for nothing.
        for (region, read_counts) in regions.iter_mut().zip(&mut read_counts) {
            region.unobserved = 511;
            read_counts.iter_mut().for_each(|seen| seen.walked = seen.walked.min(1));
        }
        rate(&mut regions, &read_counts);
        assert!(regions.iter().all(|region| region.walks_per_second > 2900.0), "a page walked by the first read");
    }

    #[test]
    fn a_read_while_the_program_hardly_ran_does_not_count() {
        let mut read_counts = ReadCounts::default();
        for (read_count, ms) in read_counts.iter_mut().skip(1).zip(DELAYS_MS) {
            *read_count = ReadCount::new(Nanos(ms * 1_000_000), 20);
        }
        // It ran at half its pace from the third millisecond on; before, the clock knows only a moment.
        at_pace(&mut read_counts, |delay| if delay.0 < 3_000_000 { Nanos(1000) } else { Nanos(delay.0 / 2) });
        let delays = read_counts.map(|read_count| read_count.delay().0 / 100_000);
        assert_eq!(delays, [0, 0, 15, 50, 150, 500]);
        assert_eq!((read_counts[1].walked, read_counts[2].walked), (0, 20));
        assert!(walks_per_second(512, &read_counts) < 20_000.0);
        at_pace(&mut read_counts, |_| Nanos(1));
        assert_eq!(read_counts.map(|read_count| read_count.walked), [0, 0, 0, 0, 0, 20], "the last one counts");
        assert_eq!(read_counts[5].delay(), Nanos(5_000_000));
    }

    #[test]
    fn nothing_seen_is_nothing() {
        assert_eq!(walks_per_second(512, &expected(512, 0.0)), 0.0);
        assert_eq!(walks_per_second(0, &[]), 0.0);
        assert_eq!(walks_per_second(1, &[ReadCount::default()]), 0.0);
    }

    #[test]
    fn pages_that_are_walked_now_and_then_are_not_overrated_beside_hot_ones() {
        // 20,000 regions with a page that is walked once a second, and 100 with 40 pages that are walked a hundred times.
        let seen = |pages: f64, rate: f64, number: usize| {
            let mut read_counts = ReadCounts::default();
            for (read_count, ms) in read_counts.iter_mut().skip(1).zip(DELAYS_MS) {
                let expected = pages * (1.0 - (-rate * ms as f64 / 1e3).exp());
                let by_chance = (number as f64 * 0.618_033_988_749).fract() < expected.fract();
                *read_count = ReadCount::new(Nanos(ms * 1_000_000), expected as u32 + u32::from(by_chance));
            }
            read_counts
        };
        let mut regions: Vec<Region> = (0..20_100).map(|number| region(number, 0.0, 0)).collect();
        let read_counts: Vec<_> = (0..20_100)
            .map(|number| if number < 20_000 { seen(1.0, 1.0, number) } else { seen(40.0, 100.0, number) })
            .collect();
        rate(&mut regions, &read_counts);
        let sum = |of: &[Region]| of.iter().map(|region| region.walks_per_second).sum::<f64>();
        let (rare, often) = (sum(&regions[..20_000]), sum(&regions[20_000..]));
        assert!((0.8..1.3).contains(&(rare / 20_000.0)), "{rare}");
        assert!((0.8..1.3).contains(&(often / 400_000.0)), "{often}");
    }

    proptest! {
        #[test]
        fn the_estimate_is_finite_and_not_negative(
            pages in 0..1024u32,
            counts in prop::collection::vec((0..u64::MAX, 0..4096u32), 0..8),
        ) {
            let read_counts: Vec<_> =
                counts.iter().map(|&(delay, walked)| ReadCount::new(Nanos(delay), walked)).collect();
            let rate = walks_per_second(pages, &read_counts);
            prop_assert!(rate.is_finite() && rate >= 0.0);
        }
    }
}
