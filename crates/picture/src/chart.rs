//! The parts that charts share: caption and key above the data, axes, lines.
//!
//! Owns: their sizes and places. Never touches: files.

use plotters::coord::CoordTranslate;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::{Area, DrawError, FONT};

/// Around a chart and its caption, in pixels.
const MARGIN: i32 = 12;
const CAPTION: i32 = 26;
const KEY_ROW: i32 = 20;
/// The width of a key's mark, and of a letter beside it: a guess, since fonts are the reader's.
const MARK: i32 = 22;
const LETTER: i32 = 7;

/// A chart with such axes.
pub type Chart<'a, 'b, X, Y> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<<X as AsRangedCoord>::CoordDescType, <Y as AsRangedCoord>::CoordDescType>,
>;

/// The form of data, and of its mark in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// A dot.
    Dot,
    /// An area.
    Block,
}

/// What one kind of mark means.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// What it shows.
    pub name: String,
    /// Its colour and width.
    pub style: ShapeStyle,
    /// Its form.
    pub mark: Mark,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct ChartLine {
    /// Its name in the key.
    pub name: String,
    /// The style of the line and its dots.
    pub style: ShapeStyle,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl ChartLine {
    /// Its entry in the key.
    pub fn key(&self) -> KeyEntry {
        KeyEntry { name: self.name.clone(), style: self.style, mark: Mark::Line }
    }
}

/// The first and last positions of lines, and their lowest and highest values; infinite if there are none.
pub fn bounds(lines: &[ChartLine]) -> [f64; 4] {
    let all = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::NEG_INFINITY, f64::max);
    [least(|point| point.0), most(|point| point.0), least(|point| point.1), most(|point| point.1)]
}

/// Writes the caption and the key at the top of an area, the key in as many rows as it needs; returns the rest, which is the chart's.
pub fn headed<'a>(area: &Area<'a>, caption: &str, key: &[KeyEntry]) -> Result<Area<'a>, DrawError> {
    area.draw(&Text::new(caption.to_owned(), (MARGIN, MARGIN), (FONT, 18).into_font()))?;
    let (width, _) = area.dim_in_pixel();
    let (mut x, mut y) = (MARGIN, MARGIN + CAPTION);
    for entry in key {
        let wide = MARK + 8 + LETTER * entry.name.chars().count() as i32 + 12;
        if x > MARGIN && x + wide > width as i32 - MARGIN {
            (x, y) = (MARGIN, y + KEY_ROW);
        }
        draw_entry(area, entry, (x, y + KEY_ROW / 2))?;
        x += wide;
    }
    let height = if key.is_empty() { MARGIN + CAPTION } else { y + KEY_ROW };
    Ok(area.split_vertically(height).1)
}

fn draw_entry(area: &Area<'_>, entry: &KeyEntry, (x, y): (i32, i32)) -> Result<(), DrawError> {
    let style = entry.style;
    match entry.mark {
        Mark::Line => area.draw(&PathElement::new([(x, y), (x + MARK, y)], style))?,
        Mark::Dot => area.draw(&Circle::new((x + MARK / 2, y), 4, style.filled()))?,
        Mark::Block => area.draw(&Rectangle::new([(x, y - 6), (x + MARK, y + 6)], style.filled()))?,
    }
    Ok(area.draw(&Text::new(entry.name.clone(), (x + MARK + 6, y - 6), (FONT, 14).into_font()))?)
}

/// An empty chart; `said` is the label of the horizontal axis.
pub fn chart<'a, 'b, X, Y>(
    area: &'a Area<'b>,
    (across, said): (X, &str),
    up: Y,
) -> Result<Chart<'a, 'b, X, Y>, DrawError>
where
    X: AsRangedCoord<CoordDescType: ValueFormatter<X::Value>>,
    Y: AsRangedCoord<CoordDescType: ValueFormatter<Y::Value>>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(across, up)?;
    chart.configure_mesh().max_light_lines(0).x_desc(said).label_style((FONT, 14)).draw()?;
    Ok(chart)
}

/// A whole chart of lines, with dots of that size at their points.
pub fn line_chart<X, Y>(
    area: &Area<'_>,
    caption: &str,
    across: (X, &str),
    up: Y,
    (lines, dots): (&[ChartLine], u32),
) -> Result<(), DrawError>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let key: Vec<KeyEntry> = lines.iter().map(ChartLine::key).collect();
    let area = headed(area, caption, &key)?;
    draw_lines(&mut chart(&area, across, up)?, lines, dots)
}

/// Draws lines with dots of that size at their points.
pub fn draw_lines<C>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, C>,
    lines: &[ChartLine],
    dots: u32,
) -> Result<(), DrawError>
where
    C: CoordTranslate<From = (f64, f64)>,
{
    for ChartLine { style, points, .. } in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), *style).point_size(dots))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Picture, svg};

    struct Lines(Vec<ChartLine>);

    impl Picture for Lines {
        fn size(&self) -> (u32, u32) {
            (400, 300)
        }

        fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
            line_chart(area, "what", (0.0..10.0, "seconds"), 0.0..10.0, (&self.0, 2))
        }
    }

    fn line(name: &str) -> ChartLine {
        ChartLine { name: name.to_owned(), style: RED.stroke_width(2), points: vec![(1.0, 2.0), (9.0, 10.0)] }
    }

    /// The y of each text of the key, and the least y of the data.
    fn places(svg: &str) -> (Vec<i32>, i32) {
        let number = |tag: &str, name: &str| -> i32 {
            tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let tags: Vec<&str> = svg.split("<text").skip(1).collect();
        let key = tags.iter().filter(|tag| tag.contains("line number ")).map(|tag| number(tag, "y")).collect();
        let data = svg.split("<circle").skip(1).map(|tag| number(tag, "cy")).min().unwrap();
        (key, data)
    }

    #[test]
    fn the_key_stands_above_the_data_in_as_many_rows_as_it_needs() {
        for count in [1, 3, 12] {
            let names: Vec<ChartLine> = (0..count).map(|number| line(&format!("line number {number}"))).collect();
            let (key, data) = places(&svg(&Lines(names)).unwrap());
            assert_eq!(key.len(), count);
            assert!(key.iter().all(|y| y + 10 < data), "{key:?}, {data}");
        }
    }

    #[test]
    fn bounds_are_those_of_all_lines() {
        assert_eq!(bounds(&[line("a")]), [1.0, 9.0, 2.0, 10.0]);
        assert_eq!(bounds(&[])[1], f64::NEG_INFINITY);
    }
}
