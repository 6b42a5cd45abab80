//! Free and contiguous memory over time, as an SVG picture.
//!
//! Owns: its form. Never touches: files.

use std::fmt::Write;

use crate::pilot::age::Moment;
use crate::units::Bytes;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
/// Where lines are drawn: left, top, right, bottom.
const AREA: (f64, f64, f64, f64) = (70.0, 40.0, 880.0, 370.0);
/// Marks on the axis of sizes, and on that of time.
const MARKS: u32 = 5;

/// What is drawn: a name, a colour, and its size at a moment.
type Line = (&'static str, &'static str, fn(&Moment) -> Bytes);

const LINES: [Line; 3] = [
    ("files in memory", "#9a6324", |moment| moment.file_cache_bytes),
    ("free", "#4363d8", |moment| moment.free_bytes),
    ("free in huge pages", "#2c9c4b", |moment| moment.free_huge_bytes),
];

/// Draws memory over time, from the oldest moment on; None where there are fewer than two.
pub fn draw(moments: &[Moment]) -> Option<String> {
    let (first, last) = (moments.first()?, moments.last().filter(|_| moments.len() > 1)?);
    let most = moments.iter().flat_map(|moment| LINES.map(|(_, _, size)| size(moment))).max()?.0.max(1);
    let seconds = (last.at_ns.seconds() - first.at_ns.seconds()).max(1.0);
    let place = |moment: &Moment, size: Bytes| {
        let (left, top, right, bottom) = AREA;
        let x = left + (moment.at_ns.seconds() - first.at_ns.seconds()) / seconds * (right - left);
        (x, bottom - size.0 as f64 / most as f64 * (bottom - top))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    axes(&mut svg, most, seconds);
    for (number, (name, color, size)) in LINES.iter().enumerate() {
        let points: Vec<String> = moments.iter().map(|moment| place(moment, size(moment))).map(point).collect();
        let x = AREA.0 + 200.0 * number as f64;
        // Writing to a text cannot fail.
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>\n\
             <rect x=\"{x}\" y=\"12\" width=\"14\" height=\"14\" fill=\"{color}\"/><text x=\"{}\" y=\"24\">{name}</text>",
            points.join(" "),
            x + 20.0
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn point((x, y): (f64, f64)) -> String {
    format!("{x:.1},{y:.1}")
}

fn axes(svg: &mut String, most: u64, seconds: f64) {
    let (left, top, right, bottom) = AREA;
    for mark in 0..=MARKS {
        let part = f64::from(mark) / f64::from(MARKS);
        let (x, y) = (left + part * (right - left), bottom - part * (bottom - top));
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.1}</text>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.1}</text>",
            left - 8.0,
            y + 4.0,
            part * most as f64 / (1u64 << 30) as f64,
            bottom + 20.0,
            part * seconds / 60.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">minutes</text>\
         <text x=\"16\" y=\"{top}\" text-anchor=\"start\">GiB</text>",
        f64::midpoint(left, right),
        bottom + 40.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::moment;

    #[test]
    fn every_moment_is_a_point_of_every_line() {
        let svg = draw(&[moment(1), moment(2), moment(4)]).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 3);
        let points = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let xs: Vec<f64> = points.split(' ').map(|point| point.split(',').next().unwrap().parse().unwrap()).collect();
        assert_eq!(xs, [70.0, 340.0, 880.0], "1, 2 and 4 seconds after a minute");
        assert!(svg.contains("free in huge pages") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_single_moment_is_no_history() {
        assert_eq!(draw(&[moment(1)]), None);
        assert_eq!(draw(&[]), None);
    }
}
