//! `hugepilot age`: age memory by what it is used for, so that huge pages can be had.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::{Root, process};
use observe::Census;
use reclaim::mechanism::MechanismKind;
use reclaim::{AgeState, Aging, Moment, STEP, Store};

use super::args::AgeArgs;
use super::terminal;
use crate::report::{AgeStatusReport, age_plot, json, text};

pub(super) fn age(args: &AgeArgs) -> anyhow::Result<ExitCode> {
    match (args.status, args.dry_run) {
        (true, _) => status(args)?,
        (false, true) => preview(args)?,
        (false, false) => run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn status(args: &AgeArgs) -> anyhow::Result<()> {
    let root = Root::host();
    let (state, now) = (Store::read()?, Moment::now(&root)?);
    if let Some(path) = &args.plot {
        plot(path, state.as_ref())?;
    }
    let census = Census::take(&root).map_err(|error| error.to_string());
    let lives = |state: &AgeState| process::start_time(&root, state.pid).is_ok_and(|start| start == state.start_ticks);
    let is_alive = state.as_ref().is_some_and(lives);
    let report =
        AgeStatusReport { census: census.as_ref().map_err(String::as_str), now: &now, state: state.as_ref(), is_alive };
    terminal::print(&if args.json { json::age_status(&report) } else { text::age_status(&report) })
}

fn plot(path: &Path, state: Option<&AgeState>) -> anyhow::Result<()> {
    if path.extension().is_none_or(|extension| extension != "svg") {
        bail!("cannot draw {}: the name must end in .svg", path.display());
    }
    let drawn = state.map(|state| age_plot::draw(&state.history)).transpose()?;
    let Some(svg) = drawn.flatten() else {
        bail!("there is nothing to draw: memory over time is kept while `hugepilot age`, or a daemon with [age], runs");
    };
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn preview(args: &AgeArgs) -> anyhow::Result<()> {
    let mut aging = Aging::begin(&Root::host(), args.options(), None)?;
    aging.preview()?;
    terminal::print(&if args.json { json::age(&aging.state()) } else { text::age_preview(&aging.state()) })
}

fn run(args: &AgeArgs) -> anyhow::Result<()> {
    terminal::ensure_read()?;
    // What is set up in the kernel is taken away before this ends.
    let stop = Stop::on_signals(SecondSignal::Waits)?;
    let mut store = Store::take()?;
    let mut aging = Aging::begin(&Root::host(), args.options(), None)?;
    if store.is_none() {
        eprintln!("hugepilot: `hugepilot age --status` will not show this: /run/hugepilot cannot be written");
    }
    if !args.json {
        eprintln!("hugepilot: aging with {}", at_work(&aging.state()));
    }
    let ends = args.length.map(|length| Instant::now() + length.duration());
    let stepped = steps(&mut aging, store.as_mut(), ends, &stop);
    aging.finish();
    let state = aging.state_with_history();
    if let Some(store) = &mut store {
        store.write(&state);
    }
    drop(aging);
    terminal::print(&if args.json { json::age(&state) } else { text::aged(&state) })?;
    stepped
}

/// Step after step until time is up or stopping is requested.
fn steps(aging: &mut Aging, mut store: Option<&mut Store>, ends: Option<Instant>, stop: &Stop) -> anyhow::Result<()> {
    let line = terminal::StatusLine::begin("Ctrl-C ends it");
    loop {
        let begun = Instant::now();
        aging.step(stop)?;
        line.show(&text::aging(&aging.state()));
        if let Some(store) = &mut store {
            store.keep(|| aging.state_with_history());
        }
        let next = ends.map_or(begun + STEP, |ends| ends.min(begun + STEP));
        if stop.sleep_until(next).is_err() || ends.is_some_and(|ends| ends <= Instant::now()) {
            return Ok(());
        }
    }
}

/// Mechanisms at work, and of the best why it is not.
fn at_work(state: &AgeState) -> String {
    let names: Vec<&str> =
        state.mechanisms.iter().filter(|each| each.refused.is_none()).map(|each| each.name.as_str()).collect();
    let damon = state.mechanisms.iter().find(|each| each.name == MechanismKind::Damon.name());
    let why = damon.and_then(|damon| damon.refused.as_ref()).map(|why| format!("; not with damon: {why}"));
    format!("{}{}", names.join(", "), why.unwrap_or_default())
}
