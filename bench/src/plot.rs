//! The report as a picture: ratios with their intervals, throughput and memory over time; one row for each run.
//!
//! Owns: drawing this and every other picture, as SVG or PNG. Never touches: fonts of the machine.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use heat::statistics::median;
pub use hugepilot::report::picture::FONT;
use hugepilot::report::picture::prepare_font;
use plotters::coord::ranged1d::{IntoSegmentedCoord, SegmentValue, SegmentedCoord};
use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::comparison::{Metric, noise, ratio};
use crate::configuration::Configuration;
use crate::plot_search;
use crate::record::{Record, Run, Turn};

const PANEL: (u32, u32) = (560, 420);
/// The width of a step on the time axis: wide enough for a sample or two in each.
const STEP_SECONDS: f64 = 0.5;
/// Distinct in grey too.
pub const COLORS: [RGBColor; 10] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(214, 193, 0),
    RGBColor(0, 84, 148),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(120, 60, 160),
    RGBColor(140, 140, 140),
];

/// An error when the name says neither SVG nor PNG; to be asked before hours of measuring.
pub fn check_name(path: &Path) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => bail!("cannot draw {}: the name must end in .svg or .png", path.display()),
    }
}

/// What can be drawn, on whatever it is to be drawn on.
pub trait Picture {
    /// Its width and height.
    fn size(&self) -> (u32, u32);

    /// Draws it on a white area of that size.
    fn draw_on<B>(&self, area: &DrawingArea<B, Shift>) -> Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static;
}

/// Draws a picture to a file, FILE.svg or FILE.png.
pub fn draw(picture: &(impl Picture + ?Sized), path: &Path) -> Result<()> {
    check_name(path)?;
    prepare_font()?;
    let drawn = if path.extension().is_some_and(|extension| extension == "svg") {
        draw_whole(picture, &SVGBackend::new(path, picture.size()).into_drawing_area())
    } else {
        draw_whole(picture, &BitMapBackend::new(path, picture.size()).into_drawing_area())
    };
    drawn.with_context(|| format!("cannot draw {}", path.display()))
}

fn draw_whole<B>(picture: &(impl Picture + ?Sized), area: &DrawingArea<B, Shift>) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    picture.draw_on(area)?;
    area.present()?;
    Ok(())
}

/// A row for each run, and one for all that search.
impl Picture for Record {
    fn size(&self) -> (u32, u32) {
        let (runs, searches) = runs_of(self);
        (PANEL.0 * 3, PANEL.1 * (runs.len().max(1) + usize::from(!searches.is_empty())) as u32)
    }

    fn draw_on<B>(&self, area: &DrawingArea<B, Shift>) -> Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
    {
        let (runs, searches) = runs_of(self);
        let rows = area.split_evenly((runs.len().max(1) + usize::from(!searches.is_empty()), 1));
        for (run, row) in runs.iter().zip(&rows) {
            draw_run(row, run)?;
        }
        if searches.is_empty() { Ok(()) } else { plot_search::draw(&rows[runs.len()], &searches) }
    }
}

/// What has been measured, and of it what searches.
fn runs_of(record: &Record) -> (Vec<&Run>, Vec<&Run>) {
    let runs: Vec<&Run> = record.runs.iter().filter(|run| !run.turns.is_empty()).collect();
    let searches = runs.iter().copied().filter(|run| plot_search::is_search(run)).collect();
    (runs, searches)
}

fn draw_run<B>(row: &DrawingArea<B, Shift>, run: &Run) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let panels = row.split_evenly((1, 3));
    draw_ratios(&panels[0], run)?;
    let (scale, of_scale) = scale(run);
    draw_lines(&panels[1], run, &format!("{of_scale}{} a second", run.unit), |turn| {
        turn.throughput_over_time.iter().map(|point| (point.seconds, point.throughput / scale)).collect()
    })?;
    draw_lines(&panels[2], run, "resident memory, MiB", |turn| {
        let megabytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        turn.memory_over_time.iter().map(|point| (point.seconds, megabytes(point.memory.rss_bytes))).collect()
    })
}

/// What throughput is divided by, and how that is said: queries are slow, reads are fast.
fn scale(run: &Run) -> (f64, &'static str) {
    match run.turns.iter().any(|turn| turn.throughput >= 1e5) {
        true => (1e6, "million "),
        false => (1.0, ""),
    }
}

/// A chart with a row for each configuration.
pub type Rows<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, SegmentedCoord<RangedCoordusize>>>;

/// An empty one, the first configuration at its bottom; `said`: what goes across.
pub fn chart_of_rows<'a, B>(
    area: &'a DrawingArea<B, Shift>,
    caption: String,
    across: Range<f64>,
    said: &str,
    configurations: &[Configuration],
) -> Result<Rows<'a, B>>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let rows = configurations.len();
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 18))
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
            SegmentValue::CenterOf(row) if *row < rows => configurations[*row].to_string(),
            _ => String::new(),
        })
        .x_desc(said)
        .label_style((FONT, 14))
        .draw()?;
    Ok(chart)
}

fn draw_ratios<B>(area: &DrawingArea<B, Shift>, run: &Run) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    // From the bottom up, so that the default is on top.
    let configurations: Vec<_> = run.configurations().into_iter().rev().collect();
    let intervals: Vec<_> = configurations
        .iter()
        .map(|&configuration| ratio(run, Metric::Throughput, configuration, Configuration::Default))
        .collect();
    let reach = noise(run, Metric::Throughput).map_or(0.0, |noise| noise.reach());
    let lowest = intervals.iter().flatten().map(|interval| interval.low).fold(1.0 - reach, f64::min);
    let highest = intervals.iter().flatten().map(|interval| interval.high).fold(1.0 + reach, f64::max);
    let space = (highest - lowest).max(0.01) * 0.05;
    let across = lowest - space..highest + space;
    let said = "ratio and interval; grey: default against default";
    let caption = format!("{}: throughput against default", run.workload);
    let mut chart = chart_of_rows(area, caption, across, said, &configurations)?;
    let band = [(1.0 - reach, SegmentValue::Exact(0)), (1.0 + reach, SegmentValue::Last)];
    chart.draw_series([Rectangle::new(band, BLACK.mix(0.12).filled())])?;
    for (row, interval) in intervals.iter().enumerate().filter_map(|(row, interval)| Some((row, (*interval)?))) {
        let style = color(configurations[row]).stroke_width(2);
        let at = |value| (value, SegmentValue::CenterOf(row));
        chart.draw_series([PathElement::new([at(interval.low), at(interval.high)], style)])?;
        chart.draw_series([Circle::new(at(interval.estimate), 4, style.filled())])?;
    }
    Ok(())
}

fn draw_lines<B>(
    area: &DrawingArea<B, Shift>,
    run: &Run,
    title: &str,
    points: impl Fn(&Turn) -> Vec<(f64, f64)>,
) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let lines: Vec<_> = run
        .configurations()
        .into_iter()
        .map(|configuration| (configuration, median_line(run.turns_of(configuration), &points)))
        .collect();
    let all = || lines.iter().flat_map(|(_, line)| line);
    let first = all().map(|point| point.0).fold(0.0, f64::min);
    let last = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(first..last, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("seconds since the tool started")
        .label_style((FONT, 14))
        .draw()?;
    for (configuration, line) in lines {
        let style = color(configuration).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(configuration.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    draw_key(&mut chart)
}

/// Says which line or bar is what.
pub fn draw_key<'a, B, C>(chart: &mut ChartContext<'a, B, C>) -> Result<()>
where
    B: DrawingBackend + 'a,
    B::ErrorType: 'static,
    C: CoordTranslate,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

/// The median over rounds, in steps; times count from the act.
fn median_line<'a>(
    turns: impl Iterator<Item = &'a Turn>,
    points: impl Fn(&Turn) -> Vec<(f64, f64)>,
) -> Vec<(f64, f64)> {
    let mut steps = std::collections::BTreeMap::<i64, Vec<f64>>::new();
    for turn in turns {
        for (seconds, value) in points(turn) {
            let step = ((seconds - turn.act_seconds) / STEP_SECONDS).floor() as i64;
            steps.entry(step).or_default().push(value);
        }
    }
    steps.into_iter().filter_map(|(step, values)| Some((step as f64 * STEP_SECONDS, median(&values)?))).collect()
}

/// The colour of a configuration, the same in every panel.
pub fn color(configuration: Configuration) -> RGBColor {
    let (number, base) = (configuration as usize, COLORS[configuration as usize % COLORS.len()]);
    match number / COLORS.len() {
        0 => base,
        1 => between(base, WHITE),
        2 => between(base, RED),
        _ => between(base, BLUE),
    }
}

/// There are more configurations than colours that are told apart easily.
fn between(one: RGBColor, other: RGBColor) -> RGBColor {
    RGBColor(one.0.midpoint(other.0), one.1.midpoint(other.1), one.2.midpoint(other.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::machine::tests::machine;
    use crate::record::ThroughputPoint;
    use crate::workload::SearchWork;
    use clap::ValueEnum;

    fn record() -> Record {
        let mut run = run_of(
            "memcached",
            &[
                (Configuration::Default, &[1e6, 1.01e6], 1 << 30),
                (Configuration::Ideal, &[1.2e6, 1.2e6], 1 << 30),
                (Configuration::DefaultAgain, &[1e6, 1e6], 1 << 30),
            ],
        );
        for turn in &mut run.turns {
            turn.throughput_over_time =
                (0..20).map(|step| ThroughputPoint { seconds: f64::from(step) / 4.0, throughput: 1e6 }).collect();
        }
        Record { runs: vec![run], ..Record::new(machine()) }
    }

    #[test]
    fn both_formats_are_drawn_with_text() {
        let directory = tempfile::tempdir().unwrap();
        let (svg, png) = (directory.path().join("a.svg"), directory.path().join("a.png"));
        draw(&record(), &svg).unwrap();
        draw(&record(), &png).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains("throughput against default") && svg.contains("default-again"));
        assert_eq!(&std::fs::read(png).unwrap()[1..4], b"PNG");
    }

    #[test]
    fn searches_have_a_row_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let svg = directory.path().join("a.svg");
        let mut searching = record();
        let run = &mut searching.runs[0];
        run.workload = "fingerprint 2 threads".to_owned();
        let work = SearchWork { queries: 1, extract_ns: 1, look_up_ns: 80, rank_ns: 19, ..SearchWork::default() };
        run.turns.iter_mut().for_each(|turn| turn.search = Some(work));
        draw(&searching, &svg).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains("real-time factor against threads") && svg.contains("look-up"), "{svg}");
    }

    #[test]
    fn configurations_have_colours_of_their_own() {
        let colors: Vec<RGBColor> = Configuration::value_variants().iter().map(|&each| color(each)).collect();
        for (number, one) in colors.iter().enumerate() {
            assert!(!colors[..number].contains(one), "{}", Configuration::value_variants()[number]);
        }
    }

    #[test]
    fn other_formats_are_refused_before_measuring() {
        assert!(check_name("a.pdf".as_ref()).is_err());
        assert!(check_name("svg".as_ref()).is_err());
        assert!(check_name("a.png".as_ref()).is_ok());
    }

    #[test]
    fn lines_are_medians_over_rounds_from_the_act_on() {
        let run = &record().runs[0];
        let line = median_line(run.turns_of(Configuration::Default), |turn| vec![(1.1, turn.throughput)]);
        assert_eq!(line, [(0.0, 1.005e6)]);
    }
}
