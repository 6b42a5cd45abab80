//! What a plan may spend, and what must pay; with the defaults and their sources.
//!
//! Owns: [`Allowance`] (what the user allows), [`Spent`] (the part already used) and the resulting [`Limits`] for one process. Never touches: the
//! system.

use std::collections::BTreeSet;

use heat::units::{Bytes, Nanos, SizeOrShare};
use heat::{Object, Region};

use crate::decide::Past;

/// What the user allows. A share is relative to the memory that is promoted through each process ([`heat::Heat::promotable_here`]). A size holds for all processes together, and so does a share of
/// the machine's memory, which [`Allowance::with_ram`] turns into a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Memory growth.
    pub max_growth: SizeOrShare,
    /// Memory on huge pages, existing ones included; None for no limit.
    pub max_huge: Option<SizeOrShare>,
    /// Also promote regions that hold pages shared by fork, merged by KSM or lazily freed.
    pub include_shared: bool,
    /// Also promote regions whose memory policy spreads them over several memory nodes.
    pub include_interleaved: bool,
}

/// The memory growth that one plan may take, and what that is a share of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrowthLimit {
    /// What the user allows.
    pub allowed: SizeOrShare,
    /// The memory that a share is of.
    pub memory: Bytes,
    /// The limit.
    pub limit: Bytes,
}

impl GrowthLimit {
    /// The memory of which the limit is a share; None where it is a size.
    pub fn share_of(&self) -> Option<Bytes> {
        matches!(self.allowed, SizeOrShare::Share(_)).then_some(self.memory)
    }
}

/// The part of an allowance used before a plan is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Growth that earlier plans took in the same process.
    pub growth: Bytes,
    /// Growth that plans took in other processes under the same allowance.
    pub growth_elsewhere: Bytes,
    /// Memory on huge pages in other processes under the same allowance.
    pub huge_elsewhere: Bytes,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { max_growth: Limits::MAX_GROWTH, max_huge: None, include_shared: false, include_interleaved: false }
    }
}

impl Allowance {
    /// The same on a machine with this much memory.
    pub fn with_ram(self, ram: Bytes) -> Self {
        let with_ram = |allowed: SizeOrShare| allowed.with_ram(ram);
        Self { max_growth: with_ram(self.max_growth), max_huge: self.max_huge.map(with_ram), ..self }
    }

    /// The growth allowed in a process with this much memory of which nothing is spent.
    pub fn growth_limit(&self, memory: Bytes) -> GrowthLimit {
        let limit = self.limits(memory, &Spent::default()).max_growth;
        GrowthLimit { allowed: self.max_growth, memory, limit }
    }

    /// The limits for a process through which this much memory is promoted. A share of a machine's memory that is still unknown allows nothing.
    pub fn limits(&self, memory: Bytes, spent: &Spent) -> Limits {
        let left = |allowed: SizeOrShare, elsewhere: Bytes| match allowed {
            SizeOrShare::Size(size) => size.saturating_sub(elsewhere),
            SizeOrShare::Share(share) => memory.share(share),
            SizeOrShare::ShareOfRam(_) => Bytes(0),
        };
        Limits {
            max_growth: left(self.max_growth, spent.growth_elsewhere).saturating_sub(spent.growth),
            max_huge: self.max_huge.map(|max| left(max, spent.huge_elsewhere)),
            quota: None,
            give_back: false,
            coverage: Limits::COVERAGE,
            walk_cost: Limits::WALK_COST,
            fault_cost: Limits::FAULT_COST,
            collapse_cost: Limits::COLLAPSE_COST,
            payback: Limits::PAYBACK,
            min_walk_share: Limits::MIN_WALK_SHARE,
            tlb_entries: Limits::TLB_ENTRIES,
            include_shared: self.include_shared,
            include_interleaved: self.include_interleaved,
            left_to_others: BTreeSet::new(),
            guest: false,
        }
    }
}

/// What a plan may spend, and what must pay.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Memory growth allowed, summed over the plan.
    pub max_growth: Bytes,
    /// Memory that may be on huge pages after the plan, existing ones included; None for no limit.
    pub max_huge: Option<Bytes>,
    /// Huge pages beyond this are given back if we made them; None for no such limit.
    pub quota: Option<Bytes>,
    /// Give back what is waste.
    pub give_back: bool,
    /// Stop once the regions taken (and those huge already) account for this share of all page walks.
    pub coverage: f64,
    /// What one page walk costs, for weighing.
    pub walk_cost: Nanos,
    /// What one page fault costs, for weighing.
    pub fault_cost: Nanos,
    /// What moving one region to a huge page costs, for weighing.
    pub collapse_cost: Nanos,
    /// A region pays if it saves its `collapse_cost` within this time.
    pub payback: Nanos,
    /// Nothing is promoted unless page walks take at least this share of the CPU time that the target uses.
    pub min_walk_share: f64,
    /// Nothing is promoted if fewer pages than this were walked in the whole window: the TLB holds them.
    pub tlb_entries: u64,
    /// Also promote regions that hold pages shared by fork, merged by KSM or lazily freed.
    pub include_shared: bool,
    /// Also promote regions whose memory policy spreads them over several memory nodes.
    pub include_interleaved: bool,
    /// Shared objects that are promoted through another process that maps them.
    pub left_to_others: BTreeSet<Object>,
    /// The process is a virtual machine: nothing is known of its page walks, and its populated memory is promoted.
    pub guest: bool,
}

impl Limits {
    /// Default growth: 1 % of a process's memory.
    pub const MAX_GROWTH: SizeOrShare = SizeOrShare::Share(0.01);
    /// The regions left out may cost at most 0.5 % of the page walks, half of the 1 % by which a plan may fall short of promoting everything; the
    /// other half is room for what the tracker missed.
    pub const COVERAGE: f64 = 0.995;
    /// The cost of a page walk until it is calibrated. Measured: 20 ns where walks overlap (independent random reads) to 130 ns where each is waited
    /// for (dependent ones). The default is near the low end, so that a doubtful region is kept.
    pub const WALK_COST: Nanos = Nanos(30);
    /// The cost of a page fault on populated shared memory until it is calibrated. Measured on a virtual machine: 3.4 to 3.8 us in PostgreSQL's
    /// processes, 1 us where pages come in order.
    pub const FAULT_COST: Nanos = Nanos(2000);
    /// The page walks a second equivalent to a page table that a huge page frees: eight of them, 32 KiB per 2 MiB, pay for a collapse by themselves.
    /// They take memory, and cache lines that others could use.
    pub const WALKS_FOR_A_PAGE_TABLE: f64 = 7.0;
    /// Moving one region, as far as the program feels it. Measured: 0.4 to 0.8 ms with a prepared page; pages are prepared while no ordinary thread
    /// wants the processor.
    pub const COLLAPSE_COST: Nanos = Nanos(1_000_000);
    /// A heat of one second says little about the next hour; ten minutes is a horizon that servers outlive.
    pub const PAYBACK: Nanos = Nanos(600_000_000_000);
    /// Below 0.2 % of CPU time, even saving every page walk would disappear in the noise of any measurement.
    pub const MIN_WALK_SHARE: f64 = 0.002;
    /// What a page walk along addresses costs a program, as a share of [`Limits::WALK_COST`]: 0.4 ns, a quarter of what a chase pays that reads one line
    /// of each page in order, and as little as sequential sweeps were measured to pay. Programs that read whole pages pay less.
    pub const IN_ORDER: f64 = 0.013;
    /// A process whose walks along addresses take less of its CPU time is left alone. Of three trials of a stream through NumPy none found a gain, and
    /// one a loss of 3.4 % [1.8, 5.0].
    pub const MIN_IN_ORDER_SHARE: f64 = 0.01;
    /// Nine tenths of the capacity of the smallest second-level TLB of a server processor since 2015 (1,536 on Intel Skylake, more on its successors and
    /// on AMD Zen): 5.5 MiB. Pages that fit are walked only after the TLB was flushed, by a context switch or by the clearing itself, and huge pages don't avoid
    /// that.
    pub const TLB_ENTRIES: u64 = 1400;

    /// What a huge page saves there, with page faults and page tables converted to page walks a second.
    pub(super) fn worth(&self, region: &Region) -> f64 {
        Self::worth_of_walks(region) + self.worth_beside_walks(region)
    }

    /// Page walks along addresses count by what they cost.
    pub(super) fn worth_of_walks(region: &Region) -> f64 {
        region.walks_per_second.max(0.0) * if region.in_order { Self::IN_ORDER } else { 1.0 }
    }

    /// What it saves of page faults and page tables.
    pub(super) fn worth_beside_walks(&self, region: &Region) -> f64 {
        let faults = f64::from(region.faults_per_second) * self.fault_cost.0 as f64 / self.walk_cost.0.max(1) as f64;
        faults + f64::from(region.page_tables) * Self::WALKS_FOR_A_PAGE_TABLE
    }

    /// The same with no more page walks than the last two scans agree on.
    pub(super) fn surely_worth(&self, region: &Region, past: &Past) -> f64 {
        let walks = Self::worth_of_walks(region);
        self.worth_beside_walks(region) + past.surely_walked(region.start).min(walks)
    }

    /// Whether saving this many page walks a second repays the cost of moving a region in time.
    pub(super) fn pays(&self, walks_per_second: f64) -> bool {
        walks_per_second * self.walk_cost.0 as f64 * self.payback.seconds() >= self.collapse_cost.0 as f64
    }

    /// The page walks a second of a region that just pays.
    pub(super) fn break_even(&self) -> f64 {
        self.collapse_cost.0 as f64 / (self.walk_cost.0.max(1) as f64 * self.payback.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSS: Bytes = Bytes(1 << 30);

    #[test]
    fn a_share_is_taken_of_the_processs_own_memory() {
        let allowance = Allowance { max_huge: Some(SizeOrShare::Share(0.5)), ..Allowance::default() };
        let limits = allowance.limits(RSS, &Spent::default());
        assert_eq!((limits.max_growth, limits.max_huge), (Bytes(10737418), Some(Bytes(1 << 29))));
        let elsewhere = Spent { growth: Bytes(18), growth_elsewhere: RSS, huge_elsewhere: RSS };
        let limits = allowance.limits(RSS, &elsewhere);
        assert_eq!((limits.max_growth, limits.max_huge), (Bytes(10737400), Some(Bytes(1 << 29))));
    }

    #[test]
    fn a_size_holds_for_all_processes_together() {
        let (max_growth, max_huge) = (SizeOrShare::Size(Bytes(50)), Some(SizeOrShare::Size(Bytes(70))));
        let allowance = Allowance { max_growth, max_huge, ..Allowance::default() };
        let limits = |growth, growth_elsewhere, huge_elsewhere| {
            let spent = Spent {
                growth: Bytes(growth),
                growth_elsewhere: Bytes(growth_elsewhere),
                huge_elsewhere: Bytes(huge_elsewhere),
            };
            let limits = allowance.limits(RSS, &spent);
            (limits.max_growth.0, limits.max_huge.expect("a limit").0)
        };
        assert_eq!(limits(0, 0, 0), (50, 70));
        assert_eq!(limits(7, 11, 30), (32, 40));
        assert_eq!(limits(20, 40, 80), (0, 0), "never below nothing");
    }

    #[test]
    fn a_share_of_the_machine_holds_for_all_processes_together() {
        let half = SizeOrShare::ShareOfRam(0.5);
        let allowance = Allowance { max_growth: half, max_huge: Some(half), ..Allowance::default() };
        let elsewhere = Spent { growth_elsewhere: Bytes(10), huge_elsewhere: Bytes(20), ..Spent::default() };
        let limits = |allowance: Allowance| {
            let limits = allowance.limits(RSS, &elsewhere);
            (limits.max_growth.0, limits.max_huge.expect("a limit").0)
        };
        assert_eq!(limits(allowance.with_ram(Bytes(100))), (40, 30));
        assert_eq!(limits(allowance), (0, 0), "the machine is not known");
    }

    #[test]
    fn by_default_a_region_pays_from_56_walks_a_second() {
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        assert!(!limits.pays(55.0));
        assert!(limits.pays(56.0) && (55.0..56.0).contains(&limits.break_even()));
    }
}
