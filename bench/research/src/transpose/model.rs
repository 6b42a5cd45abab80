//! The paper's processors, and the cost of transposing two matrices on them.
//!
//! Owns: two levels of cache, the trace of the real loop, and a cost per event. Never touches: how pages are chosen.
//!
//! A model of caches only: no overlap, and no TLB nor prefetching unless they are to be tried (`Besides`). Prices are not the point: which
//! lines miss is, and that follows from the datasheets' geometry and the loop alone.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::cache::{Access, Geometry, Replacement, SimulatedCache};

/// The page size of that time.
pub const PAGE_BYTES: u64 = 4096;
const ELEMENT: u64 = 8;

/// A processor of the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// Celeron 900 MHz (Coppermine).
    Celeron,
    /// Pentium 4 1.6 GHz (Northwood).
    Pentium4,
}

/// A processor's known data.
#[derive(Clone, Copy, Debug)]
pub struct Datasheet {
    pub hertz: f64,
    pub first: Geometry,
    pub second: Geometry,
    pub prices: Prices,
    pub besides: Besides,
}

/// What the model leaves out unless it is to be tried.
#[derive(Clone, Copy, Debug)]
pub struct Besides {
    /// Of both levels.
    pub replacement: Replacement,
    /// The first level hands on whatever is written to it, and takes no line for that.
    pub writes_through: bool,
    /// A read that misses the second level brings the other line of its aligned pair, too, for nothing.
    pub pairs: bool,
    /// A buffer of translations, by virtual addresses: its lines are pages.
    pub translations: Option<Geometry>,
    /// Pages behind the matrices that the program reads between two transposes.
    pub others: u64,
}

/// Cycles. The Celeron's reproduce the two plateaus in the paper's table (1,556 MB/s inside the second level, 260 beyond it). The Pentium 4's are
/// assumed: the second level about equally far away in cycles, and memory equally far away in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// An element read and written, with everything in the first level.
    pub element: f64,
    /// A line from the second level.
    pub second: f64,
    /// A line from memory.
    pub memory: f64,
    /// A line written back to memory.
    pub write_back: f64,
    /// A translation that has to be read from the page table.
    pub walk: f64,
}

/// Events of a transpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Elements transposed.
    pub elements: u64,
    /// Lines that missed in the first level.
    pub first_misses: u64,
    /// Lines that missed in the second level as well.
    pub second_misses: u64,
    /// Lines written back to memory.
    pub write_backs: u64,
    /// Translations read from the page table.
    pub walks: u64,
}

impl Besides {
    /// Of all that.
    const NOTHING: Self = Self {
        replacement: Replacement::LeastRecentlyUsed,
        writes_through: false,
        pairs: false,
        translations: None,
        others: 0,
    };
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Processor::Celeron => "Celeron",
            Processor::Pentium4 => "Pentium 4",
        })
    }
}

impl Processor {
    /// From Intel's datasheets: 16 KB of 4 ways and 32 bytes, 128 KB of 4 ways; 8 KB of 4 ways and 64 bytes, 512 KB of 8 ways.
    pub fn datasheet(self) -> Datasheet {
        let geometry = |kilobytes: u64, ways, line_bytes| Geometry { size_bytes: kilobytes << 10, ways, line_bytes };
        match self {
            Processor::Celeron => Datasheet {
                hertz: 900e6,
                first: geometry(16, 4, 32),
                second: geometry(128, 4, 32),
                prices: Prices { element: 5.0, second: 8.0, memory: 75.0, write_back: 30.0, walk: 0.0 },
                besides: Besides::NOTHING,
            },
            Processor::Pentium4 => Datasheet {
                hertz: 1600e6,
                first: geometry(8, 4, 64),
                second: geometry(512, 8, 64),
                prices: Prices { element: 5.0, second: 18.0, memory: 135.0, write_back: 55.0, walk: 0.0 },
                besides: Besides::NOTHING,
            },
        }
    }
}

impl Datasheet {
    /// Colors by the paper's count: the whole second level by the page size.
    pub fn colors(&self) -> u64 {
        self.second.size_bytes / PAGE_BYTES
    }
}

/// Bytes of both matrices, one after the other.
pub fn matrices_bytes(dimension: u64) -> u64 {
    2 * dimension * dimension * ELEMENT
}

impl Events {
    /// What happens when a matrix is transposed (`a[i][j] = b[j][i]`) for the second time: the caches know both by then, and later
    /// times are the same.
    ///
    /// `pages`: physical addresses of the pages that hold both matrices, in order, and of others that are read between two transposes.
    pub fn of_transpose(datasheet: &Datasheet, dimension: u64, pages: &[u64]) -> Self {
        let physical = |address: u64| pages[(address / PAGE_BYTES) as usize] + address % PAGE_BYTES;
        let (mut levels, mut events) = (Levels::new(datasheet), Self::default());
        let second = dimension * dimension * ELEMENT;
        for _ in 0..2 {
            levels.read_others(pages);
            events = Self::default();
            for row in 0..dimension {
                for column in 0..dimension {
                    let (from, to) =
                        (second + (column * dimension + row) * ELEMENT, (row * dimension + column) * ELEMENT);
                    levels.translate([from, to], &mut events);
                    levels.access(physical(from), false, &mut events);
                    levels.access(physical(to), true, &mut events);
                    events.elements += 1;
                }
            }
        }
        events
    }

    /// Megabytes a second, counted as in the paper: each element is read and written.
    pub fn megabytes_per_second(&self, datasheet: &Datasheet) -> f64 {
        let Prices { element, second, memory, write_back, walk } = datasheet.prices;
        let cycles = self.elements as f64 * element
            + self.first_misses as f64 * second
            + self.second_misses as f64 * memory
            + self.write_backs as f64 * write_back
            + self.walks as f64 * walk;
        (self.elements * 2 * ELEMENT) as f64 * datasheet.hertz / cycles.max(1.0) / 1e6
    }
}

/// Both caches, and the buffer of translations where there is one.
struct Levels {
    first: SimulatedCache,
    second: SimulatedCache,
    translations: Option<SimulatedCache>,
    besides: Besides,
    line_bytes: u64,
}

impl Levels {
    fn new(datasheet: &Datasheet) -> Self {
        let besides = datasheet.besides;
        Self {
            first: SimulatedCache::new(datasheet.first, besides.replacement),
            second: SimulatedCache::new(datasheet.second, besides.replacement),
            translations: besides.translations.map(|pages| SimulatedCache::new(pages, Replacement::LeastRecentlyUsed)),
            besides,
            line_bytes: datasheet.second.line_bytes,
        }
    }

    /// Counts those of an element's virtual addresses whose page is looked up.
    fn translate(&mut self, addresses: [u64; 2], events: &mut Events) {
        let Some(pages) = &mut self.translations else { return };
        events.walks +=
            addresses.into_iter().filter(|&address| pages.access(address, false) != Access::Hit).count() as u64;
    }

    /// The first level loads from the second on a miss, and writes back dirty lines to it.
    fn access(&mut self, address: u64, writes: bool, events: &mut Events) {
        if writes && self.besides.writes_through {
            // A line is written in part only: it has to be there.
            return self.ask_second(address, true, true, events);
        }
        let access = self.first.access(address, writes);
        if access == Access::Hit {
            return;
        }
        events.first_misses += 1;
        if let Access::MissAndWriteBack(dirty) = access {
            // A whole line that is written need not be read first, but only a line that is there can be dirty.
            self.ask_second(dirty, true, false, events);
        }
        self.ask_second(address, false, true, events);
    }

    fn ask_second(&mut self, address: u64, writes: bool, reads: bool, events: &mut Events) {
        let access = self.second.access(address, writes);
        if access == Access::Hit {
            return;
        }
        events.second_misses += u64::from(reads);
        events.write_backs += u64::from(access != Access::Miss);
        if reads && self.besides.pairs {
            let other = self.second.access(address ^ self.line_bytes, false);
            events.write_backs += u64::from(matches!(other, Access::MissAndWriteBack(_)));
        }
    }

    /// Costs the transposes nothing but their lines.
    fn read_others(&mut self, pages: &[u64]) {
        for page in &pages[pages.len() - self.besides.others as usize..] {
            for address in (*page..page + PAGE_BYTES).step_by(self.line_bytes as usize) {
                self.second.access(address, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One set of two lines of 16 bytes, and four sets of two.
    const TINY: Datasheet = Datasheet {
        hertz: 1e6,
        first: Geometry { size_bytes: 32, ways: 2, line_bytes: 16 },
        second: Geometry { size_bytes: 128, ways: 2, line_bytes: 16 },
        prices: Prices { element: 1.0, second: 10.0, memory: 100.0, write_back: 50.0, walk: 500.0 },
        besides: Besides::NOTHING,
    };

    #[test]
    fn misses_of_a_transpose_of_two_by_two_counted_by_hand() {
        // a is at 0 to 31 (lines 0, 1), b at 32 to 63 (lines 2, 3). Read b, write a: lines 2 0, 3 0, 2 1, 3 1.
        // Two lines fit, and the last one used stays: once both caches are warm, 0 is always gone when the second round needs it.
        //   start (after one transpose): 1 (dirty), 3
        //   2: miss, 3 leaves clean -> 2 1     0: miss, 1 leaves dirty -> 0 2
        //   3: miss, 2 leaves clean -> 3 0     0: hit -> 0 3
        //   2: miss, 3 leaves clean -> 2 0     1: miss, 0 leaves dirty -> 1 2
        //   3: miss, 2 leaves clean -> 3 1     1: hit -> 1 3
        let events = Events::of_transpose(&TINY, 2, &[0]);
        assert_eq!(events, Events { elements: 4, first_misses: 6, second_misses: 0, write_backs: 0, walks: 0 });
        // 4 elements, 6 lines from the second level: 64 cycles for 64 bytes at 1 MHz.
        assert!((events.megabytes_per_second(&TINY) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_the_second_level_lacks_and_writes_back_counted_by_hand() {
        // One line in the first level, two in the second. Consecutive accesses are never to the same line, so the first
        // level never hits, and the second level still has the dirty lines that it evicts. The second level after one transpose is 1* 3
        // (last used line first, * for dirty):
        //   2: miss, 3 leaves -> 2 1*         0: miss, 1 is written back -> 0 2
        //   3: 0 comes back dirty, miss, 2 leaves -> 3 0*         0: hit -> 0* 3
        //   2: miss, 3 leaves -> 2 0*         1: miss, 0 is written back -> 1 2
        //   3: 1 comes back dirty, miss, 2 leaves -> 3 1*         1: hit -> 1* 3
        let tiny = Datasheet {
            first: Geometry { size_bytes: 16, ways: 1, line_bytes: 16 },
            second: Geometry { size_bytes: 32, ways: 2, line_bytes: 16 },
            ..TINY
        };
        let events = Events::of_transpose(&tiny, 2, &[0]);
        assert_eq!(events, Events { elements: 4, first_misses: 8, second_misses: 6, write_backs: 2, walks: 0 });
        // 4 + 8 x 10 + 6 x 100 + 2 x 50 cycles for 64 bytes.
        assert!((events.megabytes_per_second(&tiny) - 64.0 / 784.0).abs() < 1e-9);
    }

    /// Two transposes of the matrices of two by two, with something besides.
    fn tiny(besides: Besides, pages: &[u64]) -> Events {
        Events::of_transpose(&Datasheet { besides, ..TINY }, 2, pages)
    }

    #[test]
    fn what_is_written_through_takes_no_line_of_the_first_level() {
        // Lines 2 and 3 of the matrix that is read fit the first level, and those written are in the second.
        let events = tiny(Besides { writes_through: true, ..Besides::NOTHING }, &[0]);
        assert_eq!(events, Events { elements: 4, ..Events::default() });
        // In a second level of two lines all four leave in turn, and what is written has to be read first.
        let besides = Besides { writes_through: true, ..Besides::NOTHING };
        let second = Geometry { size_bytes: 32, ways: 2, line_bytes: 16 };
        let first = Geometry { size_bytes: 16, ways: 1, line_bytes: 16 };
        let events = Events::of_transpose(&Datasheet { first, second, besides, ..TINY }, 2, &[0]);
        assert_eq!((events.second_misses, events.write_backs), (6, 2));
    }

    #[test]
    fn the_other_line_of_a_pair_comes_for_nothing() {
        let misses = |pairs, pages: &[u64]| {
            let celeron = Processor::Celeron.datasheet();
            let datasheet = Datasheet { besides: Besides { pairs, ..Besides::NOTHING }, ..celeron };
            Events::of_transpose(&datasheet, 161, pages).second_misses
        };
        let pages: Vec<u64> = (0..matrices_bytes(161).div_ceil(PAGE_BYTES)).map(|page| page * PAGE_BYTES).collect();
        let (alone, pairs) = (misses(false, &pages), misses(true, &pages));
        assert!((0.45..0.6).contains(&(pairs as f64 / alone as f64)), "{pairs} of {alone}");
    }

    #[test]
    fn pages_beyond_the_buffer_of_translations_are_walked() {
        let walks = |entries: u64| {
            let translations =
                Some(Geometry { size_bytes: entries * PAGE_BYTES, ways: entries, line_bytes: PAGE_BYTES });
            let datasheet =
                Datasheet { besides: Besides { translations, ..Besides::NOTHING }, ..Processor::Celeron.datasheet() };
            // Each matrix takes 7.1 pages, of which a column of 61 elements passes all.
            let pages: Vec<u64> = (0..15).map(|page| page * PAGE_BYTES).collect();
            Events::of_transpose(&datasheet, 61, &pages).walks
        };
        assert_eq!(walks(15), 0);
        assert!(walks(4) > 61 * 7, "{}", walks(4));
        let celeron = Processor::Celeron.datasheet();
        let events = Events { elements: 1, walks: 2, ..Events::default() };
        let priced = Datasheet { prices: Prices { walk: 30.0, ..celeron.prices }, ..celeron };
        assert!((events.megabytes_per_second(&priced) - 16.0 * 900.0 / 65.0).abs() < 1e-9);
    }

    #[test]
    fn what_the_program_reads_between_takes_its_lines() {
        let misses = |others: u64| {
            let datasheet =
                Datasheet { besides: Besides { others, ..Besides::NOTHING }, ..Processor::Celeron.datasheet() };
            let pages: Vec<u64> =
                (0..matrices_bytes(89).div_ceil(PAGE_BYTES) + others).map(|page| page * PAGE_BYTES).collect();
            Events::of_transpose(&datasheet, 89, &pages).second_misses
        };
        assert_eq!(misses(0), 0, "31 pages fit");
        assert!(misses(2) > 200, "{}: 33 do not", misses(2));
    }

    #[test]
    fn the_first_level_has_no_colors() {
        for processor in Processor::value_variants() {
            let Geometry { size_bytes, ways, .. } = processor.datasheet().first;
            assert!(size_bytes / ways <= PAGE_BYTES, "{processor}: virtual or physical addresses choose the same sets");
        }
    }

    #[test]
    fn pages_that_share_sets_miss_and_others_do_not() {
        let (celeron, dimension) = (Processor::Celeron.datasheet(), 85);
        let pages = matrices_bytes(dimension).div_ceil(PAGE_BYTES);
        let same_color: Vec<u64> = (0..pages).map(|page| page * 32 * PAGE_BYTES).collect();
        let contiguous: Vec<u64> = (0..pages).map(|page| page * PAGE_BYTES).collect();
        let misses = |pages: &[u64]| Events::of_transpose(&celeron, dimension, pages).second_misses;
        assert_eq!(misses(&contiguous), 0, "both matrices fit");
        assert!(misses(&same_color) > 3_000, "four ways do not hold {pages} pages of one color");
    }

    #[test]
    fn prices_make_the_plateaus_of_the_papers_table() {
        let celeron = Processor::Celeron.datasheet();
        let speed = |dimension| {
            let pages: Vec<u64> =
                (0..matrices_bytes(dimension).div_ceil(PAGE_BYTES)).map(|page| page * PAGE_BYTES).collect();
            Events::of_transpose(&celeron, dimension, &pages).megabytes_per_second(&celeron)
        };
        assert!((1_400.0..1_700.0).contains(&speed(81)), "{}", speed(81));
        assert!((230.0..300.0).contains(&speed(161)), "{}", speed(161));
    }
}
