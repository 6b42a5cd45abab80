//! What every policy is asked, and the account that each gives of it.
//!
//! Owns: this shape. Never touches: time, disks or programs, or how a policy chooses.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::super::list::Lists;
use super::super::pages::{Bit, Class, Frames};

/// What goes to swap: one of two kinds of pages, for which Linux today has lists of their own.
pub const ANON: usize = 0;
/// What has a file: the other one.
pub const FILE: usize = 1;

/// The kind of a class.
pub fn kind_of(class: Class) -> usize {
    if class.is_swapped() { ANON } else { FILE }
}

/// A way to choose.
pub trait ReplacementPolicy {
    /// A page has come into a frame. `evicted`: what [`Taken::freed`] said when the same page went the last time.
    fn insert(&mut self, pages: &mut Frames, frame: u32, evicted: Option<u32>);
    /// A system call reads or writes the page. (Programs that use mapped pages tell nobody; the processor sets [`Bit::Young`].)
    fn called(&mut self, pages: &mut Frames, frame: u32);
    /// Takes pages off its lists until `wanted` frames are free, or none can be freed now.
    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan;
    /// A page that was to be reclaimed once it is written is written.
    fn written(&mut self, pages: &mut Frames, frame: u32);
    /// Its lists; every page in memory is on one of them.
    fn lists(&self) -> &Lists;
}

/// What reclaim took.
#[derive(Debug, Default)]
pub struct Taken {
    /// Frames that are on no list any more, each with what the policy wants to be told when the page comes back.
    pub freed: Vec<(u32, u32)>,
    /// Frames whose pages the disk is to write; they stay on their lists meanwhile.
    pub writes: Vec<u32>,
}

/// What reclaim did, in frames; the numbers add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Pages scanned, on any list.
    pub scanned: u64,
    /// Page-table entries found from a page, one by one.
    pub mappings: u64,
    /// Page-table entries read in the order in which they lie.
    pub walked: u64,
    /// Pages moved while the lists' lock was held.
    pub held: u64,
    /// The most of them in one go.
    pub longest_hold: u64,
    /// Pages freed.
    pub reclaimed: u64,
}

impl Scan {
    /// The lock is held while so many pages are moved.
    pub fn hold(&mut self, pages: u64) {
        self.held += pages;
        self.longest_hold = self.longest_hold.max(pages);
    }

    /// The same in base pages.
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
    /// The page goes; it is on no list.
    pub fn free(&mut self, frame: u32, evicted: u32, scan: &mut Scan) {
        self.freed.push((frame, evicted));
        scan.reclaimed += 1;
    }

    /// The disk is to write the page, which may then go.
    pub fn write(&mut self, pages: &mut Frames, frame: u32) {
        pages.clean(frame);
        pages.set(frame, Bit::Writeback);
        pages.set(frame, Bit::Reclaim);
        self.writes.push(frame);
    }
}
