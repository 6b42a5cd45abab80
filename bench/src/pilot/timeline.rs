//! Numbers over time, and when they have reached their target.
//!
//! Owns: samples and what is derived from them. Never touches: programs or clocks.

use heat::statistics::median;
use serde::Serialize;

/// This many consecutive samples are judged together, because a single one may be an outlier.
const IN_A_ROW: usize = 4;

/// Operations a second in the sample that ended at `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// When it ended.
    pub seconds: f64,
    /// Operations a second.
    pub throughput: f64,
}

/// When this share of the gain of `settled` over `default` was restored: the first sample that has it, and from which every median of four has it,
/// too. None if that never happened, or if there was no gain.
pub fn back_after(samples: &[Speed], default: f64, settled: f64, share: f64) -> Option<f64> {
    if settled <= default {
        return None;
    }
    let wanted = default + share * (settled - default);
    let together = |four: &[Speed]| median(&four.iter().map(|speed| speed.throughput).collect::<Vec<_>>());
    let is_back = |four: &&[Speed]| four[0].throughput >= wanted && together(four) >= Some(wanted);
    samples.windows(IN_A_ROW).find(is_back).map(|four| four[0].seconds)
}

/// The parts that two programs have of something that both want.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// The time.
    pub seconds: f64,
    /// The bytes of each.
    pub bytes: [u64; 2],
}

impl Parts {
    /// Whether each has 40 to 60 % of the whole.
    pub fn are_fair(&self, whole: u64) -> bool {
        self.bytes.iter().all(|&part| (0.4..=0.6).contains(&(part as f64 / whole as f64)))
    }
}

/// From when on parts were fair until the end of the samples, at least four; None if they are not.
pub fn fair_since(samples: &[Parts], whole: u64) -> Option<f64> {
    let fair = samples.rsplit(|parts| !parts.are_fair(whole)).next().unwrap_or_default();
    (fair.len() >= IN_A_ROW).then(|| fair[0].seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speeds(throughputs: &[f64]) -> Vec<Speed> {
        let speed = |(place, &throughput)| Speed { seconds: (place as f64 + 1.0) / 4.0, throughput };
        throughputs.iter().enumerate().map(speed).collect()
    }

    #[test]
    fn the_gain_is_back_when_it_stays() {
        let samples = speeds(&[100.0, 130.0, 100.0, 100.0, 120.0, 129.0, 130.0, 127.0, 130.0, 130.0]);
        assert_eq!(back_after(&samples, 100.0, 130.0, 0.95), Some(1.5), "the second sample is an outlier");
        assert_eq!(back_after(&samples[..8], 100.0, 130.0, 0.95), None, "too few to tell");
    }

    #[test]
    fn one_slow_sample_does_not_put_it_off() {
        let samples = speeds(&[100.0, 130.0, 130.0, 90.0, 130.0, 130.0]);
        assert_eq!(back_after(&samples, 100.0, 130.0, 0.95), Some(0.5));
    }

    #[test]
    fn without_a_gain_nothing_comes_back() {
        let samples = speeds(&[100.0; 8]);
        assert_eq!(back_after(&samples, 100.0, 100.0, 0.95), None);
        assert_eq!(back_after(&samples, 100.0, 90.0, 0.95), None);
    }

    fn parts(bytes: &[[u64; 2]]) -> Vec<Parts> {
        bytes.iter().enumerate().map(|(place, &bytes)| Parts { seconds: place as f64 / 4.0, bytes }).collect()
    }

    #[test]
    fn parts_must_be_fair_to_the_end() {
        let swings = parts(&[[100, 0], [60, 40], [50, 50], [80, 20], [60, 40], [55, 45], [50, 50], [41, 59]]);
        assert_eq!(fair_since(&swings, 100), Some(1.0));
        assert_eq!(fair_since(&swings[..7], 100), None, "three are too few");
        let lost = [swings, parts(&[[39, 60]])].concat();
        assert_eq!(fair_since(&lost, 100), None);
        assert_eq!(fair_since(&[], 100), None);
    }

    #[test]
    fn parts_are_of_the_whole_and_not_of_each_other() {
        assert!(!Parts { seconds: 0.0, bytes: [30, 30] }.are_fair(100));
        assert!(Parts { seconds: 0.0, bytes: [40, 60] }.are_fair(100));
    }

    proptest! {
        #[test]
        fn less_of_the_gain_is_back_no_later(
            throughputs in prop::collection::vec(90.0..140.0f64, 4..40), less in 0.1..1.0f64, more in 0.1..1.0f64
        ) {
            let samples = speeds(&throughputs);
            let (less, more) = (less.min(more), less.max(more));
            let back = |share| back_after(&samples, 100.0, 130.0, share).unwrap_or(f64::INFINITY);
            prop_assert!(back(less) <= back(more));
        }
    }
}
