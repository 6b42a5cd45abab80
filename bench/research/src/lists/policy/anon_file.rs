//! Linux today: one pair of lists for memory that goes to swap, another for files, balanced by what reclaiming each has cost.
//!
//! Owns: the four lists, the costs, and the clock that tells how long a returning page was away. Never touches: swap space or files.
//!
//! From `mm/vmscan.c` (`get_scan_count`, `prepare_scan_control`, `inactive_is_low`, `shrink_active_list`, `folio_check_references`), `mm/swap.c`
//! (`folio_mark_accessed`, `lru_note_cost`) and `mm/workingset.c` of Linux 6.x. Left out: cgroups, the case of a tiny file list, throttling of tasks
//! that reclaim, and kswapd writing file pages itself.

use super::super::list::Lists;
use super::super::pages::{Bit, Class, Frames};
use super::classic::{CLUSTER, PageVerdict, by_priority, cluster, sift};
use super::scan::{ANON, FILE, ReplacementPolicy, Scan, Taken, kind_of};

/// `/proc/sys/vm/swappiness` by default; 100 means that both kinds are equally expensive to bring back, and 200 is the maximum.
const SWAPPINESS: u64 = 60;
const MOST_SWAPPINESS: u64 = 200;

/// The lists, and the state kept between passes.
pub struct AnonFile {
    lists: Lists,
    /// Counts pages that have left the inactive lists, by eviction or activation.
    clock: u32,
    /// Recent work and waiting caused by reclaiming each kind.
    costs: [u64; 2],
    /// Pages that came back soon enough to become active at once: in total, and up to the end of the last reclaim.
    came_back: [u64; 2],
    came_back_before: [u64; 2],
    /// For each list, base pages still to be scanned that are less than a frame.
    remainders: [u64; 4],
}

/// The limits of one pass.
struct Aims {
    /// Frames to scan, for each list.
    scans: [u32; 4],
    /// Whether active pages of a kind may become inactive.
    deactivates: [bool; 2],
}

const fn inactive(kind: usize) -> usize {
    kind * 2
}

const fn active(kind: usize) -> usize {
    kind * 2 + 1
}

impl AnonFile {
    /// Lists without pages.
    pub fn new(frames: u32) -> Self {
        Self {
            lists: Lists::new(frames, 4),
            clock: 0,
            costs: [0; 2],
            came_back: [0; 2],
            came_back_before: [0; 2],
            remainders: [0; 4],
        }
    }

    fn pass(&mut self, pages: &mut Frames, priority: u32, wanted: usize, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        let Aims { mut scans, deactivates } = self.aims(pages, priority);
        while scans[inactive(ANON)] + scans[inactive(FILE)] + scans[active(FILE)] > 0 && taken.freed.len() < wanted {
            for (list, left) in scans.iter_mut().enumerate() {
                let frames = (*left).min(cluster(pages));
                *left -= frames;
                let kind = list / 2;
                if list == inactive(kind) {
                    scan += self.shrink(kind, frames, pages, taken);
                } else if deactivates[kind] {
                    scan += self.refill(kind, frames, pages);
                }
            }
        }
        if self.inactive_is_low(ANON, pages) {
            scan += self.refill(ANON, cluster(pages), pages);
        }
        scan
    }

    fn aims(&mut self, pages: &Frames, priority: u32) -> Aims {
        let deactivates = [ANON, FILE]
            .map(|kind| self.came_back[kind] != self.came_back_before[kind] || self.inactive_is_low(kind, pages));
        let plenty = (u64::from(self.lists.len(inactive(FILE))) * pages.base_pages()) >> priority > 0;
        let shares = match priority {
            0 => [1.0, 1.0],
            // Page cache without refaults goes first.
            _ if plenty && !deactivates[FILE] => [0.0, 1.0],
            _ => self.shares(),
        };
        let mut scans = [0; 4];
        for (list, scan) in scans.iter_mut().enumerate() {
            let base_pages = (u64::from(self.lists.len(list)) * pages.base_pages()) >> priority;
            let base_pages = (base_pages as f64 * shares[list / 2]) as u64 + self.remainders[list];
            *scan = (base_pages / pages.base_pages()) as u32;
            self.remainders[list] = base_pages % pages.base_pages();
        }
        Aims { scans, deactivates }
    }

    /// Each kind's share of the scanning: the more its reclaim has cost, the smaller; at equal swappiness never less than a third.
    fn shares(&self) -> [f64; 2] {
        let total = self.costs[ANON] + self.costs[FILE];
        let both = 3 * total;
        let pressure = |swappiness: u64, cost: u64| (swappiness * (both + 1)) as f64 / (total + cost + 1) as f64;
        let anon = pressure(SWAPPINESS, self.costs[ANON]);
        let file = pressure(MOST_SWAPPINESS - SWAPPINESS, self.costs[FILE]);
        [anon / (anon + file), file / (anon + file)]
    }

    /// The larger the lists, the smaller the share of inactive pages may be.
    fn inactive_is_low(&self, kind: usize, pages: &Frames) -> bool {
        let [few, many] = [inactive(kind), active(kind)].map(|list| u64::from(self.lists.len(list)));
        let gib = ((few + many) * pages.base_pages()) >> 18;
        few * (10 * gib).isqrt().max(1) < many
    }

    fn refill(&mut self, kind: usize, frames: u32, pages: &mut Frames) -> Scan {
        let mut stayed = 0;
        let scan = sift(&mut self.lists, active(kind), frames, |frame, scan| {
            scan.mappings += pages.mappers(frame);
            if pages.take(frame, Bit::Young) && pages.class(frame) == Class::Code {
                stayed += 1;
                return active(kind);
            }
            pages.set(frame, Bit::Workingset);
            inactive(kind)
        });
        self.note_cost(kind, stayed);
        scan
    }

    fn shrink(&mut self, kind: usize, frames: u32, pages: &mut Frames, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        let frames = frames.min(self.lists.len(inactive(kind)));
        let writes = taken.writes.len();
        for _ in 0..frames {
            let Some(frame) = self.lists.take_oldest(inactive(kind)) else { break };
            scan.scanned += 1;
            match judge(pages, frame, &mut scan) {
                PageVerdict::Free => self.evict(pages, frame, taken, &mut scan),
                PageVerdict::Keep => self.lists.add_newest(inactive(kind), frame),
                PageVerdict::Activate => self.lists.add_newest(active(kind), frame),
                PageVerdict::Write => {
                    taken.write(pages, frame);
                    self.lists.add_newest(inactive(kind), frame);
                }
            }
        }
        let stay = u64::from(frames) - scan.reclaimed;
        scan.hold(u64::from(frames));
        scan.hold(stay);
        self.note_cost(kind, (taken.writes.len() - writes) as u64 * CLUSTER + stay);
        scan
    }

    fn evict(&mut self, pages: &mut Frames, frame: u32, taken: &mut Taken, scan: &mut Scan) {
        let was_active = u32::from(pages.take(frame, Bit::Workingset));
        taken.free(frame, (self.clock << 1) | was_active, scan);
        self.clock = self.clock.wrapping_add(1);
    }

    fn note_cost(&mut self, kind: usize, cost: u64) {
        self.costs[kind] += cost;
        let all = (0..4).map(|list| u64::from(self.lists.len(list))).sum::<u64>();
        while self.costs[ANON] + self.costs[FILE] > (all / 4).max(1) {
            self.costs = self.costs.map(|cost| cost / 2);
        }
    }

    /// Whether a page evicted at that time would still be in memory if the pages that are active now were not.
    fn would_have_stayed(&self, kind: usize, evicted: u32) -> bool {
        // Packing has removed the clock's highest bit.
        let away = self.clock.wrapping_sub(evicted >> 1) & (u32::MAX >> 1);
        let others: u32 = match kind {
            FILE => self.lists.len(inactive(ANON)),
            _ => self.lists.len(inactive(FILE)),
        };
        away <= self.lists.len(active(ANON)) + self.lists.len(active(FILE)) + others
    }
}

fn judge(pages: &mut Frames, frame: u32, scan: &mut Scan) -> PageVerdict {
    let class = pages.class(frame);
    if pages.has(frame, Bit::Writeback) {
        return PageVerdict::Activate;
    }
    scan.mappings += pages.mappers(frame);
    let marked = pages.take(frame, Bit::Referenced);
    if pages.take(frame, Bit::Young) {
        // The fault that brings in a mapped page counts as one use; a second use, or a second process, makes it active.
        pages.set(frame, Bit::Referenced);
        let active = marked || pages.mappers(frame) > 1 || class == Class::Code;
        return if active { PageVerdict::Activate } else { PageVerdict::Keep };
    }
    let dirty = pages.has(frame, Bit::Dirty);
    if dirty && class == Class::Cache {
        // The flusher threads write in better order; until they have, the page is kept out of the way.
        pages.set(frame, Bit::Reclaim);
        return PageVerdict::Activate;
    }
    scan.mappings += pages.mappers(frame);
    if dirty { PageVerdict::Write } else { PageVerdict::Free }
}

impl ReplacementPolicy for AnonFile {
    fn insert(&mut self, pages: &mut Frames, frame: u32, evicted: Option<u32>) {
        let kind = kind_of(pages.class(frame));
        let mut to = inactive(kind);
        if let Some(evicted) = evicted.filter(|&evicted| self.would_have_stayed(kind, evicted)) {
            self.clock = self.clock.wrapping_add(1);
            self.came_back[kind] += 1;
            to = active(kind);
            if evicted & 1 == 1 {
                pages.set(frame, Bit::Workingset);
                self.note_cost(kind, CLUSTER);
            }
        }
        self.lists.add_newest(to, frame);
    }

    fn called(&mut self, pages: &mut Frames, frame: u32) {
        let kind = kind_of(pages.class(frame));
        if !pages.has(frame, Bit::Referenced) {
            pages.set(frame, Bit::Referenced);
        } else if self.lists.of(frame) == Some(inactive(kind)) {
            pages.take(frame, Bit::Referenced);
            self.clock = self.clock.wrapping_add(1);
            self.lists.make_newest(active(kind), frame);
        }
    }

    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        let enough = taken.freed.len() + wanted as usize;
        by_priority(pages, wanted, taken, |pages, priority, taken| {
            scan += self.pass(pages, priority, enough, taken);
        });
        self.came_back_before = self.came_back;
        scan
    }

    fn written(&mut self, pages: &mut Frames, frame: u32) {
        self.lists.make_oldest(inactive(kind_of(pages.class(frame))), frame);
    }

    fn lists(&self) -> &Lists {
        &self.lists
    }
}
