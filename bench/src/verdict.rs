//! Verdicts: the figures that hugepilot must reach, each held against one run.
//!
//! Owns: the list of figures and what counts as met. Never touches: measurements.
//!
//! A figure is met when the whole interval of its ratio meets it, and missed when the whole interval misses it. Where
//! default against default scatters by more than the figure's margin, nothing can be said here, unless the interval clears
//! the figure by more than that scatter. "At least level" means within one per cent, the margin that the figures grant
//! elsewhere too.

use std::fmt;

use crate::comparison::{Metric, gain_noise, gain_ratio, noise, ratio, slowest_tool};
use crate::configuration::Configuration::{
    self, Default, Hugepilot, HugepilotNoGrowth, Ideal, Observed, Oracle, Own, Piloted,
};
use crate::record::Run;
use crate::statistics::Interval;

/// Fewer pairs give no interval of 95 %.
const CONFIDENCE: f64 = 0.95;

/// A figure to reach.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// In words.
    pub text: &'static str,
    /// The names of workloads that it is about start with one of these.
    workloads: &'static [&'static str],
    claim: Claim,
}

#[derive(Clone, Copy, Debug)]
enum Claim {
    Ratio { metric: Metric, subject: Configuration, reference: Configuration, bound: Bound },
    Gain { subject: Configuration, of: Configuration, at_least: f64 },
    ToolSeconds { subject: Configuration, at_most: f64 },
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// What a run says about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    NotMet,
    /// The interval holds the bound: more rounds would tell.
    Open,
    /// Default against default scatters by this much, which is more than the margin.
    NotResolvable(f64),
    /// Too few rounds for an interval of 95 %, or a configuration is missing.
    NotMeasured,
}

const fn speed(subject: Configuration, reference: Configuration, at_least: f64) -> Claim {
    Claim::Ratio { metric: Metric::Throughput, subject, reference, bound: Bound::AtLeast(at_least) }
}

const fn growth(subject: Configuration, at_most: f64) -> Claim {
    Claim::Ratio { metric: Metric::OwnMemory, subject, reference: Default, bound: Bound::AtMost(at_most) }
}

const fn gain(subject: Configuration, of: Configuration, at_least: f64) -> Claim {
    Claim::Gain { subject, of, at_least }
}

const MEMCACHED: &[&str] = &["memcached"];
const SWEEP: &[&str] = &["sweep"];
const SKEWED: &[&str] = &["sweep skewed"];
const FULL: &[&str] = &["sweep sequential", "sweep random"];
const BUDGET: &[&str] = &["pilot budget"];
const ALL: &[&str] = &[""];

const FIGURES: &[Figure] = &[
    Figure { text: "throughput >= 1.15 x default", workloads: MEMCACHED, claim: speed(Hugepilot, Default, 1.15) },
    Figure { text: "throughput >= 0.99 x ideal", workloads: MEMCACHED, claim: speed(Hugepilot, Ideal, 0.99) },
    Figure { text: "at least level with memcached -L", workloads: MEMCACHED, claim: speed(Hugepilot, Own, 0.99) },
    Figure { text: "RSS growth <= 0.5 %", workloads: MEMCACHED, claim: growth(Hugepilot, 1.005) },
    Figure {
        text: "done within 10 s",
        workloads: MEMCACHED,
        claim: Claim::ToolSeconds { subject: Hugepilot, at_most: 10.0 },
    },
    Figure { text: "throughput >= 0.99 x ideal within 10 s", workloads: SWEEP, claim: speed(Hugepilot, Ideal, 0.99) },
    Figure { text: "RSS growth <= 1 %", workloads: SKEWED, claim: growth(Hugepilot, 1.01) },
    Figure {
        text: "RSS growth <= 0.03 % with --max-growth 0",
        workloads: SKEWED,
        claim: growth(HugepilotNoGrowth, 1.0003),
    },
    Figure { text: "RSS growth <= 0.002 %", workloads: FULL, claim: growth(Hugepilot, 1.00002) },
    Figure { text: "gain >= 0.95 x the oracle's", workloads: BUDGET, claim: gain(Piloted, Oracle, 0.95) },
    Figure { text: "gain >= 0.75 x that of all huge pages", workloads: BUDGET, claim: gain(Piloted, Ideal, 0.75) },
    Figure { text: "observed: throughput >= 0.99 x default", workloads: ALL, claim: speed(Observed, Default, 0.99) },
];

/// The figures that a run is about, each with its verdict and the numbers behind it.
pub fn verdicts(run: &Run) -> Vec<(Figure, Verdict, String)> {
    let about = |figure: &&Figure| figure.workloads.iter().any(|prefix| run.workload.starts_with(prefix));
    FIGURES.iter().filter(about).map(|figure| judge(figure, run)).collect()
}

fn judge(figure: &Figure, run: &Run) -> (Figure, Verdict, String) {
    let (verdict, numbers) = match figure.claim {
        Claim::Gain { subject, of, at_least } => {
            judged(gain_ratio(run, subject, of), gain_noise(run, of), Bound::AtLeast(at_least))
        }
        Claim::ToolSeconds { subject, at_most } => match slowest_tool(run, subject) {
            Some(seconds) if seconds <= at_most => (Verdict::Met, format!("at most {seconds:.2} s")),
            Some(seconds) => (Verdict::NotMet, format!("up to {seconds:.2} s")),
            None => (Verdict::NotMeasured, String::new()),
        },
        Claim::Ratio { metric, subject, reference, bound } => judge_ratio(run, metric, subject, reference, bound),
    };
    (*figure, verdict, numbers)
}

fn judge_ratio(
    run: &Run,
    metric: Metric,
    subject: Configuration,
    reference: Configuration,
    bound: Bound,
) -> (Verdict, String) {
    judged(ratio(run, metric, subject, reference), noise(run, metric), bound)
}

fn judged(seen: Option<Interval>, noise: Option<Interval>, bound: Bound) -> (Verdict, String) {
    let (Some(seen), Some(noise)) = (seen, noise) else {
        return (Verdict::NotMeasured, String::new());
    };
    let numbers = format!("{:.5} [{:.5}, {:.5}]", seen.estimate, seen.low, seen.high);
    (Verdict::of(&seen, &noise, bound), numbers)
}

impl Verdict {
    /// Of a ratio that should be at least this much, where the same measured against itself gives `noise`.
    pub fn at_least(limit: f64, seen: &Interval, noise: &Interval) -> Self {
        Self::of(seen, noise, Bound::AtLeast(limit))
    }

    /// As [`Verdict::at_least`], of a ratio that should be at most this much.
    pub fn at_most(limit: f64, seen: &Interval, noise: &Interval) -> Self {
        Self::of(seen, noise, Bound::AtMost(limit))
    }

    fn of(seen: &Interval, noise: &Interval, bound: Bound) -> Self {
        if seen.confidence < CONFIDENCE || noise.confidence < CONFIDENCE {
            return Verdict::NotMeasured;
        }
        // By how much the interval lies on the right side of the figure, and by how much on the wrong one.
        let (limit, right, wrong) = match bound {
            Bound::AtLeast(limit) => (limit, seen.low / limit - 1.0, 1.0 - seen.high / limit),
            Bound::AtMost(limit) => (limit, 1.0 - seen.high / limit, seen.low / limit - 1.0),
        };
        let (met, missed) = (right >= 0.0, wrong > 0.0);
        let margin = (limit - 1.0).abs().max(right).max(wrong);
        match (met, missed) {
            _ if noise.reach() > margin => Verdict::NotResolvable(noise.reach()),
            (true, _) => Verdict::Met,
            (_, true) => Verdict::NotMet,
            _ => Verdict::Open,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Met => f.write_str("met"),
            Verdict::NotMet => f.write_str("NOT MET"),
            Verdict::Open => f.write_str("open: more rounds would tell"),
            Verdict::NotResolvable(reach) => write!(f, "not resolvable here, +/- {:.3} %", reach * 100.0),
            Verdict::NotMeasured => f.write_str("not measured: needs 6 rounds with every configuration named"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::configuration::Configuration::DefaultAgain;

    const FLAT: &[f64] = &[100.0, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0, 100.0];

    fn verdict_of(run: &Run, text: &str) -> Verdict {
        verdicts(run).into_iter().find(|(figure, ..)| figure.text == text).map(|(_, verdict, _)| verdict).unwrap()
    }

    fn memcached(hugepilot: f64, again: &[f64]) -> Run {
        let faster: Vec<f64> = FLAT.iter().map(|value| value * hugepilot).collect();
        run_of("memcached", &[(Default, FLAT, 1000), (DefaultAgain, again, 1000), (Hugepilot, &faster, 1004)])
    }

    #[test]
    fn the_whole_interval_must_meet_the_figure() {
        let text = "throughput >= 1.15 x default";
        assert_eq!(verdict_of(&memcached(1.20, FLAT), text), Verdict::Met);
        assert_eq!(verdict_of(&memcached(1.10, FLAT), text), Verdict::NotMet);
        let mut scattered = memcached(1.15, FLAT);
        scattered.turns.iter_mut().filter(|turn| turn.configuration == Hugepilot).for_each(|turn| {
            turn.throughput *= 1.0 + 0.01 * (f64::from(turn.round) - 3.5);
        });
        assert_eq!(verdict_of(&scattered, text), Verdict::Open);
    }

    #[test]
    fn noise_beyond_the_margin_is_not_resolvable() {
        let noisy: Vec<f64> = (0..8).map(|round| if round % 2 == 0 { 70.0 } else { 140.0 }).collect();
        let text = "throughput >= 1.15 x default";
        assert!(matches!(
            verdict_of(&memcached(1.20, &noisy), text),
            Verdict::NotResolvable(reach) if reach > 0.15
        ));
        assert_eq!(verdict_of(&memcached(3.0, &noisy), text), Verdict::Met, "far beyond the noise");
    }

    #[test]
    fn gains_are_held_against_gains() {
        let verdict = |piloted: f64, again: f64| {
            let scaled = |factor: f64| FLAT.iter().map(|value| value * factor).collect::<Vec<f64>>();
            let (again, piloted, oracle) = (scaled(again), scaled(piloted), scaled(1.2));
            let run = run_of(
                "pilot budget",
                &[(Default, FLAT, 1), (DefaultAgain, &again, 1), (Piloted, &piloted, 1), (Oracle, &oracle, 1)],
            );
            verdict_of(&run, "gain >= 0.95 x the oracle's")
        };
        assert_eq!(verdict(1.199, 1.0), Verdict::Met);
        assert_eq!(verdict(1.15, 1.0), Verdict::NotMet, "0.96 x the oracle's throughput, and 0.75 x its gain");
        assert_eq!(verdict(0.9, 1.0), Verdict::NotMet, "a loss is no gain");
        assert!(matches!(verdict(1.199, 1.02), Verdict::NotResolvable(_)));
    }

    #[test]
    fn growth_has_an_upper_bound() {
        assert_eq!(verdict_of(&memcached(1.2, FLAT), "RSS growth <= 0.5 %"), Verdict::Met);
        let mut grown = memcached(1.2, FLAT);
        grown
            .turns
            .iter_mut()
            .filter(|turn| turn.configuration == Hugepilot)
            .for_each(|turn| turn.after.own_bytes = 1900);
        assert_eq!(verdict_of(&grown, "RSS growth <= 0.5 %"), Verdict::NotMet);
    }

    #[test]
    fn few_rounds_and_missing_configurations_are_said() {
        let three = run_of(
            "memcached",
            &[(Default, &FLAT[..3], 1), (DefaultAgain, &FLAT[..3], 1), (Hugepilot, &[200.0; 3], 1)],
        );
        assert_eq!(verdict_of(&three, "throughput >= 1.15 x default"), Verdict::NotMeasured);
        assert_eq!(verdict_of(&memcached(1.2, FLAT), "throughput >= 0.99 x ideal"), Verdict::NotMeasured);
    }

    #[test]
    fn each_workload_has_its_own_figures() {
        let texts = |name| verdicts(&run_of(name, &[])).len();
        assert_eq!(
            (texts("memcached"), texts("sweep skewed"), texts("sweep random"), texts("chase dependent")),
            (6, 4, 3, 1)
        );
    }
}
