//! The results of piloting, all programs together.
//!
//! Owns: the sums. Never touches: a single program; that is [`crate::engine::member`].

use std::collections::{BTreeMap, BTreeSet};

use heat::Snapshot;
use heat::units::{Bytes, Nanos};

use crate::act::{Action, Outcome, RegionResult};
use crate::decide::{PlanReasons, Reason};
use crate::engine::shared_once::{SharedAmounts, SnapshotSum};
use crate::engine::shared_state::{COLLAPSE_CLASSES, Counts};

/// The most refusals and reasons kept, for a pilot that runs for months.
const MOST_KEPT: usize = 10_000;
const MOST_REASONS: usize = 16;

/// The results of piloting.
#[derive(Clone, Debug, Default)]
pub struct PilotSummary {
    /// How many processes were observed.
    pub processes: usize,
    /// All promotions together.
    pub outcome: Outcome,
    /// Memory growth from promotions not given back, in processes alive or ended.
    pub growth: Bytes,
    /// Why processes were not observed, each reason once.
    pub left_alone: BTreeSet<String>,
    /// Regions of all programs, by the reason that the last plan gave.
    pub reasons: BTreeMap<Reason, u64>,
    /// Which of them explains most of what was kept in one program, and of how many of its regions; of the program with most such regions.
    pub mostly_kept: Option<(u64, Reason)>,
    /// The largest resident memory seen, if no process was ever large enough to be observed.
    pub too_small: Option<Bytes>,
    /// What was done, by result.
    pub counts: Counts,
    pub(super) before: SnapshotSum,
    pub(super) after: SnapshotSum,
}

/// One program's part of the sums.
pub(super) struct ProgramSummary<'a> {
    pub(super) was_scanned: bool,
    pub(super) growth: Bytes,
    /// Why it could not be observed.
    pub(super) left_alone: Option<&'a str>,
    /// Those of the last plan.
    pub(super) reasons: &'a PlanReasons,
    pub(super) before: Option<(Snapshot, &'a SharedAmounts)>,
    pub(super) after: Option<(Snapshot, &'a SharedAmounts)>,
}

impl PilotSummary {
    /// The summary of a program that is not piloted, for that reason.
    pub fn never_begun(reason: &str) -> Self {
        Self { left_alone: BTreeSet::from([reason.to_owned()]), ..Self::default() }
    }

    /// The sum of all processes, each before anything was promoted in it; what they share counts once.
    pub fn before(&self) -> Option<Snapshot> {
        self.before.total()
    }

    /// The sum of all processes, each at its last scan; what they share counts once.
    pub fn after(&self) -> Option<Snapshot> {
        self.after.total()
    }

    /// Counts the result for one region.
    pub(super) fn count(&mut self, result: &RegionResult) {
        match (result.action, result.result) {
            (Action::Promote, Ok(())) => self.counts.promoted += 1,
            (Action::Promote, Err(refusal)) => {
                *self.counts.refused.entry(refusal.reason).or_default() += 1;
            }
            (Action::GiveBack, result) => self.counts.given_back += u64::from(result.is_ok()),
        }
        if result.action == Action::Promote {
            self.count_collapse(result.took);
        }
    }

    fn count_collapse(&mut self, took: Nanos) {
        let classes = &mut self.counts.collapse_classes;
        classes.resize(COLLAPSE_CLASSES.len() + 1, 0);
        classes[COLLAPSE_CLASSES.partition_point(|&end| end < took)] += 1;
    }

    /// Adds the account of one turn.
    pub(super) fn add_outcome(&mut self, outcome: Outcome) {
        self.outcome = std::mem::take(&mut self.outcome).and(outcome);
        self.outcome.refused.truncate(MOST_KEPT);
    }

    /// Adds a program in its final state.
    pub(super) fn add_program(&mut self, program: &ProgramSummary<'_>) {
        self.processes += usize::from(program.was_scanned);
        self.growth += program.growth;
        if let Some(reason) = program.left_alone.filter(|_| self.left_alone.len() < MOST_REASONS) {
            self.left_alone.insert(reason.to_owned());
        }
        let PlanReasons { regions, mostly_kept } = program.reasons;
        for (&reason, count) in regions {
            *self.reasons.entry(reason).or_default() += count;
        }
        let explains = mostly_kept.map(|reason| (regions.get(&reason).copied().unwrap_or_default(), reason));
        self.mostly_kept = self.mostly_kept.max(explains);
        for (sum, added) in [(&mut self.before, program.before), (&mut self.after, program.after)] {
            if let Some((snapshot, shared)) = added {
                sum.add(snapshot, shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use heat::RefusalReason;
    use heat::units::Address;

    use super::*;
    use crate::act::Refusal;

    #[test]
    fn collapses_are_counted_by_how_long_they_took() {
        let mut pilot_summary = PilotSummary::default();
        for us in [400, 500, 501, 3_000, 15_000, 15_001, 900_000] {
            pilot_summary.count_collapse(Nanos(us * 1000));
        }
        assert_eq!(pilot_summary.counts.collapse_classes, [2, 1, 0, 1, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn results_are_counted_by_what_came_of_them() {
        let mut pilot_summary = PilotSummary::default();
        let refused = |reason| Err(Refusal { start: Address(0), reason, errno: 0 });
        let answers =
            [Ok(()), refused(RefusalReason::Busy), refused(RefusalReason::Busy), refused(RefusalReason::Other)];
        for result in answers {
            pilot_summary.count(&RegionResult::sample(Address(0), Action::Promote, result));
            pilot_summary.count(&RegionResult::sample(Address(0), Action::GiveBack, result));
        }
        let counts = &pilot_summary.counts;
        assert_eq!((counts.promoted, counts.given_back), (1, 1));
        assert_eq!(counts.refused.values().collect::<Vec<_>>(), [&2, &1]);
        assert_eq!(counts.collapse_classes.iter().sum::<u64>(), 4, "splits are no collapses");
    }
}
