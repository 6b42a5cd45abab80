//! `hugepilot heat`: shows where the page walks are.

use std::time::Instant;

use anyhow::{Context, bail};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::Root;
use kernel::target::Target;
use pilot::group::observe_group;
use pilot::machine::require;
use pilot::series::{Rhythm, Series};
use recording::Moment;

use super::args::HeatArgs;
use super::record::tell_if_early;
use super::{live, target, terminal};
use crate::report::heat_grid::HeatRecorder;
use crate::report::page_counts::PageCounts;
use crate::report::{json, text};

pub(super) fn heat(args: &HeatArgs) -> anyhow::Result<()> {
    require::observing(args.watch.tracker)?;
    let processes = target::processes(&args.target)?;
    match (&processes[..], args.of_one_process()) {
        (&[pid], _) => of_process(args, pid),
        (_, None) => group(args, &processes),
        (several, Some(option)) => bail!(
            "{} processes are meant, and {option} shows one: name it by its process id (`hugepilot scan` shows the busiest)",
            several.len()
        ),
    }
}

fn of_process(args: &HeatArgs, pid: u32) -> anyhow::Result<()> {
    let target = Target::open(pid)?;
    let _elsewhere = observe::keep_away_from(target.pid());
    // The live view must restore the terminal before it ends.
    let stop = Stop::on_signals(if args.live { SecondSignal::Waits } else { SecondSignal::Ends })?;
    let mut tracker = observe::open(args.watch.tracker)?;
    if args.live {
        live::live(args, &target, &mut *tracker, &stop)?;
        return Ok(());
    }
    let mut recorder = HeatRecorder::default();
    let length = Some(args.length.unwrap_or_default().duration());
    let rhythm = Rhythm { length, max_cpu: args.budget.max_cpu, ..Rhythm::default() };
    let series = Series::new(&mut *tracker, &target, args.options(), rhythm, &stop);
    let started = Instant::now();
    let tell_if_early = |observations| {
        if let Some(length) = args.length.filter(|_| !target.handle().has_exited()) {
            tell_if_early(length, started.elapsed(), observations, &stop);
        }
    };
    if args.pages {
        let counts = count_pages(series)?;
        tell_if_early(counts.observations());
        terminal::print(&if args.json { json::pages(pid, &counts) } else { counts.text() })?;
        return Ok(());
    }
    let (Moment { heat, .. }, observations) = watch(args, series, &mut recorder)?;
    tell_if_early(observations);
    args.pictures.draw(&recorder, format!("{} (process {})", target.name, target.pid()))?;
    terminal::print(&if args.json {
        let smaller = observe::on_smaller_huge_pages(&Root::host(), target.pid(), heat.starts()).ok();
        json::heat(&heat, smaller.as_deref())
    } else {
        let smaller = observe::about_on_smaller_huge_pages(&Root::host(), &heat).ok();
        text::heat(&heat, smaller.as_ref(), terminal::canvas(), terminal::detail())
    })
}

/// Observes all processes of a group, one after the other.
fn group(args: &HeatArgs, processes: &[u32]) -> anyhow::Result<()> {
    let stop = Stop::on_signals(SecondSignal::Ends)?;
    let mut tracker = observe::open(args.watch.tracker)?;
    let progress = terminal::progress(processes.len() as u64, "processes");
    let show = |done| progress.set_position(done);
    let seen = observe_group(processes, &mut *tracker, &args.watch.options(), &stop, show)?;
    drop(progress);
    terminal::print(&if args.json {
        json::group(&seen)
    } else {
        text::group(&seen, terminal::canvas(), terminal::detail())
    })
}

fn count_pages(series: Series<'_>) -> anyhow::Result<PageCounts> {
    let mut counts = PageCounts::default();
    for moment in series {
        counts.add(&moment?.heat);
    }
    Ok(counts)
}

/// Observes once, or repeatedly for the time requested; returns the last observation, and how many there were.
fn watch(args: &HeatArgs, series: Series<'_>, recorder: &mut HeatRecorder) -> anyhow::Result<(Moment, u64)> {
    let (mut last, mut observations) = (None, 0);
    for moment in series {
        let moment = moment?;
        if args.pictures.any() {
            recorder.take(&moment);
        }
        last = Some(moment);
        observations += 1;
    }
    let last = last.context("stopped by a signal before the first observation; nothing was changed")?;
    Ok((last, observations))
}
