//! The paper: the active list split by use, each part aged according to its own cost.
//!
//! Owns: the active lists, and how scanning is divided among them. Never touches: the inactive list's rules, which are Linux 2.6's.
//!
//! From the paper, and from `shrink_active_list` and `shrink_zone` of the patch on which it is based ("split active lists", Nick Piggin,
//! linux-kernel, 18 April 2004: two lists, and `mapped_page_cost` in units of an unmapped page). At a cost of 100 a list is not aged at all, unless
//! nothing else is left to take.
//!
//! The two lists divide the scanning that a single one would get, as in the patch, in proportion to their lengths divided by their costs (where
//! nearly all pages are mapped, the patch's own formula distributes more than there is). So the active cache bears what mapped pages are spared. The
//! lists by use are the paper's design: each is aged at its own rate, independently of the others.

use super::super::list::Lists;
use super::super::pages::{Class, Frames, PerClass};
use super::classic::{self, CLUSTER, Debt, by_priority, is_referenced, shrink_inactive, sift};
use super::scan::{ReplacementPolicy, Scan, Taken};

/// A list with this cost is not aged.
pub const FULL_COST: u32 = 100;

/// The lists: the active ones first, the inactive one last.
pub struct Split {
    lists: Lists,
    groups: Vec<Group>,
    group_of: PerClass<usize>,
    rates: Rates,
    to_shrink: Debt,
}

/// How much each list is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rates {
    /// A share of what all of them together would be.
    Shared,
    /// By its own length and cost.
    Own,
}

/// An active list.
struct Group {
    /// The cost of one of its pages relative to an unmapped page, which is 1; 0 means the same as 1.
    cost: u32,
    to_refill: Debt,
}

impl Split {
    /// The paper's own implementation: mapped pages and others.
    pub fn by_mapped(frames: u32, cost: u32) -> Self {
        Self::new(frames, &[cost, 1], [0, 0, 0, 0, 1], Rates::Shared)
    }

    /// One list per use, with the costs of code, read-only data, data and shared memory.
    pub fn by_use(frames: u32, costs: [u32; 4]) -> Self {
        let [code, read_only, data, shared] = costs;
        Self::new(frames, &[code, read_only, data, shared, 1], [0, 1, 2, 3, 4], Rates::Own)
    }

    fn new(frames: u32, costs: &[u32], group_of: PerClass<usize>, rates: Rates) -> Self {
        let groups = costs.iter().map(|&cost| Group { cost, to_refill: Debt::default() });
        Self {
            lists: Lists::new(frames, costs.len() + 1),
            groups: groups.collect(),
            group_of,
            rates,
            to_shrink: Debt::default(),
        }
    }

    fn inactive(&self) -> usize {
        self.groups.len()
    }

    fn pass(&mut self, pages: &mut Frames, priority: u32, taken: &mut Taken) -> Scan {
        let lens: Vec<u64> =
            (0..=self.inactive()).map(|list| u64::from(self.lists.len(list)) * pages.base_pages()).collect();
        let (inactive, active) = (lens[self.inactive()], lens[..self.inactive()].iter().sum::<u64>());
        let weights = self.weights(&lens);
        let rate = match self.rates {
            Rates::Shared => (CLUSTER * active / (2 * inactive + 1)) as f64 / weights.iter().sum::<f64>(),
            Rates::Own => CLUSTER as f64 / (2 * inactive + 1) as f64,
        };
        let mut scan = Scan::default();
        for (group, weight) in weights.into_iter().enumerate().filter(|(_, weight)| *weight > 0.0) {
            // One more, so that even a small part is scanned, slowly.
            let share = (rate * weight) as u64 + 1;
            let frames = self.groups[group].to_refill.add(share, pages);
            scan += self.refill(group, frames, pages);
        }
        let shrink = self.to_shrink.add(inactive >> priority, pages);
        let (inactive, group_of) = (self.inactive(), self.group_of);
        let active = |class: Class| group_of[class as usize];
        scan += shrink_inactive(&mut self.lists, inactive, active, shrink, pages, taken);
        scan
    }

    /// Length divided by cost for each active list.
    fn weights(&self, lens: &[u64]) -> Vec<f64> {
        let weigh = |pauses: fn(u32) -> bool| -> Vec<f64> {
            let weight = |(group, &len): (&Group, &u64)| match group.cost {
                cost if pauses(cost) => 0.0,
                cost => len as f64 / f64::from(cost.max(1)),
            };
            self.groups.iter().zip(lens).map(weight).collect()
        };
        let weights = weigh(|cost| cost >= FULL_COST);
        let nothing_else = lens[self.inactive()] == 0 && weights.iter().all(|&weight| weight == 0.0);
        if nothing_else { weigh(|_| false) } else { weights }
    }

    fn refill(&mut self, group: usize, frames: u32, pages: &mut Frames) -> Scan {
        let inactive = self.inactive();
        sift(
            &mut self.lists,
            group,
            frames,
            |frame, scan| {
                if is_referenced(pages, frame, scan) { group } else { inactive }
            },
        )
    }
}

impl ReplacementPolicy for Split {
    fn insert(&mut self, pages: &mut Frames, frame: u32, _: Option<u32>) {
        let (inactive, active) = (self.inactive(), self.group_of[Class::Data as usize]);
        classic::insert(&mut self.lists, inactive, active, pages, frame);
    }

    fn called(&mut self, pages: &mut Frames, frame: u32) {
        let (inactive, active) = (self.inactive(), self.group_of[pages.class(frame) as usize]);
        classic::called(&mut self.lists, inactive, active, pages, frame);
    }

    fn reclaim(&mut self, pages: &mut Frames, wanted: u32, taken: &mut Taken) -> Scan {
        let mut scan = Scan::default();
        by_priority(pages, wanted, taken, |pages, priority, taken| scan += self.pass(pages, priority, taken));
        scan
    }

    fn written(&mut self, _: &mut Frames, frame: u32) {
        let inactive = self.inactive();
        classic::written(&mut self.lists, inactive, frame);
    }

    fn lists(&self) -> &Lists {
        &self.lists
    }
}
