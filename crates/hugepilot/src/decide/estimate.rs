//! What a plan is expected to gain: an estimate, always a range.

use super::Plan;
use crate::observe::heat::Meaning;
use crate::units::Nanos;

/// What a page walk costs more on base pages than on huge pages: the least and the most that a calibration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkCost {
    /// At least this.
    pub low: Nanos,
    /// At most this.
    pub high: Nanos,
}

impl WalkCost {
    /// Without a calibration: the range measured on one virtual machine, independent to dependent random reads.
    pub const UNCALIBRATED: WalkCost = WalkCost { low: Nanos(20), high: Nanos(130) };
}

/// Speed gained, in percent: 20 means that the target does 1.2 times as much in the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainPercent {
    /// At least this, probably.
    pub low: f64,
    /// At most this, probably.
    pub high: f64,
}

/// Share of a process's cycles in which a page walk was under way, 0 to 1, as the processor counted it: at least and at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkShare {
    /// At least this.
    pub low: f64,
    /// At most this.
    pub high: f64,
}

impl GainPercent {
    /// No more than saving the cycles in which the plan's page walks were under way: what the processor did meanwhile, if anything,
    /// only makes the gain less. How much less the cycles do not tell.
    pub fn within(self, counted: WalkShare, plan: &Plan) -> Self {
        let share = (counted.high * plan.share_of_walks_saved()).clamp(0.0, MAX_SAVED_SHARE);
        let most = 100.0 * share / (1.0 - share);
        Self { low: self.low.min(most), high: self.high.min(most) }
    }
}

/// The largest share of CPU time that saved page walks are believed to take. Programs that do nothing but random reads
/// were measured to save a third; beyond a half the calibration does not fit the target (its walks overlap), and
/// f / (1 - f) runs away.
const MAX_SAVED_SHARE: f64 = 0.5;

/// Estimates what carrying out a plan gains, given the CPUs that the target keeps busy (`Heat::busy_cpus`).
///
/// With f the share of busy CPU time that the saved page walks take, the same work is done in 1 − f of the time, which is
/// a gain of f / (1 − f). None if the target used no CPU time or it could not be told. Where bits mean *accessed* page
/// walks are at most what was counted, so the low end is 0.
pub fn expected_gain(plan: &Plan, cost: WalkCost, busy_cpus: Option<f64>) -> Option<GainPercent> {
    let busy = busy_cpus.filter(|&cpus| cpus > 0.0)?;
    let percent = |walk: Nanos| {
        let share = (plan.walks_saved_per_second() * walk.seconds() / busy).clamp(0.0, MAX_SAVED_SHARE);
        100.0 * share / (1.0 - share)
    };
    let low = match plan.meaning {
        Meaning::Walked => percent(cost.low),
        Meaning::Accessed | Meaning::Sampled | Meaning::Written => 0.0,
    };
    Some(GainPercent { low, high: percent(cost.high) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::samples::{heat_of, huge, region};
    use crate::decide::{Allowance, Limits, Spent, decide};
    use crate::units::Bytes;

    /// A plan that saves this many page walks a second.
    fn saving(walks_per_second: f64) -> Plan {
        let heat = heat_of(vec![region(0, walks_per_second, 0)]);
        decide(&heat, &Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) })
    }

    const COST: WalkCost = WalkCost { low: Nanos(20), high: Nanos(100) };

    #[test]
    fn saved_time_becomes_speed() {
        // 2.5 M walks a second at 20 and 100 ns: 5 % and 25 % of one CPU.
        let gain = expected_gain(&saving(2.5e6), COST, Some(1.0)).unwrap();
        assert!((gain.low - 100.0 * 0.05 / 0.95).abs() < 1e-9, "{gain:?}");
        assert!((gain.high - 100.0 * 0.25 / 0.75).abs() < 1e-9, "{gain:?}");
        let two_cpus = expected_gain(&saving(2.5e6), COST, Some(2.0)).unwrap();
        assert!((two_cpus.high - 100.0 * 0.125 / 0.875).abs() < 1e-9, "{two_cpus:?}");
    }

    #[test]
    fn the_gain_stays_within_reason() {
        assert_eq!(expected_gain(&saving(1e9), COST, Some(1.0)), Some(GainPercent { low: 100.0, high: 100.0 }));
        assert_eq!(expected_gain(&saving(0.0), COST, Some(1.0)), Some(GainPercent { low: 0.0, high: 0.0 }));
        assert_eq!(expected_gain(&saving(1e6), COST, Some(0.0)), None);
        assert_eq!(expected_gain(&saving(1e6), COST, None), None);
    }

    #[test]
    fn counted_cycles_limit_the_gain() {
        // A plan that saves half of the page walks.
        let heat = heat_of(vec![region(0, 2.5e6, 0), huge(1, 2.5e6)]);
        let half =
            decide(&heat, &Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) });
        let counted = |high| WalkShare { low: 0.0, high };
        let gain = GainPercent { low: 5.0, high: 30.0 };
        let limited = gain.within(counted(0.2), &half);
        assert!(limited.low == 5.0 && (limited.high - 100.0 * 0.1 / 0.9).abs() < 1e-9, "{limited:?}");
        assert_eq!(gain.within(counted(0.8), &half), gain);
        let little = gain.within(counted(0.02), &half);
        assert!(little.low == little.high && little.low < 5.0, "{little:?}");
        assert_eq!(gain.within(counted(0.8), &saving(0.0)), GainPercent { low: 0.0, high: 0.0 });
    }

    #[test]
    fn accessed_bits_promise_nothing() {
        let plan = Plan { meaning: Meaning::Accessed, ..saving(2.5e6) };
        let gain = expected_gain(&plan, COST, Some(1.0)).unwrap();
        assert_eq!(gain.low, 0.0);
        assert!(gain.high > 30.0);
    }
}
