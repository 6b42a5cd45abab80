//! `hugepilot heat`: show where the page walks are.

use std::process::ExitCode;
use std::time::Instant;

use super::args::HeatArgs;
use super::{live, require, terminal};
use crate::observe::{self, ObserveError, Tracker};
use crate::pilot::page_tables;
use crate::recording::Moment;
use crate::report::film::Camera;
use crate::report::{json, text};
use crate::stop::{SecondSignal, Stop};
use crate::target::Target;
use crate::units::Nanos;

pub(super) fn heat(args: &HeatArgs) -> anyhow::Result<ExitCode> {
    let target = Target::open(args.pid)?;
    require::observing(args.watch.tracker)?;
    // A terminal that was taken over must be put back.
    let stop = Stop::on_signals(if args.live { SecondSignal::Waits } else { SecondSignal::Ends })?;
    let mut tracker = observe::open(args.watch.tracker)?;
    if args.live {
        live::live(args, &target, &mut *tracker, &stop)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut camera = Camera::default();
    let Moment { heat, .. } = watch(args, &target, &mut *tracker, &mut camera, &stop)?;
    args.pictures.draw(&camera, format!("{} (process {})", target.name, target.pid()))?;
    terminal::print(&if args.json { json::heat(&heat) } else { text::heat(&heat, terminal::canvas()) })?;
    Ok(ExitCode::SUCCESS)
}

/// Observes once, or again and again for as long as asked; the last observation. A signal or the end of the process ends it
/// early, and then what was seen counts.
fn watch(
    args: &HeatArgs,
    target: &Target,
    tracker: &mut dyn Tracker,
    camera: &mut Camera,
    stop: &Stop,
) -> Result<Moment, ObserveError> {
    let started = Instant::now();
    let mut last = None;
    loop {
        match (tracker.observe(target, &args.watch.options(), stop), last) {
            (Ok(heat), _) => {
                let at = Nanos::from_duration(started.elapsed());
                let next = Instant::now() + heat.cost.rest();
                let moment = Moment { at, heat, page_tables: page_tables(target) };
                if args.pictures.any() {
                    camera.take(&moment);
                }
                let another_fits = |length: Nanos| next + args.watch.window.duration() <= started + length.duration();
                if !args.length.is_some_and(another_fits) || stop.sleep_until(next).is_err() {
                    return Ok(moment);
                }
                last = Some(moment);
            }
            (Err(_), Some(moment)) if stop.requested() || target.handle().has_exited() => return Ok(moment),
            (Err(error), _) => return Err(error),
        }
    }
}
