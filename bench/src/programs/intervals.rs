//! The picture of several trials: for each program what was forecast, and the interval that holds what it gained.
//!
//! Owns: drawing it. Never touches: conclusions.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::record::{ProgramTrial, ProgramsRecord};
use crate::picture::{FONT, Picture};
use crate::plot::rows::chart_of_rows;

const WIDTH: u32 = 900;
const ROW: u32 = 34;
const AROUND: u32 = 120;
const FORECAST: RGBColor = RGBColor(86, 180, 233);
const GAINED: RGBColor = RGBColor(0, 84, 148);

/// What is drawn of one trial.
struct Interval<'a> {
    program: &'a str,
    forecast: [f64; 2],
    gained: Option<[f64; 3]>,
}

impl<'a> Interval<'a> {
    /// In percent; None without a forecast.
    fn of(trial: &'a ProgramTrial) -> Option<Self> {
        let forecast = trial.forecast()?;
        let gained = trial.change().map(|change| [change.low, change.estimate, change.high].map(|share| 100.0 * share));
        Some(Self { program: &trial.program, forecast: [forecast.low, forecast.high], gained })
    }

    fn best(&self) -> f64 {
        self.gained.map_or(0.0, |[_, best, _]| best)
    }
}

impl ProgramsRecord {
    /// In the order in which they are drawn, from the bottom up: what gained least first.
    fn intervals(&self) -> Vec<Interval<'_>> {
        let mut intervals: Vec<Interval<'_>> = self.trials.iter().filter_map(Interval::of).collect();
        intervals.sort_by(|one, other| one.best().total_cmp(&other.best()));
        intervals
    }
}

impl Picture for ProgramsRecord {
    fn size(&self) -> (u32, u32) {
        (WIDTH, ROW * self.trials.len() as u32 + AROUND)
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        let intervals = self.intervals();
        let ends =
            || intervals.iter().flat_map(|each| each.forecast.into_iter().chain(each.gained.into_iter().flatten()));
        let across = ends().fold(0.0, f64::min) - 3.0..ends().fold(10.0, f64::max) + 3.0;
        let (above, below) = area.split_vertically(self.size().1 - ROW);
        let names: Vec<&str> = intervals.iter().map(|each| each.program).collect();
        let caption = "speed that huge pages gain, in percent".to_owned();
        let mut chart = chart_of_rows(&above, caption, across, "", &names)?;
        let zero = [(0.0, SegmentValue::Exact(0)), (0.0, SegmentValue::Last)];
        chart.draw_series([PathElement::new(zero, BLACK)])?;
        for (row, Interval { forecast, gained, .. }) in intervals.iter().enumerate() {
            let at = |value: f64| (value, SegmentValue::CenterOf(row));
            chart.draw_series([PathElement::new(forecast.map(at), FORECAST.stroke_width(12))])?;
            if let Some([low, best, high]) = *gained {
                chart.draw_series([PathElement::new([at(low), at(high)], GAINED.stroke_width(3))])?;
                chart.draw_series([Circle::new(at(best), 5, GAINED.filled())])?;
            }
        }
        draw_key(&below)
    }
}

/// Below the chart, where it covers nothing.
fn draw_key<B: DrawingBackend<ErrorType: 'static>>(area: &DrawingArea<B, Shift>) -> Result<()> {
    let font = (FONT, 14).into_font();
    for (x, style, words) in [
        (130, FORECAST.stroke_width(12), "forecast of `hugepilot explain`"),
        (430, GAINED.stroke_width(3), "measured by `hugepilot trial`, with its 95 % interval"),
    ] {
        area.draw(&PathElement::new([(x, 10), (x + 30, 10)], style))?;
        area.draw(&Text::new(words, (x + 38, 3), font.clone()))?;
    }
    area.draw(&Circle::new((445, 10), 5, GAINED.filled()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::draw;
    use crate::programs::record::tests::trial;

    #[test]
    fn each_program_has_its_forecast_and_its_interval() {
        let mut record = ProgramsRecord::new(crate::machine::tests::machine());
        record.trials.push(trial("redis", [10.0, 15.0, 20.0], Some([0.12, 0.15, 0.18])));
        record.trials.push(trial("numpy", [0.0, 1.0, 2.0], Some([-0.02, 0.01, 0.03])));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.svg");
        draw(&record, &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains("redis") && svg.contains("numpy"), "{svg}");
        // One of each in the key.
        assert_eq!(svg.matches("<circle").count(), 2 + 1);
        let names: Vec<_> = record.intervals().iter().map(|each| each.program.to_owned()).collect();
        assert_eq!(names, ["numpy", "redis"], "from the bottom up");
    }
}
