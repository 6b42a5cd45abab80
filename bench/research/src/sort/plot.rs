//! Gains against the size of the data.
//!
//! Owns: drawing. Never touches: conclusions.

use heat::statistics::Interval;
use heat::units::Bytes;
use hugepilot_sort::algorithm::Algorithm;
use hugepilot_sort::task::PageChoice;
use picture::chart::{KeyEntry, Mark, headed};
use picture::color::COLORS;
use picture::{Area, DrawError, FONT, Picture};
use plotters::prelude::*;

use super::record::SortRecord;

const SIZE: (u32, u32) = (760, 480);
const NOISE: RGBAColor = RGBAColor(0, 0, 0, 0.15);

/// The horizontal distance between algorithms, in powers of two.
const ASIDE: f64 = 0.06;

/// One line per algorithm, with the interval of each point, and in grey the gain of ordinary pages over themselves: noise.
impl Picture for SortRecord {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let lines: Vec<Line> =
            self.cases().into_iter().map(|(algorithm, sizes)| Line::of(self, algorithm, &sizes)).collect();
        let all = || lines.iter().flat_map(|line| line.gains.iter().chain(&line.noise));
        let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min).min(30.0);
        let last = all().map(|point| point.0).fold(first + 1.0, f64::max);
        let lowest = all().map(|point| percent(point.1.low)).fold(-1.0, f64::min);
        let highest = all().map(|point| percent(point.1.high)).fold(1.0, f64::max);
        let area = headed(area, "gain of large pages over ordinary ones", &key(&lines))?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(first - 0.2..last + 0.2, lowest * 1.1..highest * 1.1)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .x_labels((last - first) as usize + 1)
            .x_label_formatter(&|power| Bytes(power.exp2().round() as u64).to_string())
            .x_desc("numbers sorted")
            .y_desc("gain, %")
            .label_style((FONT, 14))
            .draw()?;
        let bars = |points: &[Point], aside: f64, style: ShapeStyle| -> Vec<_> {
            let bar = |(power, Interval { low, high, .. }): &Point| {
                PathElement::new([(power + aside, percent(*low)), (power + aside, percent(*high))], style)
            };
            points.iter().map(bar).collect()
        };
        for (number, Line { gains, noise, .. }) in lines.into_iter().enumerate() {
            let (style, aside) = (style(number), number as f64 * ASIDE);
            chart.draw_series(bars(&noise, aside, NOISE.stroke_width(7)))?;
            chart.draw_series(bars(&gains, aside, style))?;
            let middle = gains.iter().map(|(power, interval)| (power + aside, percent(interval.estimate)));
            chart.draw_series(LineSeries::new(middle, style))?;
        }
        Ok(())
    }
}

fn style(number: usize) -> ShapeStyle {
    COLORS[number % COLORS.len()].stroke_width(2)
}

fn key(lines: &[Line]) -> Vec<KeyEntry> {
    let line =
        |(number, line): (usize, &Line)| KeyEntry { name: line.name.clone(), style: style(number), mark: Mark::Line };
    let noise = KeyEntry { name: "ordinary against ordinary".to_owned(), style: NOISE.filled(), mark: Mark::Block };
    lines.iter().enumerate().map(line).chain([noise]).collect()
}

/// A size, and its gain.
type Point = (f64, Interval);

/// The lines of one algorithm.
struct Line {
    name: String,
    gains: Vec<Point>,
    /// Ordinary pages relative to ordinary pages.
    noise: Vec<Point>,
}

impl Line {
    fn of(record: &SortRecord, algorithm: Algorithm, sizes: &[u64]) -> Self {
        let points = |pages| {
            let point = |&bytes: &u64| Some((powers(bytes), record.speedup(algorithm, bytes, pages)?));
            sizes.iter().filter_map(point).collect()
        };
        Self {
            name: format!("{algorithm} sort"),
            gains: points(PageChoice::Large),
            noise: points(PageChoice::OrdinaryAgain),
        }
    }
}

fn powers(bytes: u64) -> f64 {
    (bytes as f64).log2()
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{record, turns};
    use super::*;
    use picture::draw;

    #[test]
    fn both_formats_are_drawn_with_each_algorithm() {
        let directory = tempfile::tempdir().unwrap();
        let (svg, png) = (directory.path().join("a.svg"), directory.path().join("a.png"));
        let sizes = (20..24).flat_map(|power| turns(Algorithm::Heap, 1 << power, 1.1));
        let record = record(sizes.chain(turns(Algorithm::Quick, 1 << 20, 0.99)).collect());
        draw(&record, &svg).unwrap();
        draw(&record, &png).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains("heap sort") && svg.contains("quick sort") && svg.contains("4 MiB"), "{svg}");
        assert_eq!(&std::fs::read(png).unwrap()[1..4], b"PNG");
    }
}
