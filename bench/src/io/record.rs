//! Raw results: every turn, as it is kept in a file.
//!
//! Owns: the shape of that file, `"version": 1`. Never touches: conclusions; they are drawn anew from the file each time.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::turn::Turn;
use crate::kept;
use crate::machine::MachineDescription;
use crate::outputs::json_lines;

const VERSION: u32 = 1;

/// One file of raw results.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) machine: MachineDescription,
    pub(super) description: String,
    pub(super) turns: Vec<Turn>,
}

impl Record {
    /// An empty one.
    pub(super) fn new(machine: MachineDescription, description: String) -> Self {
        Self { version: VERSION, machine, description, turns: Vec::new() }
    }

    /// The results in the text of a file.
    pub(super) fn parse(text: &str, file: &Path) -> Result<Self> {
        kept::parse(text, file, VERSION)
    }

    /// The file's text, with one line a turn.
    pub(super) fn json(&self) -> Result<String> {
        json_lines(self, "round")
    }
}
