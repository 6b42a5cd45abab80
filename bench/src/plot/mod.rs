//! The report as a picture: ratios with their intervals, throughput and memory over time; one row per run.
//!
//! Owns: what is drawn of a record, and where. Never touches: conclusions.

mod frontier;
pub(crate) mod rows;
mod search;

use heat::statistics::median;
use picture::chart::{ChartLine, bounds, headed, line_chart};
use picture::{Area, DrawError, Picture};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use self::rows::{chart_of_rows, color};
use crate::comparison::{Metric, noise, ratio};
use crate::configuration::Configuration;
use crate::record::{Run, Turn, WorkloadRecord};

const PANEL: (u32, u32) = (560, 420);
/// The width of a step on the time axis: wide enough for a sample or two in each.
const STEP_SECONDS: f64 = 0.5;

/// A row for each run, one for each frontier, and one for all that search.
impl Picture for WorkloadRecord {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 * 3, PANEL.1 * rows_of(self).len().max(1) as u32)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let rows = rows_of(self);
        let areas = area.split_evenly((rows.len().max(1), 1));
        for (row, area) in rows.into_iter().zip(&areas) {
            match row {
                Row::Run(run) => draw_run(area, run)?,
                Row::Frontier(run) => frontier::draw(area, run)?,
                Row::Searches(searches) => search::draw(area, &searches)?,
            }
        }
        Ok(())
    }
}

/// What a row of the picture shows.
enum Row<'a> {
    Run(&'a Run),
    Frontier(&'a Run),
    Searches(Vec<&'a Run>),
}

fn rows_of(record: &WorkloadRecord) -> Vec<Row<'_>> {
    let runs = || record.runs.iter().filter(|run| !run.turns.is_empty());
    let searches: Vec<&Run> = runs().filter(|run| search::is_search(run)).collect();
    let mut rows: Vec<Row<'_>> = runs().map(Row::Run).collect();
    rows.extend(runs().filter(|run| !run.frontier.is_empty()).map(Row::Frontier));
    rows.extend((!searches.is_empty()).then_some(Row::Searches(searches)));
    rows
}

fn draw_run(row: &Area<'_>, run: &Run) -> Result<(), DrawError> {
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

/// The divisor of throughput, and its name: queries are slow, reads are fast.
fn scale(run: &Run) -> (f64, &'static str) {
    match run.turns.iter().any(|turn| turn.throughput >= 1e5) {
        true => (1e6, "million "),
        false => (1.0, ""),
    }
}

fn draw_ratios(area: &Area<'_>, run: &Run) -> Result<(), DrawError> {
    // From the bottom up, so that the default is at the top.
    let all = run.configurations();
    let configurations: Vec<_> = all.iter().copied().rev().collect();
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
    let area = headed(area, &caption, &[])?;
    let mut chart = chart_of_rows(&area, across, said, &configurations)?;
    let band = [(1.0 - reach, SegmentValue::Exact(0)), (1.0 + reach, SegmentValue::Last)];
    chart.draw_series([Rectangle::new(band, BLACK.mix(0.12).filled())])?;
    for (row, interval) in intervals.iter().enumerate().filter_map(|(row, interval)| Some((row, (*interval)?))) {
        let style = color(configurations[row], &all).stroke_width(2);
        let at = |value| (value, SegmentValue::CenterOf(row));
        chart.draw_series([PathElement::new([at(interval.low), at(interval.high)], style)])?;
        chart.draw_series([Circle::new(at(interval.estimate), 4, style.filled())])?;
    }
    Ok(())
}

fn draw_lines(
    area: &Area<'_>,
    run: &Run,
    title: &str,
    points: impl Fn(&Turn) -> Vec<(f64, f64)>,
) -> Result<(), DrawError> {
    let all = run.configurations();
    let line = |configuration: Configuration| ChartLine {
        name: configuration.to_string(),
        style: color(configuration, &all).stroke_width(2),
        points: median_line(run.turns_of(configuration), &points),
    };
    let lines: Vec<ChartLine> = all.iter().copied().map(line).collect();
    let [first, last, _, highest] = bounds(&lines);
    let across = (first.min(0.0)..last.max(1.0), "seconds since the tool started");
    line_chart(area, title, across, 0.0..highest.max(1e-9) * 1.05, (&lines, 0))
}

/// The median over rounds, in steps; time counts from the act.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::run_of;
    use crate::machine::tests::machine;
    use crate::workload::{FrontierPoint, SearchWork, ThroughputPoint};
    use picture::draw;

    fn record() -> WorkloadRecord {
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
        WorkloadRecord { runs: vec![run], ..WorkloadRecord::new(machine()) }
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
    fn a_known_frontier_has_a_row_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let svg = directory.path().join("a.svg");
        let mut known = record();
        known.runs[0].frontier = vec![FrontierPoint { growth: 0.5, accesses: 1.0 }];
        draw(&known, &svg).unwrap();
        assert!(std::fs::read_to_string(svg).unwrap().contains("gain in throughput"));
    }

    #[test]
    fn lines_are_medians_over_rounds_from_the_act_on() {
        let run = &record().runs[0];
        let line = median_line(run.turns_of(Configuration::Default), |turn| vec![(1.1, turn.throughput)]);
        assert_eq!(line, [(0.0, 1.005e6)]);
    }
}
