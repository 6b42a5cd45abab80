//! A cache, as a datasheet describes it: sets, ways, lines, written back when they leave.
//!
//! Owns: which lines are in it, and which one leaves. Never touches: where pages lie, or what a miss costs.

/// The geometry of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its total size.
    pub size_bytes: u64,
    /// Lines per set.
    pub ways: u64,
    /// Bytes per line.
    pub line_bytes: u64,
}

impl Geometry {
    /// The number of sets; each has as many lines as there are ways.
    pub fn sets(self) -> u64 {
        self.size_bytes / self.ways / self.line_bytes
    }
}

/// Which line leaves a full set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The one whose last use is longest ago.
    LeastRecentlyUsed,
    /// The one that came first.
    FirstIn,
    /// Where a binary tree points, which each use turns away from itself: "pseudo-LRU" in Intel's manuals.
    Tree,
    /// The first one that was not used since all others were.
    NotRecentlyUsed,
    /// Any.
    Random,
}

/// Its contents.
#[derive(Clone, Debug)]
pub struct SimulatedCache {
    geometry: Geometry,
    replacement: Replacement,
    /// `ways` places for each set; what has an order (`Replacement::is_queue`) has it here, the line that leaves last first.
    lines: Vec<Option<Line>>,
    /// What the others remember of each set, a bit for a way or for a node of the tree; or a random number.
    marks: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// The line's address divided by the line size.
    number: u64,
    dirty: bool,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The line was present.
    Hit,
    /// The line was loaded, and nothing had to be written for it.
    Miss,
    /// The line was loaded, and the one at this address had to be written back.
    MissAndWriteBack(u64),
}

impl Replacement {
    /// Whether the order of a set's lines says which one leaves.
    fn is_queue(self) -> bool {
        matches!(self, Replacement::LeastRecentlyUsed | Replacement::FirstIn)
    }

    /// The way whose line leaves a full set.
    fn leaves(self, ways: usize, marks: &mut u64) -> usize {
        match self {
            Replacement::LeastRecentlyUsed | Replacement::FirstIn => ways - 1,
            Replacement::Tree => {
                let mut node = 1;
                while node < ways {
                    node = 2 * node + (*marks >> node & 1) as usize;
                }
                node - ways
            }
            Replacement::NotRecentlyUsed => marks.trailing_ones() as usize % ways,
            Replacement::Random => {
                *marks = next_random(*marks);
                (*marks >> 32) as usize % ways
            }
        }
    }

    /// Remembers that a way was used.
    fn remember(self, ways: usize, marks: &mut u64, way: usize) {
        match self {
            Replacement::Tree => {
                let mut node = way + ways;
                while node > 1 {
                    let (parent, is_left) = (node / 2, node.is_multiple_of(2));
                    *marks = *marks & !(1 << parent) | u64::from(is_left) << parent;
                    node = parent;
                }
            }
            Replacement::NotRecentlyUsed => {
                *marks |= 1 << way;
                if marks.trailing_ones() as usize == ways {
                    *marks = 1 << way;
                }
            }
            _ => {}
        }
    }
}

/// Knuth's MMIX generator, of which the upper bits are good.
fn next_random(last: u64) -> u64 {
    last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

impl SimulatedCache {
    /// An empty one.
    pub fn new(geometry: Geometry, replacement: Replacement) -> Self {
        let marks = match replacement {
            Replacement::Random => (0..geometry.sets()).map(next_random).collect(),
            _ => vec![0; geometry.sets() as usize],
        };
        Self { geometry, replacement, lines: vec![None; (geometry.sets() * geometry.ways) as usize], marks }
    }

    /// Reads or writes at a physical address; a write also loads the line.
    pub fn access(&mut self, address: u64, writes: bool) -> Access {
        let number = address / self.geometry.line_bytes;
        let (ways, set) = (self.geometry.ways as usize, (number % self.geometry.sets()) as usize);
        let (lines, marks) = (&mut self.lines[set * ways..(set + 1) * ways], &mut self.marks[set]);
        // Places without a line come last, and are filled first.
        let place = lines.iter().position(|line| line.is_none_or(|line| line.number == number));
        let mut way = place.unwrap_or_else(|| self.replacement.leaves(ways, marks));
        let found = lines[way];
        let hit = found.filter(|_| place.is_some());
        let moves = self.replacement == Replacement::LeastRecentlyUsed || hit.is_none();
        if self.replacement.is_queue() && moves {
            lines[..=way].rotate_right(1);
            way = 0;
        }
        self.replacement.remember(ways, marks, way);
        if let Some(line) = hit {
            lines[way] = Some(Line { dirty: line.dirty || writes, ..line });
            return Access::Hit;
        }
        lines[way] = Some(Line { number, dirty: writes });
        match found {
            Some(Line { number, dirty: true }) => Access::MissAndWriteBack(number * self.geometry.line_bytes),
            _ => Access::Miss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two sets of two lines of 16 bytes.
    const TINY: Geometry = Geometry { size_bytes: 64, ways: 2, line_bytes: 16 };

    #[test]
    fn what_a_datasheet_says_gives_sets() {
        let celeron = Geometry { size_bytes: 128 << 10, ways: 4, line_bytes: 32 };
        assert_eq!(celeron.sets(), 1024);
        let pentium4 = Geometry { size_bytes: 512 << 10, ways: 8, line_bytes: 64 };
        assert_eq!(pentium4.sets(), 1024);
    }

    #[test]
    fn the_line_used_least_recently_leaves() {
        let mut cache = SimulatedCache::new(TINY, Replacement::LeastRecentlyUsed);
        // Lines 0, 2, 4 share set 0; line 1 is in set 1.
        let addresses = [0, 32, 16, 8, 64, 0, 32, 16];
        let seen: Vec<Access> = addresses.iter().map(|&address| cache.access(address, false)).collect();
        use Access::{Hit, Miss};
        assert_eq!(seen, [Miss, Miss, Miss, Hit, Miss, Hit, Miss, Hit]);
    }

    #[test]
    fn what_was_written_to_is_written_back_once() {
        let mut cache = SimulatedCache::new(TINY, Replacement::LeastRecentlyUsed);
        cache.access(4, true);
        cache.access(0, false);
        cache.access(32, false);
        assert_eq!(cache.access(64, false), Access::MissAndWriteBack(0));
        assert_eq!(cache.access(96, false), Access::Miss);
        cache.access(0, false);
        assert_eq!([64, 32].map(|address| cache.access(address, false)), [Access::Miss; 2]);
    }

    /// What became of reading lines of the one set of four ways that there is.
    fn misses(replacement: Replacement, lines: &[u64]) -> Vec<u64> {
        let mut cache = SimulatedCache::new(Geometry { size_bytes: 64, ways: 4, line_bytes: 16 }, replacement);
        lines.iter().copied().filter(|line| cache.access(line * 16, false) != Access::Hit).collect()
    }

    #[test]
    fn each_replacement_lets_go_a_line_of_its_own() {
        // Four lines fill the set, the first is used again, and another line comes. Who left comes last, the others before it.
        let order = |others: [u64; 3], left: u64| [[0, 1, 2, 3, 0, 4].as_slice(), &others, &[left]].concat();
        for (replacement, others, left) in [
            (Replacement::LeastRecentlyUsed, [0, 2, 3], 1),
            (Replacement::FirstIn, [1, 2, 3], 0),
            // The last use turned the tree to the right half, and that of 3 turned this half to its left.
            (Replacement::Tree, [0, 1, 3], 2),
            // All had been used once 3 was, of which only 3 and 0 are remembered.
            (Replacement::NotRecentlyUsed, [0, 2, 3], 1),
        ] {
            assert_eq!(misses(replacement, &order(others, left)), [0, 1, 2, 3, 4, left], "{replacement:?}");
        }
    }

    #[test]
    fn read_in_a_circle_one_line_too_many_always_misses_unless_any_line_leaves() {
        let circle: Vec<u64> = (0..500).map(|access| access % 5).collect();
        let missing = |replacement| misses(replacement, &circle).len();
        assert_eq!([Replacement::LeastRecentlyUsed, Replacement::FirstIn].map(missing), [500, 500]);
        assert!((150..300).contains(&missing(Replacement::Random)), "{}", missing(Replacement::Random));
        assert!(missing(Replacement::Tree) < 500 && missing(Replacement::NotRecentlyUsed) < 500);
    }

    proptest! {
        #[test]
        fn no_replacement_lets_go_what_fits(which in 0..5usize, order in prop::collection::vec(0..4u64, 1..200)) {
            use Replacement::{FirstIn, LeastRecentlyUsed, NotRecentlyUsed, Random, Tree};
            let replacement = [LeastRecentlyUsed, FirstIn, Tree, NotRecentlyUsed, Random][which];
            let mut lines = misses(replacement, &order);
            let count = lines.len();
            lines.sort_unstable();
            lines.dedup();
            prop_assert_eq!(lines.len(), count);
        }

        #[test]
        fn what_fits_misses_once_each(order in prop::collection::vec(0..4u64, 1..200)) {
            // Four lines that fill both sets.
            let mut cache = SimulatedCache::new(TINY, Replacement::LeastRecentlyUsed);
            let misses = order.iter().filter(|&&line| cache.access(line * 16, line % 2 == 0) != Access::Hit).count();
            let mut lines = order.clone();
            lines.sort_unstable();
            lines.dedup();
            prop_assert_eq!(misses, lines.len());
        }

        #[test]
        fn a_larger_cache_with_the_same_sets_never_misses_more(addresses in prop::collection::vec(0..1024u64, 1..300)) {
            // LRU is a stack algorithm: with more ways each set holds everything that it would hold with fewer.
            let misses = |ways: u64| {
                let mut cache = SimulatedCache::new(Geometry { size_bytes: 32 * ways, ways, line_bytes: 16 }, Replacement::LeastRecentlyUsed);
                addresses.iter().filter(|&&address| cache.access(address, false) != Access::Hit).count()
            };
            prop_assert!(misses(4) <= misses(2) && misses(2) <= misses(1));
        }
    }
}
