//! One sort as a line of JSON, the same on every system.
//!
//! Owns: the format of that line. Never touches: conclusions; `hugepilot-research sort` draws them.

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::task::PageChoice;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortTurn {
    /// Counted from 0; turns of the same round are compared.
    pub round: u32,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Which of the ways to do it ([`Algorithm::shape`]); None of what was kept before that was told: a heap sort whose numbers sink from the
    /// top until they fit, and the quick sort of Rust's library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Where, as asked for.
    pub pages: PageChoice,
    /// Bytes of numbers.
    pub bytes: u64,
    /// The duration of one sort.
    pub nanoseconds: u64,
    /// Bytes of the memory taken that are on large pages, according to the system.
    pub large_bytes: u64,
    /// All memory taken.
    pub taken_bytes: u64,
    /// Why the pages are not the requested ones.
    pub refusal: Option<String>,
}
