//! Pictures: charts as SVG, which a browser draws with its own fonts, and the same as PNG.
//!
//! Owns: files, captions and keys (beside the data, never over it), charts of lines, distinguishable colours. Never touches: what is drawn.
//!
//! - [`chart`]: the parts that charts share.
//! - [`color`]: colours that people with any kind of color vision can tell apart.
//! - `raster`: PNG, with the feature `png`.

pub mod chart;
pub mod color;
#[cfg(feature = "png")]
mod raster;

use std::io;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;

/// The font of all pictures: the reader's own.
pub const FONT: &str = "sans-serif";

/// A rectangle that is drawn on, in pixels.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What can be drawn.
pub trait Picture {
    /// Width and height, in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws it on a white area of that size. Errors: an axis or a mark cannot be drawn.
    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError>;
}

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// plotters cannot draw it.
    #[error("the picture cannot be drawn: {0}")]
    Drawing(#[from] DrawingAreaErrorKind<io::Error>),
    /// Neither SVG nor PNG.
    #[error("cannot draw {}: the name must end in {}", path.display(), if cfg!(feature = "png") { ".svg or .png" } else { ".svg (this build draws no PNG: `make install FEATURES=png` does)" })]
    Name {
        /// Where it was to go.
        path: PathBuf,
    },
    /// A PNG needs a font.
    #[error(
        "no font is installed here, which a PNG needs: install one (Debian: fonts-dejavu-core), or choose a name that ends in .svg"
    )]
    NoFont,
    /// The SVG is not understood.
    #[error("the picture cannot be drawn as PNG: {0}")]
    Png(String),
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// What a file's name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    #[cfg(feature = "png")]
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Self, DrawError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            #[cfg(feature = "png")]
            Some("png") => Ok(Self::Png),
            _ => Err(DrawError::Name { path: path.to_owned() }),
        }
    }
}

/// Call this before hours of measuring. Errors: the name ends with neither `.svg` nor `.png`.
pub fn check_name(path: &Path) -> Result<(), DrawError> {
    Format::of(path).map(drop)
}

/// The picture as SVG.
pub fn svg(picture: &(impl Picture + ?Sized)) -> Result<String, DrawError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, picture.size()).into_drawing_area();
    area.fill(&WHITE)?;
    picture.draw_on(&area)?;
    area.present()?;
    drop(area);
    Ok(svg)
}

/// Draws a picture to a file, FILE.svg or FILE.png.
pub fn draw(picture: &(impl Picture + ?Sized), path: &Path) -> Result<(), DrawError> {
    check_name(path)?;
    save(&svg(picture)?, path)
}

/// Writes what [`svg`] returned to a file, FILE.svg or FILE.png.
pub fn save(svg: &str, path: &Path) -> Result<(), DrawError> {
    let contents = match Format::of(path)? {
        Format::Svg => svg.as_bytes().to_vec(),
        #[cfg(feature = "png")]
        Format::Png => raster::png(svg)?,
    };
    std::fs::write(path, contents).map_err(|cause| DrawError::Write { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Square;

    impl Picture for Square {
        fn size(&self) -> (u32, u32) {
            (100, 50)
        }

        fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
            let style = (FONT, 20).into_font();
            area.draw(&Text::new("words", (10, 10), style))?;
            Ok(area.draw(&Rectangle::new([(50, 0), (100, 50)], RED.filled()))?)
        }
    }

    #[test]
    fn other_formats_are_refused_before_measuring() {
        assert!(check_name("a.pdf".as_ref()).is_err());
        assert!(check_name("svg".as_ref()).is_err());
        assert!(check_name("a.svg".as_ref()).is_ok());
        assert_eq!(check_name("a.png".as_ref()).is_ok(), cfg!(feature = "png"));
    }

    #[test]
    fn an_svg_has_its_words_as_words() {
        let svg = svg(&Square).unwrap();
        assert!(svg.contains("words") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[cfg(feature = "png")]
    #[test]
    fn a_png_shows_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        match draw(&Square, &path) {
            Err(DrawError::NoFont) => eprintln!("skipped: no font is installed here"),
            drawn => {
                drawn.unwrap();
                let pixels = resvg::tiny_skia::Pixmap::load_png(&path).unwrap();
                assert_eq!((pixels.width(), pixels.height()), (2 * 100, 2 * 50));
                let colors: Vec<_> =
                    pixels.pixels().iter().map(|pixel| (pixel.red(), pixel.green(), pixel.blue())).collect();
                let half = colors.len() / 2;
                let red = colors.iter().filter(|color| **color == (255, 0, 0)).count();
                assert!(red.abs_diff(half) < half / 50, "{red} of {half}");
                assert!(colors.contains(&(0, 0, 0)), "words are black");
            }
        }
    }
}
