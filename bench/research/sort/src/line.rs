//! One sort as a line of JSON, the same wherever it was measured.
//!
//! Owns: the shape of that line. Never touches: conclusions; `hugepilot-research sort` draws them.

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::task::PageChoice;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortTurn {
    /// From 0; turns of the same round are compared.
    pub round: u32,
    /// How.
    pub algorithm: Algorithm,
    /// Which of the ways to do it ([`Algorithm::shape`]); None of what was kept before that was told: a heap sort whose numbers sink from the
    /// top until they fit, and the quick sort of Rust's library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Where, as asked for.
    pub pages: PageChoice,
    /// Bytes of numbers.
    pub bytes: u64,
    /// One sort.
    pub nanoseconds: u64,
    /// Of all the memory that was taken, bytes on large pages, as the system says.
    pub large_bytes: u64,
    /// All that was taken.
    pub taken_bytes: u64,
    /// Why it is not as asked for.
    pub refusal: Option<String>,
}
