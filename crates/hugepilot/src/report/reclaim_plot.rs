//! Free and contiguous memory over time, as a picture.
//!
//! Owns: its form. Never touches: files.

use heat::units::Bytes;
use picture::chart::{ChartLine, line_chart};
use picture::color::{BASE_PAGES, HUGE_PAGES};
use picture::{Area, DrawError, Picture};
use plotters::prelude::*;
use reclaim::MemoryReading;

const SIZE: (u32, u32) = (900, 480);
const GIB: f64 = (1 << 30) as f64;

/// One line: its name, its colour, and its value at a moment.
type Line = (&'static str, RGBColor, fn(&MemoryReading) -> Bytes);

const LINES: [Line; 3] = [
    ("files in memory", RGBColor(140, 140, 140), |moment| moment.file_cache_bytes),
    ("free", BASE_PAGES, |moment| moment.free_bytes),
    ("free in huge pages", HUGE_PAGES, |moment| moment.free_huge_bytes),
];

/// Draws memory over time as SVG, oldest moment first; None if there are fewer than two moments. Errors: it cannot be drawn.
pub fn draw(moments: &[MemoryReading]) -> Result<Option<String>, DrawError> {
    (moments.len() >= 2).then(|| picture::svg(&MemoryOverTime(moments))).transpose()
}

struct MemoryOverTime<'a>(&'a [MemoryReading]);

impl Picture for MemoryOverTime<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let moments = self.0;
        let minutes = |moment: &MemoryReading| (moment.at_ns.seconds() - moments[0].at_ns.seconds()) / 60.0;
        let gibibytes = |size: Bytes| size.0 as f64 / GIB;
        let latest = moments.iter().map(minutes).fold(1.0 / 60.0, f64::max);
        let lines = LINES.map(|(name, color, size)| ChartLine {
            name: name.to_owned(),
            style: color.stroke_width(2),
            points: moments.iter().map(|moment| (minutes(moment), gibibytes(size(moment)))).collect(),
        });
        let most = picture::chart::bounds(&lines)[3].max(0.1);
        line_chart(area, "memory over time, GiB", (0.0..latest, "minutes"), 0.0..most * 1.05, (&lines, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::moment;

    #[test]
    fn every_moment_is_a_point_of_every_line() {
        let svg = draw(&[moment(1), moment(2), moment(4)]).unwrap().unwrap();
        let lines: Vec<&str> =
            svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"2\"")).collect();
        let xs = |line: &str| -> Vec<f64> {
            let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            points.split_whitespace().map(|point| point.split(',').next().unwrap().parse().unwrap()).collect()
        };
        let of_moments: Vec<Vec<f64>> = lines.iter().map(|line| xs(line)).filter(|xs| xs.len() == 3).collect();
        assert_eq!(of_moments.len(), 3, "{svg}");
        for xs in of_moments {
            let second = (xs[2] - xs[0]) / 3.0;
            assert!((xs[1] - xs[0] - second).abs() <= 1.0, "moments of 1, 2 and 4 seconds are at {xs:?}");
        }
        for told in ["files in memory", "free in huge pages", "minutes", "GiB"] {
            assert!(svg.contains(told), "{told}");
        }
    }

    #[test]
    fn a_single_moment_is_no_history() {
        assert!(draw(&[moment(1)]).unwrap().is_none());
        assert!(draw(&[]).unwrap().is_none());
    }
}
