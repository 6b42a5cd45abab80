//! Raw results: everything that they depend on, and everything that came out, as it is kept in a file.
//!
//! Owns: the shape of that file, `"version": 1`. Never touches: conclusions; they are drawn anew from the file each time.

use serde::{Deserialize, Serialize};

use super::report;
use super::simulation::{Length, SimulationOutcome};
use crate::record::ResearchRecord;

/// Everything that the results depend on, and everything that came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListsRecord {
    /// 1; a file with another number is refused.
    pub version: u32,
    /// What a page of the model stands for.
    pub page_bytes: u64,
    /// What the disk reads or writes in one go.
    pub disk_bytes_per_second: u64,
    /// The share of memory that resident programs take.
    pub resident: f64,
    /// Where random numbers start.
    pub seed: u64,
    /// How long each run is.
    pub length: Length,
    /// One for each trace, size of memory and policy.
    pub outcomes: Vec<SimulationOutcome>,
}

impl ResearchRecord for ListsRecord {
    const NAME: &'static str = "lists";
    const VERSION: u32 = 1;
    const FIRST_FIELD: &'static str = "trace";

    fn text(&self) -> String {
        report::text(self)
    }
}
