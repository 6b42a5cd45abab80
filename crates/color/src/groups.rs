//! Which pages are compared: those that share a color, and as many of spread colors.
//!
//! Owns: arithmetic on page frames. Never touches: memory, or time.

use std::cmp::Reverse;
use std::collections::HashMap;

use heat::units::BASE_PAGE;
use kernel::cache::Cache;

use fastrand::Rng;

/// Pages of one color per way; but at least one and a half times the ways of this level and the one below, which together may hold them.
const PAGES_PER_WAY: usize = 3;
/// Both groups are at least this many times as large as the level below, which could otherwise hide the effect of this one.
const TIMES_BELOW: u64 = 2;
/// Pages for at least this many rounds are allocated; six measured rounds suffice for an answer.
const ROUNDS: usize = 12;
/// A partner is the best of this many tries, which find nearly every color that it may have.
const TRIES: usize = 32;

/// The parameters for testing one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Colors of this level.
    pub(super) colors: u64,
    /// Colors of the level below.
    pub(super) below: u64,
    /// Lines in a set of this level.
    pub(super) ways: usize,
    /// Pages of one color.
    pub(super) each: usize,
    /// Colors in the group of shared colors.
    pub(super) shared: usize,
    /// Words in a line.
    pub(super) line_words: usize,
}

/// Indices of pages in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) shared: Vec<usize>,
    pub(super) spread: Vec<usize>,
}

/// Pages that no group has used yet.
pub(super) struct Stock<'a> {
    frames: &'a [u64],
    shape: Shape,
    by_color: HashMap<u64, Vec<usize>>,
    by_color_below: HashMap<u64, Vec<usize>>,
    gone: Vec<bool>,
}

impl Shape {
    pub(super) fn of(below: &Cache, cache: &Cache) -> Self {
        let (own, both) = (cache.ways as usize, cache.ways as usize + below.ways as usize);
        let each = (PAGES_PER_WAY * own).max(both + both / 2);
        let pages_below = TIMES_BELOW.saturating_mul(below.size.0).div_ceil(BASE_PAGE) as usize;
        Self {
            colors: cache.colors().into(),
            below: below.colors().into(),
            ways: own,
            each,
            shared: pages_below.div_ceil(each).max(1),
            line_words: (cache.line.0 as usize / 8).max(1),
        }
    }

    /// Whether pages of shared colors can have partners that do not overflow this level. Partners have the same color in the level below;
    /// if that leaves them few colors of this level, they evict each other as well.
    pub(super) fn can_spread(&self) -> bool {
        self.shared <= self.together().saturating_mul(self.families() as usize)
    }

    /// Enough for this many rounds, plus enough that every color has `each` pages: in evenly colored memory no color has more than its
    /// share, and partners take pages from all colors. At most `room`, but at least the minimum.
    pub(super) fn pool_pages(&self, rounds: u32, room: usize) -> usize {
        let taken = self.round_pages().saturating_mul(rounds as usize);
        let wanted = self.all_colors().saturating_add(taken.max(self.all_colors() / 2));
        wanted.min(room).max(self.least_pages())
    }

    /// With random frames, about half the colors then have `each` pages; but at least enough for a dozen rounds if a round needs many
    /// colors, and more for a small cache.
    pub(super) fn least_pages(&self) -> usize {
        self.all_colors().max(self.round_pages().saturating_mul(ROUNDS)).max(8192)
    }

    /// Pages needed for every color to have `each`.
    fn all_colors(&self) -> usize {
        (self.colors as usize).saturating_mul(self.each)
    }

    /// Pages of both groups.
    fn round_pages(&self) -> usize {
        2_usize.saturating_mul(self.shared).saturating_mul(self.each)
    }

    /// The number of families that the colors of both levels fall into, by their remainder: pages of one color in the level below have
    /// the colors of one family, and may have any of them.
    fn families(&self) -> u64 {
        common_divisor(self.colors, self.below)
    }

    /// How many shared colors may be of one family, so that its colors can hold all their partners.
    fn together(&self) -> usize {
        let colors = (self.colors / self.families()) as usize;
        self.ways.saturating_mul(colors) / self.each
    }
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

impl<'a> Stock<'a> {
    pub(super) fn new(frames: &'a [u64], shape: Shape) -> Self {
        let sorted = |colors: u64| {
            let mut by_color: HashMap<u64, Vec<usize>> = HashMap::new();
            let seen = frames.iter().enumerate().filter(|(_, frame)| **frame != 0);
            seen.for_each(|(page, frame)| by_color.entry(frame % colors).or_default().push(page));
            by_color
        };
        let (by_color, by_color_below) = (sorted(shape.colors), sorted(shape.below));
        Self { frames, shape, by_color, by_color_below, gone: vec![false; frames.len()] }
    }

    /// Two groups of pages that no group has used. None when there are too few left.
    pub(super) fn draw(&mut self, random: &mut Rng) -> Option<Groups> {
        // This terminates because pages without suitable partners are not drawn again.
        loop {
            let shared = self.draw_shared(random)?;
            if let Some(spread) = self.draw_spread(&shared, random) {
                return Some(Groups { shared, spread });
            }
        }
    }

    fn draw_shared(&mut self, random: &mut Rng) -> Option<Vec<usize>> {
        let mut shared = Vec::new();
        for color in self.draw_colors(random)? {
            let pages = self.by_color.get_mut(&color)?;
            random.shuffle(pages);
            shared.extend(pages.drain(..self.shape.each));
        }
        shared.iter().for_each(|&page| self.gone[page] = true);
        Some(shared)
    }

    /// Colors with enough pages; of each family no more than can have partners.
    fn draw_colors(&mut self, random: &mut Rng) -> Option<Vec<u64>> {
        self.by_color.values_mut().for_each(|pages| pages.retain(|&page| !self.gone[page]));
        let enough = self.by_color.iter().filter(|(_, pages)| pages.len() >= self.shape.each);
        let mut colors: Vec<u64> = enough.map(|(&color, _)| color).collect();
        // The order of a hash map is not reproducible.
        colors.sort_unstable();
        random.shuffle(&mut colors);
        // All colors last equally long if those with the most pages are used first.
        colors.sort_by_key(|color| Reverse(self.by_color[color].len()));
        let (families, together) = (self.shape.families(), self.shape.together());
        let mut of_family: HashMap<u64, usize> = HashMap::new();
        colors.retain(|color| {
            let count = of_family.entry(color % families).or_insert(0);
            *count += 1;
            *count <= together
        });
        colors.truncate(self.shape.shared);
        (colors.len() == self.shape.shared).then_some(colors)
    }

    /// A partner for each page. None if the partners would evict each other as well and hide the effect of shared colors.
    fn draw_spread(&mut self, shared: &[usize], random: &mut Rng) -> Option<Vec<usize>> {
        self.by_color_below.values_mut().for_each(|pages| pages.retain(|&page| !self.gone[page]));
        let mut used = HashMap::new();
        shared.iter().map(|&page| self.draw_partner(page, &mut used, random)).collect()
    }

    /// A page of the same color in the level below, preferably with a color of this level that was used little.
    fn draw_partner(&mut self, page: usize, used: &mut HashMap<u64, usize>, random: &mut Rng) -> Option<usize> {
        let pages = self.by_color_below.get_mut(&(self.frames[page] % self.shape.below))?;
        if pages.is_empty() {
            return None;
        }
        let color = |page: usize| self.frames[page] % self.shape.colors;
        let often = |&place: &usize| used.get(&color(pages[place])).copied().unwrap_or(0);
        let place = (0..TRIES).map(|_| random.usize(..pages.len())).min_by_key(often)?;
        let partner = pages.swap_remove(place);
        let count = used.entry(color(partner)).or_insert(0);
        *count += 1;
        self.gone[partner] = true;
        (*count <= self.shape.ways).then_some(partner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use heat::units::Bytes;

    use super::*;

    const SECOND: Cache = Cache { level: 2, size: Bytes(2 << 20), ways: 16, line: Bytes(64), sets: 2048 };

    fn cache(level: u32, size: u64, ways: u32, sets: u64) -> Cache {
        Cache { level, size: Bytes(size), ways, sets, ..SECOND }
    }

    #[test]
    fn a_shape_overflows_a_set_and_the_level_below() {
        let first = cache(1, 48 << 10, 12, 64);
        let second = Shape::of(&first, &SECOND);
        assert_eq!(second, Shape { colors: 32, below: 1, ways: 16, each: 48, shared: 1, line_words: 8 });
        let third = Shape::of(&SECOND, &cache(3, 32 << 20, 16, 32768));
        assert_eq!((third.colors, third.below, third.each, third.shared), (512, 32, 48, 22));
        assert!(third.each * third.shared >= 1024);
        let few_ways = Shape::of(&cache(2, 2 << 20, 20, 1024), &cache(3, 3 << 20, 12, 4096));
        assert_eq!(few_ways.each, 48, "20 and 12 pages of a color may stay");
        let vast = Cache { ways: u32::MAX, ..cache(3, 1 << 60, 1, u64::MAX) };
        assert_eq!(Shape::of(&SECOND, &vast).least_pages(), usize::MAX);
        assert_eq!(Shape::of(&SECOND, &vast).pool_pages(u32::MAX, 1), usize::MAX);
        let empty = cache(1, 0, 8, 64);
        assert_eq!(Shape::of(&empty, &SECOND).shared, 1);
    }

    #[test]
    fn one_group_shares_colors_and_the_other_spreads_them_with_the_same_ones_below() {
        let shape = Shape { colors: 64, below: 8, ways: 4, each: 12, shared: 3, line_words: 8 };
        let frames: Vec<u64> = (1..4000).collect();
        let mut stock = Stock::new(&frames, shape);
        let mut random = Rng::with_seed(3);
        let mut seen = HashSet::new();
        for _ in 0..10 {
            let Groups { shared, spread } = stock.draw(&mut random).unwrap();
            let colors = |pages: &[usize], of: u64| pages.iter().map(|&page| frames[page] % of).collect::<Vec<_>>();
            assert_eq!(colors(&shared, 64).into_iter().collect::<HashSet<_>>().len(), 3);
            assert!(colors(&spread, 64).into_iter().collect::<HashSet<_>>().len() > 3);
            assert_eq!(colors(&shared, 8), colors(&spread, 8));
            assert_eq!((shared.len(), spread.len()), (36, 36));
            assert!(shared.iter().chain(&spread).all(|&page| seen.insert(page)), "a page came twice");
        }
    }

    /// As QEMU describes its own processors.
    fn emulated() -> Shape {
        Shape::of(&cache(2, 4 << 20, 16, 4096), &cache(3, 16 << 20, 16, 16384))
    }

    fn rounds(frames: &[u64], shape: Shape) -> usize {
        let (mut stock, mut random) = (Stock::new(frames, shape), Rng::with_seed(3));
        (0..).map_while(|_| stock.draw(&mut random)).count()
    }

    #[test]
    fn pages_last_for_an_answer_where_a_round_takes_many_colors() {
        let shape = emulated();
        assert_eq!((shape.colors, shape.each, shape.shared), (256, 48, 43));
        // A realistic pool on a machine of 4 GiB.
        let mut frames: Vec<u64> = (1..1 << 20).collect();
        Rng::with_seed(3).shuffle(&mut frames);
        let rounds = rounds(&frames[..shape.least_pages()], shape);
        assert!(rounds >= 6, "{rounds}");
    }

    #[test]
    fn pages_last_for_the_rounds_asked_for_where_memory_is_colored_evenly() {
        let (second, many) = (cache(2, 1 << 20, 8, 2048), usize::MAX);
        for (size, sets, colors) in [(32 << 20, 32768, 512), (40 << 20, 40960, 640)] {
            let shape = Shape::of(&second, &cache(3, size, 16, sets));
            assert_eq!((shape.colors, shape.below, shape.each, shape.shared), (colors, 32, 48, 11));
            for asked in [6, 30] {
                let frames: Vec<u64> = (1..=shape.pool_pages(asked, many) as u64).collect();
                let rounds = rounds(&frames, shape);
                assert!(rounds >= asked as usize, "{rounds} of {asked}");
            }
        }
        let frames: Vec<u64> = (1..=emulated().pool_pages(30, many) as u64).collect();
        let rounds = rounds(&frames, emulated());
        assert!(rounds >= 24, "{rounds}");
    }

    #[test]
    fn more_rounds_choose_from_more_pages_as_far_as_there_is_room() {
        let shape = Shape::of(&cache(2, 1 << 20, 8, 2048), &cache(3, 32 << 20, 16, 32768));
        assert_eq!(shape.least_pages(), 24_576);
        assert_eq!(shape.pool_pages(6, usize::MAX), 36_864, "half as many again as give every color enough");
        assert_eq!(shape.pool_pages(30, usize::MAX), 24_576 + 30 * 1056);
        assert_eq!(shape.pool_pages(30, 40_000), 40_000);
        assert_eq!(shape.pool_pages(30, 0), 24_576);
    }

    #[test]
    fn spread_pages_fit_the_ways_of_each_color() {
        // Two shared colors of one family would have 96 partners of 4 colors, whose sets have room for 64.
        let shape = emulated();
        let frames: Vec<u64> = (1..=shape.pool_pages(8, usize::MAX) as u64).collect();
        let (mut stock, mut random) = (Stock::new(&frames, shape), Rng::with_seed(3));
        for _ in 0..6 {
            let mut used: HashMap<u64, usize> = HashMap::new();
            let Groups { spread, .. } = stock.draw(&mut random).unwrap();
            spread.iter().for_each(|&page| *used.entry(frames[page] % shape.colors).or_insert(0) += 1);
            assert!(used.values().all(|&count| count <= 16), "{used:?}");
        }
    }

    #[test]
    fn partners_of_too_few_colors_are_no_spread_group() {
        let shape = Shape { colors: 4, below: 1, ways: 3, each: 9, shared: 1, line_words: 8 };
        // Many pages of the first color, few of another one, none of the others.
        let frames: Vec<u64> = (1..100).map(|number| 4 * number).chain((0..5).map(|number| 4 * number + 1)).collect();
        assert_eq!(Stock::new(&frames, shape).draw(&mut Rng::with_seed(3)), None);
    }

    #[test]
    fn a_level_of_hardly_more_colors_than_the_one_below_cannot_be_spread() {
        let spreads = |below: Cache, above: Cache| Shape::of(&below, &above).can_spread();
        assert!(spreads(cache(1, 48 << 10, 12, 64), SECOND));
        assert!(spreads(SECOND, cache(3, 32 << 20, 16, 32768)));
        assert!(spreads(cache(2, 4 << 20, 16, 4096), cache(3, 16 << 20, 16, 16384)));
        assert!(spreads(SECOND, cache(3, 260 << 20, 20, 212_992)));
        // 32 and 64 colors, 8 and 16: 48 or more pages would share 2 colors.
        assert!(!spreads(cache(2, 3 << 19, 12, 2048), cache(3, 4 << 20, 16, 4096)));
        assert!(!spreads(cache(2, 512 << 10, 16, 512), cache(3, 2 << 20, 32, 1024)));
        // 24 and 64 colors: remainders by 8 determine families, each of 8 colors.
        assert!(spreads(cache(2, 768 << 10, 8, 1536), cache(3, 4 << 20, 16, 4096)));
        assert!(!spreads(SECOND, SECOND));
    }

    #[test]
    fn what_is_used_up_is_said() {
        let shape = Shape { colors: 4, below: 1, ways: 2, each: 6, shared: 1, line_words: 8 };
        let frames: Vec<u64> = (1..=48).collect();
        let rounds = rounds(&frames, shape);
        assert!((1..=4).contains(&rounds), "{rounds}");
        let hidden = vec![0; 48];
        assert_eq!(Stock::new(&hidden, shape).draw(&mut Rng::with_seed(3)), None);
    }
}
