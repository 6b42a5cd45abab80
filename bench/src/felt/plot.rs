//! Throughput and p99 around a promotion, window by window.
//!
//! Owns: aligning turns at the start of their promotions, and drawing. Never touches: conclusions.

use std::collections::BTreeMap;
use std::ops::Range;

use heat::statistics::median;
use picture::chart::{ChartLine, bounds, line_chart};
use picture::color::COLORS;
use picture::{Area, DrawError, Picture};
use plotters::prelude::*;

use super::host::Host;
use super::mode::Mode;
use super::record::{FeltRecord, FeltTurn, FeltWindow, Phase};
use crate::table::distinct;

const PANEL: (u32, u32) = (840, 330);
/// The width of a step on the time axis, which is that of a window.
const STEP_SECONDS: f64 = 0.25;
/// The time shown before the promotion, and the longest time shown after its start.
const BEFORE_SECONDS: f64 = 5.0;
const MOST_SECONDS: f64 = 90.0;
const GREY: RGBColor = COLORS[9];

/// A window's number, given the turn's usual throughput.
type Number = fn(&FeltWindow, f64) -> Option<f64>;

/// One column per host: throughput above, p99 below.
impl Picture for FeltRecord {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 * hosts(self).len().max(1) as u32, PANEL.1 * if self.program.has_requests() { 2 } else { 1 })
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let hosts = hosts(self);
        for (&host, column) in hosts.iter().zip(area.split_evenly((1, hosts.len().max(1)))) {
            let (above, below) = match self.program.has_requests() {
                true => column.split_vertically(PANEL.1),
                false => (column.clone(), column),
            };
            let program = self.program;
            let caption = format!("{program}, {host} memory: throughput, of the usual window before");
            draw_throughput(&above, &caption, &lines(self, host, |window, usual| Some(window.throughput() / usual)))?;
            if program.has_requests() {
                let p99_ms = |window: &FeltWindow, _| window.latency.map(|latency| latency.p99_ns as f64 / 1e6);
                draw_p99(&below, "p99 in each window, ms", &lines(self, host, p99_ms))?;
            }
        }
        Ok(())
    }
}

fn hosts(record: &FeltRecord) -> Vec<Host> {
    distinct(record.turns.iter().map(|turn| turn.host))
}

/// One line per mode on this host, and one for the program that nobody touches.
fn lines(record: &FeltRecord, host: Host, number: Number) -> Vec<ChartLine> {
    let groups = record.groups().into_iter().filter(|group| group.0 == host);
    let of_mode = |group: (Host, Mode)| ChartLine {
        name: group.1.to_string(),
        style: COLORS[group.1 as usize].stroke_width(2),
        points: median_line(&record.turns_of(group), number, phases_around),
    };
    let all: Vec<&FeltTurn> = record.turns.iter().filter(|turn| turn.host == host).collect();
    let points = median_line(&all, number, alone_again);
    // First, so that the others are drawn over it.
    let alone = ChartLine { name: "alone again".to_owned(), style: GREY.stroke_width(2), points };
    std::iter::once(alone).chain(groups.map(of_mode)).collect()
}

fn phases_around(turn: &FeltTurn) -> (f64, Vec<&Phase>) {
    (0.0, vec![&turn.alone, &turn.alone_again, &turn.promotion, &turn.after])
}

/// As if a promotion that does nothing had begun at its start.
fn alone_again(turn: &FeltTurn) -> (f64, Vec<&Phase>) {
    let start = turn.alone_again.windows.first().map_or(0.0, |window| window.end_seconds - window.seconds);
    (start, vec![&turn.alone, &turn.alone_again])
}

/// For each step, the median over turns, if half of the turns have a window there. `phases` sets the origin of time.
fn median_line(turns: &[&FeltTurn], number: Number, phases: fn(&FeltTurn) -> (f64, Vec<&Phase>)) -> Vec<(f64, f64)> {
    let mut steps = BTreeMap::<i64, Vec<f64>>::new();
    for turn in turns {
        let (start, phases) = phases(turn);
        let Some(usual) = turn.usual_throughput() else { continue };
        for window in phases.into_iter().flat_map(|phase| &phase.windows) {
            let middle = window.end_seconds - window.seconds / 2.0 - start;
            if let Some(value) = number(window, usual).filter(|_| (-BEFORE_SECONDS..MOST_SECONDS).contains(&middle)) {
                steps.entry((middle / STEP_SECONDS).floor() as i64).or_default().push(value);
            }
        }
    }
    steps.retain(|_, values| values.len() * 2 >= turns.len());
    let middle = |step: i64| (step as f64 + 0.5) * STEP_SECONDS;
    steps.into_iter().filter_map(|(step, values)| Some((middle(step), median(&values)?))).collect()
}

const ACROSS: &str = "seconds since the promotion began";

/// From the first point to the last, including the start of the promotion.
fn across(lines: &[ChartLine]) -> Range<f64> {
    let [first, last, ..] = bounds(lines);
    let first = first.min(0.0);
    first..last.max(first + 1.0)
}

fn draw_throughput(area: &Area<'_>, caption: &str, lines: &[ChartLine]) -> Result<(), DrawError> {
    let [.., highest] = bounds(lines);
    line_chart(area, caption, (across(lines), ACROSS), 0.0..highest.max(1.0) * 1.05, (lines, 0))
}

/// On a logarithmic scale if stalls are a hundred times as long as ordinary answers: such a scale has labels at powers of ten only.
fn draw_p99(area: &Area<'_>, caption: &str, lines: &[ChartLine]) -> Result<(), DrawError> {
    let [.., lowest, highest] = bounds(lines);
    let lowest = lowest.clamp(1e-3, 1e3);
    if highest >= lowest * 100.0 {
        let up = (lowest / 1.2..highest * 1.2).log_scale();
        return line_chart(area, caption, (across(lines), ACROSS), up, (lines, 0));
    }
    line_chart(area, caption, (across(lines), ACROSS), 0.0..highest.max(1e-3) * 1.05, (lines, 0))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;
    use picture::draw;

    fn throughput(window: &FeltWindow, usual: f64) -> Option<f64> {
        Some(window.throughput() / usual)
    }

    fn about(line: &[(f64, f64)], wanted: &[(f64, f64)]) -> bool {
        let close =
            |(one, other): (&(f64, f64), &(f64, f64))| (one.0 - other.0).abs() < 1e-6 && (one.1 - other.1).abs() < 0.01;
        line.len() == wanted.len() && line.iter().zip(wanted).all(close)
    }

    #[test]
    fn turns_are_aligned_at_the_start_of_their_promotions() {
        let record = record(Mode::Fast, 5, 0.5, 1.0);
        let line = median_line(&record.turns.iter().collect::<Vec<_>>(), throughput, phases_around);
        assert!(about(&line[8..], &[(0.125, 1.0), (0.375, 0.5), (0.625, 1.0), (0.875, 1.0)]), "{line:?}");
        assert!(line[0].0 < -1.0 && line.is_sorted_by_key(|point| point.0), "{line:?}");
    }

    #[test]
    fn a_phase_alone_is_shown_as_a_promotion_that_does_nothing() {
        let record = record(Mode::Fast, 5, 0.5, 1.0);
        let line = median_line(&record.turns.iter().collect::<Vec<_>>(), throughput, alone_again);
        assert!(about(&line[4..], &[(0.125, 1.04), (0.375, 1.0), (0.625, 0.96), (0.875, 1.0)]), "{line:?}");
    }

    #[test]
    fn steps_that_few_turns_have_are_left_out() {
        let mut record = record(Mode::Fast, 5, 0.5, 1.0);
        record.turns.iter_mut().take(3).for_each(|turn| turn.after.windows.clear());
        let line = median_line(&record.turns.iter().collect::<Vec<_>>(), throughput, phases_around);
        assert_eq!(line.last().map(|point| point.0), Some(0.625));
    }

    #[test]
    fn a_column_for_each_host_is_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let svg = directory.path().join("a.svg");
        let mut record = record(Mode::Fast, 5, 0.5, 1.0);
        record.turns[4].host = Host::Warm;
        draw(&record, &svg).unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        for told in ["cold memory", "warm memory", "alone again", "p99"] {
            assert!(text.contains(told), "{told} is missing");
        }
        record.turns.clear();
        draw(&record, &svg).unwrap();
    }
}
