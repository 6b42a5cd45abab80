//! A cache as a datasheet describes it: sets, ways and lines, with LRU replacement and write-back.
//!
//! Owns: which lines are in it. Never touches: where pages are, or what a miss costs.

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

/// Its contents: for each set, the most recently used line first.
#[derive(Clone, Debug)]
pub struct SimulatedCache {
    geometry: Geometry,
    /// `ways` slots per set.
    lines: Vec<Option<Line>>,
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

impl SimulatedCache {
    /// An empty cache.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, lines: vec![None; (geometry.sets() * geometry.ways) as usize] }
    }

    /// Reads or writes at a physical address; a write also loads the line.
    pub fn access(&mut self, address: u64, writes: bool) -> Access {
        let number = address / self.geometry.line_bytes;
        let (ways, set) = (self.geometry.ways as usize, (number % self.geometry.sets()) as usize);
        let set = &mut self.lines[set * ways..(set + 1) * ways];
        let place = set.iter().position(|line| line.is_some_and(|line| line.number == number));
        // If the line was not present, the last one is evicted.
        set[..=place.unwrap_or(ways - 1)].rotate_right(1);
        let (found, used) = (set[0], &mut set[0]);
        if place.is_some() {
            *used = found.map(|line| Line { dirty: line.dirty || writes, ..line });
            return Access::Hit;
        }
        *used = Some(Line { number, dirty: writes });
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
        let mut cache = SimulatedCache::new(TINY);
        // Lines 0, 2, 4 share set 0; line 1 is in set 1.
        let addresses = [0, 32, 16, 8, 64, 0, 32, 16];
        let seen: Vec<Access> = addresses.iter().map(|&address| cache.access(address, false)).collect();
        use Access::{Hit, Miss};
        assert_eq!(seen, [Miss, Miss, Miss, Hit, Miss, Hit, Miss, Hit]);
    }

    #[test]
    fn what_was_written_to_is_written_back_once() {
        let mut cache = SimulatedCache::new(TINY);
        cache.access(4, true);
        cache.access(0, false);
        cache.access(32, false);
        assert_eq!(cache.access(64, false), Access::MissAndWriteBack(0));
        assert_eq!(cache.access(96, false), Access::Miss);
        cache.access(0, false);
        assert_eq!([64, 32].map(|address| cache.access(address, false)), [Access::Miss; 2]);
    }

    proptest! {
        #[test]
        fn what_fits_misses_once_each(order in prop::collection::vec(0..4u64, 1..200)) {
            // Four lines fill both sets.
            let mut cache = SimulatedCache::new(TINY);
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
                let mut cache = SimulatedCache::new(Geometry { size_bytes: 32 * ways, ways, line_bytes: 16 });
                addresses.iter().filter(|&&address| cache.access(address, false) != Access::Hit).count()
            };
            prop_assert!(misses(4) <= misses(2) && misses(2) <= misses(1));
        }
    }
}
