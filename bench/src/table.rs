//! What all reports are made of: tables, and their way to the terminal.
//!
//! Owns: how columns line up, and what stands where there is nothing. Never touches: what is told.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result};
use heat::statistics::Interval;

/// A dash where there is nothing.
pub fn cell(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// A ratio with its interval.
pub fn interval(ratio: Option<Interval>) -> String {
    cell(ratio.map(|Interval { estimate, low, high, .. }| format!("{estimate:.3} [{low:.3}, {high:.3}]")))
}

/// Each of them once, in their order: what a table has rows for.
pub fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The first row of a table: what stands above each column, with ` | ` between them.
pub fn head(columns: &str) -> Vec<String> {
    columns.split(" | ").map(str::to_owned).collect()
}

/// A row of them.
pub fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Aligns columns: the first to the left, numbers to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text += "\n";
    }
    text
}

/// Prints a report.
pub fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [strings(&["a", "bbb"]), strings(&["aaaa", "b"])];
        assert_eq!(table(&rows), "a     bbb\naaaa    b\n");
    }
}
