//! Raw results: the speeds of every choice of pages, as they are kept in a file.
//!
//! Owns: the shape of that file, `"version": 1`, and which ratios there are. Never touches: conclusions; they are drawn anew from the file
//! each time.

use heat::units::Bytes;
use hugepilot_bench::machine::MachineDescription;
use serde::{Deserialize, Serialize};

use super::assumption::Assumption;
use super::measured::{AGAIN, Built};
use super::model::Processor;
use super::simulation::Point;
use super::text;
use crate::record::ResearchRecord;

/// From here on matrices hold whole super pages of the processors that are simulated.
pub const LARGE: u64 = 513;

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransposeRecord {
    version: u32,
    /// None where they are not kept: a simulation is the same everywhere.
    pub machine: Option<MachineDescription>,
    /// One for each processor.
    pub series: Vec<PointSeries>,
}

/// Whose numbers they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A model's.
    Simulated(Processor),
    /// A model's that assumes something besides.
    Assumed(Processor, Assumption),
    /// This machine's.
    Measured {
        /// Its second-level cache.
        cache_bytes: Bytes,
        /// How many colors were told apart.
        colors: u32,
        /// Dimensions that were asked for.
        asked: usize,
        /// Of these, dimensions for which no huge page could be had. Older files do not say.
        #[serde(default)]
        skipped: Vec<u64>,
        /// How long building a large arena took.
        built: Built,
    },
}

/// The numbers of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointSeries {
    /// Whose they are.
    pub subject: Subject,
    /// By dimension.
    pub points: Vec<Point>,
}

/// What is divided by what, by the names of placements; the last one says what noise is.
const RATIOS: [(&str, &str); 4] =
    [("colored", "random"), ("huge", "random"), ("huge+colored", "huge+random"), (AGAIN, "random")];

impl PointSeries {
    /// Those ratios that these numbers have.
    pub fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let known = |&(one, than): &(&str, &str)| self.points.iter().any(|point| point.ratio(one, than).is_some());
        RATIOS.into_iter().filter(known).collect()
    }

    /// What lies around the cache, and what a simulation has of large dimensions.
    pub fn parts(&self) -> (&[Point], &[Point]) {
        let border = match self.subject {
            Subject::Simulated(_) | Subject::Assumed(..) => {
                self.points.partition_point(|point| point.dimension < LARGE)
            }
            Subject::Measured { .. } => self.points.len(),
        };
        self.points.split_at(border)
    }
}

impl TransposeRecord {
    /// Of these numbers.
    pub fn new(machine: Option<MachineDescription>, series: Vec<PointSeries>) -> Self {
        Self { version: Self::VERSION, machine, series }
    }
}

impl ResearchRecord for TransposeRecord {
    const NAME: &'static str = "transpose";
    const VERSION: u32 = 1;
    const FIRST_FIELD: &'static str = "dimension";

    fn text(&self) -> String {
        text::text(self)
    }
}
