//! What a plan may spend, and what must pay; with the defaults and where each comes from.

use crate::units::{Bytes, Nanos, SizeOrShare};

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
    /// Nothing is promoted if fewer pages than this were walked in the whole window: the TLB holds them.
    pub tlb_entries: u64,
    /// Promote regions that hold pages shared by fork, merged by KSM or lazily freed as well.
    pub include_shared: bool,
}

impl Limits {
    /// Growth allowed unless the caller says otherwise: 1 % of resident memory.
    pub const MAX_GROWTH: SizeOrShare = SizeOrShare::Share(0.01);
    /// What regions left out may cost: at most 0.5 % of the page walks, half of the 1 % by which a plan may fall short
    /// of promoting everything; the other half is room for what the tracker missed.
    pub const COVERAGE: f64 = 0.995;
    /// A page walk until it is calibrated. Measured: 20 ns where walks overlap (independent random reads) to 130 ns where
    /// each is waited for (dependent ones); near the low end, so that a doubtful region is kept.
    pub const WALK_COST: Nanos = Nanos(30);
    /// Moving one region. Measured: 0.45 ms at best, 1 to 5 ms where memory must be cleared or fetched first.
    pub const COLLAPSE_COST: Nanos = Nanos(2_000_000);
    /// A heat of one second says little about the next hour; ten minutes is a horizon that servers outlive.
    pub const PAYBACK: Nanos = Nanos(600_000_000_000);
    /// Below 0.2 % of CPU time even saving every page walk would not be seen in the noise of any measurement.
    pub const MIN_WALK_SHARE: f64 = 0.002;
    /// Fewer than the second-level TLB of any server processor since 2015 holds (1,536 on Intel Skylake, more on its
    /// successors and on AMD Zen). Pages that fit are walked only after the TLB was flushed, by a context switch or by the
    /// clearing itself, and huge pages don't avoid that.
    pub const TLB_ENTRIES: u64 = 1024;

    /// The default limits for a process with this much resident memory.
    pub fn for_process(rss: Bytes, max_growth: SizeOrShare, max_huge: Option<Bytes>) -> Self {
        Self {
            max_growth: max_growth.of(rss),
            max_huge,
            coverage: Self::COVERAGE,
            walk_cost: Self::WALK_COST,
            collapse_cost: Self::COLLAPSE_COST,
            payback: Self::PAYBACK,
            min_walk_share: Self::MIN_WALK_SHARE,
            tlb_entries: Self::TLB_ENTRIES,
            include_shared: false,
        }
    }

    /// Whether saving this many page walks a second earns the cost of moving a region back in time.
    pub(super) fn pays(&self, walks_per_second: f64) -> bool {
        walks_per_second * self.walk_cost.0 as f64 * self.payback.seconds() >= self.collapse_cost.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_growth_is_taken_of_resident_memory() {
        let limits = Limits::for_process(Bytes(1 << 30), Limits::MAX_GROWTH, None);
        assert_eq!(limits.max_growth, Bytes(10737418));
        let fixed = Limits::for_process(Bytes(1 << 30), SizeOrShare::Size(Bytes(5)), Some(Bytes(7)));
        assert_eq!((fixed.max_growth, fixed.max_huge), (Bytes(5), Some(Bytes(7))));
    }

    #[test]
    fn by_default_a_region_pays_from_112_walks_a_second() {
        let limits = Limits::for_process(Bytes(0), Limits::MAX_GROWTH, None);
        assert!(!limits.pays(111.0));
        assert!(limits.pays(112.0));
    }
}
