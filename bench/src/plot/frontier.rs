//! The picture of gain against growth: a line for the best rule that moves nothing, a dot for each configuration.
//!
//! Owns: drawing it. Never touches: the other panels.

use picture::chart::{KeyEntry, Mark, chart, headed};
use picture::{Area, DrawError};
use plotters::prelude::*;

use super::rows::color;
use crate::configuration::Configuration;
use crate::frontier::{ideal_gain, rows};
use crate::record::Run;

const PERCENT: f64 = 100.0;

/// Draws a run whose frontier is known.
pub fn draw(area: &Area<'_>, run: &Run) -> Result<(), DrawError> {
    let rows = rows(run);
    let most = |of: fn(&crate::frontier::FrontierRow) -> f64, least: f64| rows.iter().map(of).fold(least, f64::max);
    let across = -0.05 * PERCENT..most(|row| row.growth, 0.1) * PERCENT * 1.05;
    let up =
        rows.iter().map(|row| row.gain).fold(0.0, f64::min) * PERCENT - 1.0..most(|row| row.gain, 0.01) * PERCENT * 1.1;
    let said = "memory over the default's, %; line: the best rule that leaves pages where they are";
    let all = run.configurations();
    let key: Vec<KeyEntry> = rows.iter().map(|row| key(row.configuration, &all)).collect();
    let area = headed(area, &format!("{}: gain in throughput, %", run.workload), &key)?;
    let mut chart = chart(&area, (across, said), up)?;
    // Without the ceiling, shares of the accesses cannot be told as gains.
    if let Some(ceiling) = ideal_gain(run) {
        let line = run.frontier.iter().map(|point| (point.growth * PERCENT, point.accesses * ceiling * PERCENT));
        chart.draw_series(LineSeries::new(line, BLACK.mix(0.5)))?;
    }
    for row in rows {
        let at = (row.growth * PERCENT, row.gain * PERCENT);
        chart.draw_series([Circle::new(at, 5, color(row.configuration, &all).filled())])?;
    }
    Ok(())
}

fn key(configuration: Configuration, all: &[Configuration]) -> KeyEntry {
    KeyEntry { name: configuration.to_string(), style: color(configuration, all).filled(), mark: Mark::Dot }
}
