//! Page coloring with the paper's benchmark: the transpose of a matrix, on a model of the paper's processors and on this machine.
//!
//! Owns: the command, and which numbers are produced. Never touches: settings of the machine. The seed alone determines a simulation.

mod assumption;
mod cache;
mod comparison;
mod free_list;
mod measured;
mod model;
mod paper;
mod placement;
mod plot;
mod record;
mod simulation;
mod sweep;
mod text;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use hps::color::Palette;
use hugepilot_bench::outputs::Outputs;
use hugepilot_bench::rounds::progress_bar;
use hugepilot_os::stop::{SecondSignal, Stop};

use self::assumption::Assumption;
use self::model::{Processor, matrices_bytes};
use self::placement::Placement;
pub use self::record::TransposeRecord;
use self::record::{LARGE, PointSeries, Subject};
use self::simulation::{Model, simulate};
use self::sweep::{DimensionSweep, Swept};
use crate::record::ResearchRecord;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-research transpose                              both processors of the paper, odd dimensions, simulated
  hugepilot-research transpose --processor celeron --plot transpose.svg
  hugepilot-research transpose --dimensions 43,45,47,49,85,87,89,91,93,95 --processor celeron
                                                         the dimensions of the paper's table
  hugepilot-research transpose --candidates                 what the model leaves out, each tried: does it explain the paper?
  hugepilot-research transpose --measure --choices 7 --minutes 10 --plot here.svg
                                                         this machine: odd dimensions to 999, from coarse to fine until the time is up
  hugepilot-research transpose --measure --dimensions $(seq -s, 1 20 999)
                                                         a coarser list, sooner

A simulation gives the same numbers for the same seed everywhere. Measuring takes CAP_SYS_ADMIN, to see page frames, and a machine that is
otherwise left alone. Ctrl-C ends either, and reports what there is.";

/// The largest dimension.
const LAST: u64 = 999;
/// Of the large dimensions some are enough; this step keeps them odd.
const LARGE_STEP: usize = 54;

/// `transpose`
#[derive(Clone, Debug, Args)]
pub struct TransposeArguments {
    /// The processors to simulate, separated by commas [default: both; with --measure none]
    #[arg(long, value_enum, value_delimiter = ',')]
    processor: Vec<Processor>,
    /// Simulate with what the model leaves out: each of the candidates alone, as many of them as are named [all, where none is]
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., value_name = "NAME", conflicts_with = "measure")]
    candidates: Option<Vec<Assumption>>,
    /// Measure on this machine
    #[arg(long)]
    measure: bool,
    /// Measure for about so long at most
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,
    /// Colors to measure with [default: those of this machine's second-level cache]
    #[arg(long, value_name = "NUMBER", requires = "measure")]
    colors: Option<u32>,
    /// Dimensions of the matrices [default: odd ones, all until well beyond the cache, and some to 999; measured, all to 999]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1000))]
    dimensions: Vec<u64>,
    /// How often pages are chosen anew for each: luck is the point
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=1000))]
    choices: u64,
    /// Where all random numbers of a simulation start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    outputs: Outputs,
}

impl TransposeArguments {
    /// Simulates, measures if requested, and reports; if that ends early, reports what there is.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let machine = self.outputs.machine()?;
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let mut series: Vec<PointSeries> =
            self.simulations().into_iter().map(|simulation| self.simulate(simulation, &stop)).collect();
        let ended = if self.measure && !stop.requested() { self.measure(&stop, &mut series) } else { Ok(()) };
        series.retain(|series| !series.points.is_empty());
        if series.is_empty() {
            ensure!(!stop.requested(), "stopped on request; there is nothing to tell yet");
            return ended;
        }
        let record = TransposeRecord::new(machine, series);
        record.report(record.machine.as_ref(), &self.outputs)?;
        ensure!(!stop.requested(), "stopped on request; what there was by then is told");
        ended
    }

    fn processors(&self) -> Vec<Processor> {
        if self.processor.is_empty() && !self.measure {
            return Processor::value_variants().to_vec();
        }
        self.processor.clone()
    }

    /// What is simulated: the processors as they are, or with each of the candidates.
    fn simulations(&self) -> Vec<Simulation> {
        let processors = self.processors();
        match &self.candidates {
            None => processors.into_iter().map(Simulation::of).collect(),
            Some(named) => {
                let candidates = if named.is_empty() { Assumption::value_variants() } else { named };
                let with = |processor| candidates.iter().map(move |&candidate| Simulation::with(processor, candidate));
                processors.into_iter().flat_map(with).collect()
            }
        }
    }

    /// As far as it came.
    fn simulate(&self, simulation: Simulation, stop: &Stop) -> PointSeries {
        let Simulation { subject, model, placements, usual } = simulation;
        let dimensions = self.dimensions_or(|| usual);
        let progress = progress_bar(dimensions.len() as u64);
        let going_on = dimensions.iter().take_while(|_| !stop.requested());
        let points = going_on.flat_map(|&dimension| {
            progress.inc(1);
            simulate(model, placements, &[dimension], self.choices, self.seed)
        });
        let series = PointSeries { subject, points: points.collect() };
        progress.finish_and_clear();
        series
    }

    /// Adds the completed measurements.
    fn measure(&self, stop: &Stop, series: &mut Vec<PointSeries>) -> Result<()> {
        let cache = measured::settle()?;
        let colors = self.colors.unwrap_or_else(|| cache.colors());
        let palette = Palette::all(colors)?;
        let built = measured::build(&palette)?;
        let dimensions = self.dimensions_or(|| (1..=LAST).step_by(2).collect());
        let at_most = Duration::from_secs(self.minutes * 60);
        let sweep = DimensionSweep { dimensions: &dimensions, choices: self.choices, at_most };
        let placements = measured::placements(colors);
        let (Swept { points, skipped }, ended) =
            sweep.run(|dimension, choices| measured::measure(dimension, &placements, choices, &palette, stop));
        let subject = Subject::Measured { cache_bytes: cache.size, colors, asked: dimensions.len(), skipped, built };
        series.push(PointSeries { subject, points });
        ended
    }

    /// Ascending, none twice.
    fn dimensions_or(&self, usual: impl FnOnce() -> Vec<u64>) -> Vec<u64> {
        let mut dimensions = if self.dimensions.is_empty() { usual() } else { self.dimensions.clone() };
        dimensions.sort_unstable();
        dimensions.dedup();
        dimensions
    }
}

/// One processor, and what is to be seen of it.
struct Simulation {
    subject: Subject,
    model: Model,
    placements: &'static [Placement],
    /// Dimensions, unless others are named.
    usual: Vec<u64>,
}

impl Simulation {
    fn of(processor: Processor) -> Self {
        Self {
            subject: Subject::Simulated(processor),
            model: processor.into(),
            placements: Placement::value_variants(),
            usual: usual_dimensions(processor),
        }
    }

    fn with(processor: Processor, candidate: Assumption) -> Self {
        Self {
            subject: Subject::Assumed(processor, candidate),
            model: candidate.model(processor),
            placements: &[Placement::Random, Placement::Colored],
            usual: around_the_cache(processor, 1.5),
        }
    }
}

/// Odd ones, as in the paper, until both matrices are three times as large as the cache, and some large ones.
fn usual_dimensions(processor: Processor) -> Vec<u64> {
    around_the_cache(processor, 3.0).into_iter().chain((LARGE..=LAST).step_by(LARGE_STEP)).collect()
}

/// Odd ones until both matrices are so many times as large as the cache.
fn around_the_cache(processor: Processor, times: f64) -> Vec<u64> {
    let limit = times * processor.datasheet().second.size_bytes as f64;
    (1..).step_by(2).take_while(|&dimension| matrices_bytes(dimension) as f64 <= limit).collect()
}

#[cfg(test)]
mod tests {
    use super::placement::SUPER_PAGE;
    use super::*;

    fn arguments(line: &str) -> TransposeArguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: TransposeArguments,
        }
        <Line as clap::Parser>::parse_from(std::iter::once("transpose").chain(line.split_whitespace())).arguments
    }

    #[test]
    fn measuring_alone_simulates_nothing_unless_a_processor_is_named() {
        assert_eq!(arguments("").processors(), [Processor::Celeron, Processor::Pentium4]);
        assert!(arguments("--measure").processors().is_empty());
        assert_eq!(arguments("--measure --processor celeron").processors(), [Processor::Celeron]);
    }

    #[test]
    fn dimensions_come_in_order_and_once() {
        assert_eq!(arguments("--dimensions 47,43,47").dimensions_or(Vec::new), [43, 47]);
        assert_eq!(arguments("").dimensions_or(|| vec![1, 3]), [1, 3]);
    }

    #[test]
    fn candidates_are_simulated_for_each_processor_and_all_where_none_is_named() {
        let subjects = |line: &str| {
            arguments(line).simulations().into_iter().map(|simulation| simulation.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects("--processor celeron"), [Subject::Simulated(Processor::Celeron)]);
        let [celeron, pentium4] =
            [Processor::Celeron, Processor::Pentium4].map(|processor| Subject::Assumed(processor, Assumption::Gaps));
        assert_eq!(subjects("--candidates gaps"), [celeron, pentium4]);
        assert_eq!(subjects("--candidates").len(), 2 * Assumption::value_variants().len());
    }

    #[test]
    fn who_is_stopped_simulates_no_more() {
        let stop = Stop::default();
        let arguments = arguments("--dimensions 3,5 --choices 1");
        assert_eq!(arguments.simulate(Simulation::of(Processor::Celeron), &stop).points.len(), 2);
        stop.request();
        assert_eq!(arguments.simulate(Simulation::of(Processor::Celeron), &stop).points.len(), 0);
    }

    #[test]
    fn dimensions_reach_beyond_the_cache() {
        let dimensions = usual_dimensions(Processor::Celeron);
        assert!(
            dimensions[0] == 1 && dimensions.contains(&97) && dimensions.contains(&155) && !dimensions.contains(&96)
        );
        assert!(usual_dimensions(Processor::Pentium4).contains(&301));
    }

    #[test]
    fn large_dimensions_are_odd_hold_super_pages_and_gain_nothing_from_colors() {
        let dimensions = usual_dimensions(Processor::Celeron);
        let large: Vec<u64> = dimensions.into_iter().filter(|&dimension| dimension >= LARGE).collect();
        assert_eq!((large.len(), large[0], large[9]), (10, LARGE, LAST));
        assert!(large.iter().all(|&dimension| dimension % 2 == 1 && matrices_bytes(dimension) > SUPER_PAGE));
        // The smaller cache has more to lose; if there were a gain, the figure for its end would change.
        let points = simulate(Processor::Celeron, &[Placement::Random, Placement::Colored], &[LAST], 1, 1);
        assert!(points[0].ratio(Placement::Colored, Placement::Random).unwrap() < 1.1);
    }
}
