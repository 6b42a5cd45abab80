//! Raw results: every turn, as saved in a file.
//!
//! Owns: the format of that file, `"version": 1`. Never touches: conclusions; each report draws them from the file anew.

use serde::{Deserialize, Serialize};

use super::turn::Turn;
use crate::kept::VERSION;
use crate::machine::MachineDescription;

/// One file of raw results.
#[derive(Serialize, Deserialize)]
pub struct Record {
    version: u32,
    pub(super) machine: MachineDescription,
    pub(super) description: String,
    pub(super) turns: Vec<Turn>,
}

impl Record {
    /// A record without turns.
    pub(super) fn new(machine: MachineDescription, description: String) -> Self {
        Self { version: VERSION, machine, description, turns: Vec::new() }
    }
}
