//! The engine: observe, decide, act, again and again, for one program or many. Every command that changes a process calls it.
//!
//! Owns: the order of the three, and what is remembered between rounds. Never touches: the machine. Everything it knows and does goes through a
//! [`crate::world::World`]; it never reads a clock or /proc, and can be simulated.

mod activity;
mod before;
mod budget;
mod client_budget;
mod coverage;
mod done;
mod family;
mod fleet;
mod guest;
mod losses;
mod member;
mod observing;
mod pilot;
mod pilot_summary;
mod quota;
mod requests;
mod serving_time;
mod shared;
mod shared_once;
pub mod shared_state;
mod sharers;
mod state;
mod terms;
mod unfinished;
mod watching;

pub use budget::Budget;
pub use family::{Children, Family, FamilyWatch, add_family};
pub use fleet::{Fleet, Rules};
pub use pilot::{Acted, Pilot, Round, Settings, candidate};
pub use pilot_summary::PilotSummary;
