//! Free and contiguous memory over time, as an SVG picture.
//!
//! Owns: its form. Never touches: files.

use heat::units::Bytes;
use plotters::prelude::*;
use reclaim::MemoryReading;

use super::picture::{DrawError, FONT, prepare_font};

const SIZE: (u32, u32) = (900, 480);
const GIB: f64 = (1 << 30) as f64;

/// One line: its name, its colour, and its value at a moment.
type Line = (&'static str, RGBColor, fn(&MemoryReading) -> Bytes);

const LINES: [Line; 3] = [
    ("files in memory", RGBColor(154, 99, 36), |moment| moment.file_cache_bytes),
    ("free", RGBColor(67, 99, 216), |moment| moment.free_bytes),
    ("free in huge pages", RGBColor(44, 156, 75), |moment| moment.free_huge_bytes),
];

/// Draws memory over time, oldest moment first; None if there are fewer than two moments. Errors: it cannot be drawn.
pub fn draw(moments: &[MemoryReading]) -> Result<Option<String>, DrawError> {
    if moments.len() < 2 {
        return Ok(None);
    }
    prepare_font()?;
    let mut svg = String::new();
    draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), moments)
        .map_err(|error| DrawError(error.to_string()))?;
    Ok(Some(svg))
}

fn draw_on(
    area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    moments: &[MemoryReading],
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let minutes = |moment: &MemoryReading| (moment.at_ns.seconds() - moments[0].at_ns.seconds()) / 60.0;
    let gibibytes = |size: Bytes| size.0 as f64 / GIB;
    let latest = moments.iter().map(minutes).fold(1.0 / 60.0, f64::max);
    let most = moments.iter().flat_map(|moment| LINES.map(|(_, _, size)| gibibytes(size(moment)))).fold(0.1, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("memory over time", (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..latest, 0.0..most * 1.05)?;
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(0).label_style((FONT, 14)).x_desc("minutes").y_desc("GiB").draw()?;
    for (name, color, size) in LINES {
        let style = color.stroke_width(2);
        let points = moments.iter().map(|moment| (minutes(moment), gibibytes(size(moment))));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    let mut key = chart.configure_series_labels();
    key.position(SeriesLabelPosition::MiddleRight).background_style(WHITE.mix(0.8)).label_font((FONT, 14)).draw()?;
    area.present()?;
    Ok(())
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
