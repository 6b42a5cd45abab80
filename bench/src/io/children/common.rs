//! What the programs have in common: the sizes of files, and the order in which the OOM killer ends them.
//!
//! Owns: these. Never touches: what any of them does.

use anyhow::{Context, Result};
use rand::rngs::Xoshiro256PlusPlus;

use crate::workload::below;

/// System D: files of 100 KB to 5 MB.
pub const SMALLEST: usize = 100_000;
pub const LARGEST: usize = 5_000_000;
/// The size of a program's reads and writes.
pub const CHUNK: usize = 64 << 10;

/// The size of the next file.
pub fn file_size(random: &mut Xoshiro256PlusPlus) -> usize {
    SMALLEST + below(random, LARGEST - SMALLEST + 1)
}

/// Makes the OOM killer end this program first: it makes memory scarce, and other programs must not suffer from that.
pub fn use_up_first() -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000").context("cannot write to /proc/self/oom_score_adj")
}
