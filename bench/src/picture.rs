//! Pictures: draws anything drawable to a file.
//!
//! Owns: SVG and PNG, the font, distinguishable colours, the key. Never touches: installed fonts, or what is drawn.

use std::path::Path;

use anyhow::{Context, Result, bail};
pub use hugepilot::report::picture::FONT;
use hugepilot::report::picture::prepare_font;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

/// Distinguishable in grey, too.
pub const COLORS: [RGBColor; 10] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(214, 193, 0),
    RGBColor(0, 84, 148),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(120, 60, 160),
    RGBColor(140, 140, 140),
];

/// Errors: the name ends with neither SVG nor PNG. Call this before hours of measuring.
pub fn check_name(path: &Path) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => bail!("cannot draw {}: the name must end in .svg or .png", path.display()),
    }
}

/// Anything that can be drawn, on any backend.
pub trait Picture {
    /// Its width and height.
    fn size(&self) -> (u32, u32);

    /// Draws it on a white area of that size.
    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(&self, area: &DrawingArea<B, Shift>) -> Result<()>;
}

/// Draws a picture to a file, FILE.svg or FILE.png.
pub fn draw(picture: &(impl Picture + ?Sized), path: &Path) -> Result<()> {
    check_name(path)?;
    prepare_font()?;
    let drawn = if path.extension().is_some_and(|extension| extension == "svg") {
        draw_whole(picture, &SVGBackend::new(path, picture.size()).into_drawing_area())
    } else {
        draw_whole(picture, &BitMapBackend::new(path, picture.size()).into_drawing_area())
    };
    drawn.with_context(|| format!("cannot draw {}", path.display()))
}

fn draw_whole<B: DrawingBackend<ErrorType: 'static>>(
    picture: &(impl Picture + ?Sized),
    area: &DrawingArea<B, Shift>,
) -> Result<()> {
    area.fill(&WHITE)?;
    picture.draw_on(area)?;
    area.present()?;
    Ok(())
}

/// A chart with such axes.
pub type LineChart<'a, B, X, Y> =
    ChartContext<'a, B, Cartesian2d<<X as AsRangedCoord>::CoordDescType, <Y as AsRangedCoord>::CoordDescType>>;

/// A line of a chart.
pub struct ChartLine {
    /// Its label in the key.
    pub name: String,
    /// The style of the line and its dots.
    pub style: ShapeStyle,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// The first and last positions of lines, and their lowest and highest values; infinite if there are none.
pub fn bounds(lines: &[ChartLine]) -> [f64; 4] {
    let all = || lines.iter().flat_map(|line| &line.points);
    let least = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::NEG_INFINITY, f64::max);
    [least(|point| point.0), most(|point| point.0), least(|point| point.1), most(|point| point.1)]
}

/// An empty chart; `said` is the label of the horizontal axis.
pub fn chart<'a, B: DrawingBackend<ErrorType: 'static>, X, Y>(
    area: &'a DrawingArea<B, Shift>,
    caption: &str,
    (across, said): (X, &str),
    up: Y,
) -> Result<LineChart<'a, B, X, Y>>
where
    X: AsRangedCoord<CoordDescType: ValueFormatter<X::Value>>,
    Y: AsRangedCoord<CoordDescType: ValueFormatter<Y::Value>>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(across, up)?;
    chart.configure_mesh().max_light_lines(0).x_desc(said).label_style((FONT, 14)).draw()?;
    Ok(chart)
}

/// Draws lines with dots of that size, and the key.
pub fn draw_lines<'a, B: DrawingBackend<ErrorType: 'static> + 'a, C>(
    chart: &mut ChartContext<'a, B, C>,
    lines: Vec<ChartLine>,
    dots: u32,
) -> Result<()>
where
    C: CoordTranslate<From = (f64, f64)>,
{
    for ChartLine { name, style, points } in lines {
        chart
            .draw_series(LineSeries::new(points, style).point_size(dots))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    draw_key(chart)
}

/// Draws the key.
pub fn draw_key<'a, B, C>(chart: &mut ChartContext<'a, B, C>) -> Result<()>
where
    B: DrawingBackend<ErrorType: 'static> + 'a,
    C: CoordTranslate,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_refused_before_measuring() {
        assert!(check_name("a.pdf".as_ref()).is_err());
        assert!(check_name("svg".as_ref()).is_err());
        assert!(check_name("a.png".as_ref()).is_ok());
    }
}
