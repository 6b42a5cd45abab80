//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;
use hugepilot_bench::kept::{Kind, Program, read_text};

use crate::{lists, sort, transpose};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    match Kind::of(&text) {
        Some(Kind::Lists) => lists::retell(&text, file, plot_to),
        Some(Kind::Transpose) => transpose::retell(&text, file, plot_to),
        Some(Kind::Sort) => sort::retell(&text, file, plot_to),
        other => Err(Program::Research.refusal(file, other)),
    }
}
