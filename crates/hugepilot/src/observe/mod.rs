//! Observe: which memory does a process walk page tables for?
//!
//! Owns: the [`Tracker`] trait, the trackers (one file each) and [`heat`]. Never touches: memory placement; a tracker
//! leaves the target's memory where it is.

pub mod heat;

pub use heat::Heat;
