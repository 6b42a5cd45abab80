//! The programs of a turn, each this very program started again as a child.
//!
//! Owns: what they do. Never touches: when, and what it means.

mod fill;
mod hold;
mod obtain;
mod resident;
mod writers;

use anyhow::{Context, Result};
use rand::rngs::Xoshiro256PlusPlus;

use crate::workload::below;

pub use fill::FillChild;
pub use hold::HoldChild;
pub use obtain::{ObtainChild, Obtained, obtain};
pub use resident::ResidentHeapChild;
pub use writers::{WritersChild, on_disk};

/// System D: files of 100 KB to 5 MB.
const SMALLEST: usize = 100_000;
const LARGEST: usize = 5_000_000;
/// What a program hands to the kernel, or takes from it, at once.
const CHUNK: usize = 64 << 10;

/// The size of the next file.
fn file_size(random: &mut Xoshiro256PlusPlus) -> usize {
    SMALLEST + below(random, LARGEST - SMALLEST + 1)
}

/// Has the kernel end this program before any other where memory is used up: it makes memory scarce, and others must not suffer from that.
fn use_up_first() -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000").context("cannot write to /proc/self/oom_score_adj")
}
