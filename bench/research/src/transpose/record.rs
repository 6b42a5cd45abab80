//! Raw results: the speeds of every choice of pages, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`, and the list of ratios. Never touches: conclusions; each report draws them from the file anew.

use heat::units::Bytes;
use hugepilot_bench::machine::MachineDescription;
use serde::{Deserialize, Serialize};

use super::assumption::Assumption;
use super::measured::{AGAIN, Built};
use super::model::Processor;
use super::simulation::Point;
use super::text;
use crate::record::ResearchRecord;

/// From this dimension on, matrices contain whole super pages of the simulated processors.
pub const LARGE: u64 = 513;

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransposeRecord {
    version: u32,
    /// None for simulations, which are the same everywhere.
    pub machine: Option<MachineDescription>,
    /// One per processor.
    pub series: Vec<PointSeries>,
}

/// The source of the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A model.
    Simulated(Processor),
    /// A model's that assumes something besides.
    Assumed(Processor, Assumption),
    /// This machine's.
    Measured {
        /// Its second-level cache.
        cache_bytes: Bytes,
        /// The number of colors distinguished.
        colors: u32,
        /// The number of dimensions requested.
        asked: usize,
        /// The requested dimensions for which no huge page was available. Older files do not have this.
        #[serde(default)]
        skipped: Vec<u64>,
        /// The result of building a large arena.
        built: Built,
    },
}

/// The numbers of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointSeries {
    /// Their source.
    pub subject: Subject,
    /// In order of dimension.
    pub points: Vec<Point>,
}

/// Dividend and divisor of each ratio, as names of placements; the last one gives the noise.
const RATIOS: [(&str, &str); 4] =
    [("colored", "random"), ("huge", "random"), ("huge+colored", "huge+random"), (AGAIN, "random")];

impl PointSeries {
    /// The ratios that these numbers allow.
    pub fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let known = |&(one, than): &(&str, &str)| self.points.iter().any(|point| point.ratio(one, than).is_some());
        RATIOS.into_iter().filter(known).collect()
    }

    /// The dimensions around the size of the cache, and a simulation's large dimensions.
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
    /// A record of these numbers.
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
