//! `hugepilot replay`: shows a recording, and decides on it again.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use heat::WalkCost;
use heat::units::Bytes;
use pilot::decide::{Past, Spent, decide};
use pilot::engine::Family;
use pilot::forecast::{Estimator, Forecast, Gauged};
use pilot::machine::on_this_machine;
use pilot::words::count_of;
use recording::{Moment, Recording, RecordingError};

use super::args::ReplayArgs;
use super::terminal;
use crate::report::heat_grid::{self, HeatRecorder};
use crate::report::{PlanReport, json, text};

/// What the user wants from a recording.
struct Wanted {
    name: String,
    observations: usize,
    moment: Moment,
    recorder: HeatRecorder,
}

pub(super) fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let wanted = read(args)?;
    let Moment { at, heat, .. } = &wanted.moment;
    let title = format!("{} (process {})", wanted.name, heat.pid);
    args.pictures.draw(&wanted.recorder, title.clone())?;
    let report = if args.plan {
        let allowance = on_this_machine(args.spend.allowance())?;
        let memory = heat.promotable_here(&BTreeSet::new());
        let plan = decide(heat, &allowance.limits(memory, &Spent::default()), &Past::default());
        // The cost of a walk on the recorded machine cannot be measured here.
        let family = Family::alone(Bytes(0), heat.footprint());
        let report = PlanReport {
            plan: &plan,
            family,
            growth_limit: allowance.growth_limit(memory),
            clearing: heat.clearing,
            forecast: Forecast::of(
                &plan,
                heat,
                &family,
                Gauged::default(),
                &Estimator::of_model(WalkCost::UNCALIBRATED),
            ),
            basis: None,
            doubt: None,
            expectation: None,
        };
        if args.json { json::plan(&report) } else { text::plan(&report) }
    } else if args.json {
        json::heat(heat, None)
    } else {
        text::heat(heat, None, terminal::canvas(), terminal::detail())
    };
    if !args.json {
        let number = args.observation.map_or(wanted.observations, |number| number);
        let count = wanted.observations;
        terminal::print(&format!("recording of {title}: observation {number} of {count}, {at} after it began\n\n"))?;
    }
    terminal::print(&report)
}

/// Reads to the end, keeping the requested observation (by default the last) and, for pictures, the heat map.
fn read(args: &ReplayArgs) -> anyhow::Result<Wanted> {
    let mut recording = Recording::open(&args.file)?;
    let (mut observations, mut chosen, mut recorder) = (0, None, HeatRecorder::default());
    for moment in &mut recording {
        let moment = match moment {
            // The part that could be read is worth showing.
            Err(error @ RecordingError::CutOff { .. }) => {
                terminal::note(&error.to_string());
                break;
            }
            moment => moment?,
        };
        observations += 1;
        if args.pictures.any() {
            recorder.take(&moment);
        }
        if args.observation.is_none_or(|number| number == observations) {
            chosen = Some(moment);
        }
    }
    let Some(moment) = chosen else {
        bail!(
            "{} holds {}: choose one of them, from 1",
            args.file.display(),
            count_of(observations as u64, "observation")
        );
    };
    Ok(Wanted { name: recording.name, observations, moment, recorder })
}

impl super::args::PictureOptions {
    /// Whether a picture was requested.
    pub(super) fn any(&self) -> bool {
        self.html.is_some() || self.plot.is_some()
    }

    /// Draws the requested pictures.
    pub(super) fn draw(&self, recorder: &HeatRecorder, title: String) -> anyhow::Result<()> {
        if !self.any() {
            return Ok(());
        }
        let grid = recorder.grid(title);
        if let Some(path) = &self.html {
            let page = heat_grid::html::page(&grid)?;
            std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.plot {
            picture::save(&heat_grid::svg::svg(&grid)?, path)?;
        }
        Ok(())
    }
}
