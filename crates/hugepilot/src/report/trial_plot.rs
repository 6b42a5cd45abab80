//! A trial as a picture: the speed in each window, and the interval for the gain over time.
//!
//! Owns: its form. Never touches: files.

use picture::chart::{KeyEntry, Mark, chart, headed};
use picture::color::{BASE_PAGES, HUGE_PAGES};
use picture::{Area, DrawError, Picture};
use plotters::prelude::*;
use trial::{Arm, Trial};

const SIZE: (u32, u32) = (900, 680);
const ARMS: [(Arm, &str, RGBColor); 2] = [(Arm::Base, "base pages", BASE_PAGES), (Arm::Huge, "huge pages", HUGE_PAGES)];
const ESTIMATE: RGBColor = HUGE_PAGES;

/// Draws it as SVG; None without a pair of windows. Errors: it cannot be drawn.
pub fn draw(trial: &Trial) -> Result<Option<String>, DrawError> {
    (trial.windows.len() >= 2).then(|| picture::svg(&TrialPlot(trial))).transpose()
}

struct TrialPlot<'a>(&'a Trial);

impl Picture for TrialPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let (above, below) = area.split_vertically(SIZE.1 / 2);
        let minutes = (self.0.elapsed.seconds() / 60.0).max(1.0 / 60.0);
        windows(&above, self.0, minutes)?;
        course(&below, self.0, minutes)
    }
}

fn windows(area: &Area<'_>, trial: &Trial, minutes: f64) -> Result<(), DrawError> {
    let all = || trial.own.iter().chain(&trial.windows);
    let most = all().map(|window| window.per_cpu_second()).fold(0.0, f64::max);
    let key = ARMS.map(|(_, name, color)| KeyEntry { name: name.to_owned(), style: color.filled(), mark: Mark::Dot });
    let area = headed(area, "work for each second of CPU time, by windows", &key)?;
    let mut chart = chart(&area, (0.0..minutes, "minutes"), 0.0..most * 1.1)?;
    for (arm, _, color) in ARMS {
        let of_arm = all().filter(|window| window.arm == arm);
        let dots = of_arm
            .map(|window| Circle::new((window.began_ns.seconds() / 60.0, window.per_cpu_second()), 4, color.filled()));
        chart.draw_series(dots)?;
    }
    Ok(())
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
    use crate::report::samples::trial_of;

    #[test]
    fn every_window_is_a_dot() {
        let (trial, _) = trial_of(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]);
        let svg = draw(&trial).unwrap().unwrap();
        // One more of each color in the key.
        assert_eq!(svg.matches("<circle").count(), 12 + 2);
        assert!(svg.contains("<polygon") && svg.contains("huge pages") && svg.contains("minutes"));
        assert!(draw(&Trial::default()).unwrap().is_none());
    }
}
