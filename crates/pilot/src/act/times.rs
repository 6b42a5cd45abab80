//! How long steps took, in little memory regardless of their number.
//!
//! Owns: the classes. Never touches: a clock.

use std::collections::BTreeMap;

use heat::units::Nanos;

/// Classes per doubling: percentiles are accurate to within 5 %.
const CLASSES_OF_A_DOUBLING: f64 = 8.0;

/// Durations, counted in classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    counts: BTreeMap<u16, u64>,
}

impl Times {
    /// Counts one duration.
    pub fn add(&mut self, took: Nanos) {
        *self.counts.entry(class_of(took)).or_default() += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Times) {
        other.counts.iter().for_each(|(class, count)| *self.counts.entry(*class).or_default() += count);
    }

    /// The duration not exceeded by this share of all (0 to 1), to within 5 %; None if there are none.
    pub fn percentile(&self, share: f64) -> Option<Nanos> {
        let all: u64 = self.counts.values().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let up_to = self.counts.iter().scan(0, |seen, (class, count)| {
            *seen += count;
            Some((*class, *seen))
        });
        let class = up_to.into_iter().find(|(_, seen)| *seen >= wanted)?.0;
        Some(Nanos((f64::from(class) / CLASSES_OF_A_DOUBLING).exp2() as u64))
    }
}

fn class_of(took: Nanos) -> u16 {
    ((took.0.max(1) as f64).log2() * CLASSES_OF_A_DOUBLING).round() as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_nothing_and_of_two_together() {
        let mut times = Times::default();
        assert_eq!(times.percentile(0.5), None);
        times.add(Nanos(0));
        let mut other = Times::default();
        (0..9).for_each(|_| other.add(Nanos(1 << 20)));
        times.merge(&other);
        assert_eq!(
            [0.1, 0.5, 1.0].map(|share| times.percentile(share)),
            [1, 1 << 20, 1 << 20].map(|ns| Some(Nanos(ns)))
        );
    }

    proptest! {
        #[test]
        fn percentiles_are_told_to_within_5_percent(mut times in prop::collection::vec(1..u64::MAX / 2, 1..50), share in 0.0..=1.0f64) {
            let mut counted = Times::default();
            times.iter().for_each(|&time| counted.add(Nanos(time)));
            times.sort_unstable();
            let exact = times[((times.len() as f64 * share).ceil() as usize).max(1) - 1] as f64;
            let told = counted.percentile(share).unwrap().0 as f64;
            prop_assert!((told - exact).abs() <= exact * 0.05 + 1.0, "{} {}", told, exact);
        }
    }
}
