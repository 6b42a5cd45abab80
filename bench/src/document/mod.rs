//! Tables of documents, written from raw results that were kept.
//!
//! Owns: which rows a table has (a file beside the documents says so), and in which document it stands. Never touches: prose, or what a
//! figure comes to; the reports say that.

mod definition;
mod report_text;
mod run;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::definition::{Definition, ProgramsPicture};
use self::run::KeptRun;
use self::write::write_tables;
use crate::kept::{VERSION, parse, read_text};
use crate::programs::ProgramsRecord;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench document                                  writes the tables of docs/results anew
  hugepilot-bench document --check                          only says whether they are as the raw results have them
  hugepilot-bench document --figures 2026-11-25-MACHINE/memcached-1
                                                            what a row can ask for: the report of a run

A row of docs/results/tables.toml names the run, and what to take from it: a line of its figures, a cell of its tables, or the ratio of two
configurations.";

const SUMMARY_BEGINS: &str = "<!-- programs -->\n";
const SUMMARY_ENDS: &str = "<!-- end of programs -->\n";

/// `document`
#[derive(Clone, Debug, clap::Args)]
pub struct DocumentArguments {
    /// Where the documents are; what their tables show stands beside them, in tables.toml
    #[arg(default_value = "docs/results")]
    documents: PathBuf,
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
        let paths = self.paths()?;
        let read = |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let texts: Vec<String> = paths.iter().map(read).collect::<Result<_>>()?;
        let mut written = texts.clone();
        let definition = Definition::read(&self.documents.join("tables.toml"))?;
        write_tables(&mut written, &definition, &self.runs)?;
        let changed = paths.iter().zip(texts.iter().zip(&written)).filter(|(_, (text, written))| text != written);
        for (path, (_, written)) in changed {
            let shown = path.display();
            if self.check {
                bail!("tables in {shown} are not as the raw results have them: `hugepilot-bench document` writes them");
            }
            fs::write(path, written).with_context(|| format!("cannot write {shown}"))?;
        }
        definition.programs.as_ref().map_or(Ok(()), |wanted| self.draw_programs(wanted))
    }

    /// Writes the table of all programs into a document, or checks it.
    fn write_summary(&self, all: &ProgramsRecord, path: &Path) -> Result<()> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let parts =
            text.split_once(SUMMARY_BEGINS).and_then(|(before, rest)| Some((before, rest.split_once(SUMMARY_ENDS)?.1)));
        let (before, after) = parts.with_context(|| format!("{shown} has no place for the table of programs"))?;
        let written = format!("{before}{SUMMARY_BEGINS}\n{}\n{SUMMARY_ENDS}{after}", all.summary());
        if written != text && self.check {
            bail!(
                "the programs in {shown} are not as the raw results have them: `hugepilot-bench document` writes them"
            );
        }
        if written != text {
            fs::write(path, written).with_context(|| format!("cannot write {shown}"))?;
        }
        Ok(())
    }

    /// Draws the picture of all programs, or checks it.
    fn draw_programs(&self, wanted: &ProgramsPicture) -> Result<()> {
        let read = |name: &String| -> Result<ProgramsRecord> {
            let file = self.runs.join(format!("{name}.json.zst"));
            parse(&read_text(&file)?, &file, VERSION)
        };
        let runs = wanted.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
        let all = runs.into_iter().reduce(ProgramsRecord::with).context("the picture of programs names no runs")?;
        let path = self.documents.join(&wanted.file);
        let svg = picture::svg(&all)?;
        self.write_summary(&all, &self.documents.join(&wanted.summary))?;
        if !self.check {
            return Ok(picture::save(&svg, &path)?);
        }
        if read_text(&path)? != svg {
            bail!("{} is not as the raw results have it: `hugepilot-bench document` draws it", path.display());
        }
        Ok(())
    }

    /// The documents, by name.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let directory = self.documents.display();
        let entries = fs::read_dir(&self.documents).with_context(|| format!("cannot read {directory}"))?;
        let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let mut paths: Vec<PathBuf> =
            paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
        paths.sort();
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_documents_are_as_the_raw_results_have_them() {
        let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let documents = repository.join("docs/results");
        DocumentArguments { documents, runs: repository.join("bench/runs"), check: true, figures: None }.run().unwrap();
    }
}
