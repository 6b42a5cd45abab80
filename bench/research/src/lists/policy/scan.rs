//! The interface of every policy, and the account that each returns.
//!
//! Owns: this interface. Never touches: time, disks or programs, or how a policy chooses.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::super::list::Lists;
use super::super::pages::{Bit, Class, Frames};

/// Memory that goes to swap: one of two kinds of pages, for which Linux today has separate lists.
pub const ANON: usize = 0;
/// Memory that has a file: the other kind.
pub const FILE: usize = 1;

/// The kind of a class.
pub fn kind_of(class: Class) -> usize {
    if class.is_swapped() { ANON } else { FILE }
}

/// A way to choose pages.
pub trait ReplacementPolicy {
    /// A page has come into a frame. `evicted`: the number in [`Taken::freed`] when the same page was last evicted.
    fn insert(&mut self, pages: &mut Frames, frame: u32, evicted: Option<u32>);
    /// A system call reads or writes the page. (Use of mapped pages is not reported; the processor sets [`Bit::Young`].)
    fn called(&mut self, pages: &mut Frames, frame: u32);
    /// Removes pages from its lists until `wanted` frames are free, or none can be freed now.
    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan;
    /// A page that was to be reclaimed after writing has been written.
    fn written(&mut self, pages: &mut Frames, frame: u32);
    /// Its lists; every page in memory is on one of them.
    fn lists(&self) -> &Lists;
}

/// What reclaim took.
#[derive(Debug, Default)]
pub struct Taken {
    /// Frames that are on no list any more, each with a number that the policy gets back when the page returns.
    pub freed: Vec<(u32, u32)>,
    /// Frames whose pages the disk must write; meanwhile they stay on their lists.
    pub writes: Vec<u32>,
}

/// What reclaim did, in frames; the numbers add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Pages scanned, on any list.
    pub scanned: u64,
    /// Page-table entries found from a page, one by one (reverse mapping).
    pub mappings: u64,
    /// Page-table entries read in address order.
    pub walked: u64,
    /// Pages moved while the lists' lock was held.
    pub held: u64,
    /// The most of them in one lock hold.
    pub longest_hold: u64,
    /// Pages freed.
    pub reclaimed: u64,
}

impl Scan {
    /// Records that the lock is held while this many pages are moved.
    pub fn hold(&mut self, pages: u64) {
        self.held += pages;
        self.longest_hold = self.longest_hold.max(pages);
    }

    /// The same, converted to base pages.
    pub fn in_base_pages(self, base_pages: u64) -> Scan {
        let Scan { scanned, mappings, walked, held, longest_hold, reclaimed } = self;
        let [scanned, mappings, walked, held, longest_hold, reclaimed] =
            [scanned, mappings, walked, held, longest_hold, reclaimed].map(|frames| frames * base_pages);
        Scan { scanned, mappings, walked, held, longest_hold, reclaimed }
    }
}

impl AddAssign for Scan {
    fn add_assign(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.mappings += other.mappings;
        self.walked += other.walked;
        self.held += other.held;
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.reclaimed += other.reclaimed;
    }
}

impl Taken {
    /// Frees the page, which is on no list.
    pub fn free(&mut self, frame: u32, evicted: u32, scan: &mut Scan) {
        self.freed.push((frame, evicted));
        scan.reclaimed += 1;
    }

    /// Has the disk write the page, which may then be freed.
    pub fn write(&mut self, pages: &mut Frames, frame: u32) {
        pages.clean(frame);
        pages.set(frame, Bit::Writeback);
        pages.set(frame, Bit::Reclaim);
        self.writes.push(frame);
    }
}
