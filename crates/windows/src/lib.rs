//! hugepilot.exe: on Windows nobody can put another program's memory on large pages, so what is there is the question whether a program
//! could have them, what is missing ([`doctor`]), and the right to them ([`grant`]). Programs ask for them by `hugepilot_os::large_pages`, or from C by libhps.
//!
//! Owns: the command line ([`args`]) and the output. Never touches: Windows; the binary reads it and passes the facts on.
#![forbid(unsafe_code)]

pub mod args;
pub mod contiguous;
pub mod doctor;
pub mod grant;
pub mod render;
