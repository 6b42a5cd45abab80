//! What Linux 2.6's lists and the paper's split of them have in common: the inactive list, and how intensely it is scanned.
//!
//! Owns: judging the oldest inactive page, the priority steps, and the two touches that make a page active. Never touches: active lists, in which the
//! two differ.
//!
//! From `mm/vmscan.c` and `mm/swap.c` of Linux 2.6.5 to 2.6.9 (`shrink_list`, `shrink_cache`, `balance_pgdat`, `mark_page_accessed`). Left out: slab,
//! zones, `all_unreclaimable`, several processes that reclaim at once.

use super::super::list::Lists;
use super::super::pages::{Bit, Class, Frames};
use super::scan::{Scan, Taken};

/// Base pages in a batch; also the least that a pass must free, and the least worth scanning for.
pub const CLUSTER: u64 = 32;
/// The first pass scans 1/4096 of a list, each further pass twice as much.
const FIRST_PRIORITY: u32 = 12;

/// Base pages still to be scanned, accumulated until they make up a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debt(u64);

impl Debt {
    /// Adds some; returns the number of frames to scan now.
    pub fn add(&mut self, more: u64, pages: &Frames) -> u32 {
        self.0 += more;
        if self.0 < CLUSTER {
            return 0;
        }
        let frames = self.0 / pages.base_pages();
        self.0 %= pages.base_pages();
        u32::try_from(frames).unwrap_or(u32::MAX)
    }
}

/// Frames in a batch.
pub fn cluster(pages: &Frames) -> u32 {
    (CLUSTER / pages.base_pages()).max(1) as u32
}

/// Passes of increasing urgency, until enough is free or the last pass, at priority 0, has brought less than a cluster. Returns the priority of the
/// last pass.
pub fn by_priority(
    pages: &mut Frames,
    wanted: u32,
    taken: &mut Taken,
    mut pass: impl FnMut(&mut Frames, u32, &mut Taken),
) -> u32 {
    let already = taken.freed.len();
    let cluster = cluster(pages) as usize;
    let mut priority = FIRST_PRIORITY;
    let mut before = already;
    loop {
        pass(pages, priority, taken);
        if taken.freed.len() - already >= wanted as usize {
            return priority;
        }
        if taken.freed.len() - before >= cluster {
            // As in kswapd: after progress the urgency starts over.
            (before, priority) = (taken.freed.len(), FIRST_PRIORITY);
        } else if priority == 0 {
            return 0;
        } else {
            priority -= 1;
        }
    }
}

/// Scans the `frames` oldest pages of a list; `goes_to` returns the list for each.
pub fn sift(lists: &mut Lists, list: usize, frames: u32, mut goes_to: impl FnMut(u32, &mut Scan) -> usize) -> Scan {
    let mut scan = Scan::default();
    let frames = frames.min(lists.len(list));
    for _ in 0..frames {
        let Some(frame) = lists.take_oldest(list) else { break };
        lists.add_newest(goes_to(frame, &mut scan), frame);
    }
    scan.scanned += u64::from(frames);
    // All of them are removed in one go, and put back in one.
    scan.hold(u64::from(frames));
    scan.hold(u64::from(frames));
    scan
}

/// Judges the `frames` oldest inactive pages. `active`: the list on which a page of a class is active.
pub fn shrink_inactive(
    lists: &mut Lists,
    inactive: usize,
    active: impl Fn(Class) -> usize,
    frames: u32,
    pages: &mut Frames,
    taken: &mut Taken,
) -> Scan {
    let mut scan = Scan::default();
    let mut left = frames;
    while left > 0 && lists.len(inactive) > 0 {
        let batch = left.min(cluster(pages)).min(lists.len(inactive));
        left -= batch;
        let before = scan.reclaimed;
        for _ in 0..batch {
            let Some(frame) = lists.take_oldest(inactive) else { break };
            scan.scanned += 1;
            match judge(pages, frame, &mut scan) {
                PageVerdict::Free => taken.free(frame, 0, &mut scan),
                PageVerdict::Activate => lists.add_newest(active(pages.class(frame)), frame),
                PageVerdict::Keep => lists.add_newest(inactive, frame),
                PageVerdict::Write => {
                    taken.write(pages, frame);
                    lists.add_newest(inactive, frame);
                }
            }
        }
        // Once to remove them, and once to put back those that stay.
        scan.hold(u64::from(batch));
        scan.hold(u64::from(batch) - (scan.reclaimed - before));
    }
    scan
}

/// What happens to the oldest inactive page.
pub enum PageVerdict {
    Free,
    Activate,
    Keep,
    Write,
}

fn judge(pages: &mut Frames, frame: u32, scan: &mut Scan) -> PageVerdict {
    if pages.has(frame, Bit::Writeback) {
        return PageVerdict::Keep;
    }
    let mapped = pages.class(frame).is_mapped();
    let referenced = is_referenced(pages, frame, scan);
    if referenced && mapped {
        return PageVerdict::Activate;
    }
    // For removing it from the page tables.
    scan.mappings += pages.mappers(frame);
    match (pages.has(frame, Bit::Dirty), referenced) {
        (false, _) => PageVerdict::Free,
        (true, true) => PageVerdict::Keep,
        (true, false) => PageVerdict::Write,
    }
}

/// Whether a page was used since the last check: its own mark, and every page-table entry that maps it.
pub fn is_referenced(pages: &mut Frames, frame: u32, scan: &mut Scan) -> bool {
    scan.mappings += pages.mappers(frame);
    let marked = pages.take(frame, Bit::Referenced);
    pages.take(frame, Bit::Young) || marked
}

/// Ordinary data is active from its first use.
pub fn insert(lists: &mut Lists, inactive: usize, active: usize, pages: &mut Frames, frame: u32) {
    let is_data = pages.class(frame) == Class::Data;
    if is_data {
        pages.set(frame, Bit::Referenced);
    }
    lists.add_newest(if is_data { active } else { inactive }, frame);
}

/// The first touch by a system call marks a page, the second makes it active.
pub fn called(lists: &mut Lists, inactive: usize, active: usize, pages: &mut Frames, frame: u32) {
    if lists.of(frame) == Some(inactive) && pages.take(frame, Bit::Referenced) {
        lists.make_newest(active, frame);
    } else {
        pages.set(frame, Bit::Referenced);
    }
}

/// A page that was to be reclaimed and is now written is judged next.
pub fn written(lists: &mut Lists, inactive: usize, frame: u32) {
    if lists.of(frame) == Some(inactive) {
        lists.make_oldest(inactive, frame);
    }
}
