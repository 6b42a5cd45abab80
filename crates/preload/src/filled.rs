//! Whether a program fills its mappings: then it will most likely fill the next ones, too.
//!
//! Owns: the last few large mappings on ordinary pages, the basis for that estimate. Never touches: them.
//!
//! A mapping on huge pages would seem filled after one touch per 2 MiB, so only ordinary ones count. Programs change, so some mappings stay
//! ordinary. Memory that the program has since unmapped does not count.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pages::PAGE;
use crate::system;

/// Mappings that are remembered.
const KNOWN: usize = 4;
/// One mapping in this many stays ordinary, to see whether the program still fills its mappings.
const ORDINARY: usize = 8;
/// Pages of each mapping that are checked.
const SAMPLE: usize = 64;
/// Knuth's multiplicative hash.
const SCATTER: usize = 2_654_435_761;
/// Filled if at least this percentage of pages is present.
const FILLED_PERCENT: usize = 95;

/// The program's mappings. Two threads at once may mix up theirs; that is harmless, because unmapped addresses do not count, and mapped
/// ones belong to the program.
pub struct FilledMappings {
    mappings: [(AtomicUsize, AtomicUsize); KNOWN],
    /// Mappings so far, and how many of them have ever been remembered.
    asked: AtomicUsize,
    remembered: AtomicUsize,
}

impl FilledMappings {
    pub const fn new() -> Self {
        let mappings = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; KNOWN];
        Self { mappings, asked: AtomicUsize::new(0), remembered: AtomicUsize::new(0) }
    }

    /// Whether to put the next mapping on huge pages.
    pub fn promises_to_be_filled(&self) -> bool {
        let is_a_test = self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(ORDINARY);
        !is_a_test && self.is_filled()
    }

    /// Remembers a mapping on ordinary pages.
    pub fn remember(&self, start: usize, length: usize) {
        let (known_start, known_length) = &self.mappings[self.remembered.fetch_add(1, Ordering::Relaxed) % KNOWN];
        known_length.store(length, Ordering::Relaxed);
        known_start.store(start, Ordering::Relaxed);
    }

    /// Judges everything that is remembered and still mapped; false if nothing is.
    fn is_filled(&self) -> bool {
        let (mut mapped, mut present) = (0, 0);
        for (start, length) in &self.mappings {
            let (start, pages) = (start.load(Ordering::Relaxed), length.load(Ordering::Relaxed) / PAGE);
            if start == 0 || pages == 0 || !system::is_mapped(start) {
                continue;
            }
            let asked = pages.min(SAMPLE);
            mapped += asked;
            present +=
                (0..asked).filter(|&number| system::is_present(start + page_of(number, pages / asked) * PAGE)).count();
        }
        mapped > 0 && present * 100 >= mapped * FILLED_PERCENT
    }
}

/// One page out of each `of`, at irregular distances: programs may access memory in strides.
fn page_of(number: usize, of: usize) -> usize {
    number * of + (number.wrapping_mul(SCATTER) >> 16) % of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::REGION;
    use crate::system::{MmapRequest, READ_WRITE};

    /// Memory whose first `percent` percent are filled.
    fn mapped(percent: usize) -> usize {
        let start = MmapRequest { rights: READ_WRITE, ..MmapRequest::anonymous(0, 4 * REGION, 0) }.make().unwrap();
        system::madvise(start, 4 * REGION, libc::MADV_NOHUGEPAGE).unwrap();
        system::zero(start, 4 * REGION * percent / 100);
        start
    }

    #[test]
    fn what_follows_filled_memory_will_be_filled() {
        let after = |percents: &[usize]| {
            let past = FilledMappings::new();
            assert!(!past.promises_to_be_filled(), "nothing is known before the first");
            let starts: Vec<usize> = percents.iter().map(|&percent| mapped(percent)).collect();
            starts.iter().for_each(|&start| past.remember(start, 4 * REGION));
            let promises = past.promises_to_be_filled();
            starts.iter().for_each(|&start| assert!(system::munmap(start, 4 * REGION).is_ok()));
            promises
        };
        assert!(after(&[100]) && after(&[100, 100, 99, 100]));
        assert!(!after(&[]) && !after(&[50]) && !after(&[100, 60]));
        assert!(after(&[0, 100, 100, 100, 100]), "the last four count");
    }

    #[test]
    fn what_is_not_mapped_any_more_tells_nothing() {
        let past = FilledMappings::new();
        // No program can map anything there.
        past.remember(PAGE, REGION);
        assert!((0..ORDINARY).all(|_| !past.promises_to_be_filled()));
    }

    #[test]
    fn a_stride_is_not_taken_for_filled_memory() {
        for stride in [2, 16, 64] {
            let hits = (0..SAMPLE).filter(|&number| page_of(number, 64).is_multiple_of(stride)).count();
            assert!(hits <= SAMPLE * 3 / 4, "every {stride}th page: {hits}");
        }
        assert!((0..SAMPLE).all(|number| page_of(number, 64) / 64 == number && page_of(number, 1) == number));
    }

    #[test]
    fn now_and_then_a_mapping_stays_ordinary() {
        let (past, start) = (FilledMappings::new(), mapped(100));
        past.remember(start, 4 * REGION);
        let promised: Vec<bool> = (0..17).map(|_| past.promises_to_be_filled()).collect();
        system::munmap(start, 4 * REGION).unwrap();
        let ordinary: Vec<usize> = (0..17).filter(|&number| !promised[number]).collect();
        assert_eq!(ordinary, [0, 8, 16]);
    }
}
