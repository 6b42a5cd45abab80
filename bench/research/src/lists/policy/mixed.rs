//! Linux 2.6: one active and one inactive list, with code, data, shared memory and cache mixed.
//!
//! Owns: refilling the inactive list. Never touches: the inactive list's own rules, which the paper's split shares.
//!
//! From `refill_inactive_zone` and `shrink_zone` in `mm/vmscan.c` of Linux 2.6.5 (as in the patch "split active lists" by Nick Piggin, linux-kernel,
//! 18 April 2004, from which the paper's `mapped_page_cost` comes) and of 2.6.9. As long as reclaim succeeds, mapped pages on the active list are put
//! back unexamined, so scanning them is wasted. When half of the mapped share, the distress and swappiness add up to 100, they are aged like all
//! others.
//!
//! The amount of active list scanned changed in between. The paper's kernel, 2.6.6, scans some pages in each pass, in proportion to how much longer
//! the active list is than the inactive one, however much the pass takes from the latter; 2.6.9 scans both lists in proportion to their lengths, in
//! turn.

use super::super::list::Lists;
use super::super::pages::Frames;
use super::classic::{self, CLUSTER, Debt, by_priority, cluster, is_referenced, shrink_inactive, sift};
use super::scan::{ReplacementPolicy, Scan, Taken};

const ACTIVE: usize = 0;
const INACTIVE: usize = 1;
/// `/proc/sys/vm/swappiness` by default.
const SWAPPINESS: u32 = 60;

/// How much is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The paper's, Linux 2.6.6.
    Older,
    /// Linux 2.6.9.
    Later,
}

/// The lists, and the state kept between reclaims.
pub struct Mixed {
    version: Version,
    lists: Lists,
    to_refill: Debt,
    to_shrink: Debt,
    /// The priority that the last reclaim had to reach.
    priority: u32,
}

impl Mixed {
    /// Lists without pages.
    pub fn new(version: Version, frames: u32) -> Self {
        let (to_refill, to_shrink) = (Debt::default(), Debt::default());
        Self { version, lists: Lists::new(frames, 2), to_refill, to_shrink, priority: 12 }
    }

    fn pass(&mut self, pages: &mut Frames, priority: u32, taken: &mut Taken) -> Scan {
        let [active, inactive] = [ACTIVE, INACTIVE].map(|list| u64::from(self.lists.len(list)) * pages.base_pages());
        let [refill, shrink] = match self.version {
            Version::Older => [CLUSTER * active / (2 * inactive + 1) + 1, inactive >> priority],
            Version::Later => [active, inactive].map(|len| (len >> priority) + 1),
        };
        let (refill, shrink) = (self.to_refill.add(refill, pages), self.to_shrink.add(shrink, pages));
        match self.version {
            Version::Older => {
                let mut scan = self.refill(refill, pages);
                scan += self.shrink(shrink, pages, taken);
                scan
            }
            Version::Later => self.in_turns(refill, shrink, pages, taken),
        }
    }

    /// Takes a cluster of each list in turn, until one has been freed.
    fn in_turns(&mut self, mut refill: u32, mut shrink: u32, pages: &mut Frames, taken: &mut Taken) -> Scan {
        let (cluster, mut scan) = (cluster(pages), Scan::default());
        while refill + shrink > 0 && scan.reclaimed < u64::from(cluster) {
            let [refill_now, shrink_now] = [refill, shrink].map(|left| left.min(cluster));
            scan += self.refill(refill_now, pages);
            scan += self.shrink(shrink_now, pages, taken);
            (refill, shrink) = (refill - refill_now, shrink - shrink_now);
        }
        scan
    }

    fn shrink(&mut self, frames: u32, pages: &mut Frames, taken: &mut Taken) -> Scan {
        shrink_inactive(&mut self.lists, INACTIVE, |_| ACTIVE, frames, pages, taken)
    }

    fn refill(&mut self, frames: u32, pages: &mut Frames) -> Scan {
        let ages_mapped = self.ages_mapped(pages);
        sift(&mut self.lists, ACTIVE, frames, |frame, scan| {
            let stays = pages.class(frame).is_mapped() && (!ages_mapped || is_referenced(pages, frame, scan));
            if stays { ACTIVE } else { INACTIVE }
        })
    }

    fn ages_mapped(&self, pages: &Frames) -> bool {
        let distress = 100 >> self.priority;
        let mapped_percent = (u64::from(pages.mapped()) * 100 / u64::from(pages.frames().max(1))) as u32;
        mapped_percent / 2 + distress + SWAPPINESS >= 100
    }
}

impl ReplacementPolicy for Mixed {
    fn insert(&mut self, pages: &mut Frames, frame: u32, _: Option<u32>) {
        classic::insert(&mut self.lists, INACTIVE, ACTIVE, pages, frame);
    }

    fn called(&mut self, pages: &mut Frames, frame: u32) {
        classic::called(&mut self.lists, INACTIVE, ACTIVE, pages, frame);
    }

    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        self.priority = by_priority(pages, wanted, taken, |pages, priority, taken| {
            scan += self.pass(pages, priority, taken);
        });
        scan
    }

    fn written(&mut self, _: &mut Frames, frame: u32) {
        classic::written(&mut self.lists, INACTIVE, frame);
    }

    fn lists(&self) -> &Lists {
        &self.lists
    }
}
