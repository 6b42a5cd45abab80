//! The plan: one decision a region, each with its reason.

use std::collections::BTreeMap;

use crate::observe::heat::{Meaning, Obstacle};
use crate::units::{Address, Bytes};

/// One decision for each region of the heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The process.
    pub pid: u32,
    /// What the bits that it rests on mean.
    pub meaning: Meaning,
    /// Every region: what is given back first, then promotions, both in the order in which they should be carried out (most
    /// benefit per cost first), then the others by address.
    pub decisions: Vec<Decision>,
    /// Share of the target's CPU time that page walks take today, at `Limits::walk_cost` each and 1 at most; None if the
    /// target used no CPU time or it could not be told.
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
    /// Memory that promoting it takes; nothing where it is given back.
    pub growth: Bytes,
}

/// What to do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Put it on a huge page.
    Promote,
    /// Split its huge page, and free what is empty of it.
    GiveBack,
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
    /// Given back: nothing uses it, and most of it is empty.
    Waste,
    /// Given back: a region that saves far more page walks takes its place within the limit on memory on huge pages.
    Outdone,
    /// Given back: it is more than the program's part of the limit that it shares with others.
    BeyondPart,
    /// Kept: it was given back, split or refused not long ago.
    Rests,
    /// Kept: it can never be promoted.
    Obstacle(Obstacle),
    /// Kept: no page of it was walked.
    NotWalked,
    /// Kept: memory that the tracker cannot observe; in slices, what is locked or mapped by several processes.
    NotObserved,
    /// Kept: too few page walks to pay for the move.
    TooCold,
    /// Kept: the TLB holds the memory that the process uses, so that it spends next to no time on page walks.
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

impl Plan {
    /// The regions to promote, in the order in which they should be carried out.
    pub fn promotions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(|decision| decision.verdict == Verdict::Promote)
    }

    /// The regions to give back, in the order in which that should be done; before anything is promoted.
    pub fn give_backs(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(|decision| decision.verdict == Verdict::GiveBack)
    }

    /// How many regions there are of each reason.
    pub fn counts(&self) -> BTreeMap<Reason, u64> {
        let mut counts = BTreeMap::new();
        for decision in &self.decisions {
            *counts.entry(decision.reason).or_default() += 1;
        }
        counts
    }

    /// Memory that carrying the plan out takes.
    pub fn growth(&self) -> Bytes {
        self.promotions().map(|decision| decision.growth).sum()
    }

    /// Page walks a second of the regions to promote; a huge page saves nearly all of them.
    pub fn walks_saved_per_second(&self) -> f64 {
        walks_per_second(self.promotions())
    }

    /// Those page walks as a share of all that the process has, 0 to 1.
    pub fn share_of_walks_saved(&self) -> f64 {
        let all = walks_per_second(self.decisions.iter());
        if all > 0.0 { self.walks_saved_per_second() / all } else { 0.0 }
    }
}

fn walks_per_second<'a>(decisions: impl Iterator<Item = &'a Decision>) -> f64 {
    // Not `sum`, which is -0.0 for no decisions.
    decisions.map(|decision| decision.walks_per_second).fold(0.0, |sum, walks| sum + walks)
}
