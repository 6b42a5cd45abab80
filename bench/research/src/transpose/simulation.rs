//! The paper's experiment on the model: every odd dimension, with pages chosen anew many times.
//!
//! Owns: which dimensions and placements, and where the gain ends. Never touches: what a miss costs.

use std::collections::BTreeMap;

use heat::statistics::median;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::model::{Events, Processor, matrices_bytes};
use super::placement::Placement;

/// The least ratio that counts as a gain.
const GAIN: f64 = 1.1;

/// The results for one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The dimension of both matrices.
    pub dimension: u64,
    /// Megabytes a second by placement: one number per choice of pages.
    pub speeds: BTreeMap<String, Vec<f64>>,
}

/// Simulates these dimensions, with pages chosen anew `choices` times for each.
pub fn simulate(
    processor: Processor,
    placements: &[Placement],
    dimensions: &[u64],
    choices: u64,
    seed: u64,
) -> Vec<Point> {
    let datasheet = processor.datasheet();
    let speed = |placement: Placement, dimension: u64, choice: u64| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (choice << 32) ^ dimension);
        let chosen = placement.choose(matrices_bytes(dimension), processor.colors(), &mut random);
        Events::of_transpose(&datasheet, dimension, &chosen).megabytes_per_second(&datasheet)
    };
    let point = |&dimension: &u64| {
        let speeds = |&placement: &Placement| {
            (placement.to_string(), (0..choices).map(|choice| speed(placement, dimension, choice)).collect())
        };
        Point { dimension, speeds: placements.iter().map(speeds).collect() }
    };
    dimensions.iter().map(point).collect()
}

impl Point {
    /// The median speed of a placement, by its name.
    pub fn typical(&self, placement: impl ToString) -> Option<f64> {
        median(self.speeds.get(&placement.to_string())?)
    }

    /// The slowest and the fastest choice of pages.
    pub fn spread(&self, placement: impl ToString) -> Option<(f64, f64)> {
        let speeds = self.speeds.get(&placement.to_string())?.iter().copied();
        Some((speeds.clone().reduce(f64::min)?, speeds.reduce(f64::max)?))
    }

    /// How much faster one placement is than another.
    pub fn ratio(&self, placement: impl ToString, than: impl ToString) -> Option<f64> {
        Some(self.typical(placement)? / self.typical(than)?)
    }
}

/// The dimension from which coloring gains less than a tenth until the last point; None if it never gains, or always does.
pub fn end_of_gain(points: &[Point]) -> Option<u64> {
    let gains = |point: &Point| point.ratio(Placement::Colored, Placement::Random).is_some_and(|ratio| ratio >= GAIN);
    let last = points.iter().rposition(gains)?;
    points.get(last + 1).map(|point| point.dimension)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(processor: Processor, dimensions: &[u64]) -> Vec<Point> {
        simulate(processor, &[Placement::Random, Placement::Colored], dimensions, 5, 1)
    }

    #[test]
    fn the_gain_ends_where_the_cache_does() {
        let odd: Vec<u64> = (81..=121).step_by(2).collect();
        let end = end_of_gain(&points(Processor::Celeron, &odd)).unwrap();
        assert!((93..=101).contains(&end), "Celeron: {end}");
    }

    #[test]
    fn inside_the_cache_colors_gain_most_and_far_beyond_nothing() {
        let points = points(Processor::Celeron, &[31, 89, 161]);
        let ratios: Vec<f64> =
            points.iter().map(|point| point.ratio(Placement::Colored, Placement::Random).unwrap()).collect();
        assert!(ratios[0] < 1.1 && ratios[1] > 1.5 && (0.95..1.1).contains(&ratios[2]), "{ratios:?}");
    }

    #[test]
    fn the_end_is_where_it_stays_below() {
        let point = |dimension, colored| Point {
            dimension,
            speeds: [(Placement::Random, 1.0), (Placement::Colored, colored)]
                .map(|(placement, speed)| (placement.to_string(), vec![speed]))
                .into(),
        };
        let ratios = [(1, 1.0), (3, 1.5), (5, 1.05), (7, 1.2), (9, 1.05), (11, 1.0)];
        let points: Vec<Point> = ratios.iter().map(|&(dimension, ratio)| point(dimension, ratio)).collect();
        assert_eq!(end_of_gain(&points), Some(9));
        assert_eq!(end_of_gain(&points[..2]), None);
        assert_eq!(end_of_gain(&points[4..]), None);
    }
}
