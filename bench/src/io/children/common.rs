//! What the programs have in common: files of which sizes, and which the kernel ends first.
//!
//! Owns: these. Never touches: what any of them does.

use anyhow::{Context, Result};
use rand::rngs::Xoshiro256PlusPlus;

use crate::workload::below;

/// System D: files of 100 KB to 5 MB.
pub const SMALLEST: usize = 100_000;
pub const LARGEST: usize = 5_000_000;
/// What a program hands to the kernel, or takes from it, at once.
pub const CHUNK: usize = 64 << 10;

/// The size of the next file.
pub fn file_size(random: &mut Xoshiro256PlusPlus) -> usize {
    SMALLEST + below(random, LARGEST - SMALLEST + 1)
}

/// Has the kernel end this program before any other where memory is used up: it makes memory scarce, and others must not suffer from that.
pub fn use_up_first() -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000").context("cannot write to /proc/self/oom_score_adj")
}
