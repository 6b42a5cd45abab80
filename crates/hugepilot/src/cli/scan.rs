//! `hugepilot scan`: which programs of this machine would gain by huge pages.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use heat::units::{Bytes, Slowdown};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use observe::calibrate;
use pilot::forecast::Estimator;
use pilot::machine::{Machine, require};
use pilot::programs::scan::{ScanFinding, rank, scan as scan_program};
use pilot::programs::{ProgramCensus, RunningProgram};

use super::args::ScanArgs;
use super::forecast::past_trials;
use super::terminal;
use crate::report::{ScanReport, json, scan_page, text};

/// CPU time is counted in steps of 10 ms, so that a second resolves a per cent.
const CPU_TIME_IS_COUNTED_FOR: Duration = Duration::from_secs(1);

pub(super) fn scan(args: &ScanArgs) -> anyhow::Result<()> {
    require::observing(args.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let root = Root::host();
    // Measured first, so that its load is not taken for that of the programs.
    calibrate::walk_cost(Bytes(0), terminal::say_measuring);
    let census = ProgramCensus::take(&root)?;
    stop.sleep_until(Instant::now() + CPU_TIME_IS_COUNTED_FOR)?;
    let programs = census.programs(&root, args.by.into(), args.smallest);
    let mut found = observe_each(programs, args, &stop)?;
    rank(&mut found);
    let report = ScanReport { found: &found, by: args.by.into(), smallest: args.smallest };
    if let Some(file) = &args.html {
        fs::write(file, scan_page::page(&report)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    terminal::print(&if args.json { json::scan(&report) } else { text::scan(&report) })
}

fn observe_each(
    programs: Vec<RunningProgram>,
    args: &ScanArgs,
    stop: &Stop,
) -> anyhow::Result<Vec<(RunningProgram, ScanFinding)>> {
    let mut machine = Machine::new(observe::open(args.tracker)?, Slowdown::UNASKED);
    let progress = terminal::progress(programs.len() as u64, "programs");
    let (past, mut found) = (past_trials(&args.forecast), Vec::new());
    for program in programs {
        let cost = |footprint| calibrate::walk_cost(footprint, || ()).0;
        let estimator = |footprint| Estimator::of(cost(footprint), &past, program.busiest);
        let _elsewhere = observe::keep_away_from(program.busiest.pid);
        let finding = scan_program(&program, &mut machine, estimator, stop)?;
        found.push((program, finding));
        progress.inc(1);
    }
    Ok(found)
}
