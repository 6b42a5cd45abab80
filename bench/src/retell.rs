//! Results that were kept, told again.
//!
//! Owns: which report a file gets. Never touches: what the reports say.

use std::path::Path;

use anyhow::Result;

use crate::outputs::read_text;
use crate::record::Record;
use crate::table::print;
use crate::{felt, picture, postgres, report, servers};

/// Shows the report of a file of raw results.
pub fn retell(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let text = read_text(file)?;
    if let Some(record) = postgres::Record::parse(&text, file)? {
        return postgres::report(&record);
    }
    if let Some(record) = servers::Record::parse(&text, file)? {
        return print(&record.text());
    }
    if let Some(record) = felt::Record::parse(&text, file)? {
        return felt::report(&record, plot_to);
    }
    let record = Record::parse(&text, file)?;
    print(&report::text(&record))?;
    plot_to.map_or(Ok(()), |path| picture::draw(&record, path))
}
