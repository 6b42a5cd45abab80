//! The last things that were done to a program's regions, to be shown.
//!
//! Owns: these. Never touches: what is decided from here on; that is what [`crate::decide::Past`] is for.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use heat::RefusalReason;
use heat::units::Address;

use crate::act::Outcome;
use crate::decide::{Decision, Reason, Verdict};

/// Things done that are kept.
const MOST_DONE: usize = 16;

/// The last of them, in the order in which they were done.
#[derive(Default)]
pub(super) struct LastDone(VecDeque<Done>);

/// Something that was done to a region.
pub(super) struct Done {
    pub(super) at: Instant,
    pub(super) action: Action,
    pub(super) start: Address,
    pub(super) reason: Reason,
    pub(super) walks_per_second: f64,
}

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Promoted,
    GivenBack,
    /// The kernel refused it, for this reason.
    Refused(RefusalReason),
}

impl LastDone {
    /// Adds what came of the decisions that were tried.
    pub(super) fn add<'a>(&mut self, decisions: impl Iterator<Item = &'a Decision>, outcome: &Outcome) {
        let refused: HashMap<Address, RefusalReason> =
            outcome.refused.iter().map(|refusal| (refusal.start, refusal.reason)).collect();
        let at = Instant::now();
        let done = decisions.take(outcome.tried as usize).map(|decision| Done {
            at,
            action: match (refused.get(&decision.start), decision.verdict) {
                (Some(&reason), _) => Action::Refused(reason),
                (None, Verdict::GiveBack) => Action::GivenBack,
                (None, _) => Action::Promoted,
            },
            start: decision.start,
            reason: decision.reason,
            walks_per_second: decision.walks_per_second,
        });
        self.0.extend(done);
        self.0.drain(..self.0.len().saturating_sub(MOST_DONE));
    }

    /// All that are kept, the oldest first.
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
    fn what_was_tried_is_kept_and_only_the_last_of_it() {
        let decisions: Vec<Decision> =
            (0..20).map(|number| Decision::give_back(at(number), Reason::Waste, 1.0)).collect();
        let refused = vec![Refusal { start: at(18), errno: 11, reason: RefusalReason::Busy }];
        let mut done = LastDone::default();
        done.add(decisions.iter(), &Outcome { tried: 19, refused, ..Outcome::default() });
        assert_eq!(done.iter().len(), MOST_DONE);
        let last: Vec<_> = done.iter().rev().take(2).map(|done| (done.start, done.action)).collect();
        assert_eq!(
            last,
            [(at(18), Action::Refused(RefusalReason::Busy)), (at(17), Action::GivenBack)],
            "the last was not reached"
        );
    }
}
