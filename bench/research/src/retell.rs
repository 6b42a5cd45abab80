//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;
use hugepilot_bench::kept::{ResultKind, ResultsBinary, read_text};

use crate::{lists, sort, transpose};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    match ResultKind::of(&text) {
        Some(ResultKind::Lists) => lists::retell(&text, file, plot_to),
        Some(ResultKind::Transpose) => transpose::retell(&text, file, plot_to),
        Some(ResultKind::Sort) => sort::retell(&text, file, plot_to),
        other => Err(ResultsBinary::Research.refusal(file, other)),
    }
}
