//! The results of acting: for each region, and in total.
//!
//! Owns: the account. Never touches: a region.

use std::collections::BTreeMap;
use std::io;

use heat::RefusalReason;
use heat::units::{Address, Bytes, Nanos};
use kernel::nodes::Node;
use observe::Waited;
use rustix::io::Errno;
use serde::Serialize;

use crate::act::times::Times;
use crate::world::Step;

/// An action on one region, and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionResult {
    /// Where the region starts.
    pub start: Address,
    /// What was done.
    pub action: Action,
    /// Whether it took effect.
    pub result: Result<(), Refusal>,
    /// How long that took; threads that needed the region waited as long.
    pub took: Nanos,
    /// Time spent preparing it, which held nothing up.
    pub preparing: Nanos,
    /// The memory node of the prepared page, on a machine with several.
    pub prepared_on: Option<Node>,
}

/// What is done to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put on a huge page.
    Promote,
    /// Split its huge page, and free its empty base pages.
    GiveBack,
}

/// The account of one run of actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Regions tried.
    pub tried: u64,
    /// Regions in which the action took effect.
    pub applied: u64,
    /// Regions in which it did not, each with the reason.
    pub refused: Vec<Refusal>,
    /// Regions not tried because of a signal, because time was up or because the target ended.
    pub not_reached: u64,
    /// Time spent in the kernel on behalf of the target.
    pub busy: Nanos,
    /// Time spent preparing pages, which does not hold the target up.
    pub preparing: Nanos,
    /// Prepared pages by memory node, on a machine with several.
    pub prepared_on: BTreeMap<Node, u64>,
    /// The longest single step, and so the longest possible stall of the target.
    pub longest: Nanos,
    /// How long steps took.
    pub times: Times,
    /// How long the target actually waited; None where the kernel does not tell.
    pub waited: Option<Waited>,
    /// Wall time from the first step to the last.
    pub elapsed: Nanos,
}

/// One region in which the action did not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Where the region starts.
    pub start: Address,
    /// Why, in terms that suggest a next step.
    pub reason: RefusalReason,
    /// What the kernel answered; 0 where it was not asked.
    pub errno: i32,
}

impl RegionResult {
    /// The result of a step.
    pub(super) fn of(start: Address, action: Action, step: &Step) -> Self {
        let refusal = |error: &io::Error| Refusal {
            start,
            reason: refusal_reason(error),
            errno: error.raw_os_error().unwrap_or(0),
        };
        Self {
            start,
            action,
            result: step.result.as_ref().copied().map_err(refusal),
            took: step.took,
            preparing: step.preparing,
            prepared_on: step.prepared_on,
        }
    }

    /// Whether it took effect.
    pub fn is_done(&self) -> bool {
        self.result.is_ok()
    }

    /// Whether the process was found to have ended.
    pub fn target_exited(&self) -> bool {
        self.result.is_err_and(|refusal| refusal.reason == RefusalReason::Exited)
    }
}

impl Outcome {
    /// The account of these.
    pub fn of(results: &[RegionResult]) -> Self {
        let mut outcome = Self::default();
        results.iter().for_each(|result| outcome.add(result));
        outcome
    }

    /// Accounts for one region.
    pub fn add(&mut self, result: &RegionResult) {
        self.tried += 1;
        self.busy += result.took;
        self.preparing += result.preparing;
        result.prepared_on.into_iter().for_each(|node| *self.prepared_on.entry(node).or_default() += 1);
        self.longest = self.longest.max(result.took);
        self.times.add(result.took);
        match result.result {
            Ok(()) => self.applied += 1,
            Err(refusal) => self.refused.push(refusal),
        }
    }

    /// Accounts for a region that was left alone because its memory has changed since the plan.
    pub fn leave_changed(&mut self, start: Address) {
        self.tried += 1;
        self.refused.push(Refusal { start, reason: RefusalReason::Changed, errno: 0 });
    }

    /// Combines this account with that of a later run.
    pub fn and(mut self, later: Outcome) -> Outcome {
        self.tried += later.tried;
        self.applied += later.applied;
        self.refused.extend(later.refused);
        self.not_reached = later.not_reached;
        self.busy += later.busy;
        self.preparing += later.preparing;
        later.prepared_on.into_iter().for_each(|(node, count)| *self.prepared_on.entry(node).or_default() += count);
        self.times.merge(&later.times);
        self.waited = self.waited.into_iter().chain(later.waited).reduce(Waited::and);
        self.longest = self.longest.max(later.longest);
        self.elapsed += later.elapsed;
        self
    }

    /// Memory on which the action took effect.
    pub fn applied_bytes(&self) -> Bytes {
        Bytes(self.applied * heat::units::HUGE_PAGE)
    }
}

/// What the kernel means by an errno of `process_madvise(2)`, or by doing nothing; and why it was not asked.
pub(super) fn refusal_reason(error: &io::Error) -> RefusalReason {
    match (error.raw_os_error(), error.kind()) {
        (None, io::ErrorKind::ResourceBusy) => return RefusalReason::MappedByOthers,
        (None, io::ErrorKind::InvalidData) => return RefusalReason::Changed,
        _ => (),
    }
    match Errno::from_io_error(error) {
        Some(Errno::INVAL) => RefusalReason::NotEligible,
        Some(Errno::NOMEM) => RefusalReason::NoContiguousMemory,
        Some(Errno::BUSY) => RefusalReason::CgroupFullOrPinned,
        Some(Errno::AGAIN) => RefusalReason::Busy,
        Some(Errno::SRCH) => RefusalReason::Exited,
        Some(Errno::PERM) => RefusalReason::NotPermitted,
        _ => RefusalReason::Other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MS: Nanos = Nanos(1_000_000);

    impl RegionResult {
        /// A step of one millisecond.
        pub(crate) fn sample(start: Address, action: Action, result: Result<(), Refusal>) -> Self {
            Self { start, action, result, took: MS, preparing: Nanos(0), prepared_on: None }
        }
    }

    fn promoted(start: u64, result: Result<(), Errno>) -> RegionResult {
        let result = result.map_err(std::io::Error::from);
        let step = Step { result, took: MS, held_up: MS, preparing: Nanos(0), prepared_on: None };
        RegionResult::of(Address(start), Action::Promote, &step)
    }

    #[test]
    fn every_region_is_accounted_for() {
        let answers = [Ok(()), Err(Errno::NOMEM), Err(Errno::BUSY), Ok(())];
        let results: Vec<_> = (0..).zip(answers).map(|(start, answer)| promoted(start, answer)).collect();
        let outcome = Outcome::of(&results);
        assert_eq!((outcome.tried, outcome.applied, outcome.busy), (4, 2, Nanos(4 * MS.0)));
        let reasons: Vec<_> = outcome.refused.iter().map(|refusal| (refusal.start.0, refusal.reason)).collect();
        assert_eq!(reasons, [(1, RefusalReason::NoContiguousMemory), (2, RefusalReason::CgroupFullOrPinned)]);
        assert_eq!(refusal_reason(&io::ErrorKind::ResourceBusy.into()), RefusalReason::MappedByOthers);
        assert_eq!(refusal_reason(&io::ErrorKind::InvalidData.into()), RefusalReason::Changed);
        assert!(outcome.times.percentile(0.5).is_some_and(|took| took.0.abs_diff(MS.0) < MS.0 / 10));
    }

    #[test]
    fn what_has_changed_is_accounted_for_untried() {
        let mut outcome = Outcome::of(&[promoted(0, Ok(()))]);
        outcome.leave_changed(Address(1));
        assert_eq!((outcome.tried, outcome.applied, outcome.refused[0].reason), (2, 1, RefusalReason::Changed));
    }

    #[test]
    fn accounts_add_up() {
        let waited = |total, longest| Some(Waited { total: Nanos(total), longest: Nanos(longest), ran: Nanos(90) });
        let ok = Outcome { waited: waited(10, 4), ..Outcome::of(&[promoted(0, Ok(())), promoted(1, Ok(()))]) };
        let bad = Outcome { waited: waited(30, 3), ..Outcome::of(&[promoted(2, Err(Errno::AGAIN))]) };
        let both = ok.and(bad);
        assert_eq!((both.tried, both.applied, both.refused.len()), (3, 2, 1));
        assert_eq!(both.refused[0].reason, RefusalReason::Busy);
        let waited = both.waited.expect("both were told");
        assert_eq!((waited.total, waited.longest, waited.share()), (Nanos(40), Nanos(4), Some(40.0 / 220.0)));
    }
}
