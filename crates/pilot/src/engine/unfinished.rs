//! The rest of a plan whose turn has ended, continued in later turns.
//!
//! Owns: the regions that were not reached, and their state when the plan was made. Never touches: a program, or the choice of regions.
//!
//! Scanning a large program may take longer than a turn of promoting: a scan after each turn would leave little time for anything else.

use heat::units::{Address, Bytes, HUGE_PAGE};
use heat::{Heat, PageSet, Region};
use observe::ObserveError;

use crate::decide::{Decision, Plan};
use crate::engine::pilot::{changed, ensure_same_program};

/// The most regions that are kept: 16 GiB, in 2 MiB of our memory. The next scan finds the others.
const MOST: usize = 8192;

/// The rest of a plan; empty if there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfinished {
    /// Promotions that were not reached, in the order of the plan.
    decisions: Vec<Decision>,
    /// Their regions when the plan was made, ascending, without the pages that were walked.
    regions: Vec<Region>,
    address_space: Option<u64>,
}

impl Unfinished {
    /// The promotions of a plan for this heat, without those already reached and the last `missing`, for which there is no room.
    pub(super) fn of(heat: &Heat, plan: &Plan, reached: usize, missing: usize) -> Self {
        let left = plan.promotions().count().saturating_sub(reached + missing).min(MOST);
        let decisions: Vec<Decision> = plan.promotions().skip(reached).take(left).cloned().collect();
        let mut starts: Vec<Address> = decisions.iter().map(|decision| decision.start).collect();
        starts.sort_unstable();
        let is_left = |region: &&Region| starts.binary_search(&region.start).is_ok();
        let without_walks = |region: &Region| Region { walked: PageSet::NONE, ..region.clone() };
        let regions = heat.regions.iter().filter(is_left).map(without_walks).collect();
        Self { decisions, regions, address_space: heat.address_space }
    }

    /// What is left to do, in order.
    pub(super) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Memory that will be on huge pages.
    pub(super) fn huge(&self) -> Bytes {
        Bytes(self.decisions.len() as u64 * HUGE_PAGE)
    }

    /// What that will take.
    pub(super) fn growth(&self) -> Bytes {
        self.decisions.iter().map(|decision| decision.growth).sum()
    }

    /// Drops what has changed, and what exceeds `room` on huge pages.
    ///
    /// Errors: the process has called exec since.
    pub(super) fn check(&mut self, now: &Heat, room: Option<Bytes>) -> Result<(), ObserveError> {
        ensure_same_program(self.address_space, now)?;
        let changed = changed(&self.regions, now, self.decisions.iter().map(|decision| decision.start));
        self.decisions.retain(|decision| !changed.contains(&decision.start));
        if let Some(room) = room {
            self.decisions.truncate((room.0 / HUGE_PAGE) as usize);
        }
        Ok(())
    }

    /// Drops the first `count`, which were reached.
    pub(super) fn reached(&mut self, count: usize) {
        self.decisions.drain(..count.min(self.decisions.len()));
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, heat_of, huge, region};
    use heat::{Meaning, Walks};

    use super::*;
    use crate::decide::{Reason, Verdict};

    /// A plan that promotes these regions, each taking one page of memory.
    fn plan(numbers: impl Iterator<Item = u64>) -> Plan {
        let decision = |number| Decision {
            start: at(number),
            verdict: Verdict::Promote,
            reason: Reason::Pays,
            walks_per_second: 1e3,
            walks_worth: 1e3,
            faults_per_second: 0.0,
            page_tables: 0,
            worth: 1e3,
            growth: Bytes(4096),
        };
        let decisions = numbers.map(decision).collect();
        Plan { pid: 4242, meaning: Meaning::Walked, decisions, walk_share: None, walks: Walks::default() }
    }

    fn heat(regions: u64) -> Heat {
        heat_of((0..regions).map(|number| region(number, 1e3, 100)).collect())
    }

    impl Unfinished {
        pub(in crate::engine) fn sample(regions: u64) -> Self {
            Self::of(&heat(regions), &plan(0..regions), 0, 0)
        }
    }

    fn starts(unfinished: &Unfinished) -> Vec<Address> {
        unfinished.decisions().iter().map(|decision| decision.start).collect()
    }

    #[test]
    fn what_was_reached_or_has_no_room_is_not_left() {
        // The hottest first, wherever it is.
        let mut left = Unfinished::of(&heat(8), &plan((0..8).rev()), 3, 1);
        assert_eq!(starts(&left), [at(4), at(3), at(2), at(1)]);
        assert_eq!((left.huge(), left.growth()), (Bytes(4 * HUGE_PAGE), Bytes(4 * 4096)));
        left.reached(3);
        assert_eq!(starts(&left), [at(1)]);
        left.reached(3);
        assert!(left.is_empty());
        assert_eq!(Unfinished::of(&heat(9000), &plan(0..9000), 10, 0).decisions().len(), MOST);
        assert!(Unfinished::of(&heat(4), &plan(0..4), 3, 2).is_empty());
    }

    #[test]
    fn only_what_is_as_it_was_and_has_room_goes_on() {
        let before = Heat { address_space: Some(7), ..heat(5) };
        let mut left = Unfinished::of(&before, &plan(0..5), 0, 0);
        let regions = vec![huge(0, 0.0), region(1, 0.0, 100), region(2, 0.0, 100), region(4, 0.0, 100)];
        let now = Heat { address_space: Some(7), ..heat_of(regions) };
        left.check(&now, None).unwrap();
        assert_eq!(starts(&left), [at(1), at(2), at(4)]);
        left.check(&now, Some(Bytes(2 * HUGE_PAGE))).unwrap();
        assert_eq!(starts(&left), [at(1), at(2)]);
        let other = Heat { address_space: Some(8), ..now };
        assert!(matches!(left.check(&other, None), Err(ObserveError::Exec { pid: 4242 })));
    }
}
