//! Statistics of measurements, in pairs and in groups: medians, and an interval for the typical ratio.
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

/// The typical ratio of two groups' numbers, where none belongs to a certain one of the other group: the median of all ratios (Hodges-Lehmann), with
/// the exact interval of the Mann-Whitney test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.3). `pairs` is the size of the
/// smaller group; from 4 in each on, the confidence is at least 0.95. None if a group is empty, or a number is not positive.
pub fn unpaired_ratio(subjects: &[f64], references: &[f64]) -> Option<Interval> {
    if subjects.iter().chain(references).any(|&number| !number.is_finite() || number <= 0.0) {
        return None;
    }
    let of_each =
        |subject: &f64| references.iter().map(move |reference| (subject / reference).ln()).collect::<Vec<_>>();
    let mut logarithms: Vec<f64> = subjects.iter().flat_map(of_each).collect();
    logarithms.sort_by(f64::total_cmp);
    let estimate = median(&logarithms)?.exp();
    let (cut, tail) = cut_at(&rank_sum_chances(subjects.len(), references.len()));
    Some(Interval {
        estimate,
        low: logarithms[cut].exp(),
        high: logarithms[logarithms.len() - 1 - cut].exp(),
        confidence: 1.0 - 2.0 * tail,
        pairs: subjects.len().min(references.len()),
    })
}

/// The centre of values with symmetric noise, with its Wilcoxon signed-rank interval.
fn hodges_lehmann(values: &[f64]) -> Option<Interval> {
    let mut averages: Vec<f64> =
        (0..values.len()).flat_map(|i| (i..values.len()).map(move |j| (values[i] + values[j]) / 2.0)).collect();
    averages.sort_by(f64::total_cmp);
    let estimate = median(&averages)?;
    let (cut, tail) = cut_at(&signed_rank_chances(values.len()));
    Some(Interval {
        estimate,
        low: averages[cut],
        high: averages[averages.len() - 1 - cut],
        confidence: 1.0 - 2.0 * tail,
        pairs: values.len(),
    })
}

/// How many values to leave out at each end, and the resulting probability that the true value lies beyond one end.
fn cut_at(chances: &[f64]) -> (usize, f64) {
    let mut below = chances[0];
    let mut cut = 0;
    while cut + 1 < chances.len() && below + chances[cut + 1] <= TAIL {
        cut += 1;
        below += chances[cut];
    }
    (cut, below)
}

/// The probability of each number of pairs in which a member of one group exceeds one of the other, if all orders are equally likely: the
/// coefficients of the Gaussian binomial.
fn rank_sum_chances(one: usize, other: usize) -> Vec<f64> {
    let mut counts = vec![0.0; one * other + 1];
    counts[0] = 1.0;
    for size in 1..=one {
        // Times 1 - x^(other + size), then divided by 1 - x^size; scaled, so that it stays a distribution.
        for sum in (other + size..counts.len()).rev() {
            counts[sum] -= counts[sum - other - size];
        }
        for sum in size..counts.len() {
            counts[sum] += counts[sum - size];
        }
        let scale = size as f64 / (other + size) as f64;
        counts.iter_mut().for_each(|count| *count *= scale);
    }
    counts
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
            let (cut, tail) = cut_at(&signed_rank_chances(pairs));
            assert_eq!(cut, critical, "{pairs} pairs");
            assert!(tail <= TAIL);
        }
    }

    #[test]
    fn the_cut_agrees_with_published_mann_whitney_tables() {
        for (one, other, critical) in
            [(4, 4, 0), (4, 6, 2), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23), (10, 20, 55), (20, 20, 127)]
        {
            let (cut, tail) = cut_at(&rank_sum_chances(one, other));
            assert_eq!(cut, critical, "{one} and {other}");
            assert!(tail <= TAIL);
        }
        assert!((rank_sum_chances(30, 50).iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn groups_are_compared_by_all_of_their_ratios() {
        let fast = [12.1, 11.9, 12.0, 12.3, 11.7];
        let slow = [10.0, 10.2, 9.8, 10.1, 9.9];
        let interval = unpaired_ratio(&fast, &slow).unwrap();
        assert!((interval.estimate - 1.2).abs() < 0.02 && interval.low > 1.15 && interval.high < 1.25, "{interval:?}");
        assert_eq!((interval.pairs, interval.confidence > 0.95), (5, true));
        assert!(unpaired_ratio(&fast[..3], &slow[..3]).unwrap().confidence < 0.95, "three tell too little");
        assert_eq!(unpaired_ratio(&fast, &[]), None);
        assert_eq!(unpaired_ratio(&fast, &[0.0]), None);
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
