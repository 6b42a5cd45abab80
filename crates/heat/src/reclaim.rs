//! Whether the kernel's reclaim depends on the accessed bits that trackers clear.
//!
//! Owns: the reason. Never touches: memory, or swap.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why reclaim depends on accessed bits here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    /// Programs wait for memory, or little of it is available.
    MemoryShort,
    /// Memory has been swapped out, and more may be.
    SwapInUse,
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MemoryShort => "memory is short",
            Self::SwapInUse => "swap is in use",
        })
    }
}
