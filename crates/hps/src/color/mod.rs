//! Page coloring: memory whose pages follow each other through the sets of a physically indexed cache.
//!
//! Owns: the choice of pages ([`choice`]), and the memory made of them ([`arena`]). Never touches: whether colors are real on this machine;
//! `hugepilot color probe` measures that.

mod arena;
mod choice;
mod error;

pub use arena::{ArenaOptions, ColoredArena, Verified};
pub use choice::Palette;
pub use error::ColorError;
