//! Page coloring, by the paper's benchmark: the transpose of a matrix, on a model of the paper's processors and on this machine.
//!
//! Owns: the command, and which numbers are made. Never touches: settings of the machine. A simulation follows from its seed alone.

mod cache;
mod measured;
mod model;
mod placement;
mod plot;
mod simulation;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use hps::color::Palette;
use hugepilot::stop::{SecondSignal, Stop};
use hugepilot::units::Bytes;
use indicatif::ProgressBar;
use serde::Serialize;

use self::measured::Built;
use self::model::{Processor, matrices_bytes};
use self::placement::Placement;
use self::simulation::{Point, simulate};
use crate::machine::Machine;
use crate::settings::Settings;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench transpose                              both processors of the paper, all odd dimensions, simulated
  hugepilot-bench transpose --processor celeron --plot transpose.svg
  hugepilot-bench transpose --dimensions 43,45,47,49,85,87,89,91,93,95 --processor celeron
                                                         the dimensions of the paper's table
  hugepilot-bench transpose --measure --plot here.svg    this machine, too: all odd dimensions to 999, some ten minutes

A simulation gives the same numbers for the same seed everywhere. Measuring takes CAP_SYS_ADMIN, to see page frames.";

/// The dimensions measured reach so far.
const LAST_MEASURED: u64 = 999;

/// `transpose`
#[derive(Clone, Debug, Args)]
pub struct TransposeArguments {
    /// The processors to simulate, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["celeron", "pentium4"])]
    processor: Vec<Processor>,
    /// Measure on this machine, too
    #[arg(long)]
    measure: bool,
    /// Colors to measure with [default: those of this machine's second-level cache]
    #[arg(long, value_name = "NUMBER", requires = "measure")]
    colors: Option<u32>,
    /// Dimensions of the matrices [default: all odd ones until well beyond the cache; measured, to 999]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1000))]
    dimensions: Vec<u64>,
    /// How often pages are chosen anew for each: luck is the point
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=1000))]
    choices: u64,
    /// Where all random numbers of a simulation start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the numbers to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the ratios to a file, FILE.svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keeps numbers, table and plot below a directory, in one named after day and machine
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    keep: Option<PathBuf>,
}

/// Whose numbers they are.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    Simulated(Processor),
    Measured {
        cache_bytes: Bytes,
        colors: u32,
        /// How long building a large arena took.
        built: Built,
    },
}

/// The numbers of one.
#[derive(Clone, Debug, Serialize)]
struct Series {
    subject: Subject,
    points: Vec<Point>,
}

impl TransposeArguments {
    /// Simulates, measures if that is asked for, and reports.
    pub fn run(&self) -> Result<()> {
        if let Some(path) = &self.plot {
            ensure!(
                path.extension().is_some_and(|extension| extension == "svg"),
                "cannot draw {}: the name must end in .svg",
                path.display()
            );
        }
        let mut series: Vec<Series> = self.processor.iter().map(|&processor| self.simulate(processor)).collect();
        if self.measure {
            series.push(self.measure()?);
        }
        let text: String = series.iter().map(text::text).collect();
        print!("{text}");
        if let Some(directory) = &self.keep {
            keep(directory, &series, &text)?;
        }
        if let Some(path) = &self.json {
            let written = std::fs::write(path, serde_json::to_string(&series)? + "\n");
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.plot.as_deref().map_or(Ok(()), |path| plot::draw(&series, path))
    }

    fn simulate(&self, processor: Processor) -> Series {
        let dimensions = self.dimensions_or(|| usual_dimensions(processor));
        let progress = ProgressBar::new(dimensions.len() as u64);
        let points = dimensions.iter().flat_map(|&dimension| {
            progress.inc(1);
            simulate(processor, Placement::value_variants(), &[dimension], self.choices, self.seed)
        });
        let series = Series { subject: Subject::Simulated(processor), points: points.collect() };
        progress.finish_and_clear();
        series
    }

    fn measure(&self) -> Result<Series> {
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let cache = measured::settle()?;
        let colors = self.colors.unwrap_or_else(|| cache.colors());
        let palette = Palette::all(colors)?;
        let built = measured::build(&palette)?;
        let dimensions = self.dimensions_or(|| (1..=LAST_MEASURED).step_by(2).collect());
        let progress = ProgressBar::new(dimensions.len() as u64);
        let points = dimensions.iter().map(|&dimension| {
            progress.inc(1);
            measured::measure(dimension, Placement::value_variants(), self.choices, &palette, &stop)
        });
        let points = points.collect::<Result<_>>()?;
        progress.finish_and_clear();
        Ok(Series { subject: Subject::Measured { cache_bytes: cache.size, colors, built }, points })
    }

    fn dimensions_or(&self, usual: impl Fn() -> Vec<u64>) -> Vec<u64> {
        if self.dimensions.is_empty() { usual() } else { self.dimensions.clone() }
    }
}

/// What is kept of a run.
#[derive(Serialize)]
struct Record<'a> {
    version: u32,
    machine: &'a Machine,
    series: &'a [Series],
}

fn keep(directory: &Path, series: &[Series], text: &str) -> Result<()> {
    let machine = Machine::describe(&Settings::of_this_machine()?)?;
    let path = machine.free_path(directory, "transpose")?;
    let record = Record { version: 1, machine: &machine, series };
    std::fs::write(path.with_extension("json"), serde_json::to_string(&record)? + "\n")?;
    std::fs::write(path.with_extension("txt"), text)?;
    plot::draw(series, &path.with_extension("svg"))?;
    eprintln!("kept in {}.*", path.display());
    Ok(())
}

/// Odd ones, as in the paper, until both matrices are three times as large as the cache.
fn usual_dimensions(processor: Processor) -> Vec<u64> {
    let limit = 3 * processor.datasheet().second.size_bytes;
    (1..).step_by(2).take_while(|&dimension| matrices_bytes(dimension) <= limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_reach_beyond_the_cache() {
        let dimensions = usual_dimensions(Processor::Celeron);
        assert!(
            dimensions[0] == 1 && dimensions.contains(&97) && dimensions.contains(&155) && !dimensions.contains(&96)
        );
        assert!(usual_dimensions(Processor::Pentium4).contains(&301));
    }
}
