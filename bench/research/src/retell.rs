//! Saved results, reported again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;
use hugepilot_bench::kept::{ResultKind, ResultsBinary, read_text};

use crate::lists::ListsRecord;
use crate::record::ResearchRecord;
use crate::sort::SortRecord;
use crate::transpose::TransposeRecord;

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    match ResultKind::of(&text) {
        Some(ResultKind::Lists) => ListsRecord::retell(&text, file, plot_to),
        Some(ResultKind::Transpose) => TransposeRecord::retell(&text, file, plot_to),
        Some(ResultKind::Sort) => SortRecord::retell(&text, file, plot_to),
        other => Err(ResultsBinary::Research.refusal(file, other)),
    }
}
