//! hugepilot.exe: on Windows no program can put another's memory on large pages, so this one only tells whether programs could have
//! them, and what is missing ([`doctor`]). Programs request them through `hugepilot_os::large_pages`, or from C through libhps.
//!
//! Owns: the command line ([`args`]) and the output. Never touches: Windows; the binary reads it and passes the facts on.
#![forbid(unsafe_code)]

pub mod args;
pub mod contiguous;
pub mod doctor;
pub mod render;
