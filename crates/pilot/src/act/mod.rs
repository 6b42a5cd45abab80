//! Act: carry a plan out, in bounded steps that can be stopped.
//!
//! Owns: changes to the target's memory, and the account of them. Never touches: the choice of what to change.

mod give_back;
mod node;
mod outcome;
mod pace;
mod prepare;
mod preparer;
mod promote;
mod record;
mod reporting;
mod times;
mod trial;

pub use give_back::give_back;
pub use node::RegionNodes;
pub use outcome::{Outcome, Refusal};
pub use pace::Pacer;
pub use prepare::Preparation;
pub use promote::{Candidate, Promoter, Turn};
pub use record::{Promoted, Record, RecordError};
pub use reporting::ReportingHeldBack;
pub use times::Times;
pub use trial::{collapse_times, frees_empty_pages};
