//! Page frames of the model: the contents of each, and the bits by which lists judge it.
//!
//! Owns: these, and totals over all of them. Never touches: the order of pages, which is the lists'.
//!
//! A frame of the model stands for several base pages that are treated alike, so that 64 GiB are a million frames and not sixteen.

use serde::{Deserialize, Serialize};

/// No page is in the frame.
const NOBODY: u32 = u32::MAX;

/// The use of a page: the five classes into which the paper splits lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Code of processes.
    Code,
    /// Read-only data that is mapped from files.
    ReadOnly,
    /// Ordinary data of processes: anonymous memory.
    Data,
    /// Shared memory.
    Shared,
    /// Page cache that no process maps, used by system calls; also the file system's own buffers.
    Cache,
}

/// One number per class, in the order of [`Class::ALL`].
pub type PerClass<T> = [T; Class::ALL.len()];

/// The state of a page, one bit each.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Bit {
    /// The processor has set the accessed bit in a page table (mapped pages only).
    Young = 1,
    /// The page's own referenced mark, which reclaim and system calls set.
    Referenced = 2,
    /// The page differs from its copy on disk.
    Dirty = 4,
    /// Reclaim has submitted it to the disk, which has not finished.
    Writeback = 8,
    /// To be reclaimed as soon as it is written.
    Reclaim = 16,
    /// It was active before.
    Workingset = 32,
}

/// All frames.
pub struct Frames {
    classes: Vec<Class>,
    bits: Vec<u8>,
    owners: Vec<u32>,
    mappers: PerClass<u32>,
    base_pages: u64,
    mapped: u32,
    dirty_cache: u32,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 5] = [Class::Code, Class::ReadOnly, Class::Data, Class::Shared, Class::Cache];

    /// Whether processes map it.
    pub fn is_mapped(self) -> bool {
        self != Class::Cache
    }

    /// Whether it goes to swap space, and not to its own file.
    pub fn is_swapped(self) -> bool {
        matches!(self, Class::Data | Class::Shared)
    }
}

impl Frames {
    /// Empty frames of this many base pages each; `mappers`: how many processes map a page of each class.
    pub fn new(frames: u32, base_pages: u64, mappers: PerClass<u32>) -> Self {
        let frames = frames as usize;
        Self {
            classes: vec![Class::Cache; frames],
            bits: vec![0; frames],
            owners: vec![NOBODY; frames],
            mappers,
            base_pages,
            mapped: 0,
            dirty_cache: 0,
        }
    }

    /// The number of frames.
    pub fn frames(&self) -> u32 {
        self.bits.len() as u32
    }

    /// Base pages in a frame.
    pub fn base_pages(&self) -> u64 {
        self.base_pages
    }

    /// Frames with mapped pages.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Frames with dirty page cache.
    pub fn dirty_cache(&self) -> u32 {
        self.dirty_cache
    }

    /// Puts a page into an empty frame; the meaning of `owner` is the caller's.
    pub fn fill(&mut self, frame: u32, class: Class, owner: u32) {
        debug_assert!(self.is_empty(frame) && owner != NOBODY, "frame {frame} is taken");
        let at = frame as usize;
        (self.classes[at], self.bits[at], self.owners[at]) = (class, 0, owner);
        self.mapped += u32::from(class.is_mapped());
    }

    /// Removes the page from a frame.
    pub fn empty(&mut self, frame: u32) {
        debug_assert!(!self.is_empty(frame), "frame {frame} is empty");
        self.clean(frame);
        self.mapped -= u32::from(self.class(frame).is_mapped());
        self.owners[frame as usize] = NOBODY;
    }

    /// Whether the frame is empty.
    pub fn is_empty(&self, frame: u32) -> bool {
        self.owners[frame as usize] == NOBODY
    }

    /// The class of its page.
    pub fn class(&self, frame: u32) -> Class {
        self.classes[frame as usize]
    }

    /// The owner of its page.
    pub fn owner(&self, frame: u32) -> u32 {
        self.owners[frame as usize]
    }

    /// The number of page-table entries that map it; 0 if it is not mapped.
    pub fn mappers(&self, frame: u32) -> u64 {
        let class = self.class(frame);
        if class.is_mapped() { u64::from(self.mappers[class as usize]) } else { 0 }
    }

    /// Whether the bit is set.
    pub fn has(&self, frame: u32, bit: Bit) -> bool {
        self.bits[frame as usize] & bit as u8 != 0
    }

    /// Sets a bit; not for [`Bit::Dirty`], which is counted.
    pub fn set(&mut self, frame: u32, bit: Bit) {
        self.bits[frame as usize] |= bit as u8;
    }

    /// Clears a bit, and returns whether it was set; not for [`Bit::Dirty`].
    pub fn take(&mut self, frame: u32, bit: Bit) -> bool {
        let was = self.has(frame, bit);
        self.bits[frame as usize] &= !(bit as u8);
        was
    }

    /// Marks the page as different from its copy on disk. Returns whether that is new.
    pub fn soil(&mut self, frame: u32) -> bool {
        let new = !self.has(frame, Bit::Dirty);
        self.set(frame, Bit::Dirty);
        self.dirty_cache += u32::from(new && self.class(frame) == Class::Cache);
        new
    }

    /// Marks the page as equal to its copy on disk. Returns whether that is new.
    pub fn clean(&mut self, frame: u32) -> bool {
        let new = self.take(frame, Bit::Dirty);
        self.dirty_cache -= u32::from(new && self.class(frame) == Class::Cache);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_what_is_in_the_frames() {
        let mut pages = Frames::new(3, 16, [7, 7, 1, 9, 0]);
        pages.fill(0, Class::Code, 0);
        pages.fill(1, Class::Cache, 1);
        assert_eq!((pages.mapped(), pages.mappers(0), pages.mappers(1)), (1, 7, 0));
        assert!(pages.soil(1) && !pages.soil(1));
        assert!(pages.soil(0));
        assert_eq!(pages.dirty_cache(), 1, "only cache waits for the disk");
        pages.empty(1);
        pages.empty(0);
        assert_eq!((pages.mapped(), pages.dirty_cache()), (0, 0));
        pages.fill(1, Class::Data, 5);
        assert!(!pages.has(1, Bit::Dirty), "a new page has nothing of the one before");
    }

    #[test]
    fn bits_do_not_disturb_each_other() {
        let mut pages = Frames::new(1, 1, [1; 5]);
        pages.fill(0, Class::Data, 0);
        let all = [Bit::Young, Bit::Referenced, Bit::Writeback, Bit::Reclaim, Bit::Workingset];
        all.into_iter().for_each(|bit| pages.set(0, bit));
        for bit in all {
            assert!(pages.take(0, bit) && !pages.has(0, bit) && !pages.take(0, bit));
        }
    }
}
