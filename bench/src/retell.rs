//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;

use crate::kept::{Kind, Program, read_text};
use crate::record::Record;
use crate::table::print;
use crate::{felt, io, picture, postgres, report, servers};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    match Kind::of(&text) {
        Some(Kind::Workloads) => {
            let record = Record::parse(&text, file)?;
            print(&report::text(&record))?;
            plot_to.map_or(Ok(()), |path| picture::draw(&record, path))
        }
        Some(Kind::Felt) => felt::report(&felt::Record::parse(&text, file)?, plot_to),
        Some(Kind::Io) => io::retell(&text, file, plot_to),
        Some(Kind::Postgres) => postgres::report(&postgres::Record::parse(&text, file)?),
        Some(Kind::Servers) => print(&servers::Record::parse(&text, file)?.text()),
        other => Err(Program::Bench.refusal(file, other)),
    }
}
