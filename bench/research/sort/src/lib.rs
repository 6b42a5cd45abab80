//! Sorts pseudo-random numbers in large or in ordinary pages: the experiment that was timed on Windows, on any system.
//!
//! Owns: the algorithms ([`algorithm`]), the memory in which they sort ([`task`]), and the line that reports a sort ([`line`]). Never touches: the
//! order of measurements, or settings; `hugepilot-research sort` has those on Linux.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod line;
pub mod task;
