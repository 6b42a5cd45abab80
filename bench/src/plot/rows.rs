//! What pictures with a row for each configuration or program have in common.
//!
//! Owns: how rows and colours are chosen. Never touches: what is drawn in them.

use std::fmt::Display;
use std::ops::Range;

use picture::color::COLORS;
use picture::{Area, DrawError, FONT};
use plotters::coord::ranged1d::{IntoSegmentedCoord, SegmentValue, SegmentedCoord};
use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::prelude::*;

use crate::configuration::Configuration;

/// A chart with rows.
pub type Rows<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, SegmentedCoord<RangedCoordusize>>>;

/// An empty chart with a row for each of these, the first at the bottom; `said` is the label of the horizontal axis.
pub fn chart_of_rows<'a, 'b>(
    area: &'a Area<'b>,
    across: Range<f64>,
    said: &str,
    each: &[impl Display],
) -> Result<Rows<'a, 'b>, DrawError> {
    let rows = each.len().max(1);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(150)
        .build_cartesian_2d(across, (0..rows - 1).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_max_light_lines(0)
        .y_labels(rows)
        .y_label_formatter(&|value| match value {
            SegmentValue::CenterOf(row) if *row < each.len() => each[*row].to_string(),
            _ => String::new(),
        })
        .x_desc(said)
        .label_style((FONT, 14))
        .draw()?;
    Ok(chart)
}

/// The colour of a configuration among all of its run, the same in every panel: those first named are the easiest to tell apart.
pub fn color(configuration: Configuration, all: &[Configuration]) -> RGBColor {
    let place = all.iter().position(|each| *each == configuration).unwrap_or(0);
    let base = COLORS[place % COLORS.len()];
    match place / COLORS.len() {
        0 => base,
        1 => between(base, WHITE),
        _ => between(base, BLACK),
    }
}

/// More than ten configurations are seldom compared.
fn between(one: RGBColor, other: RGBColor) -> RGBColor {
    RGBColor(one.0.midpoint(other.0), one.1.midpoint(other.1), one.2.midpoint(other.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn configurations_of_a_run_have_colours_of_their_own() {
        let all = &Configuration::value_variants()[..20];
        let colors: Vec<RGBColor> = all.iter().map(|&each| color(each, all)).collect();
        for (number, one) in colors.iter().enumerate() {
            assert!(!colors[..number].contains(one), "{}", all[number]);
        }
    }
}
