//! The picture of several trials: for each program what was forecast, and the interval that holds what it gained.
//!
//! Owns: drawing it. Never touches: conclusions.

use picture::chart::{KeyEntry, Mark, headed};
use picture::{Area, DrawError, Picture};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::record::{ProgramTrial, ProgramsRecord};
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

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let intervals = self.intervals();
        let ends =
            || intervals.iter().flat_map(|each| each.forecast.into_iter().chain(each.gained.into_iter().flatten()));
        let across = ends().fold(0.0, f64::min) - 3.0..ends().fold(10.0, f64::max) + 3.0;
        let entry = |name: &str, style, mark| KeyEntry { name: name.to_owned(), style, mark };
        let key = [
            entry("forecast of `hugepilot explain`", FORECAST.filled(), Mark::Block),
            entry("measured by `hugepilot trial`, with its 95 % interval", GAINED.stroke_width(3), Mark::Line),
        ];
        let name = |each: &Interval<'_>| match each.gained {
            Some(_) => each.program.to_owned(),
            None => format!("{}: not tried", each.program),
        };
        let names: Vec<String> = intervals.iter().map(name).collect();
        let area = headed(area, "What huge pages gain: work for each second of CPU time", &key)?;
        let mut chart = chart_of_rows(&area, across, "gain, in percent", &names)?;
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::record::tests::trial;
    use picture::draw;

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
        assert_eq!(svg.matches("<circle").count(), 2);
        let names: Vec<_> = record.intervals().iter().map(|each| each.program.to_owned()).collect();
        assert_eq!(names, ["numpy", "redis"], "from the bottom up");
    }
}
