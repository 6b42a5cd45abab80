//! Act: carry a plan out, in bounded steps that can be stopped.
//!
//! Owns: changes to the target's memory, and the account of them. Never touches: the choice of what to change.

mod outcome;

pub use outcome::{Outcome, Refusal, RefusalReason};
