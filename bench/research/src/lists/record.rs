//! Raw results: everything on which they depend, and all results, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: conclusions; each report draws them from the file anew.

use serde::{Deserialize, Serialize};

use super::report;
use super::simulation::{Length, SimulationOutcome};
use crate::record::ResearchRecord;

/// Everything on which the results depend, and all results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListsRecord {
    /// 1; a file with another number is rejected.
    pub version: u32,
    /// The size of a page of the model.
    pub page_bytes: u64,
    /// The disk's sequential speed.
    pub disk_bytes_per_second: u64,
    /// The share of memory that resident programs take.
    pub resident: f64,
    /// The seed of random numbers.
    pub seed: u64,
    /// How long each run is.
    pub length: Length,
    /// One per trace, size of memory and policy.
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
