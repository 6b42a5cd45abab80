//! What a trial has shown, and whether it may end.
//!
//! Owns: the verdict. Never touches: words.

use heat::units::Nanos;
use serde::Serialize;

use crate::interval::{PairedDifferences, SpeedChange};

/// A change within this on both sides is none, if no precision is asked for.
const NO_CHANGE: f64 = 0.02;
/// An interval within this share of its estimate on both sides is narrow enough, if no precision is asked for.
const NARROW: f64 = 0.75;

/// What a trial has shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum TrialVerdict {
    /// Faster on huge pages: all of the interval lies above 0.
    Gain {
        /// By so much.
        change: SpeedChange,
    },
    /// Slower on huge pages: all of the interval lies below 0.
    Loss {
        /// By so much.
        change: SpeedChange,
    },
    /// As fast with as without: all of the interval lies near 0.
    NoChange {
        /// By so much.
        change: SpeedChange,
    },
    /// None of these.
    Unknown {
        /// The change so far; None of fewer than four pairs.
        change: Option<SpeedChange>,
        /// How much pairs of windows differ from each other, as a share of the speed; None of fewer than two.
        noise: Option<f64>,
        /// How much longer its limit would have to be for an answer, if pairs go on differing as they do; None if that cannot be told, or is beyond
        /// reason.
        more_ns: Option<Nanos>,
    },
}

/// Whether the answer is known well enough to end the trial: within `precision`, if one is asked for.
pub fn is_known(change: &SpeedChange, precision: Option<f64>) -> bool {
    let half = change.half_width();
    match precision {
        Some(precision) => half <= precision,
        None => {
            is_none(change, NO_CHANGE)
                || excludes_none(change) && half <= (change.estimate.abs() * NARROW).max(NO_CHANGE)
        }
    }
}

/// The verdict on these pairs, which took `elapsed`.
pub fn judge(pairs: &PairedDifferences, precision: Option<f64>, elapsed: Nanos) -> TrialVerdict {
    let margin = precision.unwrap_or(NO_CHANGE);
    let change = pairs.change();
    match change {
        Some(change) if change.low > 0.0 => TrialVerdict::Gain { change },
        Some(change) if change.high < 0.0 => TrialVerdict::Loss { change },
        Some(change) if is_none(&change, margin) => TrialVerdict::NoChange { change },
        _ => {
            let noise = pairs.deviation().map(|deviation| deviation.exp() - 1.0);
            let answers = |change: &SpeedChange| excludes_none(change) || is_none(change, margin);
            let more_ns = change.and_then(|_| time_until(pairs, answers, elapsed));
            TrialVerdict::Unknown { change, noise, more_ns }
        }
    }
}

/// How much longer the limit of a trial with these pairs, which took `elapsed`, would have to be for a change that is `enough`; None if that is beyond
/// reason.
pub fn time_until(pairs: &PairedDifferences, enough: impl Fn(&SpeedChange) -> bool, elapsed: Nanos) -> Option<Nanos> {
    let needed = pairs.pairs_until(enough)?;
    let for_each = elapsed.0 as f64 / pairs.pairs() as f64;
    let longest = Nanos(24 * 3_600_000_000_000);
    let more = Nanos(((needed - pairs.pairs()) as f64 * for_each) as u64);
    (more <= longest).then_some(more)
}

fn excludes_none(change: &SpeedChange) -> bool {
    change.low > 0.0 || change.high < 0.0
}

fn is_none(change: &SpeedChange, margin: f64) -> bool {
    change.low > -margin && change.high < margin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(low: f64, high: f64) -> SpeedChange {
        SpeedChange { estimate: (low + high) / 2.0, low, high }
    }

    #[test]
    fn an_answer_is_known_if_it_is_narrow() {
        assert!(is_known(&change(0.15, 0.21), None) && is_known(&change(0.05, 0.3), None));
        assert!(!is_known(&change(0.02, 0.4), None), "too wide");
        assert!(is_known(&change(-0.01, 0.015), None) && !is_known(&change(-0.01, 0.03), None));
        assert!(!is_known(&change(0.15, 0.21), Some(0.01)) && is_known(&change(0.15, 0.165), Some(0.01)));
    }

    fn pairs_of(ratios: &[f64]) -> PairedDifferences {
        let mut pairs = PairedDifferences::default();
        ratios.iter().for_each(|&ratio| pairs.add(ratio, 1.0));
        pairs
    }

    #[test]
    fn the_verdict_says_what_the_interval_excludes() {
        let elapsed = Nanos(600_000_000_000);
        let of = |ratios: &[f64]| judge(&pairs_of(ratios), None, elapsed);
        assert!(matches!(of(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]), TrialVerdict::Gain { .. }));
        assert!(matches!(of(&[0.8, 0.81, 0.79, 0.8, 0.82, 0.78]), TrialVerdict::Loss { .. }));
        assert!(matches!(of(&[1.0, 1.001, 0.999, 1.0, 1.002, 0.998]), TrialVerdict::NoChange { .. }));
        let TrialVerdict::Unknown { change, noise, more_ns } = of(&[1.3, 0.8, 1.2, 0.9, 1.1, 1.0]) else {
            panic!("it is not known")
        };
        assert!(change.is_some() && noise.unwrap() > 0.15 && more_ns.unwrap() > elapsed, "{noise:?} {more_ns:?}");
        // Near 0, but not near enough: only more pairs tell.
        let mut near = pairs_of(&[1.03, 1.0, 1.02, 0.99, 1.03, 0.99]);
        near.end_as_planned();
        let verdict = judge(&near, None, elapsed);
        assert!(matches!(verdict, TrialVerdict::Unknown { more_ns: Some(more), .. } if more.0 > 0), "{verdict:?}");
        assert!(matches!(of(&[1.3]), TrialVerdict::Unknown { change: None, noise: None, more_ns: None }));
    }
}
