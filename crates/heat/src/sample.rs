//! A random sample of a large program's memory: the draw, and its projection to the whole.
//!
//! Owns: the draw, and the extrapolation with its standard error. Never touches: the system.
//!
//! The unit is a block of 8 MiB: small enough for hundreds to fit into a sample, since the error falls with their number, and large enough that one
//! clearing call serves four regions. Blocks hold different numbers of pages, so the total is a ratio estimate: walks of the sampled pages, times all
//! pages over sampled pages (Cochran, Sampling Techniques, chapter 6). Its error follows from how much blocks differ.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Region;
use crate::units::{BASE_PAGE, Bytes, HUGE_PAGE, Nanos, Pages};

/// How much of a program is observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    #[default]
    Everything,
    /// A random sample of base pages of this size; but everything if it is a quarter or more of all base pages, because a sample would save little
    /// then. Memory outside the sample stays unobserved and, unless their use is to be told, so do huge pages.
    Sample {
        /// Base pages to observe.
        size: Bytes,
        /// The time in which to observe them, where the slowdown has a bound: fewer are observed if they take longer. None for no limit.
        longest: Option<Nanos>,
        /// The seed of the random numbers; the same seed and program give the same draw.
        seed: u64,
    },
}

/// An extrapolated figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// The projection of a sample to all base pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Base pages that were observed.
    pub observed: Bytes,
    /// All base pages.
    pub of: Bytes,
    /// Page walks a second.
    pub walks_per_second: Estimate,
    /// Base pages walked at the 100 ms read.
    pub pages_walked: Estimate,
}

/// Standard errors that contain the figure with a probability of 95 %.
const CONFIDENCE: f64 = 2.0;
/// If a sample would be at least one part in this many, everything is observed.
const TOO_LARGE: u64 = 4;
/// Base memory of a block.
const BLOCK: u64 = 4 * HUGE_PAGE;

impl Coverage {
    /// The same, reduced to what can be observed in time: all base pages are `all`, and observing them takes this long.
    pub fn in_time(self, all: Bytes, takes: Nanos) -> Self {
        match self {
            Coverage::Sample { size, longest: Some(longest), seed } if takes > longest => {
                let affordable = Bytes((all.0 as f64 * longest.seconds() / takes.seconds()) as u64);
                Coverage::Sample { size: size.min(affordable), longest: Some(longest), seed }
            }
            other => other,
        }
    }
}

impl Estimate {
    /// A lower bound, with a probability of 97.5 %.
    pub fn low(&self) -> f64 {
        (self.value - CONFIDENCE * self.error).max(0.0)
    }

    /// An upper bound, with a probability of 97.5 %.
    pub fn high(&self) -> f64 {
        self.value + CONFIDENCE * self.error
    }

    /// Half of the 95 % interval, in percent of the figure. None for a figure of 0.
    pub fn percent(&self) -> Option<f64> {
        (self.value > 0.0).then(|| 100.0 * CONFIDENCE * self.error / self.value)
    }
}

impl Sample {
    /// The ratio of all base pages to those observed.
    pub fn factor(&self) -> f64 {
        self.of.0 as f64 / self.observed.0.max(1) as f64
    }

    /// The projection of this draw of rated regions. `drawn` are their indices.
    pub fn of(drawn: &[Range<usize>], regions: &[Region]) -> Self {
        let (all, blocks) = (base_pages(regions), blocks(regions).count());
        let block = |value: fn(&Region) -> f64| {
            drawn.iter().map(move |indices| {
                let base = || regions[indices.clone()].iter().filter(|region| !region.huge);
                let pages: usize = base().map(|region| region.present.len()).sum();
                (base().map(value).sum::<f64>(), pages as f64)
            })
        };
        Self {
            observed: drawn.iter().map(|indices| Pages(base_pages(&regions[indices.clone()])).bytes()).sum(),
            of: Pages(all).bytes(),
            walks_per_second: extrapolated(block(|region| region.walks_per_second), all, blocks),
            pages_walked: extrapolated(block(|region| region.walked.len() as f64), all, blocks),
        }
    }
}

/// The ratio estimate of a total over `pages` pages in `blocks` blocks, from some blocks, each with a value and a number of pages.
fn extrapolated(drawn: impl Iterator<Item = (f64, f64)> + Clone, pages: u64, blocks: usize) -> Estimate {
    let (values, sampled) = drawn.clone().fold((0.0, 0.0), |(sum, all), (value, pages)| (sum + value, all + pages));
    let count = drawn.clone().count() as f64;
    if sampled <= 0.0 {
        return Estimate::default();
    }
    let (ratio, factor) = (values / sampled, pages as f64 / sampled);
    let squares: f64 = drawn.map(|(value, pages)| (value - ratio * pages).powi(2)).sum();
    // One block tells nothing about the differences between blocks: its value may be entirely wrong.
    let spread = if count > 1.0 { squares * count / (count - 1.0) } else { values.powi(2) };
    let left_out = (1.0 - count / (blocks as f64).max(count)).max(0.0);
    Estimate { value: ratio * pages as f64, error: factor * (left_out * spread).sqrt() }
}

/// Draws blocks of base pages until they reach this size: the indices of their regions, ascending. None if that is too large a part of all for a
/// sample to make sense.
pub fn draw(regions: &[Region], size: Bytes, seed: u64) -> Option<Vec<Range<usize>>> {
    let wanted = size.0 / BASE_PAGE;
    if wanted.saturating_mul(TOO_LARGE) >= base_pages(regions) {
        return None;
    }
    let mut blocks: Vec<Range<usize>> = blocks(regions).collect();
    let (mut random, mut drawn, mut pages) = (SplitMix(seed), 0, 0);
    while pages < wanted && drawn < blocks.len() {
        let other = drawn + random.below(blocks.len() - drawn);
        blocks.swap(drawn, other);
        pages += base_pages(&regions[blocks[drawn].clone()]);
        drawn += 1;
    }
    blocks.truncate(drawn);
    blocks.sort_by_key(|block| block.start);
    Some(blocks)
}

/// Runs of regions with base pages in the same 8 MiB of addresses.
fn blocks(regions: &[Region]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let chunks = regions.chunk_by(|one, other| one.start.0 / BLOCK == other.start.0 / BLOCK);
    let ranges = chunks.map(move |chunk| {
        start += chunk.len();
        start - chunk.len()..start
    });
    ranges.filter(|range| base_pages(&regions[range.clone()]) > 0)
}

fn base_pages(regions: &[Region]) -> u64 {
    regions.iter().filter(|region| !region.huge).map(|region| region.present.len() as u64).sum()
}

/// SplitMix64 (Steele, Lea and Flood, 2014): ten lines instead of a dependency, and every seed gives good numbers.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is above 0; all are equally likely, to one in 2^32.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageSet;
    use crate::samples::{huge, region};
    use proptest::prelude::*;

    const BLOCK_PAGES: u64 = BLOCK / BASE_PAGE;

    /// 8 GiB; a contiguous third is walked, a thousand times a second in each region, with a huge page now and then.
    fn a_third() -> Vec<Region> {
        let walked = |number: u64| (1000..2365).contains(&number);
        let each = |number: u64| match number {
            number if number % 97 == 0 => huge(number, 7.0),
            number => region(number, if walked(number) { 1e3 } else { 0.0 }, (number % 3) as u16 * 100),
        };
        (0..4096).map(each).collect()
    }

    /// As if only the drawn regions had been observed.
    fn sampled(regions: &[Region], size: Bytes, seed: u64) -> Sample {
        let drawn = draw(regions, size, seed).unwrap();
        let mut regions = regions.to_vec();
        for (index, region) in regions.iter_mut().enumerate() {
            if region.huge || !drawn.iter().any(|indices| indices.contains(&index)) {
                (region.walked, region.walks_per_second) = (PageSet::NONE, 0.0);
            }
        }
        Sample::of(&drawn, &regions)
    }

    fn truth(regions: &[Region]) -> (f64, f64) {
        let base = || regions.iter().filter(|region| !region.huge);
        (base().map(|region| region.walks_per_second).sum(), base().map(|region| region.walked.len() as f64).sum())
    }

    #[test]
    fn the_sample_is_right_on_average_and_its_error_tells_how_far_off_it_is() {
        let regions = a_third();
        let (walks, pages) = truth(&regions);
        let samples: Vec<Sample> = (0..400).map(|seed| sampled(&regions, Bytes(1 << 30), seed)).collect();
        let mean = |value: fn(&Sample) -> f64| samples.iter().map(value).sum::<f64>() / 400.0;
        let (mean_walks, mean_pages) = (mean(|it| it.walks_per_second.value), mean(|it| it.pages_walked.value));
        assert!((mean_walks / walks - 1.0).abs() < 0.02, "{mean_walks}, not {walks}");
        assert!((mean_pages / pages - 1.0).abs() < 0.02, "{mean_pages}, not {pages}");
        let within = |sample: &&Sample| sample.pages_walked.low() <= pages && pages <= sample.pages_walked.high();
        let within = samples.iter().filter(within).count();
        assert!((370..=396).contains(&within), "{within} of 400 within two errors");
        let squares = samples.iter().map(|it| (it.walks_per_second.value - walks).powi(2)).sum::<f64>() / 400.0;
        let told = mean(|it| it.walks_per_second.error);
        assert!((told / squares.sqrt() - 1.0).abs() < 0.15, "{told} told, {} seen", squares.sqrt());
    }

    #[test]
    fn a_larger_sample_errs_less() {
        let regions = a_third();
        let error = |size: u64| sampled(&regions, Bytes(size), 5).walks_per_second.error;
        let ratio = error(256 << 20) / error(1 << 30);
        assert!(
            (1.6..2.9).contains(&ratio),
            "half for four times as much, and less because a tenth is scanned: {ratio}"
        );
    }

    #[test]
    fn a_quarter_of_everything_is_no_sample() {
        let regions = a_third();
        assert_eq!(draw(&regions, Bytes(2 << 30), 1), None);
        assert_eq!(draw(&[], Bytes(1), 1), None);
        assert!(draw(&regions, Bytes(1 << 30), 1).is_some());
    }

    #[test]
    fn no_more_is_observed_than_there_is_time_for() {
        let (second, all) = (Nanos(1_000_000_000), Bytes(64 << 30));
        let in_time = |size, longest, takes| match (Coverage::Sample { size, longest, seed: 1 }).in_time(all, takes) {
            Coverage::Sample { size, .. } => size,
            Coverage::Everything => all,
        };
        assert_eq!(in_time(Bytes(u64::MAX), Some(second), Nanos(16 * second.0)), Bytes(4 << 30));
        assert_eq!(
            in_time(Bytes(2 << 30), Some(second), Nanos(16 * second.0)),
            Bytes(2 << 30),
            "a smaller one is wanted"
        );
        assert_eq!(in_time(Bytes(u64::MAX), Some(second), second), Bytes(u64::MAX), "there is time for everything");
        assert_eq!(in_time(Bytes(u64::MAX), None, Nanos(16 * second.0)), Bytes(u64::MAX));
        assert_eq!(Coverage::Everything.in_time(all, Nanos(u64::MAX)), Coverage::Everything);
    }

    #[test]
    fn the_error_is_told_as_a_share_and_as_bounds() {
        let estimate = |value, error| Estimate { value, error };
        assert_eq!((estimate(100.0, 4.0).percent(), estimate(0.0, 0.0).percent()), (Some(8.0), None));
        assert_eq!((estimate(100.0, 60.0).low(), estimate(100.0, 60.0).high()), (0.0, 220.0));
    }

    proptest! {
        #[test]
        fn draws_ascend_and_hold_what_was_asked_for(seed in any::<u64>(), blocks in 1..100u64) {
            let regions = a_third();
            let drawn = draw(&regions, Bytes(blocks * BLOCK), seed).unwrap();
            prop_assert!(drawn.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let pages: u64 = drawn.iter().map(|indices| base_pages(&regions[indices.clone()])).sum();
            prop_assert!((blocks * BLOCK_PAGES..(blocks + 1) * BLOCK_PAGES).contains(&pages));
            prop_assert_eq!(draw(&regions, Bytes(blocks * BLOCK), seed).unwrap(), drawn);
        }

        #[test]
        fn figures_are_finite(values in prop::collection::vec((0.0..1e9f64, 0.0..2048.0f64), 0..20), pages in 0..1u64 << 40) {
            let Estimate { value, error } = extrapolated(values.into_iter(), pages, 1000);
            prop_assert!(value.is_finite() && error.is_finite() && error >= 0.0);
        }
    }
}
