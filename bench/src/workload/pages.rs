//! The memory of the harness's own workloads: one private mapping, and the pages of it that are used.
//!
//! Owns: choosing pages. Never touches: pages that were not chosen; they stay unpopulated.

use anyhow::{Context, Result, ensure};
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Eight-byte words in a base page.
pub const WORDS_PER_PAGE: usize = BASE_PAGE as usize / 8;

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
    /// Single pages, in ascending order.
    Scattered(Vec<u32>),
}

impl UsedPages {
    /// Every page.
    pub fn all(size: Bytes) -> Self {
        Self::Run { first: 0, count: page_count(size) }
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
    fn thirds_are_thirds() {
        let pages = page_count(SIZE);
        assert_eq!(UsedPages::contiguous_third(SIZE).count(), pages / 3);
        let scattered = UsedPages::scattered_third(SIZE, 1);
        assert!((scattered.count() as f64 / pages as f64 - 1.0 / 3.0).abs() < 0.02);
        assert_eq!(scattered, UsedPages::scattered_third(SIZE, 1));
        assert_ne!(scattered, UsedPages::scattered_third(SIZE, 2));
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
