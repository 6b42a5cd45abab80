//! libhps: tells an application that manages its own memory which of its pages are hot, and moves hot memory to huge pages: dense regions
//! are converted in place, scattered hot objects are moved together by the application.
//!
//! Owns: the C interface ([`c_api`]), tracking ([`tracking`]), the rules for judging regions ([`judge`]), arenas for objects that are
//! moved together ([`arena`]), and memory that is spread evenly over a cache ([`color`]). Never touches: the application's objects, or any
//! other process.
//!
//! The daemon observes ([`daemon`] is the client's side, [`wire`] the protocol); without a daemon the application tracks its own writes
//! ([`own`]). Children may use the library, too ([`fork`]).
//!
//! All of that is for Linux. Other systems have the C interface to large pages ([`c_large`]) and its errors ([`c_error`]).

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
mod growth;
#[cfg(target_os = "linux")]
mod handler;
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
    error::{Outdated, TrackError},
    judge::{ActiveRegion, Application, Judge, RegionVerdict, Report},
    tracking::{ProcessTracking, TrackingSettings},
};

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
