//! Tables for all reports, and printing them to the terminal.
//!
//! Owns: the alignment of columns, and the sign for empty cells. Never touches: their contents.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result};
use heat::statistics::Interval;

/// A dash if there is no text.
pub fn cell(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// A ratio with its interval.
pub fn interval(ratio: Option<Interval>) -> String {
    cell(ratio.map(|Interval { estimate, low, high, .. }| format!("{estimate:.3} [{low:.3}, {high:.3}]")))
}

/// Each value once, in order, as the rows of a table.
pub fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The first row of a table: the column headings, which ` | ` separates.
pub fn head(columns: &str) -> Vec<String> {
    columns.split(" | ").map(str::to_owned).collect()
}

/// A row of these texts.
pub fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Aligns columns: the first one left, numbers right.
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
