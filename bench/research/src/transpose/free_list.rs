//! Which pages a kernel without colors hands out: those that come first in its free list.
//!
//! Owns: what such a list may look like. Never touches: caches; nothing here knows colors.

use std::collections::HashSet;

use hugepilot_bench::workload::below;
use rand::rngs::Xoshiro256PlusPlus;

use super::model::PAGE_BYTES;

/// Physical memory that a machine of that time had free.
pub const FREE_BYTES: u64 = 256 << 20;
const FREE_PAGES: u64 = FREE_BYTES / PAGE_BYTES;

/// What its order is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeList {
    /// None: each page anywhere.
    #[default]
    Anywhere,
    /// Each page anywhere, but only one of so many neighbors is free, of all neighbors the same one.
    OneOf(u64),
    /// By address, each page as likely free as not.
    Gaps,
    /// By address from somewhere, for so many pages, and then from elsewhere.
    Runs(Turns),
    /// One run first, and then each page anywhere.
    RunFirst(Turns),
}

/// Pages that a program took while others took theirs by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// How many it took.
    pub pages: u64,
    /// Programs, this one among them.
    pub programs: u64,
    /// Contiguous pages that each takes at its turn.
    pub batch: u64,
}

impl FreeList {
    /// Physical addresses of different pages, in the order of the list.
    pub fn take(self, count: u64, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let pages = match self {
            FreeList::Anywhere => anywhere(count, FREE_PAGES, random),
            FreeList::OneOf(neighbors) => {
                let free = draw(neighbors, random);
                let groups = anywhere(count, FREE_PAGES / neighbors, random);
                groups.into_iter().map(|group| group * neighbors + free).collect()
            }
            FreeList::Gaps => {
                let first = draw(FREE_PAGES / 2, random);
                (first..).filter(|_| draw(2, random) == 0).take(count as usize).collect()
            }
            FreeList::Runs(run) => run.repeated(count, random),
            FreeList::RunFirst(run) => {
                let rest = anywhere(count.saturating_sub(run.pages), FREE_PAGES, random);
                let beyond = rest.into_iter().map(|page| FREE_PAGES + page);
                run.repeated(count.min(run.pages), random).into_iter().chain(beyond).collect()
            }
        };
        pages.into_iter().map(|page| page * PAGE_BYTES).collect()
    }
}

impl Turns {
    /// So many pages, of as many runs as that takes.
    fn repeated(self, count: u64, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let Self { pages, programs, batch } = self;
        let turn = draw(programs, random);
        let within = move |page: u64| (page / batch * programs + turn) * batch + page % batch;
        let starts = anywhere(count.div_ceil(pages), FREE_PAGES / (pages * programs), random);
        let run = |start: u64| (0..pages).map(move |page| start * pages * programs + within(page));
        starts.into_iter().flat_map(run).take(count as usize).collect()
    }
}

/// Different numbers, each as likely.
fn anywhere(count: u64, limit: u64, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    let mut taken = HashSet::new();
    let mut untaken = || loop {
        let number = draw(limit, random);
        if taken.insert(number) {
            return number;
        }
    };
    (0..count).map(|_| untaken()).collect()
}

fn draw(limit: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
    below(random, limit as usize) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    const IN_TURNS: Turns = Turns { pages: 16, programs: 4, batch: 1 };
    const IN_BATCHES: Turns = Turns { pages: 16, programs: 2, batch: 4 };
    const BLOCKS: Turns = Turns { pages: 8, programs: 1, batch: 1 };

    /// Page numbers.
    fn take(free: FreeList, count: u64, seed: u64) -> Vec<u64> {
        let addresses = free.take(count, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
        addresses.into_iter().map(|address| address / PAGE_BYTES).collect()
    }

    fn steps(pages: &[u64]) -> Vec<u64> {
        pages.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect()
    }

    proptest! {
        #[test]
        fn no_page_comes_twice(which in 0..6usize, count in 1..2_000u64, seed: u64) {
            let lists = [
                FreeList::Anywhere,
                FreeList::OneOf(4),
                FreeList::Gaps,
                FreeList::Runs(IN_TURNS),
                FreeList::Runs(IN_BATCHES),
                FreeList::RunFirst(IN_TURNS),
            ];
            let mut pages = take(lists[which], count, seed);
            prop_assert_eq!(pages.len() as u64, count);
            pages.sort_unstable();
            pages.dedup();
            prop_assert_eq!(pages.len() as u64, count);
        }
    }

    #[test]
    fn of_four_neighbors_always_the_same_one_is_free() {
        let pages = take(FreeList::OneOf(4), 100, 1);
        assert!(pages.iter().all(|page| page % 4 == pages[0] % 4) && !pages.is_sorted(), "{pages:?}");
    }

    #[test]
    fn half_of_the_pages_are_gaps() {
        let pages = take(FreeList::Gaps, 1000, 1);
        let span = pages[999] - pages[0];
        assert!(pages.is_sorted() && (1_900..2_100).contains(&span), "{span}");
    }

    #[test]
    fn who_takes_turns_gets_every_fourth_page_until_the_run_ends() {
        let steps = steps(&take(FreeList::Runs(IN_TURNS), 32, 1));
        assert!(
            steps[..15].iter().all(|&step| step == 4) && steps[15] != 4 && steps[16..].iter().all(|&step| step == 4)
        );
    }

    #[test]
    fn whose_list_is_refilled_in_batches_gets_contiguous_pages_and_leaves_as_many() {
        let steps = steps(&take(FreeList::Runs(IN_BATCHES), 16, 1));
        assert_eq!(steps, [1, 1, 1, 5, 1, 1, 1, 5, 1, 1, 1, 5, 1, 1, 1]);
    }

    #[test]
    fn coalesced_blocks_are_contiguous_and_aligned() {
        let pages = take(FreeList::Runs(BLOCKS), 32, 1);
        let blocks = pages.chunks(8);
        assert!(blocks.clone().all(|block| block[0] % 8 == 0 && block.windows(2).all(|pair| pair[0] + 1 == pair[1])));
        assert!(!blocks.map(|block| block[0]).is_sorted(), "from anywhere");
    }

    #[test]
    fn after_what_lies_first_comes_anything() {
        let steps = steps(&take(FreeList::RunFirst(IN_TURNS), 32, 1));
        assert!(steps[..15].iter().all(|&step| step == 4) && steps[15..].iter().all(|&step| step != 4), "{steps:?}");
        assert_eq!(take(FreeList::RunFirst(IN_TURNS), 3, 1).len(), 3);
    }
}
