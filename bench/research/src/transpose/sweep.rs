//! The order in which dimensions are measured, how long all of them will take, and when to stop.
//!
//! Owns: the overall clock, and progress. Never touches: memory; the caller measures a dimension.

use std::time::{Duration, Instant};

use anyhow::Result;
use hugepilot_bench::rounds::share_bar;

use super::measured::NoHugePage;
use super::simulation::Point;

/// The request.
#[derive(Clone, Copy, Debug)]
pub struct DimensionSweep<'a> {
    /// Ascending, without duplicates.
    pub dimensions: &'a [u64],
    /// How often pages are chosen anew for each.
    pub choices: u64,
    /// No dimension is begun after this time.
    pub at_most: Duration,
}

/// The results, ascending.
#[derive(Debug, Default)]
pub struct Swept {
    /// The measurements.
    pub points: Vec<Point>,
    /// Dimensions for which no huge page was available.
    pub skipped: Vec<u64>,
}

/// The seconds that one choice of pages takes: a constant, and a part that grows with the matrices' size.
#[derive(Clone, Copy, Debug)]
struct Costs {
    smallest: f64,
    largest: f64,
    dimension: u64,
}

impl DimensionSweep<'_> {
    /// Measures from coarse to fine, so that an early end leaves results from the whole range. Returns the results, and the error that ended it
    /// early, if any. A dimension for which there is no huge page ends nothing, unless that holds for all. `measure` gets a dimension and the number
    /// of choices.
    pub fn run(&self, mut measure: impl FnMut(u64, u64) -> Result<Point>) -> (Swept, Result<()>) {
        let mut swept = Swept::default();
        let ended = self.fill(&mut swept, &mut measure);
        swept.points.sort_by_key(|point| point.dimension);
        swept.skipped.sort_unstable();
        (swept, ended)
    }

    fn fill(&self, swept: &mut Swept, measure: &mut impl FnMut(u64, u64) -> Result<Point>) -> Result<()> {
        let began = Instant::now();
        let costs = Costs::measure(self.dimensions, |dimension| match measure(dimension, 1) {
            Err(error) if !error.is::<NoHugePage>() => Err(error),
            _ => Ok(()),
        })?;
        let seconds = |dimension| costs.of(dimension) * self.choices as f64;
        let whole: f64 = self.dimensions.iter().copied().map(seconds).sum();
        self.announce(whole);
        let bar = share_bar(milliseconds(whole));
        let mut lacking = None;
        for dimension in coarse_to_fine(self.dimensions) {
            if began.elapsed() >= self.at_most {
                break;
            }
            bar.set_message(format!("dimension {dimension}"));
            match measure(dimension, self.choices) {
                Ok(point) => swept.points.push(point),
                Err(error) if error.is::<NoHugePage>() => {
                    swept.skipped.push(dimension);
                    lacking = Some(error);
                }
                Err(error) => return Err(error),
            }
            bar.inc(milliseconds(seconds(dimension)));
        }
        bar.finish_and_clear();
        // If there are no results, the reason is returned.
        lacking.filter(|_| swept.points.is_empty()).map_or(Ok(()), Err)
    }

    fn announce(&self, seconds: f64) {
        let (dimensions, choices) = (self.dimensions.len(), self.choices);
        let minutes = |seconds: f64| format!("{:.1} minutes", seconds / 60.0);
        let limit = self.at_most.as_secs_f64();
        let end = if seconds > limit { format!(", and end after {}", minutes(limit)) } else { String::new() };
        eprintln!(
            "{dimensions} dimensions with {choices} choices of pages each take about {}{end}; Ctrl-C reports what there is",
            minutes(seconds)
        );
    }
}

impl Costs {
    /// Measures the first and the last of these once.
    fn measure(dimensions: &[u64], mut measure: impl FnMut(u64) -> Result<()>) -> Result<Self> {
        let (first, last) = (dimensions.first().copied().unwrap_or(1), dimensions.last().copied().unwrap_or(1));
        let mut seconds = |dimension| {
            let began = Instant::now();
            measure(dimension).map(|()| began.elapsed().as_secs_f64())
        };
        Ok(Self { smallest: seconds(first)?, largest: seconds(last)?, dimension: last })
    }

    fn of(&self, dimension: u64) -> f64 {
        let share = dimension as f64 / self.dimension as f64;
        self.smallest + (self.largest - self.smallest).max(0.0) * share * share
    }
}

/// Every second one of the remaining comes last, and so on.
fn coarse_to_fine(dimensions: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..dimensions.len()).collect();
    order.sort_by_key(|place| place.reverse_bits());
    order.into_iter().map(|place| dimensions[place]).collect()
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Error, bail};

    const HOUR: Duration = Duration::from_secs(3600);

    fn point(dimension: u64) -> Result<Point> {
        Ok(Point { dimension, speeds: [("random".to_owned(), vec![1.0])].into() })
    }

    fn dimensions(points: &[Point]) -> Vec<u64> {
        points.iter().map(|point| point.dimension).collect()
    }

    #[test]
    fn some_of_everywhere_comes_first() {
        let order = coarse_to_fine(&[1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
        assert_eq!(order, [1, 17, 9, 5, 13, 3, 19, 11, 7, 15]);
        assert!(coarse_to_fine(&[]).is_empty());
    }

    #[test]
    fn all_are_measured_with_their_choices_and_come_ascending() {
        let mut asked = Vec::new();
        let sweep = DimensionSweep { dimensions: &[1, 3, 5, 7], choices: 4, at_most: HOUR };
        let (swept, ended) = sweep.run(|dimension, choices| {
            asked.push((dimension, choices));
            point(dimension)
        });
        assert_eq!((dimensions(&swept.points), ended.is_ok()), (vec![1, 3, 5, 7], true));
        assert_eq!(asked, [(1, 1), (7, 1), (1, 4), (5, 4), (3, 4), (7, 4)], "a scan of both ends first");
    }

    #[test]
    fn whatever_ends_it_leaves_what_there_is() {
        let mut calls = 0;
        let sweep = DimensionSweep { dimensions: &[1, 3, 5, 7], choices: 4, at_most: HOUR };
        let (swept, ended) = sweep.run(|dimension, _| {
            calls += 1;
            if calls > 4 { bail!("no more") } else { point(dimension) }
        });
        assert_eq!((dimensions(&swept.points), ended.unwrap_err().to_string()), (vec![1, 5], "no more".to_owned()));
        let (swept, ended) = DimensionSweep { at_most: Duration::ZERO, ..sweep }.run(|dimension, _| point(dimension));
        assert!(swept.points.is_empty() && ended.is_ok(), "the time was up");
    }

    #[test]
    fn a_dimension_without_huge_pages_is_skipped_and_told() {
        let sweep = DimensionSweep { dimensions: &[1, 3, 5, 7], choices: 4, at_most: HOUR };
        let run = |lacks: fn(u64) -> bool| {
            sweep.run(|dimension, _| match lacks(dimension) {
                true => Err(Error::from(NoHugePage).context("cannot place matrices")),
                false => point(dimension),
            })
        };
        let (swept, ended) = run(|dimension| dimension > 4);
        assert_eq!((dimensions(&swept.points), swept.skipped, ended.is_ok()), (vec![1, 3], vec![5, 7], true));
        let (swept, ended) = run(|_| true);
        assert!(swept.points.is_empty() && ended.unwrap_err().is::<NoHugePage>(), "nothing else is there to tell");
    }

    #[test]
    fn time_grows_with_the_size_of_the_matrices() {
        let costs = Costs { smallest: 1.0, largest: 101.0, dimension: 100 };
        assert_eq!([0, 50, 100].map(|dimension| costs.of(dimension)), [1.0, 26.0, 101.0]);
        assert_eq!(Costs { largest: 0.5, ..costs }.of(50), 1.0);
    }
}
