//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;

use crate::kept::{ResultKind, ResultsBinary, read_text};
use crate::record::WorkloadRecord;
use crate::table::print;
use crate::{felt, io, picture, postgres, report, servers};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    match ResultKind::of(&text) {
        Some(ResultKind::Workloads) => {
            let record = WorkloadRecord::parse(&text, file)?;
            print(&report::text(&record))?;
            plot_to.map_or(Ok(()), |path| picture::draw(&record, path))
        }
        Some(ResultKind::Felt) => felt::report(&felt::FeltRecord::parse(&text, file)?, plot_to),
        Some(ResultKind::Io) => io::retell(&text, file, plot_to),
        Some(ResultKind::Postgres) => postgres::report(&postgres::PostgresRecord::parse(&text, file)?),
        Some(ResultKind::Servers) => print(&servers::ServersRecord::parse(&text, file)?.text()),
        other => Err(ResultsBinary::Bench.refusal(file, other)),
    }
}
