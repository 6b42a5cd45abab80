//! Which pages are compared: those that share a color, and as many of spread colors.
//!
//! Owns: arithmetic on page frames. Never touches: memory, or time.

use std::collections::HashMap;

use super::random::Random;
use crate::kernel::cache::Cache;
use crate::units::BASE_PAGE;

/// Pages of one color, for each way; but half as many again as the ways of this level and of the one below, which together may hold them.
const PAGES_PER_WAY: usize = 3;
/// Both groups are so many times as large as the level below, which could else hide what this one does.
const TIMES_BELOW: u64 = 2;
/// So many rounds' pages are taken at least; six that were measured allow an answer.
const ROUNDS: usize = 12;
/// A partner of a color that the spread group has enough of is drawn again, so often.
const TRIES: usize = 32;

/// What a test of one level takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Colors of this level.
    pub(super) colors: u64,
    /// Colors of the level below.
    pub(super) below: u64,
    /// Pages of one color.
    pub(super) each: usize,
    /// Colors in the group of shared ones.
    pub(super) shared: usize,
    /// Words in a line.
    pub(super) line_words: usize,
}

/// Numbers of pages in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) shared: Vec<usize>,
    pub(super) spread: Vec<usize>,
}

/// Pages that no group has had yet.
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
            each,
            shared: pages_below.div_ceil(each),
            line_words: (cache.line.0 as usize / 8).max(1),
        }
    }

    /// Of pages as they come, about half the colors have `each` then; but at least enough for a dozen rounds where a round takes many
    /// colors, and for more of a small cache.
    pub(super) fn pool_pages(&self) -> usize {
        let a_round = 2_usize.saturating_mul(self.shared).saturating_mul(self.each);
        (self.colors as usize).saturating_mul(self.each).max(ROUNDS.saturating_mul(a_round)).max(8192)
    }
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

    /// Two groups of pages that no group had before. None when there are too few left.
    pub(super) fn draw(&mut self, random: &mut Random) -> Option<Groups> {
        let shared = self.draw_shared(random)?;
        self.by_color_below.values_mut().for_each(|pages| pages.retain(|&page| !self.gone[page]));
        let mut by_color = HashMap::new();
        let enough = shared.len().div_ceil(self.shape.colors as usize) + 1;
        let mut spread = Vec::with_capacity(shared.len());
        for &page in &shared {
            let partner = self.draw_partner(page, &by_color, enough, random)?;
            *by_color.entry(self.frames[partner] % self.shape.colors).or_insert(0) += 1;
            spread.push(partner);
        }
        Some(Groups { shared, spread })
    }

    fn draw_shared(&mut self, random: &mut Random) -> Option<Vec<usize>> {
        let mut colors: Vec<u64> = Vec::new();
        for (&color, pages) in &mut self.by_color {
            pages.retain(|&page| !self.gone[page]);
            if pages.len() >= self.shape.each {
                colors.push(color);
            }
        }
        if colors.len() < self.shape.shared {
            return None;
        }
        // A map's order is no one's choice.
        colors.sort_unstable();
        random.shuffle(&mut colors);
        let mut shared = Vec::new();
        for color in &colors[..self.shape.shared] {
            let pages = self.by_color.get_mut(color)?;
            random.shuffle(pages);
            shared.extend(pages.drain(..self.shape.each));
        }
        shared.iter().for_each(|&page| self.gone[page] = true);
        Some(shared)
    }

    /// A page of the same color in the level below, of a color of this level that has not come often yet.
    fn draw_partner(
        &mut self,
        page: usize,
        by_color: &HashMap<u64, usize>,
        enough: usize,
        random: &mut Random,
    ) -> Option<usize> {
        let pages = self.by_color_below.get_mut(&(self.frames[page] % self.shape.below))?;
        if pages.is_empty() {
            return None;
        }
        let often = |page: usize| by_color.get(&(self.frames[page] % self.shape.colors)).is_some_and(|&n| n >= enough);
        let mut place = random.below(pages.len());
        for _ in 0..TRIES {
            if !often(pages[place]) {
                break;
            }
            place = random.below(pages.len());
        }
        let partner = pages.swap_remove(place);
        self.gone[partner] = true;
        Some(partner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use std::collections::HashSet;

    const SECOND: Cache = Cache { level: 2, size: Bytes(2 << 20), ways: 16, line: Bytes(64), sets: 2048 };

    fn cache(level: u32, size: u64, ways: u32, sets: u64) -> Cache {
        Cache { level, size: Bytes(size), ways, sets, ..SECOND }
    }

    #[test]
    fn a_shape_overflows_a_set_and_the_level_below() {
        let first = cache(1, 48 << 10, 12, 64);
        let second = Shape::of(&first, &SECOND);
        assert_eq!(second, Shape { colors: 32, below: 1, each: 48, shared: 1, line_words: 8 });
        let third = Shape::of(&SECOND, &cache(3, 32 << 20, 16, 32768));
        assert_eq!((third.colors, third.below, third.each, third.shared), (512, 32, 48, 22));
        assert!(third.each * third.shared >= 1024);
        let few_ways = Shape::of(&cache(2, 2 << 20, 20, 1024), &cache(3, 3 << 20, 12, 4096));
        assert_eq!(few_ways.each, 48, "20 and 12 pages of a color may stay");
        let vast = Cache { ways: u32::MAX, ..cache(3, 1 << 60, 1, u64::MAX) };
        assert_eq!(Shape::of(&SECOND, &vast).pool_pages(), usize::MAX);
    }

    #[test]
    fn one_group_shares_colors_and_the_other_spreads_them_with_the_same_ones_below() {
        let shape = Shape { colors: 64, below: 8, each: 12, shared: 3, line_words: 8 };
        let frames: Vec<u64> = (1..4000).collect();
        let mut stock = Stock::new(&frames, shape);
        let mut random = Random::of_seed(3);
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

    #[test]
    fn pages_last_for_an_answer_where_a_round_takes_many_colors() {
        // As QEMU describes its own processors.
        let shape = Shape::of(&cache(2, 4 << 20, 16, 4096), &cache(3, 16 << 20, 16, 16384));
        assert_eq!((shape.colors, shape.each, shape.shared), (256, 48, 43));
        let mut random = Random::of_seed(3);
        // What a machine of 4 GiB has to give.
        let mut frames: Vec<u64> = (1..1 << 20).collect();
        random.shuffle(&mut frames);
        let mut stock = Stock::new(&frames[..shape.pool_pages()], shape);
        let rounds = (0..).map_while(|_| stock.draw(&mut random)).count();
        assert!(rounds >= 6, "{rounds}");
    }

    #[test]
    fn what_is_used_up_is_said() {
        let shape = Shape { colors: 4, below: 1, each: 6, shared: 1, line_words: 8 };
        let frames: Vec<u64> = (1..=48).collect();
        let mut stock = Stock::new(&frames, shape);
        let mut random = Random::of_seed(3);
        let rounds = (0..).map_while(|_| stock.draw(&mut random)).count();
        assert!((1..=4).contains(&rounds), "{rounds}");
        let hidden = vec![0; 48];
        assert_eq!(Stock::new(&hidden, shape).draw(&mut random), None);
    }
}
