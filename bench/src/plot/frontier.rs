//! The picture of gain against growth: a line for the best rule that moves nothing, a dot for each configuration.
//!
//! Owns: drawing it. Never touches: the other panels.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::rows::color;
use crate::frontier::{ideal_gain, rows};
use crate::picture::{chart, draw_key};
use crate::record::Run;

const PERCENT: f64 = 100.0;

/// Draws a run whose frontier is known.
pub fn draw<B: DrawingBackend<ErrorType: 'static>>(area: &DrawingArea<B, Shift>, run: &Run) -> Result<()> {
    let rows = rows(run);
    let most = |of: fn(&crate::frontier::FrontierRow) -> f64, least: f64| rows.iter().map(of).fold(least, f64::max);
    let across = -0.05 * PERCENT..most(|row| row.growth, 0.1) * PERCENT * 1.05;
    let up =
        rows.iter().map(|row| row.gain).fold(0.0, f64::min) * PERCENT - 1.0..most(|row| row.gain, 0.01) * PERCENT * 1.1;
    let said = "memory over the default's, %; line: the best rule that leaves pages where they are";
    let mut chart = chart(area, &format!("{}: gain in throughput, %", run.workload), (across, said), up)?;
    // Without the ceiling, shares of the accesses cannot be told as gains.
    if let Some(ceiling) = ideal_gain(run) {
        let line = run.frontier.iter().map(|point| (point.growth * PERCENT, point.accesses * ceiling * PERCENT));
        chart.draw_series(LineSeries::new(line, BLACK.mix(0.5)))?;
    }
    for row in rows {
        let style = color(row.configuration).filled();
        let at = (row.growth * PERCENT, row.gain * PERCENT);
        chart
            .draw_series([Circle::new(at, 5, style)])?
            .label(row.configuration.to_string())
            .legend(move |(x, y)| Circle::new((x + 7, y), 4, style));
    }
    draw_key(&mut chart)
}
