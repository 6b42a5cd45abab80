//! Why a region is kept regardless of budgets.
//!
//! Owns: the reasons that follow from one region and its mapping. Never touches: other regions, or what is left to spend.

use heat::{Heat, Region};

use crate::decide::{Limits, Reason};

/// The first reason that applies; None if the region is a candidate for promotion.
///
/// Reasons that nothing can change come first, those that an option lifts last: `SpreadOverNodes` and `Shared` are given only for a region that would
/// have paid.
pub(super) fn reason_to_keep(heat: &Heat, region: &Region, limits: &Limits, lives_in_tlb: bool) -> Option<Reason> {
    if let Some(obstacle) = region.obstacle {
        Some(Reason::Obstacle(obstacle))
    } else if region.huge {
        Some(Reason::AlreadyHuge)
    } else if limits.worth(region) <= 0.0 {
        Some(if region.unobserved > 0 { Reason::NotObserved } else { Reason::NotWalked })
    } else if !limits.pays(limits.worth(region)) {
        Some(Reason::TooCold)
    } else if lives_in_tlb && !limits.pays(limits.worth(region) - region.walks_per_second) {
        Some(Reason::LivesInTlb)
    } else if is_left_to_another(heat, region, limits) {
        Some(Reason::ThroughAnother)
    } else {
        not_included(heat, region, limits)
    }
}

/// Whether another process promotes this shared memory.
fn is_left_to_another(heat: &Heat, region: &Region, limits: &Limits) -> bool {
    let shared = heat.mapping_of(region).and_then(|mapping| mapping.shared);
    shared.is_some_and(|shared| limits.left_to_others.contains(&shared.object))
}

/// What is included only by an option.
pub(super) fn not_included(heat: &Heat, region: &Region, limits: &Limits) -> Option<Reason> {
    let growth = &region.growth;
    let spread = heat.mapping_of(region).is_some_and(|mapping| mapping.spread_over_nodes);
    if spread && !limits.include_interleaved {
        Some(Reason::SpreadOverNodes)
    } else if limits.include_shared {
        None
    } else if growth.shared_by_fork > 0 || growth.merged > 0 {
        Some(Reason::Shared)
    } else if growth.lazily_freed > 0 {
        Some(Reason::LazilyFreed)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use heat::samples::{MEMFD, at, heat_of, region};
    use heat::units::Bytes;
    use heat::{Growth, Mapping, Obstacle};

    use super::*;
    use crate::decide::{Allowance, Spent};

    /// Why the only region of a process is kept, in a mapping that is spread over memory nodes.
    fn reason(region: Region, include_interleaved: bool, include_shared: bool) -> Option<Reason> {
        let mut heat = heat_of(vec![region]);
        heat.mappings[0].spread_over_nodes = true;
        let allowance = Allowance { include_interleaved, include_shared, ..Allowance::default() };
        reason_to_keep(&heat, &heat.regions[0], &allowance.limits(Bytes(0), &Spent::default()), false)
    }

    #[test]
    fn memory_spread_over_nodes_is_kept_unless_asked_for() {
        let hot = || region(0, 1e6, 0);
        assert_eq!(reason(hot(), false, true), Some(Reason::SpreadOverNodes));
        assert_eq!(reason(hot(), true, false), None);
        let shared = || Region { growth: Growth { shared_by_fork: 1, ..Growth::default() }, ..hot() };
        assert_eq!(reason(shared(), true, false), Some(Reason::Shared), "each option lifts its own reason only");
        assert_eq!(reason(shared(), true, true), None);
    }

    #[test]
    fn what_no_option_lifts_is_told_first() {
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(0, 1e6, 0) };
        assert_eq!(reason(stack, false, false), Some(Reason::Obstacle(Obstacle::Stack)));
        assert_eq!(reason(region(0, 0.0, 0), false, false), Some(Reason::NotWalked));
        assert_eq!(reason(region(0, 1.0, 0), false, false), Some(Reason::TooCold));
    }

    #[test]
    fn memory_that_nobody_walks_pays_by_its_page_faults_and_page_tables() {
        let faulting = Region { faults_per_second: 100.0, ..region(0, 0.0, 0) };
        assert_eq!(reason(faulting, true, false), None);
        let shared_by = |processes| Region { page_tables: processes, ..region(0, 0.0, 0) };
        assert_eq!(reason(shared_by(7), true, false), Some(Reason::TooCold));
        assert_eq!(reason(shared_by(8), true, false), None);
    }

    #[test]
    fn what_lives_in_the_tlb_pays_only_by_what_it_saves_besides() {
        let reason = |region| {
            let heat = heat_of(vec![region]);
            reason_to_keep(&heat, &heat.regions[0], &Allowance::default().limits(Bytes(0), &Spent::default()), true)
        };
        assert_eq!(reason(region(0, 1e6, 0)), Some(Reason::LivesInTlb));
        assert_eq!(reason(Region { page_tables: 100, ..region(0, 1e6, 0) }), None);
    }

    #[test]
    fn an_object_that_another_process_promotes_is_left_to_it() {
        let mut heat = heat_of(vec![region(0, 1e6, 0)]);
        heat.mappings[0].shared = Some(MEMFD);
        let left_to_others = [MEMFD.object].into();
        let limits = Limits { left_to_others, ..Allowance::default().limits(Bytes(0), &Spent::default()) };
        assert_eq!(reason_to_keep(&heat, &heat.regions[0], &limits, false), Some(Reason::ThroughAnother));
        heat.mappings[0].shared = None;
        assert_eq!(reason_to_keep(&heat, &heat.regions[0], &limits, false), None);
    }

    #[test]
    fn only_a_regions_own_mapping_counts() {
        let mut heat = heat_of(vec![region(0, 1e6, 0), Region { mapping: Some(1), ..region(1, 1e6, 0) }]);
        let spread = Mapping { spread_over_nodes: true, ..heat.mappings[0].clone() };
        heat.mappings.push(spread);
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        let reasons: Vec<_> =
            heat.regions.iter().map(|region| (region.start, reason_to_keep(&heat, region, &limits, false))).collect();
        assert_eq!(reasons, [(at(0), None), (at(1), Some(Reason::SpreadOverNodes))]);
    }
}
