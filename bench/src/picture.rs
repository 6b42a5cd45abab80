//! Pictures: whatever can be drawn, to a file.
//!
//! Owns: SVG and PNG, the font, colours that are told apart, the key. Never touches: fonts of the machine, or what is drawn.

use std::path::Path;

use anyhow::{Context, Result, bail};
pub use hugepilot::report::picture::FONT;
use hugepilot::report::picture::prepare_font;
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

/// Distinct in grey too.
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

/// An error when the name says neither SVG nor PNG; to be asked before hours of measuring.
pub fn check_name(path: &Path) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => bail!("cannot draw {}: the name must end in .svg or .png", path.display()),
    }
}

/// What can be drawn, on whatever it is to be drawn on.
pub trait Picture {
    /// Its width and height.
    fn size(&self) -> (u32, u32);

    /// Draws it on a white area of that size.
    fn draw_on<B>(&self, area: &DrawingArea<B, Shift>) -> Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static;
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

fn draw_whole<B>(picture: &(impl Picture + ?Sized), area: &DrawingArea<B, Shift>) -> Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    picture.draw_on(area)?;
    area.present()?;
    Ok(())
}

/// Says which line or bar is what.
pub fn draw_key<'a, B, C>(chart: &mut ChartContext<'a, B, C>) -> Result<()>
where
    B: DrawingBackend + 'a,
    B::ErrorType: 'static,
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
