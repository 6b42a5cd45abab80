//! A histogram of latencies with a fixed size and a fixed relative error.
//!
//! Owns: counting and percentiles, and how processes exchange counts. Never touches: clocks.

use serde::{Deserialize, Serialize};

/// Steps per doubling: a value is off by at most 1/64, and finding its step needs no division.
const STEPS_LOG2: u32 = 6;
const STEPS: usize = 1 << STEPS_LOG2;
/// Up to 2^36 ns, 68 seconds; longer latencies count as that.
const BUCKETS: usize = (36 - STEPS_LOG2 as usize + 1) * STEPS;

/// Counts of latencies in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Histogram {
    counts: Vec<u32>,
}

/// The non-empty buckets with their numbers.
#[derive(Serialize, Deserialize)]
struct Sparse(Vec<(usize, u32)>);

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        Self(histogram.counts.into_iter().enumerate().filter(|&(_, count)| count > 0).collect())
    }
}

impl From<Sparse> for Histogram {
    /// A bucket number that is too large counts as the longest latency.
    fn from(Sparse(buckets): Sparse) -> Self {
        let mut histogram = Self::default();
        for (bucket, count) in buckets {
            histogram.counts[bucket.min(BUCKETS - 1)] += count;
        }
        histogram
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts `times` operations of this duration.
    pub fn add(&mut self, nanoseconds: u64, times: u32) {
        self.counts[bucket(nanoseconds)] += times;
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// The latency that this share of operations does not exceed; None if there are no operations.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        })?;
        Some(upper_bound(found))
    }
}

/// Each value below STEPS has its own bucket; above, the top bits select the doubling and the step within it.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS as u64 {
        return nanoseconds as usize;
    }
    let shift = nanoseconds.ilog2() - STEPS_LOG2;
    let step = (nanoseconds >> shift) as usize - STEPS;
    ((shift as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value in a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_known_counts() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        histogram.add(10, 98);
        histogram.add(1_000_000, 2);
        assert_eq!(histogram.percentile(0.5), Some(10));
        assert_eq!(histogram.percentile(0.98), Some(10));
        let slow = histogram.percentile(0.99).unwrap();
        assert!((1_000_000..1_016_000).contains(&slow), "{slow}");
    }

    #[test]
    fn counts_survive_a_pipe() {
        let mut histogram = Histogram::default();
        histogram.add(10, 98);
        histogram.add(1_000_000, 2);
        let text = serde_json::to_string(&histogram).unwrap();
        assert!(text.len() < 40, "{text}");
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        let beyond: Histogram = serde_json::from_str("[[1000000,3]]").unwrap();
        assert_eq!(beyond.percentile(0.5), Some(upper_bound(BUCKETS - 1)));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_within_the_stated_error(value in 0u64..(1 << 36)) {
            let upper = upper_bound(bucket(value));
            prop_assert!(upper >= value && upper - value <= value / 64);
        }
    }
}
