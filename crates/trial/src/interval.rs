//! The interval for the change that huge pages make, valid whenever a trial ends.
//!
//! Owns: arithmetic on pairs. Never touches: windows, or when a trial ends.
//!
//! A trial reads its interval after every pair and ends when it pleases. The usual 95 % interval, read so often, excludes the truth far more
//! often than in 5 % of trials. So half of the 5 % goes to a confidence sequence: in at least 97.5 % of all trials it holds the truth after *every*
//! pair. The other half goes to the one reading whose moment is known beforehand, when the time that was set is up: Student's interval, which is two
//! fifths narrower.
//!
//! The confidence sequence consists of the changes that a sequential t-test does not reject: the Bayes factor of the t-test with a normal prior on
//! the effect size and the right Haar prior on the variance is a test martingale, so it exceeds 1/alpha in at most alpha of all trials (Ville).
//! Sources: Rouder et al., "Bayesian t tests for accepting and rejecting the null hypothesis" (2009); Hendriksen, de Heide, Grünwald, "Optional
//! stopping with Bayes factors" (2021); Wang, Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance"
//! (2023). Both take differences between windows to be normal; the tests have heavier tails, too.

use serde::{Deserialize, Serialize};

/// The share of trials whose interval may exclude the truth at some time on the way.
const ERROR_ON_THE_WAY: f64 = 0.025;

/// What a normal variable exceeds, either way, in 2.5 % of cases: the share of trials whose interval may exclude the truth when time is up.
const NORMAL_AT_THE_END: f64 = 2.241403;
/// The same for 5 %.
const NORMAL_ONCE: f64 = 1.959964;

/// Fewer pairs bound nothing at the end either.
const FEWEST_AT_THE_END: usize = 4;

/// The precision of the prior on the effect size: effects of about twice the noise are expected, which bounds the change from the fourth pair on and
/// makes the interval narrow for some ten pairs.
const PRIOR: f64 = 0.2;

/// A change as a share of the speed without huge pages, with the interval that holds the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeedChange {
    /// The best single value: 0.18 for 18 % more.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl SpeedChange {
    /// How far the ends lie from the middle.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Logarithms of speed with huge pages over speed without, one for each pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairedDifferences {
    logarithms: Vec<f64>,
    ended_as_planned: bool,
}

impl PairedDifferences {
    /// Adds a pair of speeds, both above 0.
    pub fn add(&mut self, huge: f64, base: f64) {
        self.logarithms.push((huge / base).ln());
    }

    /// Records that the time set before the first pair is up, so that this is the last reading. A trial that ends for another reason
    /// must not say so: neither one whose answer is known nor one that a signal ended.
    pub fn end_as_planned(&mut self) {
        self.ended_as_planned = true;
    }

    /// The number of pairs.
    pub fn pairs(&self) -> usize {
        self.logarithms.len()
    }

    /// The change; None as long as the pairs bound it nowhere, which is until the fourth.
    pub fn change(&self) -> Option<SpeedChange> {
        let half_width = if self.ended_as_planned { half_width_at_the_end } else { half_width_on_the_way };
        Some(self.within(half_width(self.pairs(), self.deviation()?)?))
    }

    /// How much pairs differ from each other: the standard deviation of their logarithms. None of fewer than two.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean();
        let squares: f64 = self.logarithms.iter().map(|difference| (difference - mean).powi(2)).sum();
        (self.pairs() > 1).then(|| (squares / (self.pairs() - 1) as f64).sqrt())
    }

    /// The change where all pairs share their `base`, a single measurement that may be as wrong as any `huge`. The interval is the one in which a
    /// further pair would lie. None of fewer than two pairs.
    pub fn change_from_one(&self) -> Option<SpeedChange> {
        let further = (1.0 + 1.0 / self.pairs() as f64).sqrt() * self.deviation()?;
        Some(self.within(students_t(NORMAL_ONCE, self.pairs() - 1) * further))
    }

    fn within(&self, half: f64) -> SpeedChange {
        let of = |logarithm: f64| logarithm.exp() - 1.0;
        let mean = self.mean();
        SpeedChange { estimate: of(mean), low: of(mean - half), high: of(mean + half) }
    }

    /// With how many pairs a trial that ends as planned should have a change that is `enough`, if they go on differing as they do; None if with more
    /// than a million.
    pub fn pairs_until(&self, enough: impl Fn(&SpeedChange) -> bool) -> Option<usize> {
        let deviation = self.deviation()?;
        let change_of = |pairs: usize| Some(self.within(half_width_at_the_end(pairs, deviation)?));
        let is_enough = |&pairs: &usize| change_of(pairs).is_some_and(|change| enough(&change));
        (self.pairs()..1_000_000).step_by(self.pairs().max(1).div_ceil(10)).find(is_enough)
    }

    fn mean(&self) -> f64 {
        self.logarithms.iter().sum::<f64>() / self.pairs().max(1) as f64
    }
}

/// The bound that Student's t exceeds as often as a normal variable exceeds `z`, to within 2 % from three degrees of freedom on (Abramowitz and
/// Stegun, Handbook of Mathematical Functions, 26.7.5).
fn students_t(z: f64, freedom: usize) -> f64 {
    let freedom = freedom as f64;
    z + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * freedom.powi(3))
}

/// How far from the mean of `pairs` differences their truth may lie when time is up; None if anywhere.
fn half_width_at_the_end(pairs: usize, deviation: f64) -> Option<f64> {
    (pairs >= FEWEST_AT_THE_END).then(|| students_t(NORMAL_AT_THE_END, pairs - 1) * deviation / (pairs as f64).sqrt())
}

/// How far from the mean of `pairs` differences their truth may lie, however often that is asked; None if anywhere.
fn half_width_on_the_way(pairs: usize, deviation: f64) -> Option<f64> {
    let n = pairs as f64;
    let squares = deviation.powi(2) * (n - 1.0);
    let threshold = (((n + PRIOR) / PRIOR).sqrt() / ERROR_ON_THE_WAY).powf(2.0 / n);
    let shrunk = 1.0 - threshold * PRIOR / (n + PRIOR);
    (shrunk > 0.0).then(|| ((threshold - 1.0) * squares / (n * shrunk)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_narrows_around_the_mean() {
        let mut pairs = PairedDifferences::default();
        let mut widths = Vec::new();
        for pair in 0..40 {
            pairs.add(if pair % 2 == 0 { 1.3 } else { 1.1 }, 1.0);
            if let Some(SpeedChange { estimate, low, high }) = pairs.change() {
                assert!(low < estimate && estimate < high);
                widths.push(high - low);
            }
        }
        assert_eq!(widths.len(), 37, "from the fourth pair on");
        assert!(widths.windows(5).all(|widths| widths[4] < widths[0]), "{widths:?}");
        let SpeedChange { estimate, low, high } = pairs.change().unwrap();
        assert!((estimate - (1.3f64 * 1.1).sqrt() + 1.0).abs() < 1e-9);
        assert!(low > 0.13 && high < 0.27, "{low} {high}");
    }

    #[test]
    fn a_shared_window_is_as_wrong_as_any_other() {
        for (freedom, once, at_the_end) in
            [(3, 3.182, 4.177), (6, 2.447, 2.969), (20, 2.086, 2.423), (1000, 1.962, 2.245)]
        {
            assert!((students_t(NORMAL_ONCE, freedom) / once - 1.0).abs() < 0.02, "{freedom}");
            assert!((students_t(NORMAL_AT_THE_END, freedom) / at_the_end - 1.0).abs() < 0.02, "{freedom}");
        }
        let mut pairs = PairedDifferences::default();
        pairs.add(1.2, 1.0);
        assert_eq!(pairs.change_from_one(), None);
        [1.25, 1.15, 1.2, 1.22].into_iter().for_each(|huge| pairs.add(huge, 1.0));
        let SpeedChange { estimate, low, high } = pairs.change_from_one().unwrap();
        // A deviation of 0.0306 in logarithms, times 2.78 and the root of 1.2.
        assert!((estimate - 0.2037).abs() < 0.001, "{estimate}");
        assert!((low - 0.097).abs() < 0.005 && (high - 0.321).abs() < 0.005, "{low} {high}");
    }

    #[test]
    fn half_a_width_is_that_of_the_formula() {
        // 20 differences with a deviation of 1: computed by hand.
        assert!((half_width_on_the_way(20, 1.0).unwrap() - 0.891).abs() < 0.001);
        assert!((half_width_at_the_end(20, 1.0).unwrap() - 0.544).abs() < 0.001);
        assert_eq!((half_width_on_the_way(3, 1.0), half_width_at_the_end(3, 1.0)), (None, None));
        let mut pairs = PairedDifferences::default();
        (0..10).for_each(|pair| pairs.add(1.0 + 0.1 * f64::from(pair % 2), 1.0));
        let needed = pairs.pairs_until(|change| change.half_width() <= 0.02).unwrap();
        let half = half_width_at_the_end(needed, pairs.deviation().unwrap()).unwrap();
        assert!(pairs.within(half).half_width() <= 0.02 && needed > 10, "{needed}");
        assert_eq!(pairs.pairs_until(|_| false), None);
        let on_the_way = pairs.change().unwrap();
        pairs.end_as_planned();
        let at_the_end = pairs.change().unwrap();
        assert!(at_the_end.half_width() < on_the_way.half_width() * 0.7, "{at_the_end:?} {on_the_way:?}");
        assert_eq!(at_the_end.estimate, on_the_way.estimate);
    }

    /// Noise with heavy tails: every tenth difference is five times as far away.
    fn noise(random: &mut fastrand::Rng, deviation: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        normal * deviation * if random.u8(..10) == 0 { 5.0 } else { 1.0 }
    }

    #[test]
    fn read_after_every_pair_and_when_time_is_up_it_misses_the_truth_in_at_most_5_percent_of_trials() {
        let misses = |truth: f64, deviation: f64, planned: usize| {
            let is_missed = |pairs: &PairedDifferences| {
                let truth = truth.exp() - 1.0;
                pairs.change().is_some_and(|change| change.low > truth || change.high < truth)
            };
            let missed = (0..1000).filter(|&seed| {
                let (mut random, mut pairs) = (fastrand::Rng::with_seed(seed), PairedDifferences::default());
                let on_the_way = (0..planned).any(|_| {
                    pairs.add((truth + noise(&mut random, deviation)).exp(), 1.0);
                    is_missed(&pairs)
                });
                pairs.end_as_planned();
                on_the_way || is_missed(&pairs)
            });
            missed.count()
        };
        for (truth, deviation, planned) in
            [(0.0, 0.01, 200), (0.0, 0.3, 200), (0.2, 0.1, 30), (-0.1, 0.05, 12), (0.1, 0.1, 5)]
        {
            let missed = misses(truth, deviation, planned);
            assert!(missed <= 50, "{missed} of 1000 for {truth} with {deviation}, {planned} pairs");
        }
    }
}
