//! The plan: one decision a region, each with its reason.

use crate::observe::heat::{Meaning, Obstacle};
use crate::units::{Address, Bytes, Nanos};

/// What a plan may spend, and what must pay.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Memory growth allowed, summed over the plan.
    pub max_growth: Bytes,
    /// Memory that may be on huge pages after the plan, what is huge already included; None for no limit.
    pub max_huge: Option<Bytes>,
    /// Stop once the regions taken (and those huge already) account for this share of all page walks.
    pub coverage: f64,
    /// What one page walk costs, for weighing.
    pub walk_cost: Nanos,
    /// What moving one region to a huge page costs, for weighing.
    pub collapse_cost: Nanos,
    /// A region pays if it saves its `collapse_cost` within this time.
    pub payback: Nanos,
    /// Nothing is promoted unless page walks take at least this share of the CPU time that the target uses.
    pub min_walk_share: f64,
    /// Promote regions that hold pages shared by fork, merged by KSM or lazily freed as well.
    pub include_shared: bool,
}

/// One decision for each region of the heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The process.
    pub pid: u32,
    /// What the bits that it rests on mean.
    pub meaning: Meaning,
    /// Every region, promotions first in the order in which they should be carried out (most benefit per cost first),
    /// then the others by address.
    pub decisions: Vec<Decision>,
    /// Share of the target's CPU time that page walks take today, at `Limits::walk_cost` each; None if the target used
    /// no CPU time or it could not be told.
    pub walk_share: Option<f64>,
}

/// What happens to one region, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Where the region starts.
    pub start: Address,
    /// What to do.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// Page walks a second that it has today.
    pub walks_per_second: f64,
    /// Memory that promoting it takes.
    pub growth: Bytes,
}

/// What to do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Put it on a huge page.
    Promote,
    /// Leave it as it is.
    Keep,
}

/// Why a region is promoted or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Promoted: its page walks pay for the move.
    Pays,
    /// Kept: a huge page maps it already.
    AlreadyHuge,
    /// Kept: it can never be promoted.
    Obstacle(Obstacle),
    /// Kept: no page of it was walked.
    NotWalked,
    /// Kept: too few page walks to pay for the move.
    TooCold,
    /// Kept: the process spends next to no time on page walks, because the TLB holds the memory it uses.
    LivesInTlb,
    /// Kept: hotter regions already account for nearly all page walks.
    Covered,
    /// Kept: it would grow memory beyond the limit.
    GrowthLimit,
    /// Kept: the limit on memory on huge pages is reached.
    HugeLimit,
    /// Kept: holds pages shared by fork or merged by KSM, which promoting would copy.
    Shared,
    /// Kept: holds lazily freed pages, which promoting would bring back.
    LazilyFreed,
}
