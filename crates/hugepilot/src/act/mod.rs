//! Act: carry a plan out, in bounded steps that can be stopped.
//!
//! Owns: changes to the target's memory, and the account of them. Never touches: the choice of what to change.

mod give_back;
mod outcome;
mod promote;
mod record;

pub use give_back::{frees_empty_pages, give_back};
pub use outcome::{Outcome, Refusal, RefusalReason};
pub use promote::{Pace, Pacer, promote};
pub use record::{Record, RecordError};
