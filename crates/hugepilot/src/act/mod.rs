//! Act: carry a plan out, in bounded steps that can be stopped.
//!
//! Owns: changes to the target's memory, and to what the kernel keeps in memory ([`age`]), and the account of them. Never touches: the choice of what to change.

pub mod age;
mod give_back;
mod outcome;
mod promote;
mod record;
mod trial;

pub use give_back::give_back;
pub use outcome::{Outcome, Refusal, RefusalReason};
pub use promote::{Pace, Pacer, promote};
pub use record::{Promoted, Record, RecordError};
pub use trial::{collapse_time, frees_empty_pages};
