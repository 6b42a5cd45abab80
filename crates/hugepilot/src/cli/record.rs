//! `hugepilot record`: saves observations in a file.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use heat::units::{Bytes, Nanos};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use observe::{ObserveError, Tracker};
use pilot::machine::require;
use pilot::series::{Rhythm, Series};
use pilot::words::count_of;
use recording::{Moment, Recorder};

use super::args::RecordArgs;
use super::target::{self, Named};
use super::terminal;
use crate::report::{RecordReport, json, text};

/// The time between observations where observing is cheap.
const USUAL: Duration = Duration::from_secs(1);

pub(super) fn record(args: &RecordArgs) -> anyhow::Result<()> {
    require::observing(args.watch.tracker)?;
    let Named { target, .. } = target::find_one(&args.target)?;
    let _elsewhere = observe::keep_away_from(target.pid());
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut tracker = observe::open(args.watch.tracker)?;
    if args.output.exists() {
        bail!("{} is there already; delete it, or choose another name", args.output.display());
    }
    let mut recorder = Recorder::create(&args.output, &target.name)?;
    let started = Instant::now();
    let mut observations = 0;
    let observed = observe_until_end(args, &target, &mut *tracker, &mut recorder, &stop, &mut observations);
    recorder.finish()?;
    if observations == 0 {
        std::fs::remove_file(&args.output)?;
        observed?;
        bail!("ended before the first observation was over, so nothing was recorded");
    }
    observed?;
    if let (Some(length), None) = (args.length.filter(|_| !target.handle().has_exited()), args.every) {
        tell_if_early(length, started.elapsed(), observations, &stop);
    }
    let report = RecordReport {
        pid: target.pid(),
        name: &target.name,
        observations,
        elapsed: Nanos::from_duration(started.elapsed()),
        size: size_of(&args.output),
        path: &args.output,
    };
    terminal::print(&if args.json { json::record(&report) } else { text::record(&report) })
}

/// Observes until time is up, the process ends or a signal arrives; none of these is an error. Counts the observations.
fn observe_until_end(
    args: &RecordArgs,
    target: &Target,
    tracker: &mut dyn Tracker,
    recorder: &mut Recorder,
    stop: &Stop,
    observations: &mut u64,
) -> anyhow::Result<()> {
    let rhythm = Rhythm {
        at_least: USUAL,
        every: args.every.map(|every| every.duration()),
        length: args.length.map(|length| length.duration()),
        max_cpu: args.budget.max_cpu,
    };
    let progress = terminal::StatusLine::begin("Ctrl-C ends the recording");
    let series = Series::new(tracker, target, args.watch.options(), rhythm, stop);
    follow(series, target, stop, |moment| {
        recorder.add(&moment)?;
        *observations += 1;
        progress.show(&format!("{observations} observations, {}", size_of(&args.output)));
        Ok(())
    })
}

/// Says why observing ended before the time that was asked for.
pub(super) fn tell_if_early(length: Nanos, elapsed: Duration, observations: u64, stop: &Stop) {
    let missing = length.duration().saturating_sub(elapsed);
    if missing > length.duration() / 4 && !stop.requested() {
        terminal::note(&format!(
            "ended {} early, after {}: the next one would have begun too late for observing to take no more CPU time than --max-cpu \
             allows; raise that, as in --max-cpu 10%, or watch for longer",
            Nanos::from_duration(missing),
            count_of(observations, "observation")
        ));
    }
}

/// Saves every observation until time is up, the process ends or a stop is requested.
pub(super) fn follow(
    series: Series<'_>,
    target: &Target,
    stop: &Stop,
    mut take: impl FnMut(Moment) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for moment in series {
        match moment {
            Ok(moment) => take(moment)?,
            // The process now runs another program, whose memory is observed as well.
            Err(ObserveError::Exec { .. }) => {}
            // Its memory goes before the process counts as ended.
            Err(ObserveError::Exited { .. }) => break,
            Err(_) if stop.requested() || target.handle().has_exited() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn size_of(path: &Path) -> Bytes {
    Bytes(std::fs::metadata(path).map_or(0, |file| file.len()))
}
