//! Throughput, what is scanned, and huge pages to be had, against the memory left: system D's figures 1 and 5, and what follows from them.
//!
//! Owns: drawing. Never touches: conclusions.

use anyhow::Result;
use clap::ValueEnum;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::record::Record;
use super::report::medians;
use super::turn::Turn;
use super::way::Way;
use crate::picture::{COLORS, FONT, Picture, draw_key};

/// What goes up, and what it says.
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

    fn draw_on<B>(&self, area: &DrawingArea<B, Shift>) -> Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
    {
        let areas = area.split_evenly((1, PANELS.len()));
        PANELS.into_iter().zip(areas).try_for_each(|(panel, area)| draw_panel(&area, self, panel))
    }
}

fn draw_panel<B>(area: &DrawingArea<B, Shift>, record: &Record, (caption, number): Panel) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let lines: Vec<_> = Way::value_variants().iter().map(|&way| (way, medians(record, way, number))).collect();
    let highest = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|(_, line)| line).map(of).fold(1.0, f64::max);
    let (across, up) = (highest(|point| point.0), highest(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..across * 1.05, 0.0..up * 1.05)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("GiB left to page cache and programs")
        .label_style((FONT, 14))
        .draw()?;
    for (number, (way, line)) in lines.into_iter().enumerate().filter(|(_, (_, line))| !line.is_empty()) {
        let style = COLORS[number % COLORS.len()].stroke_width(2);
        chart
            .draw_series(LineSeries::new(line, style).point_size(3))?
            .label(way.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    draw_key(&mut chart)
}
