//! Dirty file pages waiting for the disk, in the order in which it writes them.
//!
//! Owns: that order, and the limit on waiting pages. Never touches: lists.
//!
//! From `mm/page-writeback.c` and `fs/fs-writeback.c` of Linux 2.6: file by file, the one that has waited longest first, a few MiB of it at a time;
//! while too much waits, a program that writes has the disk write something first.

use std::collections::VecDeque;

use super::pages::Frames;

/// Base pages of a file that are written before the next file's turn.
const AT_ONCE: u64 = 1024;
/// The share of memory that may wait, in percent (half of the unmapped share if that is less), and its lower limit.
const MOST_PERCENT: u64 = 40;
const LEAST_PERCENT: u64 = 5;

/// The queue.
#[derive(Debug, Default)]
pub struct Writeback {
    files: Vec<VecDeque<(u32, u32)>>,
    /// Files with dirty pages, and the tick since which the oldest of them has waited.
    turns: VecDeque<(u32, u64)>,
}

impl Writeback {
    /// Adds a page of a file to the queue.
    pub fn add(&mut self, file: u32, frame: u32, pages: &Frames, now: u64) {
        let at = file as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, VecDeque::new);
        }
        if self.files[at].is_empty() {
            self.turns.push_back((file, now));
        }
        self.files[at].push_back((frame, pages.owner(frame)));
    }

    /// The tick since which the next file has waited.
    pub fn oldest(&self) -> Option<u64> {
        self.turns.front().map(|&(_, since)| since)
    }

    /// Writes the next pages; adds the frames that are now clean to `written`. Returns false if nothing waits.
    pub fn write_next(&mut self, pages: &mut Frames, now: u64, written: &mut Vec<u32>) -> bool {
        let Some((file, _)) = self.turns.pop_front() else { return false };
        let waiting = &mut self.files[file as usize];
        let mut left = AT_ONCE.div_ceil(pages.base_pages());
        while left > 0
            && let Some((frame, owner)) = waiting.pop_front()
        {
            // The page may be gone or already written; another may be in its frame.
            if pages.owner(frame) == owner && pages.clean(frame) {
                written.push(frame);
                left -= 1;
            }
        }
        if !waiting.is_empty() {
            self.turns.push_back((file, now));
        }
        true
    }

    /// Whether the queue is so long that writers must wait, too.
    pub fn is_full(pages: &Frames) -> bool {
        let frames = u64::from(pages.frames());
        let unmapped = 100 - u64::from(pages.mapped()) * 100 / frames.max(1);
        let percent = MOST_PERCENT.min(unmapped / 2).max(LEAST_PERCENT);
        u64::from(pages.dirty_cache()) * 100 > frames * percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::pages::Class;

    fn dirty(frames: u32) -> Frames {
        let mut pages = Frames::new(frames, 512, [1; 5]);
        for frame in 0..frames {
            pages.fill(frame, Class::Cache, frame % 2);
            pages.soil(frame);
        }
        pages
    }

    #[test]
    fn files_take_turns_of_some_mib() {
        let (mut pages, mut waiting, mut written) = (dirty(6), Writeback::default(), Vec::new());
        (0..6).for_each(|frame| waiting.add(frame % 2, frame, &pages, u64::from(frame)));
        assert_eq!(waiting.oldest(), Some(0));
        // 1,024 base pages are two frames here.
        assert!(waiting.write_next(&mut pages, 10, &mut written));
        assert_eq!((&written[..], waiting.oldest()), (&[0, 2][..], Some(1)));
        assert!(waiting.write_next(&mut pages, 11, &mut written));
        assert!(waiting.write_next(&mut pages, 12, &mut written));
        assert_eq!((&written[..], waiting.oldest(), pages.dirty_cache()), (&[0, 2, 1, 3, 4][..], Some(11), 1));
    }

    #[test]
    fn what_has_gone_is_not_written() {
        let (mut pages, mut waiting, mut written) = (dirty(2), Writeback::default(), Vec::new());
        (0..2).for_each(|frame| waiting.add(0, frame, &pages, 0));
        pages.empty(0);
        pages.fill(0, Class::Data, 9);
        pages.soil(0);
        assert!(waiting.write_next(&mut pages, 1, &mut written));
        assert_eq!(written, [1]);
        assert!(!waiting.write_next(&mut pages, 1, &mut written));
    }

    #[test]
    fn writers_wait_when_half_of_what_is_not_mapped_is_dirty() {
        let mut pages = Frames::new(10, 1, [1; 5]);
        for frame in 0..4 {
            pages.fill(frame, Class::Data, frame);
        }
        for frame in 4..8 {
            pages.fill(frame, Class::Cache, frame);
            assert!(!Writeback::is_full(&pages), "30 % may wait, {} pages do", pages.dirty_cache());
            pages.soil(frame);
        }
        assert!(Writeback::is_full(&pages));
    }
}
