//! What all pictures share: their font, and how drawing fails.
//!
//! Owns: these. Never touches: installed fonts; a minimal system has none, so the one font needed is part of the program.

use plotters::style::{FontStyle, register_font};

/// The one font of all pictures.
pub const FONT: &str = "sans-serif";

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct DrawError(pub(super) String);

/// Must be called before anything is drawn; repeated calls do no harm. Errors: the built-in font cannot be read.
pub fn prepare_font() -> Result<(), DrawError> {
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| DrawError("the built-in font cannot be read".into()))
}
