//! Saved results, reported again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;
use picture::{Picture, draw};
use serde::de::DeserializeOwned;

use crate::crowd::CrowdRecord;
use crate::felt::FeltRecord;
use crate::kept::{ResultKind, ResultsBinary, VERSION, parse, read_text};
use crate::mapped::MappedRecord;
use crate::printed::PrintedRecord;
use crate::programs::{ProgramsRecord, SetupsRecord};
use crate::record::WorkloadRecord;
use crate::table::print;
use crate::{felt, io, postgres, report};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let json = read_text(file)?;
    let kind = ResultKind::of(&json);
    let text = told_again(&json, file)?.ok_or_else(|| ResultsBinary::Bench.refusal(file, kind))?;
    print(&text)?;
    match (plot_to, kind) {
        (Some(path), Some(ResultKind::Workloads)) => drawn_again::<WorkloadRecord>(&json, file, path),
        (Some(path), Some(ResultKind::Felt)) => drawn_again::<FeltRecord>(&json, file, path),
        (Some(path), Some(ResultKind::Io)) => drawn_again::<io::Record>(&json, file, path),
        _ => Ok(()),
    }
}

/// The report of raw results; None if another program reports them, or none does.
pub fn told_again(json: &str, file: &Path) -> Result<Option<String>> {
    Ok(Some(match ResultKind::of(json) {
        Some(ResultKind::Workloads) => report::text(&parse(json, file, VERSION)?),
        Some(ResultKind::Felt) => felt::text(&parse(json, file, VERSION)?),
        Some(ResultKind::Io) => io::text(&parse(json, file, VERSION)?),
        Some(ResultKind::Postgres) => postgres::text(&parse(json, file, VERSION)?),
        Some(ResultKind::Programs) => parse::<ProgramsRecord>(json, file, VERSION)?.text(),
        Some(ResultKind::ProgramSetups) => parse::<SetupsRecord>(json, file, VERSION)?.text(),
        Some(ResultKind::Crowd) => parse::<CrowdRecord>(json, file, VERSION)?.text(),
        Some(ResultKind::Mapped) => parse::<MappedRecord>(json, file, VERSION)?.text(),
        Some(ResultKind::Printed) => parse::<PrintedRecord>(json, file, VERSION)?.text(),
        _ => return Ok(None),
    }))
}

fn drawn_again<R: DeserializeOwned + Picture>(json: &str, file: &Path, picture: &Path) -> Result<()> {
    Ok(draw(&parse::<R>(json, file, VERSION)?, picture)?)
}
