//! Translates the preload library's counters into an account of memory.
//!
//! Owns: which counters are summed up under which name. Never touches: the counters' file; that is `hugepilot_os::placement`.
//!
//! Any process of the program may write to that file, so its numbers are capped by the kernel's own; those of code, which the kernel does not
//! count, by each other.

use heat::units::Bytes;
use hugepilot_os::placement::Tally;
use serde::Serialize;

/// Everything that was counted: bytes, of all processes that ever ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Large anonymous mappings.
    pub mmap: Placing,
    /// Segments of System V shared memory.
    pub shm: Placing,
    /// Code.
    pub text: PlacedText,
    /// What got in the way.
    pub in_the_way: InTheWay,
}

/// What happened to one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placing {
    /// On pool pages.
    pub reserved: Bytes,
    /// With transparent huge pages requested.
    pub transparent: Bytes,
}

/// What happened to code that fills whole, aligned 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlacedText {
    /// All of it.
    #[serde(rename = "eligible_bytes")]
    pub eligible: Bytes,
    /// Of that, on huge pages of its files.
    #[serde(rename = "of_file_bytes")]
    pub of_file: Bytes,
    /// Of that, copied to memory of the process.
    #[serde(rename = "copied_bytes")]
    pub copied: Bytes,
}

/// How much memory stayed on ordinary pages, or not on the kind requested, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// The pool had too few pages, or a group's limit was reached.
    pub pool_empty: Bytes,
    /// Too small for pool pages, or the remainder beyond whole ones.
    pub too_small: Bytes,
    /// No room in the address space.
    pub address_space: Bytes,
    /// The kernel refused.
    pub refused: Bytes,
    /// A small mapping for a thread other than the first.
    pub of_threads: Bytes,
    /// Copied to ordinary pages for forked children.
    pub fork_copies: Bytes,
}

impl Placed {
    /// Reads these counters.
    pub fn of(tally: &Tally) -> Self {
        let placing =
            |reserved: u64, transparent: u64| Placing { reserved: Bytes(reserved), transparent: Bytes(transparent) };
        Self {
            mmap: placing(tally.mmap_hugetlb_bytes, tally.mmap_thp_bytes),
            shm: placing(tally.shm_hugetlb_bytes, tally.shm_thp_bytes),
            text: PlacedText::of(tally),
            in_the_way: InTheWay {
                pool_empty: Bytes(tally.pool_empty_bytes),
                too_small: Bytes(tally.pool_too_small_bytes),
                address_space: Bytes(tally.address_space_limit_bytes),
                refused: Bytes(tally.refused_bytes),
                of_threads: Bytes(tally.thread_small_bytes),
                fork_copies: Bytes(tally.fork_copied_bytes),
            },
        }
    }
}

impl PlacedText {
    fn of(tally: &Tally) -> Self {
        let eligible = Bytes(tally.text_eligible_bytes);
        let of_file = Bytes(tally.text_of_file_bytes).min(eligible);
        Self { eligible, of_file, copied: Bytes(tally.text_copied_bytes).min(eligible.saturating_sub(of_file)) }
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
            text_eligible_bytes: 5,
            text_of_file_bytes: 3,
            text_copied_bytes: u64::MAX,
            refused_bytes: 4,
            ..Tally::default()
        };
        let placed = Placed::of(&tally);
        assert_eq!((placed.mmap.reserved, placed.shm.transparent), (Bytes(1), Bytes(2)));
        let text = PlacedText { eligible: Bytes(5), of_file: Bytes(3), copied: Bytes(2) };
        assert_eq!(placed.text, text, "whatever stands there");
        assert_eq!(placed.in_the_way, InTheWay { refused: Bytes(4), ..InTheWay::default() });
    }
}
