//! libhps: an application that manages its own memory is told which pages of it are hot, and sees to it that they lie on huge pages:
//! dense ones are converted where they are, scattered hot objects are moved together by the application itself.
//!
//! Owns: the C interface ([`c_api`]), tracking ([`tracking`]), the rules by which regions are judged ([`judge`]), memory for what is
//! moved together ([`arena`]), and memory that is spread evenly over a cache ([`color`]). Never touches: the application's objects, or any
//! process but its own.
//!
//! The daemon observes ([`daemon`] is its side as seen from here, [`wire`] what is said); without one the application sees its own
//! writes ([`own`]). Children may use the library, too ([`fork`]).

mod arena;
mod c_api;
pub mod color;
mod daemon;
mod error;
mod fork;
mod judge;
mod list;
mod own;
mod tracking;
pub mod wire;

pub use arena::{Arena, Backing};
pub use error::TrackError;
pub use judge::{Application, Judge, Region, Report, Verdict};
pub use tracking::{Settings, Tracker};
