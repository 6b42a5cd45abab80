//! The programs of a turn; each is this binary, started again as a child.
//!
//! Owns: what they do. Never touches: when they run, or what the results mean.

mod common;
mod fill;
mod hold;
mod obtain;
mod resident;
mod small_files;
mod writers;

pub use fill::FillChild;
pub use hold::HoldChild;
pub use obtain::{ObtainChild, Obtained, obtain};
pub use resident::ResidentHeapChild;
pub use small_files::SmallFilesChild;
pub use writers::{WritersChild, on_disk};
