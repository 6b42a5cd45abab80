//! libhps: an application that manages its own memory is told which of it is hot, and sees to it that they lie on huge pages:
//! dense ones are converted where they are, scattered hot objects are moved together by the application itself.
//!
//! Owns: the C interface ([`c_api`]), tracking ([`tracking`]), the rules by which regions are judged ([`judge`]), memory for what is
//! moved together ([`arena`]), and memory that is spread evenly over a cache ([`color`]). Never touches: the application's objects, or any
//! process but its own.
//!
//! The daemon observes ([`daemon`] is its side as seen from here, [`wire`] what is said); without one the application sees its own
//! writes ([`own`]). Children may use the library, too ([`fork`]).
//!
//! All of that is Linux's. Other systems have the C interface to large pages ([`c_large`]) and its errors ([`c_error`]).

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod c_api;
mod c_error;
mod c_large;
#[cfg(target_os = "linux")]
pub mod color;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod judge;
#[cfg(target_os = "linux")]
mod list;
#[cfg(target_os = "linux")]
mod own;
#[cfg(target_os = "linux")]
mod tracking;
#[cfg(target_os = "linux")]
pub mod wire;

#[cfg(target_os = "linux")]
pub use {
    arena::{Arena, ArenaBacking},
    error::TrackError,
    judge::{ActiveRegion, Application, Judge, RegionVerdict, Report},
    tracking::{ProcessTracking, TrackingSettings},
};
