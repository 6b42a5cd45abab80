//! The sweep as an application that moves its objects: pages that libhps asks to compact are moved together, onto huge pages.
//!
//! Owns: where moved pages go, and what the library's thread and the sweep say to each other. Never touches: which pages are hot.
//!
//! An application knows its own objects; here each is a page of the sweep, found through its list of used pages. Only the sweep's own thread
//! moves them, between two of its steps, so that nothing is written to a page on the move.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use heat::units::{BASE_PAGE, HUGE_PAGE, PAGES_PER_REGION};
use hps::{ActiveRegion, Application};
use hugepilot_os::advise::collapse_own;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rustix::io::Errno;

use super::pages::{UsedPages, WORDS_PER_PAGE};

/// A request to move pages, by their numbers in the mapping.
struct Request {
    pages: Vec<u32>,
    moved: SyncSender<u64>,
}

/// The application, as the library's thread calls it.
pub struct Packer {
    requests: SyncSender<Request>,
    mapping: u64,
}

/// The sweep's side: serves requests.
pub struct Packing {
    requests: Receiver<Request>,
    /// The next page of the packed part of the mapping.
    next: u32,
}

impl Application for Packer {
    fn compact(&self, region: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
        let pages = region.pages.iter().map(|page| ((page.address - self.mapping) / BASE_PAGE) as u32).collect();
        let (moved, answer) = sync_channel(1);
        let sent = self.requests.send(Request { pages, moved });
        Some(sent.ok().and_then(|()| answer.recv().ok()).ok_or(Errno::SRCH.raw_os_error()))
    }
}

/// Both sides, for a mapping whose second half is free for packed pages.
pub fn packing(mapping: &AlignedMemory) -> (Packer, Packing) {
    let (sender, requests) = sync_channel(0);
    let packed = (mapping.len() / 2 / BASE_PAGE as usize) as u32;
    (Packer { requests: sender, mapping: mapping.address() }, Packing { requests, next: packed })
}

impl Packing {
    /// Moves the pages that were asked for, if any.
    pub fn serve(&mut self, mapping: &mut AlignedMemory, used: &mut UsedPages) {
        let Ok(Request { pages, moved }) = self.requests.try_recv() else { return };
        let mut count = 0;
        // One pass over the list takes less time than a map of it would take memory.
        for place in 0..used.count() {
            let page = used.page(place) as u32;
            if pages.binary_search(&page).is_ok() {
                self.move_page(page, place, mapping, used);
                count += 1;
            }
        }
        // The library's thread may have given up.
        let _ = moved.send(count * BASE_PAGE);
    }

    fn move_page(&mut self, page: u32, place: usize, mapping: &mut AlignedMemory, used: &mut UsedPages) {
        let (from, to) = (page as usize * WORDS_PER_PAGE, self.next as usize * WORDS_PER_PAGE);
        mapping.words_mut().copy_within(from..from + WORDS_PER_PAGE, to);
        used.replace(place, self.next);
        self.next += 1;
        if (self.next as usize).is_multiple_of(PAGES_PER_REGION) {
            // Only once it is full, so that the last region takes no more than its pages; one that is refused stays on base pages.
            let full = mapping.address() + u64::from(self.next) * BASE_PAGE - HUGE_PAGE;
            let _ = collapse_own(full, HUGE_PAGE);
        }
        // A page that cannot be given back is only memory.
        let _ = mapping.advise(page as usize * BASE_PAGE as usize, BASE_PAGE as usize, OwnAdvice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;
    use hps::wire::Page;

    use super::*;
    use crate::workload::pages::populate;

    #[test]
    fn pages_asked_for_move_with_what_they_hold() {
        let size = Bytes(4 * HUGE_PAGE);
        let mut used = UsedPages::scattered_third(size, 1);
        let mut mapping = populate(Bytes(2 * size.0), &used, false).unwrap();
        let (packer, mut packing) = packing(&mapping);
        let [first, second] = [0, 1].map(|place| used.page(place));
        mapping.words_mut()[second * WORDS_PER_PAGE] = 77;
        let start = mapping.address();
        let asked = std::thread::spawn(move || {
            let page = |number| Page { address: start + number as u64 * BASE_PAGE, walks_per_second: 1.0 };
            let pages = [page(first), page(second)];
            packer.compact(&ActiveRegion { start, pages: &pages, walks_per_second: 2.0 })
        });
        while !asked.is_finished() {
            packing.serve(&mut mapping, &mut used);
        }
        assert_eq!(asked.join().unwrap(), Some(Ok(2 * BASE_PAGE)));
        let half = (size.0 / BASE_PAGE) as usize;
        assert_eq!([0, 1].map(|place| used.page(place)), [half, half + 1]);
        assert_eq!(mapping.words_mut()[(half + 1) * WORDS_PER_PAGE], 77);
        assert_eq!(mapping.words_mut()[second * WORDS_PER_PAGE + WORDS_PER_PAGE - 1], 0, "given back");
    }
}
