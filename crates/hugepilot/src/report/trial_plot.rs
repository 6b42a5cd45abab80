//! A trial as a picture: the speed in each window, and the interval for the gain over time.
//!
//! Owns: its form. Never touches: files.

use picture::chart::{KeyEntry, Mark, chart, headed};
use picture::color::{BASE_PAGES, HUGE_PAGES};
use picture::{Area, DrawError, Picture};
use plotters::prelude::*;
use trial::{Arm, Trial, TrialWindow};

use crate::report::TrialReport;
use pilot::words::printable;

const SIZE: (u32, u32) = (900, 680);
const ARMS: [(Arm, &str, RGBColor); 2] = [(Arm::Base, "base pages", BASE_PAGES), (Arm::Huge, "huge pages", HUGE_PAGES)];
const OWN_PAGES: RGBColor = RGBColor(120, 120, 120);
/// Characters of a name in the caption.
const MOST_NAME: usize = 40;
const ESTIMATE: RGBColor = HUGE_PAGES;

/// Draws it as SVG; None without a pair of windows. Errors: it cannot be drawn.
pub fn draw(report: &TrialReport) -> Result<Option<String>, DrawError> {
    (report.trial.windows.len() >= 2).then(|| picture::svg(&TrialPlot(report))).transpose()
}

struct TrialPlot<'a>(&'a TrialReport<'a>);

impl Picture for TrialPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let (above, below) = area.split_vertically(SIZE.1 / 2);
        let minutes = (self.0.trial.elapsed.seconds() / 60.0).max(1.0 / 60.0);
        windows(&above, self.0, minutes)?;
        course(&below, self.0.trial, minutes)
    }
}

fn windows(area: &Area<'_>, report: &TrialReport, minutes: f64) -> Result<(), DrawError> {
    let trial = report.trial;
    let most = trial.own.iter().chain(&trial.windows).map(TrialWindow::per_cpu_second).fold(0.0, f64::max);
    let (unit, units) = unit_of(most);
    let entry =
        |name: &str, color: RGBColor| KeyEntry { name: name.to_owned(), style: color.filled(), mark: Mark::Dot };
    let placebo = if report.placebo { " (placebo: not switched)" } else { "" };
    let mut key = ARMS.map(|(_, name, color)| entry(&format!("{name}{placebo}"), color)).to_vec();
    key.extend((!trial.own.is_empty()).then(|| entry("its own base pages, before the first switch", OWN_PAGES)));
    let name = printable(report.name, MOST_NAME);
    let counted = printable(report.counted, MOST_NAME);
    let caption = format!("{name}: work for each second of CPU time{units}, counted by {counted}");
    let area = headed(area, &caption, &key)?;
    let mut chart = chart(&area, (0.0..minutes, "minutes"), 0.0..most * 1.1 / unit)?;
    let dot = |window: &TrialWindow, color: RGBColor| {
        Circle::new((window.began_ns.seconds() / 60.0, window.per_cpu_second() / unit), 4, color.filled())
    };
    for (arm, _, color) in ARMS {
        let of_arm = trial.windows.iter().filter(|window| window.arm == arm);
        chart.draw_series(of_arm.map(|window| dot(window, color)))?;
    }
    chart.draw_series(trial.own.iter().map(|window| dot(window, OWN_PAGES)))?;
    Ok(())
}

/// Keeps the labels of the axis short.
fn unit_of(most: f64) -> (f64, &'static str) {
    match most {
        _ if most >= 1e6 => (1e6, ", in millions"),
        _ if most >= 1e4 => (1e3, ", in thousands"),
        _ => (1.0, ""),
    }
}

fn course(area: &Area<'_>, trial: &Trial, minutes: f64) -> Result<(), DrawError> {
    let percent = |share: f64| (100.0 * share).clamp(-100.0, 200.0);
    let points: Vec<(f64, [f64; 3])> = trial
        .course
        .iter()
        .map(|(at, change)| (at.seconds() / 60.0, [change.low, change.estimate, change.high].map(percent)))
        .collect();
    let low = points.iter().map(|(_, [low, ..])| *low).fold(-5.0, f64::min);
    let high = points.iter().map(|(_, [.., high])| *high).fold(5.0, f64::max);
    let entry = |name: &str, style: ShapeStyle, mark| KeyEntry { name: name.to_owned(), style, mark };
    let (interval, estimate) = (ESTIMATE.mix(0.2).filled(), ESTIMATE.stroke_width(2));
    let key = [
        entry("the likeliest gain", estimate, Mark::Line),
        entry("the interval that holds the gain in 95 of 100 trials", interval, Mark::Block),
    ];
    let area = headed(area, "gain of huge pages so far, in percent", &key)?;
    let mut chart = chart(&area, (0.0..minutes, "minutes"), low * 1.1..high * 1.1)?;
    chart.draw_series(LineSeries::new([(0.0, 0.0), (minutes, 0.0)], BLACK))?;
    let there = points.iter().map(|(at, [low, ..])| (*at, *low));
    let back = points.iter().rev().map(|(at, [.., high])| (*at, *high));
    chart.draw_series([Polygon::new(there.chain(back).collect::<Vec<_>>(), interval)])?;
    chart.draw_series(LineSeries::new(points.iter().map(|(at, [_, estimate, _])| (*at, *estimate)), estimate))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial_samples::{trial_after_own_pages, trial_of, trial_report};

    const RATIOS: [f64; 6] = [1.2, 1.21, 1.19, 1.2, 1.22, 1.18];

    #[test]
    fn every_window_is_a_dot() {
        let (trial, verdict) = trial_of(&RATIOS);
        let drawn = |trial: &Trial| {
            let drawn = std::cell::RefCell::new(None);
            trial_report(trial, verdict, |report| {
                *drawn.borrow_mut() = draw(report).unwrap();
                String::new()
            });
            drawn.into_inner()
        };
        let svg = drawn(&trial).unwrap();
        // One more of each color in the key.
        assert_eq!(svg.matches("<circle").count(), 12 + 2);
        assert!(svg.contains("<polygon") && svg.contains("huge pages") && svg.contains("minutes"));
        let (trial, _) = trial_after_own_pages(&RATIOS, 0.8);
        assert_eq!(drawn(&trial).unwrap().matches("<circle").count(), 12 + 2 + trial.own.len() + 1);
        assert!(drawn(&Trial::default()).is_none());
    }
}
