//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;
use serde::de::DeserializeOwned;

use crate::felt::FeltRecord;
use crate::kept::{ResultKind, ResultsBinary, VERSION, parse, read_text};
use crate::picture::{Picture, draw};
use crate::postgres::PostgresRecord;
use crate::record::WorkloadRecord;
use crate::servers::ServersRecord;
use crate::table::print;
use crate::{felt, io, postgres, report};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let json = read_text(file)?;
    match ResultKind::of(&json) {
        Some(ResultKind::Workloads) => with_picture::<WorkloadRecord>(&json, file, report::text, plot_to),
        Some(ResultKind::Felt) => with_picture::<FeltRecord>(&json, file, felt::text, plot_to),
        Some(ResultKind::Io) => with_picture::<io::Record>(&json, file, io::text, plot_to),
        Some(ResultKind::Postgres) => print(&postgres::text(&parse::<PostgresRecord>(&json, file, VERSION)?)),
        Some(ResultKind::Servers) => print(&parse::<ServersRecord>(&json, file, VERSION)?.text()),
        other => Err(ResultsBinary::Bench.refusal(file, other)),
    }
}

fn with_picture<R>(json: &str, file: &Path, text: fn(&R) -> String, plot_to: Option<&Path>) -> Result<()>
where
    R: DeserializeOwned + Picture,
{
    let record = parse(json, file, VERSION)?;
    print(&text(&record))?;
    plot_to.map_or(Ok(()), |path| draw(&record, path))
}
