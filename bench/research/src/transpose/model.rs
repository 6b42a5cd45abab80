//! The paper's processors, and the cost of transposing two matrices on them.
//!
//! Owns: two levels of cache, the trace of the real loop, and a cost per event. Never touches: how pages are chosen.
//!
//! Models caches only: no TLB, no prefetching, no overlap. The exact costs do not matter; what matters is which lines miss, and that follows only
//! from the datasheets' geometry and the loop.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::cache::{Access, Geometry, SimulatedCache};

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
                prices: Prices { element: 5.0, second: 8.0, memory: 75.0, write_back: 30.0 },
            },
            Processor::Pentium4 => Datasheet {
                hertz: 1600e6,
                first: geometry(8, 4, 64),
                second: geometry(512, 8, 64),
                prices: Prices { element: 5.0, second: 18.0, memory: 135.0, write_back: 55.0 },
            },
        }
    }

    /// Colors as the paper counts them: the size of the second level divided by the page size.
    pub fn colors(self) -> u64 {
        self.datasheet().second.size_bytes / PAGE_BYTES
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
    /// `pages`: physical addresses of the pages that hold both matrices, in order.
    pub fn of_transpose(datasheet: &Datasheet, dimension: u64, pages: &[u64]) -> Self {
        let physical = |address: u64| pages[(address / PAGE_BYTES) as usize] + address % PAGE_BYTES;
        let (mut levels, mut events) = (Levels::new(datasheet), Self::default());
        let second = dimension * dimension * ELEMENT;
        for _ in 0..2 {
            events = Self::default();
            for row in 0..dimension {
                for column in 0..dimension {
                    levels.access(physical(second + (column * dimension + row) * ELEMENT), false, &mut events);
                    levels.access(physical((row * dimension + column) * ELEMENT), true, &mut events);
                    events.elements += 1;
                }
            }
        }
        events
    }

    /// Megabytes a second, counted as in the paper: each element is read and written.
    pub fn megabytes_per_second(&self, datasheet: &Datasheet) -> f64 {
        let Prices { element, second, memory, write_back } = datasheet.prices;
        let cycles = self.elements as f64 * element
            + self.first_misses as f64 * second
            + self.second_misses as f64 * memory
            + self.write_backs as f64 * write_back;
        (self.elements * 2 * ELEMENT) as f64 * datasheet.hertz / cycles.max(1.0) / 1e6
    }
}

/// Both caches.
struct Levels {
    first: SimulatedCache,
    second: SimulatedCache,
}

impl Levels {
    fn new(datasheet: &Datasheet) -> Self {
        Self { first: SimulatedCache::new(datasheet.first), second: SimulatedCache::new(datasheet.second) }
    }

    /// The first level loads from the second on a miss, and writes back dirty lines to it.
    fn access(&mut self, address: u64, writes: bool, events: &mut Events) {
        let access = self.first.access(address, writes);
        if access == Access::Hit {
            return;
        }
        events.first_misses += 1;
        if let Access::MissAndWriteBack(dirty) = access {
            self.ask_second(dirty, true, events);
        }
        self.ask_second(address, false, events);
    }

    fn ask_second(&mut self, address: u64, writes: bool, events: &mut Events) {
        match self.second.access(address, writes) {
            Access::Hit => {}
            // A whole line that is written need not be read first, but only a line that is present can be dirty.
            Access::Miss => events.second_misses += u64::from(!writes),
            Access::MissAndWriteBack(_) => {
                events.second_misses += u64::from(!writes);
                events.write_backs += 1;
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
        prices: Prices { element: 1.0, second: 10.0, memory: 100.0, write_back: 50.0 },
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
        assert_eq!(events, Events { elements: 4, first_misses: 6, second_misses: 0, write_backs: 0 });
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
        assert_eq!(events, Events { elements: 4, first_misses: 8, second_misses: 6, write_backs: 2 });
        // 4 + 8 x 10 + 6 x 100 + 2 x 50 cycles for 64 bytes.
        assert!((events.megabytes_per_second(&tiny) - 64.0 / 784.0).abs() < 1e-9);
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
