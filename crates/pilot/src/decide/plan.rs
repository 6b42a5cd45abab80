//! The plan: one decision per region, each with its reason.

use std::collections::BTreeMap;

use heat::units::{Address, BASE_PAGE, Bytes};
use heat::{Meaning, Obstacle, Region, Walks};
use serde::{Deserialize, Serialize};

use crate::decide::Limits;

/// One decision for each region of the heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The process.
    pub pid: u32,
    /// What the underlying bits mean.
    pub meaning: Meaning,
    /// Every region: first those given back, then promotions, both in the order in which they should be carried out (most benefit per cost first),
    /// then the others by address.
    pub decisions: Vec<Decision>,
    /// Share of the target's CPU time that page walks take today, at `Limits::walk_cost` each and at most 1; None if the target used no CPU time or
    /// it could not be told.
    pub walk_share: Option<f64>,
    /// What is known of the page walks of all observed base pages together.
    pub walks: Walks,
}

/// What happens to one region, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Where the region starts.
    pub start: Address,
    /// What to do.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// Its page walks a second today.
    pub walks_per_second: f64,
    /// The same, with those along addresses counted by what they cost ([`Limits::worth_of_walks`]).
    #[serde(skip)]
    pub walks_worth: f64,
    /// Page faults a second that a huge page saves, in all processes that map it.
    pub faults_per_second: f64,
    /// Page tables that a huge page frees, in all processes that map it: 4 KiB each.
    pub page_tables: u16,
    /// All of that converted to page walks a second ([`Limits::worth`]).
    #[serde(skip)]
    pub worth: f64,
    /// Memory that promoting it takes; zero where it is given back.
    #[serde(rename = "growth_bytes")]
    pub growth: Bytes,
}

impl Decision {
    /// About a region of the heat, for the limits of its plan.
    pub(super) fn about(region: &Region, limits: &Limits, verdict: Verdict, reason: Reason) -> Self {
        Self {
            start: region.start,
            verdict,
            reason,
            walks_per_second: region.walks_per_second,
            walks_worth: Limits::worth_of_walks(region),
            faults_per_second: region.faults_per_second.into(),
            page_tables: region.page_tables,
            worth: limits.worth(region),
            growth: region.growth.bytes(),
        }
    }

    /// Splits the huge page of a region that is worth this many page walks a second.
    pub(crate) fn give_back(start: Address, reason: Reason, worth: f64) -> Self {
        Self {
            start,
            verdict: Verdict::GiveBack,
            reason,
            walks_per_second: worth,
            walks_worth: worth,
            faults_per_second: 0.0,
            page_tables: 0,
            worth,
            growth: Bytes(0),
        }
    }
}

/// What to do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Put it on a huge page.
    Promote,
    /// Split its huge page, and free its empty base pages.
    GiveBack,
    /// Leave it as it is.
    Keep,
}

/// Why a region is promoted or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Promoted: its page walks pay for the move.
    Pays,
    /// Promoted: guest memory that is populated; how often the guest walks it is not known.
    Populated,
    /// Kept: a huge page maps it already.
    AlreadyHuge,
    /// Given back: nothing uses it, and most of it is empty.
    Waste,
    /// Given back: a region that saves far more page walks takes its place within the limit on memory on huge pages.
    Displaced,
    /// Given back: it exceeds the program's quota of the limit that it shares with others.
    OverQuota,
    /// Given back on request.
    Requested,
    /// Kept: it was recently given back, split or refused.
    #[serde(alias = "rests")]
    CoolingDown,
    /// Kept: too many huge pages of this mapping were split or released again, each time that it was tried.
    KeptSplitting,
    /// Kept: its program's allocator may give memory back by the page, and is watched before anything is promoted.
    Watched,
    /// Kept: its program's allocator gave memory back by the page within the last ten minutes, which splits huge pages.
    GivenBackByPage,
    /// Kept: no page of it was walked.
    NotWalked,
    /// Kept: memory that the tracker cannot observe; when observing in slices, memory that is locked or mapped by several processes.
    NotObserved,
    /// Kept: it is not part of the observed sample.
    NotInSample,
    /// Kept: too few page walks to pay for the move.
    TooCold,
    /// Kept: the TLB covers the memory that the process uses, so it spends next to no time on page walks.
    LivesInTlb,
    /// Kept: the process walks along addresses, which processors foresee, so it spends next to no time on page walks.
    InOrder,
    /// Kept: what page walks huge pages could still save cost next to nothing; the others are in hotter regions, on huge pages, or where none can be.
    Covered,
    /// Kept: it would grow memory beyond the limit.
    GrowthLimit,
    /// Kept: the limit on memory on huge pages is reached.
    HugeLimit,
    /// Kept: its memory policy spreads it over several memory nodes, and promoting would choose one.
    SpreadOverNodes,
    /// Kept: shared memory, which is promoted through another process that maps it.
    ThroughAnother,
    /// Kept: guest memory of which too much is missing, because the guest never used it, or a balloon or virtio-mem took it.
    NotPopulated,
    /// Kept: guest memory whose page faults or writes a program serves (userfaultfd).
    Userfaultfd,
    /// Kept: memory of a virtual machine's process that does not seem to be the guest's.
    NotGuestMemory,
    /// Kept: holds pages shared by fork or merged by KSM, which promoting would copy.
    Shared,
    /// Kept: holds lazily freed pages, which promoting would bring back.
    LazilyFreed,
    /// Kept: it can never be promoted. Named after the obstacle.
    #[serde(untagged)]
    Obstacle(Obstacle),
}

/// Why regions are promoted or kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanReasons {
    /// The number of regions for each reason.
    pub regions: BTreeMap<Reason, u64>,
    /// The reason that explains most of what is kept ([`Plan::mostly_kept`]).
    pub mostly_kept: Option<Reason>,
}

/// Page walks that take less of a program's CPU time are few.
const NOTICED: f64 = 0.005;

impl Plan {
    /// The regions to promote, in the order in which they should be carried out.
    pub fn promotions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(|decision| decision.verdict == Verdict::Promote)
    }

    /// The regions to give back, in the order in which that should be done, before any promotion.
    pub fn give_backs(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().filter(|decision| decision.verdict == Verdict::GiveBack)
    }

    /// The number of regions for each reason.
    pub fn counts(&self) -> BTreeMap<Reason, u64> {
        let mut counts = BTreeMap::new();
        for decision in &self.decisions {
            *counts.entry(decision.reason).or_default() += 1;
        }
        counts
    }

    /// All of them.
    pub fn reasons(&self) -> PlanReasons {
        let few = self.walk_share.is_some_and(|share| share < NOTICED);
        PlanReasons { regions: self.counts(), mostly_kept: self.mostly_kept(few) }
    }

    /// The reason of most page walks that would stay, by what they cost, if that is more than would be saved. Where all of them are `few`, the reason
    /// of most memory: that of one region in hundreds would explain nothing. A stack is named only where there is nothing else: nobody can do anything
    /// about it.
    pub fn mostly_kept(&self, few: bool) -> Option<Reason> {
        let mut walks: BTreeMap<Reason, (f64, u64)> = BTreeMap::new();
        for decision in &self.decisions {
            let (rate, regions) = walks.entry(decision.reason).or_default();
            *rate += decision.walks_worth;
            *regions += 1;
        }
        let saved = walks_worth(self.promotions());
        let is_done = |reason| matches!(reason, Reason::Pays | Reason::Populated | Reason::AlreadyHuge);
        let most = |one: &(f64, u64), other: &(f64, u64)| {
            let (by_walks, by_memory) = (one.0.total_cmp(&other.0), one.1.cmp(&other.1));
            if few { by_memory.then(by_walks) } else { by_walks.then(by_memory) }
        };
        let is_stack = |reason: Reason| reason == Reason::Obstacle(Obstacle::Stack);
        let kept = walks.into_iter().filter(|&(reason, _)| !is_done(reason));
        let (reason, (rate, _)) = kept.max_by(|&(reason, ref one), &(than, ref other)| {
            is_stack(than).cmp(&is_stack(reason)).then(most(one, other))
        })?;
        (rate > saved || saved == 0.0).then_some(reason)
    }

    /// Memory that carrying the plan out takes.
    pub fn growth(&self) -> Bytes {
        self.promotions().map(|decision| decision.growth).sum()
    }

    /// Page walks a second of the regions to promote; huge pages save nearly all of them.
    pub fn walks_saved_per_second(&self) -> f64 {
        walks_per_second(self.promotions())
    }

    /// Page faults a second that promoting saves, in all processes that map the memory.
    pub fn faults_saved_per_second(&self) -> f64 {
        self.promotions().fold(0.0, |sum, decision| sum + decision.faults_per_second)
    }

    /// Memory in page tables that promoting frees, in all processes that map the memory.
    pub fn page_tables_freed(&self) -> Bytes {
        Bytes(self.promotions().map(|decision| u64::from(decision.page_tables) * BASE_PAGE).sum())
    }

    /// The share of the page walks saved that is certain, 0 to 1, even if every uncertain walk is in a region to promote.
    pub fn certain_share(&self) -> f64 {
        let saved = walks_worth(self.promotions());
        let doubtful = walks_worth(self.on_base_pages()) - self.walks.at_least_per_second;
        match self.meaning {
            Meaning::Walked => 1.0,
            _ if saved > 0.0 => ((saved - doubtful.max(0.0)) / saved).clamp(0.0, 1.0),
            _ => 0.0,
        }
    }

    /// The factor (at least 1) by which the program may walk more often than was estimated: being watched slows it down, on some machines more than
    /// on others.
    pub fn most_times_as_often(&self) -> f64 {
        let walks = self.base_walks_per_second();
        if walks > 0.0 { (self.walks.at_most_per_second / walks).max(1.0) } else { 1.0 }
    }

    /// Page walks a second on base pages.
    pub(crate) fn base_walks_per_second(&self) -> f64 {
        walks_per_second(self.on_base_pages())
    }

    /// The share of what page walks on base pages cost that promoting saves, 0 to 1.
    pub(crate) fn share_of_base_walks_saved(&self) -> f64 {
        self.saved_of(walks_worth(self.on_base_pages()))
    }

    /// The share of what all of the process's page walks cost that promoting saves, 0 to 1.
    pub fn share_of_walks_saved(&self) -> f64 {
        self.saved_of(walks_worth(self.decisions.iter()))
    }

    fn saved_of(&self, all: f64) -> f64 {
        if all > 0.0 { walks_worth(self.promotions()) / all } else { 0.0 }
    }

    fn on_base_pages(&self) -> impl Iterator<Item = &Decision> {
        let is_huge =
            |decision: &Decision| decision.verdict == Verdict::GiveBack || decision.reason == Reason::AlreadyHuge;
        self.decisions.iter().filter(move |decision| !is_huge(decision))
    }
}

fn walks_per_second<'a>(decisions: impl Iterator<Item = &'a Decision>) -> f64 {
    // Not `sum`, which is -0.0 for no decisions.
    decisions.map(|decision| decision.walks_per_second).fold(0.0, |sum, walks| sum + walks)
}

fn walks_worth<'a>(decisions: impl Iterator<Item = &'a Decision>) -> f64 {
    decisions.map(|decision| decision.walks_worth).fold(0.0, |sum, walks| sum + walks)
}
