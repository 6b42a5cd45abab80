//! The latest actions on a program's regions, for display.
//!
//! Owns: these. Never touches: future decisions; [`crate::decide::Past`] is for those.

use std::collections::VecDeque;
use std::time::Instant;

use heat::RefusalReason;
use heat::units::Address;

use crate::act::{Action, RegionResult};
use crate::decide::{Decision, Reason};

/// Actions kept.
const MOST_DONE: usize = 16;

/// The latest actions, in order.
#[derive(Default)]
pub(super) struct LastDone(VecDeque<Done>);

/// An action on a region.
pub(super) struct Done {
    pub(super) at: Instant,
    pub(super) action: Action,
    /// Why the kernel refused it; None if it was done.
    pub(super) refused: Option<RefusalReason>,
    pub(super) start: Address,
    pub(super) reason: Reason,
    pub(super) walks_per_second: f64,
}

impl LastDone {
    /// Adds the result of a decision.
    pub(super) fn add(&mut self, decision: &Decision, result: &RegionResult, at: Instant) {
        self.0.push_back(Done {
            at,
            action: result.action,
            refused: result.result.err().map(|refusal| refusal.reason),
            start: decision.start,
            reason: decision.reason,
            walks_per_second: decision.walks_per_second,
        });
        self.0.drain(..self.0.len().saturating_sub(MOST_DONE));
    }

    /// Everything that is kept, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Done> + ExactSizeIterator {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::at;

    use super::*;
    use crate::act::Refusal;

    #[test]
    fn only_the_last_are_kept_with_what_came_of_them() {
        let mut done = LastDone::default();
        for number in 0..20 {
            let decision = Decision::give_back(at(number), Reason::Waste, 1.0);
            let refusal = Refusal { start: at(number), errno: 11, reason: RefusalReason::Busy };
            let result = if number == 19 { Err(refusal) } else { Ok(()) };
            done.add(&decision, &RegionResult::sample(at(number), Action::GiveBack, result), Instant::now());
        }
        assert_eq!(done.iter().len(), MOST_DONE);
        let last: Vec<_> = done.iter().rev().take(2).map(|done| (done.start, done.refused)).collect();
        assert_eq!(last, [(at(19), Some(RefusalReason::Busy)), (at(18), None)]);
    }
}
