//! `hugepilot record`: keep observations in a file.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::args::RecordArgs;
use super::{require, terminal};
use crate::observe::{self, ObserveError, Tracker};
use crate::pilot::page_tables;
use crate::recording::{Moment, Recorder};
use crate::stop::{SecondSignal, Stop};
use crate::target::Target;
use crate::units::{Bytes, Nanos};

/// From one observation to the next, where looking costs little.
const USUAL: Duration = Duration::from_secs(1);

pub(super) fn record(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    require::observing(args.watch.tracker)?;
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut tracker = observe::open(args.watch.tracker)?;
    if args.output.exists() {
        bail!("{} is there already; delete it, or choose another name", args.output.display());
    }
    let mut recorder = Recorder::create(&args.output, &target.name)?;
    let started = Instant::now();
    let observations = observe_until_end(args, &target, &mut *tracker, &mut recorder, &stop)?;
    recorder.finish()?;
    if observations == 0 {
        std::fs::remove_file(&args.output)?;
        bail!("ended before the first observation was over, so nothing was recorded");
    }
    let size = Bytes(std::fs::metadata(&args.output)?.len());
    terminal::print(&format!(
        "{observations} observations of process {} ({}) over {}: {size} in {path}\nlook at them with: hugepilot replay {path}\n",
        target.pid(),
        target.name,
        Nanos::from_duration(started.elapsed()),
        path = args.output.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Observes until time is up, the process ends or a signal comes, all of which are proper ends; the number of observations.
fn observe_until_end(
    args: &RecordArgs,
    target: &Target,
    tracker: &mut dyn Tracker,
    recorder: &mut Recorder,
    stop: &Stop,
) -> anyhow::Result<u64> {
    let started = Instant::now();
    let end = args.length.map(|length| started + length.duration());
    let progress = terminal::Counting::begin();
    let mut observations = 0;
    loop {
        let began = Instant::now();
        let mut pause = args.every.map(|every| every.duration());
        match tracker.observe(target, &args.watch.options(), stop) {
            Ok(heat) => {
                pause = pause.or(Some(USUAL.max(heat.cost.rest())));
                let at = Nanos::from_duration(started.elapsed());
                recorder.add(&Moment { at, heat, page_tables: page_tables(target) })?;
                observations += 1;
                progress.show(observations, size_of(&args.output));
            }
            Err(ObserveError::Stopped(_)) => return Ok(observations),
            Err(_) if target.handle().has_exited() => return Ok(observations),
            // Another program from now on, whose memory is looked at as well.
            Err(ObserveError::Exec { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let next = began + pause.unwrap_or(USUAL);
        let over = end.is_some_and(|end| Instant::now() + Duration::from_millis(1) >= end);
        if over || stop.sleep_until(end.map_or(next, |end| end.min(next))).is_err() {
            return Ok(observations);
        }
    }
}

fn size_of(path: &Path) -> Bytes {
    Bytes(std::fs::metadata(path).map_or(0, |file| file.len()))
}
