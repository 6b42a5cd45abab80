//! What came of a plan: tried, applied, refused-because.

use std::collections::BTreeMap;

use heat::RefusalReason;
use heat::units::{Address, Bytes, Nanos};
use kernel::nodes::Node;
use observe::Waited;

use crate::act::Times;

/// The account of one run of actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Regions tried.
    pub tried: u64,
    /// Regions in which the action took effect.
    pub applied: u64,
    /// Regions in which it did not, each with the reason.
    pub refused: Vec<Refusal>,
    /// Regions left untried because of a signal, because time was up or because the target ended.
    pub not_reached: u64,
    /// Time spent inside the kernel on behalf of the target.
    pub busy: Nanos,
    /// Time spent preparing pages, which holds the target up nowhere.
    pub preparing: Nanos,
    /// Prepared pages by the memory node that they were on, on a machine with several.
    pub prepared_on: BTreeMap<Node, u64>,
    /// The longest single step: the longest stall that the target can have seen.
    pub longest: Nanos,
    /// How long steps took.
    pub times: Times,
    /// How long the target really waited; None where the kernel does not tell.
    pub waited: Option<Waited>,
    /// Wall time from the first step to the last.
    pub elapsed: Nanos,
}

/// One region in which the action did not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where the region starts.
    pub start: Address,
    /// Why, in words that lead to a next step.
    pub reason: RefusalReason,
    /// What the kernel answered; 0 where it was not asked.
    pub errno: i32,
}

impl Outcome {
    /// Memory on which the action took effect.
    pub fn applied_bytes(&self) -> Bytes {
        Bytes(self.applied * heat::units::HUGE_PAGE)
    }
}
