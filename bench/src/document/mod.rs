//! Tables of documents, written from raw results that were kept.
//!
//! Owns: which rows a table has (a file beside the document says so), and where in the document it stands. Never touches: prose, or what a
//! figure comes to; the reports say that.

mod definition;
mod report_text;
mod run;
mod write;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::definition::Definition;
use self::run::KeptRun;
use self::write::with_tables;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench document                                  writes the tables of docs/REPRODUCTION.md anew
  hugepilot-bench document --check                          only says whether they are as the raw results have them
  hugepilot-bench document --figures 2026-11-25-MACHINE/memcached-1
                                                            what a row can ask for: the report of a run

A row of docs/reproduction.toml names the run, and what to take from it: a line of its figures, a cell of its tables, or the ratio of two
configurations.";

/// `document`
#[derive(Clone, Debug, clap::Args)]
pub struct DocumentArguments {
    /// The document; what its tables show stands beside it, in a file of the same name in lower case that ends in .toml
    #[arg(default_value = "docs/REPRODUCTION.md")]
    document: PathBuf,
    /// Where raw results are kept
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/runs")]
    runs: PathBuf,
    /// Change nothing; end with an error where a table is not as the raw results have it
    #[arg(long)]
    check: bool,
    /// Show the report of a run instead, from which rows take their figures
    #[arg(long, value_name = "RUN")]
    figures: Option<String>,
}

impl DocumentArguments {
    /// Writes the tables, or checks them.
    pub fn run(&self) -> Result<()> {
        if let Some(name) = &self.figures {
            return crate::table::print(KeptRun::open(&self.runs, name)?.text());
        }
        let document = self.document.display();
        let text = fs::read_to_string(&self.document).with_context(|| format!("cannot read {document}"))?;
        let definition = Definition::read(&self.definition())?;
        let written = with_tables(&text, &definition, &self.runs)?;
        if written == text {
            return Ok(());
        }
        if self.check {
            bail!("tables in {document} are not as the raw results have them: `hugepilot-bench document` writes them");
        }
        fs::write(&self.document, written).with_context(|| format!("cannot write {document}"))
    }

    fn definition(&self) -> PathBuf {
        let name = self.document.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        self.document.with_file_name(name + ".toml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_documents_are_as_the_raw_results_have_them() {
        let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let document = repository.join("docs/REPRODUCTION.md");
        DocumentArguments { document, runs: repository.join("bench/runs"), check: true, figures: None }.run().unwrap();
    }
}
