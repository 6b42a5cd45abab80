//! PNG from SVG.
//!
//! Owns: which of the system's fonts stands for `sans-serif`. Never touches: files.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use crate::DrawError;

/// Two pixels for each of the picture's, so that words are sharp on today's screens.
const SCALE: f32 = 2.0;
/// Preferred for `sans-serif`: common on Linux, and easily read when small.
const FAMILIES: [&str; 4] = ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Arial"];

/// The contents of a PNG file. Errors: no font is installed, or the SVG is not understood.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, DrawError> {
    let wrong = |error: &dyn std::fmt::Display| DrawError::Png(error.to_string());
    let tree = Tree::from_str(svg, &options()?).map_err(|error| wrong(&error))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| wrong(&"it has no size"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| wrong(&"it has no size"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| wrong(&error))
}

fn options() -> Result<Options<'static>, DrawError> {
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    let families = || fonts.faces().flat_map(|face| face.families.iter().map(|(family, _)| family.clone()));
    let preferred = FAMILIES.iter().find(|wanted| families().any(|family| family == **wanted));
    let family = preferred.map(|family| (*family).to_owned()).or_else(|| families().next());
    fonts.set_sans_serif_family(family.ok_or(DrawError::NoFont)?);
    Ok(options)
}
