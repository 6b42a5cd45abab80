//! A complete measurement: everything is prepared, run, restored, written and reported, whatever happens in between.
//!
//! Owns: the order of these. Never touches: how any of them is done.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use heat::units::{Bytes, GIANT_PAGE};
use hugepilot_os::stop::{SecondSignal, Stop};

use crate::common::Common;
use crate::configuration::Configuration;
use crate::machine::{MachineDescription, slug};
use crate::outputs::{Results, json_lines};
use crate::pool::FilledPool;
use crate::record::{Run, WorkloadRecord};
use crate::run::{announce, run_rounds};
use crate::settings::SavedSettings;
use crate::tool::Tool;
use crate::turn::{Bench, Timing};
use crate::workload::Workload;
use crate::{launch, report, rounds};

/// Measures workloads one after the other, and reports what was measured even if it ends early.
pub fn measure(
    common: &Common,
    usual: &[Configuration],
    samples: usize,
    workloads: &[Box<dyn Workload>],
) -> Result<()> {
    let (configurations, missing) = configurations_for(common, usual)?;
    let needs_tool = configurations.iter().any(|configuration| configuration.needs_hugepilot());
    let tool = needs_tool.then(|| Tool::find(common.hugepilot.clone())).transpose()?;
    common.outputs.check()?;
    let stop = Stop::on_signals(SecondSignal::Waits)?;
    let mut settings = SavedSettings::of_this_machine()?;
    take_giant_pages(&mut settings, &configurations, workloads)?;
    let mut record = WorkloadRecord::new(MachineDescription::describe(&settings)?);
    let timing = timing(common, samples);
    let ended = workloads.iter().try_for_each(|workload| {
        let mut bench =
            Bench { workload: &**workload, settings: &mut settings, tool: tool.as_ref(), timing, stop: &stop };
        let mut run = empty_run(common, &**workload, &missing);
        announce(&bench, &configurations, &run);
        let ended = run_rounds(&mut bench, &configurations, &mut run);
        record.runs.push(run);
        ended
    });
    settings.restore_all()?;
    write_all(common, &record)?;
    rounds::ended(ended, &stop, "kept")
}

/// Pages of 1 GiB for the largest program, where a configuration needs some; nothing has run yet that breaks memory up.
fn take_giant_pages(
    settings: &mut SavedSettings,
    configurations: &[Configuration],
    workloads: &[Box<dyn Workload>],
) -> Result<()> {
    let giant = Bytes(GIANT_PAGE);
    if configurations.iter().any(|configuration| configuration.pool() == Some(giant)) {
        let memory = workloads.iter().map(|workload| workload.memory_bytes()).max().unwrap_or(0);
        FilledPool::for_program(settings, giant, Bytes(memory))?.fill(settings)?;
    }
    Ok(())
}

/// Those asked for, or the usual ones, that can be measured, and why not the others. Errors: none is left, or one cannot be as asked for.
fn configurations_for(common: &Common, usual: &[Configuration]) -> Result<(Vec<Configuration>, Vec<String>)> {
    let configurations = if common.configurations.is_empty() { usual } else { &common.configurations };
    let (configurations, missing) = possible_here(configurations);
    if configurations.is_empty() {
        bail!("nothing can be measured here: {}", missing.join(", "));
    }
    if let Some(misfit) = configurations.iter().find(|each| common.one_process && !each.fits_any_process()) {
        bail!(
            "'{misfit}' needs a process of its own from the start on: leave out --one-process, or choose --configurations"
        );
    }
    Ok((configurations, missing))
}

fn timing(common: &Common, samples: usize) -> Timing {
    Timing {
        settle: Duration::from_secs_f64(common.settle),
        wait: Duration::from_secs_f64(common.wait),
        measure: Duration::from_secs_f64(common.seconds),
        samples,
        operations: common.operations,
    }
}

fn empty_run(common: &Common, workload: &dyn Workload, missing: &[String]) -> Run {
    Run {
        workload: workload.name(),
        description: workload.description(),
        unit: workload.unit().to_owned(),
        rounds: common.rounds.unwrap_or(if common.quick { 3 } else { 20 }),
        seed: common.seed,
        one_process: common.one_process,
        frontier: workload.frontier(),
        missing: missing.to_vec(),
        turns: Vec::new(),
    }
}

/// The configurations that this machine can be measured under, and why not the others.
fn possible_here(configurations: &[Configuration]) -> (Vec<Configuration>, Vec<String>) {
    let (mut possible, mut missing) = (Vec::new(), Vec::new());
    for &configuration in configurations {
        match launch::missing(configuration) {
            None => possible.push(configuration),
            Some(why) => missing.push(format!("{configuration} ({why})")),
        }
    }
    (possible, missing)
}

fn write_all(common: &Common, record: &WorkloadRecord) -> Result<()> {
    if record.runs.iter().all(|run| run.turns.is_empty()) {
        return Ok(());
    }
    let text = report::text(record);
    let names: Vec<String> = record.runs.iter().map(|run| slug(&run.workload)).collect();
    let (name, json) = (names.join("+"), json_lines(record, "round")?);
    let draw = |path: &Path| Ok(picture::draw(record, path)?);
    common.outputs.tell(&record.machine, &Results { name: &name, json, text: &text, draw: Some(&draw) })
}
