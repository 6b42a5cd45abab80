//! Linux today with its multi-generational LRU: generations of pages by time of use, and tiers of file pages within them.
//!
//! Owns: the generations of both kinds, aging by page-table walks, and the balance between kinds and tiers. Never touches: the order of pages within
//! a generation, which is first in, first out.
//!
//! From `Documentation/mm/multigen_lru.rst` and `mm/vmscan.c` (`try_to_inc_max_seq`, `should_run_aging`, `sort_folio`, `get_tier_idx`,
//! `get_type_to_scan`) of Linux 6.x. Left out: cgroups, the filter that lets walks skip tables with few young entries (ours read every entry), and
//! scanning around a page that was found young.

use super::super::list::Lists;
use super::super::pages::{Bit, Frames};
use super::classic::cluster;
use super::scan::{ANON, FILE, ReplacementPolicy, Scan, Taken, kind_of};

/// The maximum number of generations of a kind, and the number of youngest ones that are never evicted from.
const MOST: u64 = 4;
const LEAST: u64 = 2;
const TIERS: usize = 4;
/// Fewer refaults than this are not significant.
const LEAST_TELLING: f64 = 64.0;
/// `/proc/sys/vm/swappiness` by default, and the remainder up to 200 for files.
const WEIGHTS: [f64; 2] = [60.0, 140.0];
/// The lowest bits of the number kept for an evicted page: its tier.
const TIER_BITS: u32 = 2;

/// The generations.
pub struct Generations {
    lists: Lists,
    /// The youngest generation of both kinds.
    youngest: u64,
    /// The oldest generation of each kind.
    oldest: [u64; 2],
    /// How often system calls have used a page since it came in.
    calls: Vec<u8>,
    /// The statistics of each tier of each kind.
    tiers: [[Tier; TIERS]; 2],
}

/// Pages of one tier: in this generation, and an average over earlier ones.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    came_back: f64,
    went: f64,
    came_back_before: f64,
    went_before: f64,
}

impl Tier {
    fn total_came_back(&self) -> f64 {
        self.came_back + self.came_back_before
    }

    fn total_went(&self) -> f64 {
        self.went + self.went_before
    }

    /// Starts a new generation.
    fn average(&mut self) {
        self.came_back_before = self.total_came_back() / 2.0;
        self.went_before = self.total_went() / 2.0;
        (self.came_back, self.went) = (0.0, 0.0);
    }
}

/// Whether `other`'s weighted refault rate is no higher than `one`'s.
fn comes_back_less(one: &Tier, weight: f64, other: &Tier, other_weight: f64) -> bool {
    other.total_came_back() < LEAST_TELLING
        || other.total_came_back() * (one.total_went() + LEAST_TELLING) * weight
            <= (one.total_came_back() + 1.0) * other.total_went() * other_weight
}

fn list_of(kind: usize, generation: u64) -> usize {
    kind * MOST as usize + (generation % MOST) as usize
}

/// The tier of a page that system calls have used this often.
fn tier_of(calls: u8) -> usize {
    match calls {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        _ => 3,
    }
}

impl Generations {
    /// Four empty generations of each kind.
    pub fn new(frames: u32) -> Self {
        Self {
            lists: Lists::new(frames, 2 * MOST as usize),
            youngest: LEAST + 1,
            oldest: [0; 2],
            calls: vec![0; frames as usize],
            tiers: Default::default(),
        }
    }

    fn len(&self, kind: usize, generation: u64) -> u64 {
        u64::from(self.lists.len(list_of(kind, generation)))
    }

    fn generations(&self, kind: usize) -> u64 {
        self.youngest - self.oldest[kind] + 1
    }

    fn is_empty(&self, kind: usize) -> bool {
        (self.oldest[kind]..=self.youngest).all(|generation| self.len(kind, generation) == 0)
    }

    /// Skips empty generations at the old end.
    fn forget_empty(&mut self, kind: usize) {
        while self.generations(kind) > LEAST && self.len(kind, self.oldest[kind]) == 0 {
            self.oldest[kind] += 1;
        }
    }

    /// Whether there is too little to evict, or too much that counts as young.
    fn is_to_age(&self) -> bool {
        let kinds: Vec<usize> = [ANON, FILE].into_iter().filter(|&kind| !self.is_empty(kind)).collect();
        let generations = kinds.iter().map(|&kind| self.generations(kind)).max().unwrap_or(0);
        if generations != LEAST + 1 {
            return generations <= LEAST;
        }
        let of = |generation: u64| kinds.iter().map(|&kind| self.len(kind, generation)).sum::<u64>();
        let total: u64 = (self.youngest - LEAST..=self.youngest).map(of).sum();
        of(self.youngest) * LEAST > total || of(self.youngest - LEAST) * (LEAST + 2) < total
    }

    /// Starts a new youngest generation; pages that the page tables show as used go to the one that was youngest.
    fn age(&mut self, pages: &mut Frames, scan: &mut Scan) {
        for kind in [ANON, FILE] {
            if self.generations(kind) == MOST {
                self.join_oldest(kind, scan);
            }
        }
        for frame in 0..pages.frames() {
            if pages.is_empty(frame) || !pages.class(frame).is_mapped() {
                continue;
            }
            scan.walked += pages.mappers(frame);
            if pages.take(frame, Bit::Young) && self.lists.of(frame).is_some() {
                self.lists.make_newest(list_of(kind_of(pages.class(frame)), self.youngest), frame);
            }
        }
        self.tiers.iter_mut().flatten().for_each(Tier::average);
        self.youngest += 1;
    }

    /// Merges the oldest generation into the next.
    fn join_oldest(&mut self, kind: usize, scan: &mut Scan) {
        let (from, to) = (list_of(kind, self.oldest[kind]), list_of(kind, self.oldest[kind] + 1));
        let mut moved = 0;
        while let Some(frame) = self.lists.take_oldest(from) {
            self.calls[frame as usize] = 0;
            self.lists.add_newest(to, frame);
            moved += 1;
        }
        scan.hold(moved);
        self.oldest[kind] += 1;
    }

    /// The kind to evict from, and the one to try next if that brings nothing.
    fn kinds(&self) -> [usize; 2] {
        let [anon, file] = [ANON, FILE].map(|kind| &self.tiers[kind][0]);
        // The older kind goes first.
        let anon_first =
            self.oldest[ANON] < self.oldest[FILE] || !comes_back_less(anon, WEIGHTS[ANON], file, WEIGHTS[FILE]);
        if anon_first { [ANON, FILE] } else { [FILE, ANON] }
    }

    /// Higher tiers are protected, because their pages come back more often than those of the lowest.
    fn highest_evicted_tier(&self, kind: usize) -> usize {
        let tiers = &self.tiers[kind];
        (1..TIERS).find(|&tier| !comes_back_less(&tiers[0], 2.0, &tiers[tier], 3.0)).unwrap_or(TIERS) - 1
    }

    /// Judges a batch of a kind's oldest generation. Returns whether there was one to judge.
    fn evict(&mut self, kind: usize, pages: &mut Frames, taken: &mut Taken, scan: &mut Scan) -> bool {
        self.forget_empty(kind);
        if self.generations(kind) <= LEAST {
            return false;
        }
        let oldest = list_of(kind, self.oldest[kind]);
        let highest = self.highest_evicted_tier(kind);
        let (batch, before) = (2 * cluster(pages), scan.reclaimed);
        let mut judged = 0;
        while judged < u64::from(batch) {
            let Some(frame) = self.lists.take_oldest(oldest) else { break };
            judged += 1;
            self.judge(kind, highest, frame, pages, taken, scan);
        }
        scan.scanned += judged;
        scan.hold(judged);
        scan.hold(judged - (scan.reclaimed - before));
        judged > 0
    }

    fn judge(
        &mut self,
        kind: usize,
        highest: usize,
        frame: u32,
        pages: &mut Frames,
        taken: &mut Taken,
        scan: &mut Scan,
    ) {
        let next = list_of(kind, self.oldest[kind] + 1);
        let tier = tier_of(self.calls[frame as usize]);
        if tier > highest {
            self.tiers[kind][tier].went += 1.0;
            return self.lists.add_newest(next, frame);
        }
        let dirty = pages.has(frame, Bit::Dirty);
        if pages.has(frame, Bit::Writeback) || (dirty && kind == FILE) {
            pages.set(frame, Bit::Reclaim);
            return self.lists.add_newest(next, frame);
        }
        scan.mappings += pages.mappers(frame);
        if pages.take(frame, Bit::Young) {
            return self.lists.add_newest(list_of(kind, self.youngest), frame);
        }
        scan.mappings += pages.mappers(frame);
        if dirty {
            taken.write(pages, frame);
            return self.lists.add_newest(next, frame);
        }
        self.tiers[kind][tier].went += 1.0;
        taken.free(frame, ((self.youngest as u32) << TIER_BITS) | tier as u32, scan);
    }
}

impl ReplacementPolicy for Generations {
    fn insert(&mut self, pages: &mut Frames, frame: u32, evicted: Option<u32>) {
        let kind = kind_of(pages.class(frame));
        self.calls[frame as usize] = 0;
        if let Some(evicted) = evicted {
            let generations_ago = (self.youngest as u32).wrapping_sub(evicted >> TIER_BITS) & (u32::MAX >> TIER_BITS);
            if u64::from(generations_ago) < MOST {
                let tier = (evicted & ((1 << TIER_BITS) - 1)) as usize;
                self.tiers[kind][tier].came_back += 1.0;
                // A page that was in the highest tier returns to it.
                self.calls[frame as usize] = if tier == TIERS - 1 { 5 } else { 0 };
            }
        }
        let generation = if pages.class(frame).is_mapped() { self.youngest } else { self.oldest[kind] };
        self.lists.add_newest(list_of(kind, generation), frame);
    }

    fn called(&mut self, _: &mut Frames, frame: u32) {
        let calls = &mut self.calls[frame as usize];
        *calls = calls.saturating_add(1);
    }

    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        let enough = taken.freed.len() + wanted as usize;
        // Each page is judged at most a few times before the disk gets its turn.
        let most = 2 * u64::from(pages.frames());
        let mut aged_in_vain = 0;
        while taken.freed.len() < enough && scan.scanned < most && aged_in_vain <= MOST {
            let freed = taken.freed.len();
            let judged = self.kinds().into_iter().any(|kind| self.evict(kind, pages, taken, &mut scan));
            if !judged || self.is_to_age() {
                self.age(pages, &mut scan);
                aged_in_vain += 1;
            }
            if taken.freed.len() > freed {
                aged_in_vain = 0;
            }
        }
        scan
    }

    fn written(&mut self, pages: &mut Frames, frame: u32) {
        let kind = kind_of(pages.class(frame));
        self.lists.make_oldest(list_of(kind, self.oldest[kind]), frame);
    }

    fn lists(&self) -> &Lists {
        &self.lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::pages::Class;

    /// A tier with this many pages that came back and that were evicted.
    fn tier(came_back: f64, went: f64) -> Tier {
        Tier { came_back, went, ..Tier::default() }
    }

    #[test]
    fn a_tier_is_protected_where_its_pages_come_back_more_often() {
        let mut generations = Generations::new(1);
        assert_eq!(generations.highest_evicted_tier(FILE), TIERS - 1, "nothing is known");
        // 1 % of the lowest tier and all of the second came back: 100 * (1000 + 64) * 2 is more than 11 * 100 * 3.
        generations.tiers[FILE] = [tier(10.0, 1000.0), tier(100.0, 100.0), tier(0.0, 0.0), tier(0.0, 0.0)];
        assert_eq!(generations.highest_evicted_tier(FILE), 0);
        generations.tiers[FILE][1].came_back = 63.0;
        assert_eq!(generations.highest_evicted_tier(FILE), TIERS - 1, "too few to tell");
        // As often as in the lowest tier: 64 * (1000 + 64) * 2 is less than 641 * 100 * 3.
        generations.tiers[FILE] = [tier(640.0, 1000.0), tier(64.0, 100.0), tier(0.0, 0.0), tier(0.0, 0.0)];
        assert_eq!(generations.highest_evicted_tier(FILE), TIERS - 1);
    }

    #[test]
    fn the_kind_whose_pages_come_back_less_goes_first() {
        let mut generations = Generations::new(1);
        assert_eq!(generations.kinds(), [FILE, ANON], "nothing is known");
        // All file pages came back, and no anonymous ones.
        (generations.tiers[FILE][0], generations.tiers[ANON][0]) = (tier(1000.0, 1000.0), tier(0.0, 1000.0));
        assert_eq!(generations.kinds(), [ANON, FILE]);
        generations.oldest[FILE] = 1;
        generations.tiers = Default::default();
        assert_eq!(generations.kinds(), [ANON, FILE], "what is older goes first");
    }

    #[test]
    fn a_protected_page_moves_on_a_generation() {
        let mut pages = Frames::new(2, 32, [1; 5]);
        let mut generations = Generations::new(2);
        for frame in 0..2 {
            pages.fill(frame, Class::Cache, frame);
            generations.insert(&mut pages, frame, None);
            generations.called(&mut pages, frame);
        }
        (0..7).for_each(|_| generations.called(&mut pages, 0));
        generations.tiers[FILE][3] = tier(100.0, 100.0);
        let (mut taken, mut scan) = (Taken::default(), Scan::default());
        assert!(generations.evict(FILE, &mut pages, &mut taken, &mut scan));
        assert_eq!(generations.lists.newest_first(list_of(FILE, 1)), [0]);
        // The other was evicted, with its generation and tier.
        assert_eq!(taken.freed, [(1, 3 << TIER_BITS)]);
        assert_eq!(generations.tiers[FILE][3].went, 101.0);
    }

    #[test]
    fn tiers_are_powers_of_two_of_uses() {
        assert_eq!([1, 2, 3, 4, 5, 200].map(tier_of), [0, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn a_new_generation_remembers_half() {
        let mut tier = tier(8.0, 16.0);
        tier.average();
        assert_eq!((tier.total_came_back(), tier.total_went()), (4.0, 8.0));
        tier.average();
        assert_eq!((tier.total_came_back(), tier.total_went()), (2.0, 4.0));
    }
}
