//! Compares the gain that `promote --dry-run` predicted with the gain after promoting.
//!
//! Owns: this comparison. Never touches: how either number was obtained.

use heat::statistics::Interval;

use crate::comparison::{Metric, noise, ratio, typical};
use crate::configuration::Configuration::{Default, Estimated, Hugepilot};
use crate::record::{Run, Turn};

/// How far the prediction may be off, as a share of the gain.
const MARGIN: f64 = 0.3;

/// Gains of speed, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The median over rounds of the predicted lower bounds.
    pub low: f64,
    /// The predicted most likely gain.
    pub likely: f64,
    /// The predicted upper bound.
    pub high: f64,
    /// The measured gain.
    pub achieved: f64,
    /// The 95 % interval of `achieved`.
    pub interval: (f64, f64),
    /// The scatter of default against default.
    pub noise: f64,
}

impl Prediction {
    /// None if a run has no predictions, or nothing to compare them with.
    pub fn of(run: &Run) -> Option<Self> {
        let expected = |end: &'static str| typical(run, Estimated, move |turn| gain(turn, end));
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let Interval { estimate, low, high, .. } = ratio(run, Metric::Throughput, Hugepilot, Default)?;
        Some(Self {
            low: expected("low")?,
            likely: expected("likely")?,
            high: expected("high")?,
            achieved: percent(estimate),
            interval: (percent(low), percent(high)),
            noise: 100.0 * noise(run, Metric::Throughput).map_or(0.0, |noise| noise.reach()),
        })
    }

    /// Whether the likely gain is within 30 % of the measured one.
    pub fn holds(&self) -> bool {
        (self.likely - self.achieved).abs() <= MARGIN * self.achieved.abs()
    }

    /// One line of text.
    pub fn text(&self) -> String {
        let Self { low, likely, high, achieved, interval, noise } = self;
        let verdict = match () {
            () if self.holds() => "within 30 %",
            () if (likely - achieved).abs() <= *noise => "not resolvable: the noise is larger than the difference",
            () => "not within 30 %",
        };
        format!(
            "expected to gain {likely:.1} % ({low:.1} to {high:.1}), gained {achieved:.1} % [{:.1}, {:.1}], noise +/- {noise:.1}: {verdict}",
            interval.0, interval.1
        )
    }
}

fn gain(turn: &Turn, end: &str) -> Option<f64> {
    turn.tool.as_ref()?.output.get("expected_gain_percent")?.get(end)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::record::ToolRun;

    fn run(likely: f64) -> Run {
        let mut run =
            run_of("chase", &[(Default, &[1e6; 6], 1), (Estimated, &[1e6; 6], 1), (Hugepilot, &[1.3e6; 6], 1)]);
        let output = serde_json::json!({ "expected_gain_percent": { "low": 10.0, "likely": likely, "high": 50.0 } });
        for turn in run.turns.iter_mut().filter(|turn| turn.configuration == Estimated) {
            turn.tool = Some(ToolRun { seconds: 1.0, output: output.clone() });
        }
        run
    }

    #[test]
    fn an_estimate_is_held_against_the_gain() {
        let near = Prediction::of(&run(36.0)).unwrap();
        assert!((near.achieved - 30.0).abs() < 1e-9 && near.holds(), "{near:?}");
        assert!(near.text().contains("expected to gain 36.0 % (10.0 to 50.0), gained 30.0 %"), "{}", near.text());
        assert!(!Prediction::of(&run(20.0)).unwrap().holds());
    }

    #[test]
    fn without_estimates_nothing_is_said() {
        assert_eq!(Prediction::of(&run_of("chase", &[(Default, &[1e6; 6], 1), (Hugepilot, &[1.3e6; 6], 1)])), None);
    }
}
