//! Where the pages of an array are in physical memory, for each placement that is compared.
//!
//! Owns: the choice of pages. Never touches: caches; a placement knows only the number of colors.

use std::fmt;

use clap::ValueEnum;
use hugepilot_bench::workload::below;
use rand::rngs::Xoshiro256PlusPlus;

use super::free_list::{FREE_BYTES, FreeList};
use super::model::PAGE_BYTES;

/// How physical pages are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// Whatever the free list has first.
    Random,
    /// A random color first, the next color for each next page.
    Colored,
    /// One contiguous piece, rounded up to whole huge pages.
    Huge,
    /// Huge pages for the whole ones that fit, colored pages for the remainder.
    #[value(name = "huge+colored")]
    HugeAndColored,
    /// Huge pages for the whole ones that fit, pages anywhere for the remainder.
    #[value(name = "huge+random")]
    HugeAndRandom,
}

/// A huge page of the simulated processors, without physical address extension.
pub const SUPER_PAGE: u64 = 4 << 20;
/// Beyond all that arrays lie in.
const ELSEWHERE: u64 = 1 << 32;

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

impl Placement {
    /// Physical addresses of so many bytes' base pages, in order; no page comes twice. Colors are told apart by the paper's count: the
    /// whole cache by the page size, ways not counted.
    pub fn choose(self, bytes: u64, colors: u64, free: FreeList, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let count = bytes.div_ceil(PAGE_BYTES);
        let huge = match self {
            Placement::Random | Placement::Colored => 0,
            Placement::Huge => count,
            Placement::HugeAndColored | Placement::HugeAndRandom => bytes / SUPER_PAGE * (SUPER_PAGE / PAGE_BYTES),
        };
        // The huge part is beyond the memory from which base pages are chosen.
        let contiguous = (0..huge).map(|page| FREE_BYTES.next_multiple_of(SUPER_PAGE) + page * PAGE_BYTES);
        let rest = count - huge;
        let rest = match self {
            Placement::Colored | Placement::HugeAndColored => colored(rest, colors, random),
            _ => free.take(rest, random),
        };
        contiguous.chain(rest).collect()
    }

    /// Pages that the same program has besides an array's, and took at another time: colors go on behind the array, all others lie anywhere.
    pub fn others(self, array: &[u64], count: u64, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        match (self, array.last()) {
            (Placement::Colored | Placement::HugeAndColored, Some(last)) => {
                (1..=count).map(|page| last + page * PAGE_BYTES).collect()
            }
            _ => FreeList::Anywhere.take(count, random).into_iter().map(|page| ELSEWHERE + page).collect(),
        }
    }
}

/// Pages of successive colors from a random one; which pages of a color are taken makes no difference to a cache.
fn colored(count: u64, colors: u64, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    let first = below(random, colors as usize) as u64;
    let base = below(random, 64) as u64 * colors;
    (0..count).map(|page| (base + first + page) * PAGE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    const COLORS: u64 = 32;

    proptest! {
        #[test]
        fn every_page_has_a_place_of_its_own(
            which in 0..5usize,
            bytes in 1..10_000_000u64,
            seed: u64,
        ) {
            let placement = Placement::value_variants()[which];
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut pages = placement.choose(bytes, COLORS, FreeList::Anywhere, &mut random);
            prop_assert_eq!(pages.len() as u64, bytes.div_ceil(4096));
            prop_assert!(pages.iter().all(|page| page % 4096 == 0));
            pages.sort_unstable();
            pages.dedup();
            prop_assert_eq!(pages.len() as u64, bytes.div_ceil(4096));
        }

        #[test]
        fn colors_follow_each_other_from_anywhere(bytes in 1..3_000_000u64, seed: u64) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let pages = Placement::Colored.choose(bytes, COLORS, FreeList::Anywhere, &mut random);
            let color = |page: u64| page / 4096 % 32;
            prop_assert!(pages.windows(2).all(|pair| (color(pair[0]) + 1) % 32 == color(pair[1])));
        }
    }

    #[test]
    fn what_a_program_has_besides_continues_the_colors_or_lies_elsewhere() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut others = |placement: Placement| {
            let array = placement.choose(3 * PAGE_BYTES, COLORS, FreeList::Anywhere, &mut random);
            (array[2], placement.others(&array, 2, &mut random))
        };
        let (last, colored) = others(Placement::Colored);
        assert_eq!(colored, [last + PAGE_BYTES, last + 2 * PAGE_BYTES]);
        assert!(others(Placement::Random).1.iter().all(|&page| page >= ELSEWHERE));
    }

    #[test]
    fn huge_pages_take_the_whole_ones_and_leave_a_remainder() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let pages = Placement::HugeAndRandom.choose((4 << 20) + 3 * 4096, COLORS, FreeList::Anywhere, &mut random);
        assert_eq!(pages.len(), 1024 + 3);
        assert!(pages[..1024].windows(2).all(|pair| pair[0] + 4096 == pair[1]) && pages[0].is_multiple_of(4 << 20));
        assert!(pages[1024..].iter().all(|&page| page < FREE_BYTES));
        let contiguous = Placement::Huge.choose(3 * 4096, COLORS, FreeList::Anywhere, &mut random);
        assert!(contiguous.windows(2).all(|pair| pair[0] + 4096 == pair[1]));
    }
}
