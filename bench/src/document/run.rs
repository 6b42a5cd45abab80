//! A run whose raw results were kept, and its report.
//!
//! Owns: finding both. Never touches: what the report says. It is told anew from the raw results where this program can, so that today's
//! judgement counts; else it is the text that was kept beside them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heat::statistics::Interval;
use serde::Deserialize;

use super::definition::{CopiedTable, Source};
use super::report_text::{cell, judged, line, noise_of, section, table};
use crate::comparison::{Metric, noise_beside, ratio};
use crate::configuration::Configuration;
use crate::kept::{ResultKind, VERSION, parse, read_text};
use crate::machine::MachineDescription;
use crate::record::{Run, WorkloadRecord};
use crate::retell::told_again;
use crate::verdict::Bound;
use crate::verdict::FigureVerdict;

/// One run.
pub(super) struct KeptRun {
    file: PathBuf,
    /// None of a simulation.
    pub(super) machine: Option<MachineDescription>,
    text: String,
    kind: Option<ResultKind>,
    workloads: Option<WorkloadRecord>,
}

/// A figure as a table shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShownFigure {
    pub(super) numbers: String,
    /// The same measured against itself.
    pub(super) noise: Option<String>,
    pub(super) verdict: Option<String>,
}

impl KeptRun {
    /// Opens what was kept below a directory under a name without an extension.
    pub(super) fn open(runs: &Path, name: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            machine: Option<MachineDescription>,
        }
        let file = runs.join(format!("{name}.json.zst"));
        let json = read_text(&file)?;
        let Head { machine } =
            serde_json::from_str(&json).with_context(|| format!("{} is no result", file.display()))?;
        let kept = || {
            let path = file.with_extension("").with_extension("txt");
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let text = told_again(&json, &file)?.map_or_else(kept, Ok)?;
        let kind = ResultKind::of(&json);
        let workloads = if kind == Some(ResultKind::Workloads) { Some(parse(&json, &file, VERSION)?) } else { None };
        Ok(Self { file, machine, text, kind, workloads })
    }

    /// Whether `decide` and `observe` have a part in it.
    pub(super) fn depends_on_rules(&self) -> bool {
        !matches!(self.kind, Some(ResultKind::Lists | ResultKind::Transpose | ResultKind::Sort))
    }

    /// Its report.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A cell of a table in its report; None if there is no such row or column.
    pub(super) fn cell(&self, row: &str, column: &str) -> Option<&str> {
        cell(&self.text, row, column)
    }

    /// A table of its report as Markdown.
    pub(super) fn table(&self, copied: &CopiedTable) -> Result<String> {
        let below = section(&self.text, copied.section.as_deref());
        let table = below.and_then(|below| table(below, copied.columns.first()?));
        let [head, rows @ ..] = &table.with_context(|| format!("{} has no such table", self.file.display()))?[..]
        else {
            bail!("{} has an empty table", self.file.display())
        };
        let position = |column: &String| head.iter().position(|head| head == column);
        let positions: Option<Vec<usize>> = copied.columns.iter().map(position).collect();
        let positions = positions.with_context(|| format!("{} lacks a column", self.file.display()))?;
        let line = |name: &str, row: &[&str]| {
            let cells = std::iter::once(name).chain(positions.iter().map(|&position| row[position]));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(head[0], head) + "|" + &"---|".repeat(positions.len() + 1) + "\n";
        for [name, words] in &copied.rows {
            let row = rows.iter().find(|row| row[0] == name);
            text += &line(words, row.with_context(|| format!("{} has no row '{name}'", self.file.display()))?);
        }
        Ok(text)
    }

    /// A figure of it.
    pub(super) fn figure(&self, source: &Source, of: Option<&str>, bound: Option<Bound>) -> Result<ShownFigure> {
        let below = section(&self.text, of)
            .with_context(|| format!("{} has no '{}'", self.file.display(), of.unwrap_or_default()))?;
        let missing = |what: &str| format!("{} has no {what}", self.file.display());
        match source {
            Source::Judged(words) => {
                let (numbers, verdict) = judged(below, words).with_context(|| missing(&format!("figure '{words}'")))?;
                let owned = |text: Option<&str>| text.map(str::to_owned);
                Ok(ShownFigure { numbers: owned(numbers).unwrap_or_default(), noise: None, verdict: owned(verdict) })
            }
            Source::Line(words) => {
                let rest = line(below, words).with_context(|| missing(&format!("line '{words}'")))?;
                Ok(ShownFigure { numbers: rest.to_owned(), noise: None, verdict: None })
            }
            Source::Cell([row, column]) => {
                let found = cell(below, row, column).with_context(|| missing(&format!("'{column}' of '{row}'")))?;
                let again =
                    cell(below, "default-again", column).filter(|again| again.contains('[') && row != "default-again");
                let again = again.or_else(|| noise_of(below, row, column).filter(|_| found.contains('[')));
                Ok(ShownFigure { numbers: found.to_owned(), noise: again.map(str::to_owned), verdict: None })
            }
            Source::Throughput(pair) => self.ratio(Metric::Throughput, pair, of, bound),
            Source::Memory(pair) => self.ratio(Metric::OwnMemory, pair, of, bound),
            Source::MachineMemory(pair) => self.ratio(Metric::MachineMemory, pair, of, bound),
        }
    }

    fn ratio(&self, metric: Metric, pair: &str, of: Option<&str>, bound: Option<Bound>) -> Result<ShownFigure> {
        let run = self.workload(of)?;
        let (subject, reference) =
            pair.split_once('/').context("two configurations are written as `hugepilot/default`")?;
        let (subject, reference) = (configuration(subject)?, configuration(reference)?);
        let seen = ratio(run, metric, subject, reference);
        let seen = seen.with_context(|| format!("{} has no round with {pair}", self.file.display()))?;
        let noise = noise_beside(run, metric, reference);
        let judged = |bound| match noise {
            Some(noise) => FigureVerdict::of(&seen, &noise, bound),
            None => FigureVerdict::NotMeasured,
        };
        let shown = |ratio: &Interval| if metric == Metric::Throughput { as_ratio(ratio) } else { as_growth(ratio) };
        Ok(ShownFigure {
            numbers: shown(&seen),
            noise: noise.as_ref().map(shown),
            verdict: bound.map(|bound| judged(bound).to_string()),
        })
    }

    fn workload(&self, name: Option<&str>) -> Result<&Run> {
        let runs = self.workloads.iter().flat_map(|record| &record.runs);
        let mut wanted = runs.filter(|run| name.is_none_or(|name| run.workload == name));
        match (wanted.next(), wanted.next()) {
            (Some(run), None) => Ok(run),
            (Some(_), Some(_)) => bail!("{} has several workloads: name one as `section`", self.file.display()),
            (None, _) => bail!("{} has no workload '{}'", self.file.display(), name.unwrap_or_default()),
        }
    }
}

fn configuration(name: &str) -> Result<Configuration> {
    clap::ValueEnum::from_str(name, false).map_err(|_| anyhow::anyhow!("there is no configuration '{name}'"))
}

fn as_ratio(Interval { estimate, low, high, .. }: &Interval) -> String {
    format!("{estimate:.3} [{low:.3}, {high:.3}]")
}

fn as_growth(ratio: &Interval) -> String {
    let percent = |value: f64| 100.0 * (value - 1.0);
    let Interval { estimate, low, high, .. } = *ratio;
    format!("{:+.3} % [{:+.3}, {:+.3}]", percent(estimate), percent(low), percent(high))
}
