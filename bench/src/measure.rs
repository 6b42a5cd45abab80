//! The whole of a measurement: everything is prepared, run, put back, written and reported, whatever happens on the way.
//!
//! Owns: the order of these. Never touches: how any of them is done.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::args::Common;
use crate::configuration::Configuration;
use crate::machine::{Machine, slug};
use crate::record::{Record, Run};
use crate::run::{announce, run_rounds};
use crate::settings::Settings;
use crate::stop::{Interrupted, Stop};
use crate::tool::Tool;
use crate::turn::{Bench, Timing};
use crate::workload::Workload;
use crate::{plot, report};

/// Measures workloads one after the other, and reports what was measured even when it ends early.
pub fn measure(
    common: &Common,
    usual: &[Configuration],
    usual_wait: f64,
    samples: usize,
    workloads: &[Box<dyn Workload>],
) -> Result<()> {
    let configurations = if common.configurations.is_empty() { usual } else { &common.configurations };
    let needs_tool = configurations.iter().any(|configuration| configuration.needs_hugepilot());
    let tool = needs_tool.then(|| Tool::find(common.hugepilot.clone())).transpose()?;
    common.plot.as_deref().map_or(Ok(()), plot::check_name)?;
    let stop = Stop::on_signals()?;
    let mut settings = Settings::of_this_machine()?;
    let mut record = Record::new(Machine::describe(&settings)?);
    let timing = Timing {
        settle: Duration::from_secs_f64(common.settle),
        wait: Duration::from_secs_f64(common.wait.unwrap_or(usual_wait)),
        measure: Duration::from_secs_f64(common.seconds),
        samples,
    };
    let mut ended = Ok(());
    for workload in workloads {
        let workload = &**workload;
        let mut bench = Bench { workload, settings: &mut settings, tool: tool.as_ref(), timing, stop: &stop };
        let mut run = Run {
            workload: workload.name(),
            description: workload.description(),
            unit: workload.unit().to_owned(),
            rounds: common.rounds.unwrap_or(if common.quick { 3 } else { 20 }),
            seed: common.seed,
            turns: Vec::new(),
        };
        announce(&bench, configurations, &run);
        ended = run_rounds(&mut bench, configurations, &mut run);
        record.runs.push(run);
        if ended.is_err() {
            break;
        }
    }
    settings.restore()?;
    write_all(common, &record)?;
    match ended {
        // Whatever failed, failed because the user wanted an end.
        Err(_) if stop.requested() => Err(Interrupted.into()),
        ended => ended,
    }
}

/// Shows the report of a file of raw results.
pub fn report(file: &Path, plot_to: Option<&Path>) -> Result<()> {
    let record = Record::read(file)?;
    print(&report::text(&record))?;
    plot_to.map_or(Ok(()), |path| plot::draw(&record, path))
}

fn write_all(common: &Common, record: &Record) -> Result<()> {
    if record.runs.iter().all(|run| run.turns.is_empty()) {
        return Ok(());
    }
    let text = report::text(record);
    let printed = print(&text);
    if let Some(path) = &common.json {
        record.write(path)?;
    }
    if let Some(directory) = &common.keep {
        keep(&directory.join(record.machine.directory_name()), record, &text)?;
    }
    common.plot.as_deref().map_or(Ok(()), |path| plot::draw(record, path))?;
    // Last, because a closed output must not cost the files.
    printed
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

/// Keeps results under the first name that is free: results of a real run are never written over.
fn keep(directory: &Path, record: &Record, text: &str) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let names: Vec<String> = record.runs.iter().map(|run| slug(&run.workload)).collect();
    let free = |number: &u32| !directory.join(format!("{}-{number}.json", names.join("+"))).exists();
    let name = format!("{}-{}", names.join("+"), (1..).find(free).context("no name is free")?);
    record.write(&directory.join(format!("{name}.json")))?;
    fs::write(directory.join(format!("{name}.txt")), text)?;
    plot::draw(record, &directory.join(format!("{name}.svg")))?;
    eprintln!("kept in {}/{name}.*", directory.display());
    Ok(())
}
