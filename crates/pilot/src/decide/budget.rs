//! What one plan may still spend: memory growth, huge pages, and page walks that are worth saving.
//!
//! Owns: the account of a plan. Never touches: which region is taken next.

use heat::units::{Bytes, HUGE_PAGE};
use heat::{Heat, Region};

use crate::decide::{Limits, Reason};

/// What is left to spend.
pub(super) struct Budget {
    pub(super) growth_left: Bytes,
    /// Existing huge pages.
    pub(super) huge_pages: u64,
    /// The most there may be; None for no limit.
    most_huge_pages: Option<u64>,
    worth_accounted: f64,
    worth_enough: f64,
}

impl Budget {
    /// `saved`: the worth of existing huge pages, in page walks a second.
    pub(super) fn new(heat: &Heat, limits: &Limits, saved: f64) -> Self {
        let huge = heat.huge_bytes();
        let sum_of = |of: fn(&Region) -> f64| heat.regions.iter().map(of).fold(0.0, |sum, each| sum + each);
        // Below zero where walks go along addresses. All walks are added below, because those of a sample are extrapolated.
        let beside_walks =
            heat.regions.iter().fold(0.0, |sum, region| sum + limits.worth(region) - region.walks_per_second.max(0.0));
        Self {
            growth_left: limits.max_growth,
            huge_pages: huge.0.div_ceil(HUGE_PAGE),
            most_huge_pages: limits.max_huge.into_iter().chain(limits.quota).min().map(|max| max.0 / HUGE_PAGE),
            worth_accounted: sum_of(|region| if region.huge { region.walks_per_second } else { 0.0 }) + saved,
            worth_enough: (heat.walks_per_second() + beside_walks + saved) * limits.coverage,
        }
    }

    /// The same where all regions are wanted, since of none it is known how often it is walked.
    pub(super) fn for_all(heat: &Heat, limits: &Limits) -> Self {
        Self { worth_enough: f64::INFINITY, ..Self::new(heat, limits, 0.0) }
    }

    /// None for no limit.
    pub(super) fn huge_pages_left(&self) -> Option<u64> {
        self.most_huge_pages.map(|most| most.saturating_sub(self.huge_pages))
    }

    /// Whether there are more huge pages than allowed; giving one back then makes no room for another.
    pub(super) fn is_exceeded(&self) -> bool {
        self.most_huge_pages.is_some_and(|most| self.huge_pages > most)
    }

    /// One was given back.
    pub(super) fn huge_page_is_free(&mut self) {
        self.huge_pages -= 1;
    }

    /// Charges the budget for one region, or returns the limit that forbids it and leaves the budget unchanged.
    pub(super) fn take(&mut self, region: &Region, worth: f64) -> Result<(), Reason> {
        let growth = region.growth.bytes();
        if self.worth_accounted >= self.worth_enough {
            return Err(Reason::Covered);
        }
        if growth > self.growth_left {
            return Err(Reason::GrowthLimit);
        }
        if self.huge_pages_left() == Some(0) {
            return Err(Reason::HugeLimit);
        }
        self.growth_left = self.growth_left.saturating_sub(growth);
        self.huge_pages += 1;
        self.worth_accounted += worth;
        Ok(())
    }
}
