//! Statistics of paired measurements: medians, and an interval for the typical ratio.
//!
//! Owns: arithmetic on numbers. Never touches: what the numbers mean.
//!
//! **Why Hodges-Lehmann.** Each round runs both of a pair within minutes of each other, so a slow round slows both and their ratio stays the same.
//! The remaining noise in the logarithm of the ratio is the difference of two similar noises, and such a difference is symmetric even where each
//! noise is skewed. For symmetric noise the median of all pairwise averages (Hodges-Lehmann) resists one wild round but still uses the sizes of the
//! others; the Wilcoxon signed-rank distribution gives it an exact interval for any number of rounds. A sign-test interval needs no symmetry but is
//! about a third wider; a bootstrap is too narrow for 20 rounds and depends on a seed.

/// An estimate with the interval that holds the true value with the given confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The best single value.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The chance that such an interval holds the true value: at least 0.95 from 6 pairs on, less below.
    pub confidence: f64,
    /// The number of pairs.
    pub pairs: usize,
}

/// The accepted probability of error at each end.
const TAIL: f64 = 0.025;

impl Interval {
    /// How far from 1 the interval reaches, for a ratio.
    pub fn reach(&self) -> f64 {
        (self.low - 1.0).abs().max((self.high - 1.0).abs())
    }
}

/// The middle value; of an even number of values the mean of the middle two. None without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

/// The typical ratio of the pairs `(subject, reference)`; None when no pair has two positive numbers.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let logarithms: Vec<f64> = pairs
        .iter()
        .filter(|(subject, reference)| *subject > 0.0 && *reference > 0.0)
        .map(|(subject, reference)| (subject / reference).ln())
        .collect();
    let interval = hodges_lehmann(&logarithms)?;
    Some(Interval { estimate: interval.estimate.exp(), low: interval.low.exp(), high: interval.high.exp(), ..interval })
}

/// The centre of values with symmetric noise, with its Wilcoxon signed-rank interval.
fn hodges_lehmann(values: &[f64]) -> Option<Interval> {
    let mut averages: Vec<f64> =
        (0..values.len()).flat_map(|i| (i..values.len()).map(move |j| (values[i] + values[j]) / 2.0)).collect();
    averages.sort_by(f64::total_cmp);
    let estimate = median(&averages)?;
    let (cut, tail) = averages_to_cut(values.len());
    Some(Interval {
        estimate,
        low: averages[cut],
        high: averages[averages.len() - 1 - cut],
        confidence: 1.0 - 2.0 * tail,
        pairs: values.len(),
    })
}

/// How many averages to leave out at each end, and the resulting probability that the true value lies beyond one end.
fn averages_to_cut(pairs: usize) -> (usize, f64) {
    let chances = signed_rank_chances(pairs);
    let mut below = chances[0];
    let mut cut = 0;
    while cut + 1 < chances.len() && below + chances[cut + 1] <= TAIL {
        cut += 1;
        below += chances[cut];
    }
    (cut, below)
}

/// The probability of each sum of ranks 1..=n when a coin toss decides whether each rank counts.
fn signed_rank_chances(pairs: usize) -> Vec<f64> {
    let mut chances = vec![0.0; pairs * (pairs + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (0..chances.len()).rev() {
            let with_rank = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = (chances[sum] + with_rank) / 2.0;
        }
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_of_known_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_cut_agrees_with_published_wilcoxon_tables() {
        // Critical values of the two-sided signed-rank test at 5 % (the interval leaves out that many averages).
        for (pairs, critical) in [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (25, 89)] {
            let (cut, tail) = averages_to_cut(pairs);
            assert_eq!(cut, critical, "{pairs} pairs");
            assert!(tail <= TAIL);
        }
    }

    #[test]
    fn few_pairs_say_how_little_they_know() {
        let interval = paired_ratio(&[(1.0, 1.0), (2.0, 1.0), (4.0, 1.0)]).unwrap();
        assert_eq!(interval.confidence, 0.75);
        assert!((interval.low - 1.0).abs() < 1e-12 && (interval.high - 4.0).abs() < 1e-12);
        assert!((interval.estimate - 2.0).abs() < 1e-12);
    }

    #[test]
    fn one_wild_round_of_twenty_does_not_move_the_estimate_far() {
        let mut pairs: Vec<(f64, f64)> = (0..20).map(|i| (1.20 + 0.001 * f64::from(i % 5), 1.0)).collect();
        pairs[7] = (0.2, 1.0);
        let interval = paired_ratio(&pairs).unwrap();
        assert!((interval.estimate - 1.202).abs() < 0.001, "{interval:?}");
        assert!(interval.low > 1.19 && interval.confidence >= 0.95);
    }

    proptest! {
        #[test]
        fn the_interval_encloses_the_estimate(pairs in prop::collection::vec((0.1..10.0f64, 0.1..10.0f64), 1..40)) {
            let interval = paired_ratio(&pairs).unwrap();
            prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            prop_assert!(interval.pairs < 6 || interval.confidence >= 0.95);
        }

        #[test]
        fn turning_the_pairs_round_turns_the_interval_round(
            pairs in prop::collection::vec((0.1..10.0f64, 0.1..10.0f64), 1..30)
        ) {
            let turned: Vec<(f64, f64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let (one, other) = (paired_ratio(&pairs).unwrap(), paired_ratio(&turned).unwrap());
            prop_assert!((one.estimate * other.estimate - 1.0).abs() < 1e-9);
            prop_assert!((one.low * other.high - 1.0).abs() < 1e-9);
        }

        #[test]
        fn order_of_rounds_does_not_matter(mut pairs in prop::collection::vec((0.1..10.0f64, 0.1..10.0f64), 1..30)) {
            let before = paired_ratio(&pairs);
            pairs.reverse();
            prop_assert_eq!(before, paired_ratio(&pairs));
        }
    }
}
