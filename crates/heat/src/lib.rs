//! Heat: what a tracker saw of one process, and the types for it that all of hugepilot shares.
//!
//! Owns: units, regions, heat and what follows from it by arithmetic alone. Never touches: the system, or any judgement of what to do.
//!
//! ```
//! use heat::units::{Bytes, HUGE_PAGE};
//!
//! assert_eq!("2MiB".parse(), Ok(Bytes(HUGE_PAGE)));
//! ```
#![forbid(unsafe_code)]

pub mod clearing;
pub mod group;
mod heat;
mod memory_state;
pub mod memory_use;
pub mod names;
pub mod page_set;
mod page_sizes;
pub mod parts;
pub mod passes;
pub mod rate;
mod reclaim;
mod refusal;
pub mod sample;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod snapshot;
pub mod statistics;
pub mod units;
pub mod walk_cost;
pub mod walks;

pub use group::Group;
pub use heat::*;
pub use memory_state::{HeldBack, MemoryState};
pub use page_set::PageSet;
pub use page_sizes::PageSizes;
pub use parts::by_mapping;
pub use reclaim::Reclaim;
pub use refusal::RefusalReason;
pub use sample::{Coverage, Estimate, Sample};
pub use snapshot::Snapshot;
pub use walk_cost::{ReadTimes, WalkCost, WalkShare};
pub use walks::Walks;

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
