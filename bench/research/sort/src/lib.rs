//! Sorting pseudo-random numbers in large or in ordinary pages: what the experiment on Windows timed, on any system.
//!
//! Owns: the algorithms ([`algorithm`]), the memory that they sort in ([`task`]), and the line that tells of it ([`line`]). Never touches:
//! the order of measurements, or settings; `hugepilot-research sort` has those on Linux.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod line;
pub mod task;
