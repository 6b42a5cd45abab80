//! A run whose raw results were kept, and its report.
//!
//! Owns: finding both. Never touches: what the report says. It is told anew from the raw results where this program can, so that today's
//! judgement counts; else it is the text that was kept beside them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heat::statistics::Interval;
use serde::Deserialize;

use super::definition::Source;
use super::report_text::{cell, judged, section};
use crate::comparison::{Metric, noise, ratio};
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
    pub(super) machine: MachineDescription,
    text: String,
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
            machine: MachineDescription,
        }
        let file = runs.join(format!("{name}.json.zst"));
        let json = read_text(&file)?;
        let Head { machine } =
            serde_json::from_str(&json).with_context(|| format!("{} names no machine", file.display()))?;
        let kept = || {
            let path = file.with_extension("").with_extension("txt");
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let text = told_again(&json, &file)?.map_or_else(kept, Ok)?;
        let is_of_workloads = ResultKind::of(&json) == Some(ResultKind::Workloads);
        let workloads = if is_of_workloads { Some(parse(&json, &file, VERSION)?) } else { None };
        Ok(Self { file, machine, text, workloads })
    }

    /// Its report.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A figure of it.
    pub(super) fn figure(&self, source: &Source, of: Option<&str>, bound: Option<Bound>) -> Result<ShownFigure> {
        let below = section(&self.text, of)
            .with_context(|| format!("{} has no '{}'", self.file.display(), of.unwrap_or_default()))?;
        let missing = |what: &str| format!("{} has no {what}", self.file.display());
        match source {
            Source::Judged(words) => {
                let (numbers, verdict) = judged(below, words).with_context(|| missing(&format!("figure '{words}'")))?;
                Ok(ShownFigure { numbers: numbers.to_owned(), noise: None, verdict: Some(verdict.to_owned()) })
            }
            Source::Cell([row, column]) => {
                let found = cell(below, row, column).with_context(|| missing(&format!("'{column}' of '{row}'")))?;
                let again =
                    cell(below, "default-again", column).filter(|again| again.contains('[') && row != "default-again");
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
        let seen = ratio(run, metric, configuration(subject)?, configuration(reference)?);
        let seen = seen.with_context(|| format!("{} has no round with {pair}", self.file.display()))?;
        let noise = noise(run, metric);
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
