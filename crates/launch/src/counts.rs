//! What the preload library says it has placed, in the terms of an account.
//!
//! Owns: which of its counters are told as what. Never touches: the counters' file; that is `hugepilot_os::placement`.
//!
//! Any process of the program may write anything into that file, so no number in it is believed further than the kernel's own numbers go.

use hugepilot_os::placement::Tally;

use heat::units::Bytes;

/// Everything that was counted; bytes, of all processes that there ever were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Large anonymous mappings.
    pub mmap: Placing,
    /// Segments of System V shared memory.
    pub shm: Placing,
    /// Code.
    pub text: Placing,
    /// What stood in the way.
    pub in_the_way: InTheWay,
}

/// What became of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placing {
    /// On a pool's pages.
    pub reserved: Bytes,
    /// Where transparent huge pages were asked for.
    pub transparent: Bytes,
}

/// How much memory stayed on ordinary pages, or not where it was requested, for which reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// The pool had too few pages, or a group's limit was reached.
    pub pool_empty: Bytes,
    /// Too small for the pool's pages, or the part that is no whole one.
    pub too_small: Bytes,
    /// No room in the address space.
    pub address_space: Bytes,
    /// The kernel refused.
    pub refused: Bytes,
    /// A small piece of a thread's other than the first.
    pub of_threads: Bytes,
    /// Copied to ordinary pages for children.
    pub fork_copies: Bytes,
    /// Made ordinary later, because the program did with it what huge pages cannot.
    pub made_ordinary: Bytes,
}

impl Placed {
    /// What these counters say.
    pub fn of(tally: &Tally) -> Self {
        let placing =
            |reserved: u64, transparent: u64| Placing { reserved: Bytes(reserved), transparent: Bytes(transparent) };
        Self {
            mmap: placing(tally.mmap_hugetlb_bytes, tally.mmap_thp_bytes),
            shm: placing(tally.shm_hugetlb_bytes, tally.shm_thp_bytes),
            text: placing(0, tally.text_collapsed_bytes.saturating_add(tally.text_copied_bytes)),
            in_the_way: InTheWay {
                pool_empty: Bytes(tally.pool_empty_bytes),
                too_small: Bytes(tally.pool_too_small_bytes),
                address_space: Bytes(tally.address_space_limit_bytes),
                refused: Bytes(tally.refused_bytes),
                of_threads: Bytes(tally.thread_small_bytes),
                fork_copies: Bytes(tally.fork_copied_bytes),
                made_ordinary: Bytes(tally.made_ordinary_bytes),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_in_the_terms_of_an_account() {
        let tally = Tally {
            mmap_hugetlb_bytes: 1,
            shm_thp_bytes: 2,
            text_collapsed_bytes: 3,
            text_copied_bytes: u64::MAX,
            refused_bytes: 4,
            ..Tally::default()
        };
        let placed = Placed::of(&tally);
        assert_eq!((placed.mmap.reserved, placed.shm.transparent), (Bytes(1), Bytes(2)));
        assert_eq!(placed.text.transparent, Bytes(u64::MAX), "whatever stands there");
        assert_eq!(placed.in_the_way, InTheWay { refused: Bytes(4), ..InTheWay::default() });
    }
}
