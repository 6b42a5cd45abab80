//! Throughput, pages scanned, and huge pages available, against the memory left: system D's figures 1 and 5, and their consequences.
//!
//! Owns: drawing. Never touches: conclusions.

use clap::ValueEnum;
use picture::chart::{ChartLine, bounds, line_chart};
use picture::color::COLORS;
use picture::{Area, DrawError, Picture};
use plotters::prelude::*;

use super::record::Record;
use super::report::medians;
use super::turn::Turn;
use super::way::Way;

/// The vertical axis's label, and its number.
type Panel = (&'static str, fn(&Turn) -> f64);
const PANELS: [Panel; 3] = [
    ("MB written a second", |turn| turn.throughput() / 1e6),
    ("pages scanned for each that left memory", Turn::scanned_for_each),
    ("free and clean memory to be had on huge pages, %", |turn| 100.0 * turn.obtainable()),
];
const PANEL: (u32, u32) = (560, 420);

impl Picture for Record {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 * PANELS.len() as u32, PANEL.1)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let areas = area.split_evenly((1, PANELS.len()));
        PANELS.into_iter().zip(areas).try_for_each(|(panel, area)| draw_panel(&area, self, panel))
    }
}

fn draw_panel(area: &Area<'_>, record: &Record, (caption, number): Panel) -> Result<(), DrawError> {
    let lines = Way::value_variants().iter().enumerate().map(|(place, &way)| ChartLine {
        name: way.to_string(),
        style: COLORS[place % COLORS.len()].stroke_width(2),
        points: medians(record, way, number),
    });
    let lines: Vec<ChartLine> = lines.filter(|line| !line.points.is_empty()).collect();
    let [_, largest, _, highest] = bounds(&lines);
    let across = (0.0..largest.max(1.0) * 1.05, "GiB left to page cache and programs");
    line_chart(area, caption, across, 0.0..highest.max(1.0) * 1.05, (&lines, 3))
}
