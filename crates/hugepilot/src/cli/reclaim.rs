//! `hugepilot reclaim`: reclaims memory by use, so that huge pages become available.

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::{Root, process};
use observe::Census;
use reclaim::mechanism::MechanismKind;
use reclaim::{MemoryReading, ReclaimState, Reclaimer, STEP, Store};

use super::args::ReclaimArgs;
use super::terminal;
use crate::report::{ReclaimStatusReport, json, reclaim_plot, text};

pub(super) fn reclaim(args: &ReclaimArgs) -> anyhow::Result<()> {
    match (args.status, args.dry_run) {
        (true, _) => status(args),
        (false, true) => preview(args),
        (false, false) => run(args),
    }
}

fn status(args: &ReclaimArgs) -> anyhow::Result<()> {
    let root = Root::host();
    let now = MemoryReading::now(&root)?;
    // A state that cannot be read hides only itself.
    let state = Store::read().unwrap_or_else(|error| {
        terminal::note(&error.to_string());
        None
    });
    if let Some(path) = &args.plot {
        plot(path, state.as_ref())?;
    }
    let census = Census::take(&root).map_err(|error| error.to_string());
    let lives =
        |state: &ReclaimState| process::start_time(&root, state.pid).is_ok_and(|start| start == state.start_ticks);
    let is_alive = state.as_ref().is_some_and(lives);
    let report = ReclaimStatusReport {
        census: census.as_ref().map_err(String::as_str),
        now: &now,
        state: state.as_ref(),
        is_alive,
    };
    terminal::print(&if args.json { json::reclaim_status(&report) } else { text::reclaim_status(&report) })
}

fn plot(path: &Path, state: Option<&ReclaimState>) -> anyhow::Result<()> {
    let drawn = state.map(|state| reclaim_plot::draw(&state.history)).transpose()?;
    let Some(svg) = drawn.flatten() else {
        bail!(
            "there is nothing to draw: memory over time is kept while `hugepilot reclaim`, or a daemon with [reclaim], runs"
        );
    };
    Ok(picture::save(&svg, path)?)
}

fn preview(args: &ReclaimArgs) -> anyhow::Result<()> {
    let mut reclaimer = Reclaimer::begin(&Root::host(), args.options(), None)?;
    reclaimer.preview()?;
    terminal::print(&if args.json {
        json::reclaim(&reclaimer.state())
    } else {
        text::reclaim_preview(&reclaimer.state())
    })
}

fn run(args: &ReclaimArgs) -> anyhow::Result<()> {
    terminal::ensure_read()?;
    // Kernel settings must be undone before this ends.
    let stop = Stop::on_signals(SecondSignal::Waits)?;
    let mut store = Store::take()?;
    let mut reclaimer = Reclaimer::begin(&Root::host(), args.options(), None)?;
    if store.is_none() {
        terminal::note("`hugepilot reclaim --status` will not show this: /run/hugepilot cannot be written");
    }
    if !args.json {
        terminal::note(&format!("reclaiming with {}", at_work(&reclaimer.state())));
    }
    let ends = args.length.map(|length| Instant::now() + length.duration());
    let stepped = steps(&mut reclaimer, store.as_mut(), ends, &stop);
    reclaimer.finish();
    let state = reclaimer.state_with_history();
    if let Some(store) = &mut store {
        store.write(&state);
    }
    drop(reclaimer);
    terminal::print(&if args.json { json::reclaim(&state) } else { text::reclaimed(&state) })?;
    stepped
}

/// Repeats steps until time is up or a stop is requested.
fn steps(
    reclaimer: &mut Reclaimer,
    mut store: Option<&mut Store>,
    ends: Option<Instant>,
    stop: &Stop,
) -> anyhow::Result<()> {
    let line = terminal::StatusLine::begin("Ctrl-C ends it");
    loop {
        let begun = Instant::now();
        reclaimer.step(stop)?;
        line.show(&text::reclaiming(&reclaimer.state()));
        if let Some(store) = &mut store {
            store.keep(|| reclaimer.state_with_history());
        }
        let next = ends.map_or(begun + STEP, |ends| ends.min(begun + STEP));
        if stop.sleep_until(next).is_err() || ends.is_some_and(|ends| ends <= Instant::now()) {
            return Ok(());
        }
    }
}

/// The mechanisms in use, and why the best one is not.
fn at_work(state: &ReclaimState) -> String {
    let names: Vec<&str> =
        state.mechanisms.iter().filter(|each| each.refused.is_none()).map(|each| each.name.as_str()).collect();
    let damon = state.mechanisms.iter().find(|each| each.name == MechanismKind::Damon.to_string());
    let why = damon.and_then(|damon| damon.refused.as_ref()).map(|why| format!("; not with damon: {why}"));
    format!("{}{}", names.join(", "), why.unwrap_or_default())
}
