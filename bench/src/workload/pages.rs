//! The memory of the harness's own workloads: one private mapping, and the pages of it that are used.
//!
//! Owns: choosing pages. Never touches: pages that were not chosen; they stay unpopulated.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE, PAGES_PER_REGION};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Eight-byte words in a base page.
pub const WORDS_PER_PAGE: usize = BASE_PAGE as usize / 8;

/// A point of [`UsedPages::frontier`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// Memory that is added, as a share.
    pub growth: f64,
    /// Accesses that lie on huge pages, as a share.
    pub accesses: f64,
}

/// Which pages of a mapping are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsedPages {
    /// A contiguous run of pages.
    Run {
        /// The first page.
        first: usize,
        /// The number of pages.
        count: usize,
    },
    /// Single pages, in the order in which they are first written.
    Scattered(Vec<u32>),
}

impl UsedPages {
    /// Every page.
    pub fn all(size: Bytes) -> Self {
        Self::Run { first: 0, count: page_count(size) }
    }

    /// Every page, first written in random order, as by a program that has run for long: neighbors seldom lie next to each other in physical memory.
    pub fn all_shuffled(size: Bytes, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pages: Vec<u32> = (0..page_count(size) as u32).collect();
        (1..pages.len()).rev().for_each(|last| pages.swap(last, below(&mut random, last + 1)));
        Self::Scattered(pages)
    }

    /// The middle third; like an array on the heap, it begins and ends inside a region.
    pub fn contiguous_third(size: Bytes) -> Self {
        let pages = page_count(size);
        Self::Run { first: pages / 3, count: pages / 3 }
    }

    /// A third of the pages at random, so that every region is used and none fully.
    pub fn scattered_third(size: Bytes, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self::Scattered((0..page_count(size) as u32).filter(|_| below(&mut random, 3) == 0).collect())
    }

    /// The number of used pages.
    pub fn count(&self) -> usize {
        match self {
            UsedPages::Run { count, .. } => *count,
            UsedPages::Scattered(pages) => pages.len(),
        }
    }

    /// Another page stands at that place of the list from now on. A run has no such list.
    pub fn replace(&mut self, place: usize, page: u32) {
        if let UsedPages::Scattered(pages) = self {
            pages[place] = page;
        }
    }

    /// The most accesses that can lie on huge pages where pages stay where they are: the share of all, by the memory that this adds, as a
    /// share of the used pages. A region's cost is its unused pages, so the best rule takes the fullest regions first.
    pub fn frontier(&self) -> Vec<FrontierPoint> {
        let mut used_of_region = BTreeMap::<usize, usize>::new();
        (0..self.count())
            .for_each(|place| *used_of_region.entry(self.page(place) / PAGES_PER_REGION).or_default() += 1);
        let mut regions: Vec<usize> = used_of_region.into_values().collect();
        regions.sort_by_key(|used| std::cmp::Reverse(*used));
        let total = self.count() as f64;
        let (mut added, mut reached) = (0, 0);
        let points = regions.into_iter().map(|used| {
            (added, reached) = (added + PAGES_PER_REGION - used, reached + used);
            FrontierPoint { growth: added as f64 / total, accesses: reached as f64 / total }
        });
        std::iter::once(FrontierPoint { growth: 0.0, accesses: 0.0 }).chain(points).collect()
    }

    /// The page at an index of the list of used pages.
    pub fn page(&self, place: usize) -> usize {
        match self {
            UsedPages::Run { first, .. } => first + place,
            UsedPages::Scattered(pages) => pages[place] as usize,
        }
    }
}

fn page_count(size: Bytes) -> usize {
    (size.0 / BASE_PAGE) as usize
}

/// A number below `limit`, without the division of a remainder.
pub fn below(random: &mut Xoshiro256PlusPlus, limit: usize) -> usize {
    ((u128::from(random.next_u64()) * limit as u128) >> 64) as usize
}

/// Maps memory and writes once to each used page.
pub fn populate(size: Bytes, used: &UsedPages, advise_huge: bool) -> Result<AlignedMemory> {
    ensure!(size.0 >= HUGE_PAGE, "--size {size} is too small: at least {}", Bytes(HUGE_PAGE));
    let len = usize::try_from(size.0)?;
    let mut mapping = AlignedMemory::anonymous(len).with_context(|| format!("cannot map {size}"))?;
    if advise_huge {
        mapping.advise(0, len, OwnAdvice::HugePage).context("MADV_HUGEPAGE is refused here")?;
    }
    let words = mapping.words_mut();
    for place in 0..used.count() {
        // Not zero: splitting a huge page could free a page of zeros, which would then count as never used.
        words[used.page(place) * WORDS_PER_PAGE + WORDS_PER_PAGE - 1] = 1;
    }
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes(64 << 20);

    #[test]
    fn shuffled_pages_are_all_pages_and_seldom_in_order() {
        let UsedPages::Scattered(mut pages) = UsedPages::all_shuffled(SIZE, 1) else { panic!("a list") };
        assert!(pages.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 10);
        pages.sort_unstable();
        assert!(pages.iter().enumerate().all(|(place, &page)| place == page as usize));
        assert_eq!(pages.len(), page_count(SIZE));
    }

    #[test]
    fn thirds_are_thirds() {
        let pages = page_count(SIZE);
        assert_eq!(UsedPages::contiguous_third(SIZE).count(), pages / 3);
        let scattered = UsedPages::scattered_third(SIZE, 1);
        assert!((scattered.count() as f64 / pages as f64 - 1.0 / 3.0).abs() < 0.02);
        assert_eq!(scattered, UsedPages::scattered_third(SIZE, 1));
        assert_ne!(scattered, UsedPages::scattered_third(SIZE, 2));
    }

    #[test]
    fn the_best_rule_takes_full_regions_first() {
        let pages = (0..512).chain(512..612).chain([1024, 1025]).collect();
        let frontier = UsedPages::Scattered(pages).frontier();
        let growths: Vec<f64> = frontier.iter().map(|point| (point.growth * 614.0).round()).collect();
        let accesses: Vec<f64> = frontier.iter().map(|point| (point.accesses * 614.0).round()).collect();
        assert_eq!(growths, [0.0, 0.0, 412.0, 922.0]);
        assert_eq!(accesses, [0.0, 512.0, 612.0, 614.0]);
    }

    #[test]
    fn used_pages_lie_inside_the_mapping() {
        for used in [UsedPages::all(SIZE), UsedPages::contiguous_third(SIZE), UsedPages::scattered_third(SIZE, 3)] {
            assert!((0..used.count()).all(|place| used.page(place) < page_count(SIZE)));
        }
    }

    #[test]
    fn only_used_pages_are_written() {
        let used = UsedPages::contiguous_third(SIZE);
        let mapping = populate(SIZE, &used, false).unwrap();
        let written = mapping.bytes().chunks(BASE_PAGE as usize).filter(|page| page.iter().any(|&byte| byte != 0));
        assert_eq!(written.count(), used.count());
    }
}
