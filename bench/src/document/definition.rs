//! What the tables of a document show: a TOML file beside it.
//!
//! Owns: its shape. Never touches: results.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// All tables of a document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub(super) rules: Rules,
    #[serde(rename = "table")]
    pub(super) tables: Vec<TableDefinition>,
    /// The picture of all programs that were on trial.
    #[serde(default)]
    pub(super) programs: Option<ProgramsPicture>,
}

/// What `decide` and `observe` decide and see today. Runs of earlier rules are marked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    /// The day on which they last changed.
    pub(super) changed: String,
    /// The commits of that day that have them already.
    pub(super) commits: Vec<String>,
}

impl Rules {
    /// Whether a run of this day and commit had earlier ones.
    pub(super) fn are_later_than(&self, date: &str, commit: Option<&str>) -> bool {
        let has_them = |commit: &str| self.commits.iter().any(|with_them| commit.starts_with(with_them.as_str()));
        match date.cmp(&self.changed) {
            Ordering::Less => true,
            Ordering::Equal => !commit.is_some_and(has_them),
            Ordering::Greater => false,
        }
    }
}

/// The picture of all programs that were on trial.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramsPicture {
    /// Its name beside the documents.
    pub(super) file: String,
    /// The document with the same as a table, between `<!-- programs -->` and `<!-- end of programs -->`.
    pub(super) summary: String,
    /// The runs, as of a [`Row`].
    pub(super) runs: Vec<String>,
}

/// One table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableDefinition {
    /// It stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
    pub(super) name: String,
    /// Whether the published figures stand beside ours.
    #[serde(default)]
    pub(super) published: bool,
    #[serde(rename = "row", default)]
    pub(super) rows: Vec<Row>,
    /// A table of a report, in place of rows.
    #[serde(default)]
    pub(super) copied: Option<CopiedTable>,
    /// One column of many reports, in place of rows.
    #[serde(default)]
    pub(super) collected: Option<CollectedTable>,
}

/// The same column of many reports: each run is a row, and each row of its report a column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectedTable {
    /// The column of the reports.
    pub(super) column: String,
    /// What the runs are.
    pub(super) head: String,
    /// The rows of the reports, each with what stands above it.
    pub(super) cells: Vec<[String; 2]>,
    /// What each run is about, and the run as of a [`Row`].
    pub(super) runs: Vec<[String; 2]>,
}

/// A table as a report has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CopiedTable {
    /// The run, as of a [`Row`].
    pub(super) run: String,
    /// As of a [`Row`].
    #[serde(default)]
    pub(super) section: Option<String>,
    /// The columns to show beside the first; no other table has the first of these.
    pub(super) columns: Vec<String>,
    /// The rows to show, each by its first cell, and what is shown for that.
    pub(super) rows: Vec<[String; 2]>,
}

/// One row: a figure of one run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// What it is, in words.
    pub(super) figure: String,
    /// What was published; nothing where it was not.
    #[serde(default)]
    pub(super) published: Option<String>,
    /// The run, below the directory of raw results, without an extension.
    pub(super) run: String,
    /// The workload, where a run has several: its tables and figures stand below the line that begins with this.
    #[serde(default)]
    pub(super) section: Option<String>,
    #[serde(flatten)]
    pub(super) source: Source,
    /// Held against this, where the report has no verdict of its own.
    #[serde(default)]
    pub(super) at_least: Option<f64>,
    #[serde(default)]
    pub(super) at_most: Option<f64>,
}

/// Where in a run's results a figure stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// A line below `figures` in the report: the words that it begins with.
    Judged(String),
    /// A line of the report: what follows these words on the first line that has them.
    Line(String),
    /// A cell of a table in the report: its row, and its column.
    Cell([String; 2]),
    /// Two configurations of a workload, such as `hugepilot/default`, by their throughput.
    Throughput(String),
    /// The same, by the memory that the program has for itself.
    Memory(String),
    /// The same, by the memory that the machine has less of.
    MachineMemory(String),
}

impl Definition {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let definition: Self = toml::from_str(&text)
            .with_context(|| format!("{} is not as `hugepilot-bench document` needs it", path.display()))?;
        let is_short = |commit: &String| commit.len() < 7;
        ensure!(
            !definition.rules.commits.iter().any(is_short),
            "a commit in {} has fewer than 7 digits",
            path.display()
        );
        Ok(definition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_one_source_and_nothing_that_nobody_knows() {
        let read = |keys: &str| toml::from_str::<Row>(&format!("figure = 'a'\nrun = 'b'\n{keys}"));
        assert!(read("throughput = 'hugepilot/default'\nat_least = 1.0").is_ok());
        assert!(read("cell = ['a row', 'a column']").is_ok());
        assert!(read("").is_err());
        assert!(read("judged = 'a figure'\nat-lest = 1.0").is_err());
    }
}
