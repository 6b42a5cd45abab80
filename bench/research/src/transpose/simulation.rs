//! The paper's experiment on the model: every odd dimension, with pages chosen anew many times.
//!
//! Owns: which dimensions and placements, and where the gain ends. Never touches: what a miss costs.

use std::collections::BTreeMap;

use heat::statistics::median;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::free_list::FreeList;
use super::model::{Datasheet, Events, Processor, matrices_bytes};
use super::placement::Placement;

/// A gain that counts as one.
pub const GAIN: f64 = 1.1;

/// The results for one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The dimension of both matrices.
    pub dimension: u64,
    /// Megabytes a second by placement: one number per choice of pages.
    pub speeds: BTreeMap<String, Vec<f64>>,
}

/// A processor, and a kernel's free list.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// As it is taken to be.
    pub datasheet: Datasheet,
    /// Of the kernel without colors.
    pub free: FreeList,
    /// Whether pages of both matrices are taken by turns.
    pub both_by_turns: bool,
}

impl From<Processor> for Model {
    fn from(processor: Processor) -> Self {
        Self { datasheet: processor.datasheet(), free: FreeList::default(), both_by_turns: false }
    }
}

/// Simulates these dimensions, with pages chosen anew `choices` times for each.
pub fn simulate(
    model: impl Into<Model>,
    placements: &[Placement],
    dimensions: &[u64],
    choices: u64,
    seed: u64,
) -> Vec<Point> {
    let Model { datasheet, free, both_by_turns } = model.into();
    let speed = |placement: Placement, dimension: u64, choice: u64| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (choice << 32) ^ dimension);
        let chosen = placement.choose(matrices_bytes(dimension), datasheet.colors(), free, &mut random);
        let others = placement.others(&chosen, datasheet.besides.others, &mut random);
        let mut pages = if both_by_turns { by_turns(&chosen) } else { chosen };
        pages.extend(others);
        Events::of_transpose(&datasheet, dimension, &pages).megabytes_per_second(&datasheet)
    };
    let point = |&dimension: &u64| {
        let speeds = |&placement: &Placement| {
            (placement.to_string(), (0..choices).map(|choice| speed(placement, dimension, choice)).collect())
        };
        Point { dimension, speeds: placements.iter().map(speeds).collect() }
    };
    dimensions.iter().map(point).collect()
}

/// The first matrix gets the first page, the second one the second, and so on.
fn by_turns(pages: &[u64]) -> Vec<u64> {
    let every_second = |first: usize| pages[first..].iter().step_by(2).copied();
    every_second(0).chain(every_second(1)).collect()
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

/// How much faster coloring is.
pub fn gain(point: &Point) -> Option<f64> {
    point.ratio(Placement::Colored, Placement::Random)
}

/// The dimension from which on coloring gains less than a tenth for good, until the points end; None if it never gains, or always.
pub fn end_of_gain(points: &[Point]) -> Option<u64> {
    let gains = |point: &Point| gain(point) >= Some(GAIN);
    let last = points.iter().rposition(gains)?;
    points.get(last + 1).map(|point| point.dimension)
}

#[cfg(test)]
mod tests {
    use super::super::record::TransposeRecord;
    use super::*;
    use clap::ValueEnum;
    use hugepilot_bench::kept;

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
    fn the_plain_model_still_gives_what_was_kept() {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../runs/2026-11-23-amd-epyc-6.18.44-fc-v669/transpose-2.json.zst");
        let record: TransposeRecord = kept::parse(&kept::read_text(file.as_ref()).unwrap(), file.as_ref(), 1).unwrap();
        for (processor, series) in [Processor::Celeron, Processor::Pentium4].into_iter().zip(&record.series) {
            let kept = series.points.iter().find(|point| point.dimension == 89).unwrap();
            let again = simulate(processor, Placement::value_variants(), &[89], 15, 1);
            // A number that is read from JSON may be off in its last bit.
            assert_eq!(format!("{kept:.9?}"), format!("{:.9?}", again[0]), "{processor}");
        }
    }

    #[test]
    fn pages_of_both_matrices_are_taken_by_turns() {
        assert_eq!(by_turns(&[1, 2, 3, 4, 5]), [1, 3, 5, 2, 4]);
        let points = |both_by_turns| {
            let model = Model { both_by_turns, ..Processor::Celeron.into() };
            simulate(model, &[Placement::Random], &[89], 3, 1)
        };
        assert_ne!(points(true), points(false));
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
