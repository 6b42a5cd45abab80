//! Why a region is kept regardless of budgets.
//!
//! Owns: the reasons that follow from one region and its mapping, and from what all page walks together cost. Never touches: what is left to spend.

use heat::units::Nanos;
use heat::walks::MOSTLY_IN_ORDER;
use heat::{Heat, Region};

use crate::decide::{Limits, Reason};

/// The first reason that applies; None if the region is a candidate for promotion.
///
/// `walks_are_cheap`: why all page walks of the process together cost it next to nothing, if they do.
///
/// Reasons that nothing can change come first, those that an option lifts last: `SpreadOverNodes` and `Shared` are given only for a region that would
/// have paid.
pub(super) fn reason_to_keep(
    heat: &Heat,
    region: &Region,
    limits: &Limits,
    walks_are_cheap: Option<Reason>,
) -> Option<Reason> {
    if let Some(obstacle) = region.obstacle {
        Some(Reason::Obstacle(obstacle))
    } else if region.huge {
        Some(Reason::AlreadyHuge)
    } else if limits.worth(region) <= 0.0 {
        Some(if region.unobserved > 0 { Reason::NotObserved } else { Reason::NotWalked })
    } else if !limits.pays(limits.worth(region)) {
        let would_pay_at_random = limits.pays(limits.worth_beside_walks(region) + region.walks_per_second);
        Some(if region.in_order && would_pay_at_random { Reason::InOrder } else { Reason::TooCold })
    } else if walks_are_cheap.is_some() && !limits.pays(limits.worth_beside_walks(region)) {
        walks_are_cheap
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

/// Share of the process's CPU time that page walks take; at most 1, because the cost of a walk is a guess.
pub(super) fn walk_share(heat: &Heat, walk_cost: Nanos) -> Option<f64> {
    share_of_cpu_time(heat, heat.walks_per_second(), walk_cost)
}

fn share_of_cpu_time(heat: &Heat, walks_per_second: f64, walk_cost: Nanos) -> Option<f64> {
    let busy = heat.busy_cpus.filter(|&cpus| cpus > 0.0)?;
    Some((walks_per_second * walk_cost.seconds() / busy).min(1.0))
}

/// Why all page walks that huge pages could save cost next to nothing together; None if they may cost something.
pub(super) fn why_walks_are_cheap(heat: &Heat, walk_share: Option<f64>, limits: &Limits) -> Option<Reason> {
    let below = |share: f64| share < limits.min_walk_share;
    if walk_share.is_some_and(below) || entries_in_use(heat) < limits.tlb_entries {
        return Some(Reason::LivesInTlb);
    }
    if is_in_order(heat, walk_share).unwrap_or(false) {
        return Some(Reason::InOrder);
    }
    let left = heat.walks_left_per_second();
    share_of_cpu_time(heat, left, limits.walk_cost).is_some_and(below).then_some(Reason::Covered)
}

/// Whether the walks go along addresses and cost next to nothing; None if the scan could not tell.
pub(super) fn is_in_order(heat: &Heat, walk_share: Option<f64>) -> Option<bool> {
    let scattered = heat.walks.scattered?;
    let cost = scattered + (1.0 - scattered) * Limits::IN_ORDER;
    Some(scattered < MOSTLY_IN_ORDER && walk_share? * cost < Limits::MIN_IN_ORDER_SHARE)
}

/// TLB entries taken by the pages walked in the window, by all processes whose page walks count; for a sample, scaled to the size of the program.
fn entries_in_use(heat: &Heat) -> u64 {
    let entries = |region: &Region| match region.walked_in_window {
        walked if region.huge => u64::from(walked > 0),
        walked => walked.into(),
    };
    let seen: u64 = heat.regions.iter().map(entries).sum();
    (seen as f64 * heat.times_observed()) as u64 + heat.walked_by_others
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
        reason_to_keep(&heat, &heat.regions[0], &allowance.limits(Bytes(0), &Spent::default()), None)
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
            reason_to_keep(
                &heat,
                &heat.regions[0],
                &Allowance::default().limits(Bytes(0), &Spent::default()),
                Some(Reason::LivesInTlb),
            )
        };
        assert_eq!(reason(region(0, 1e6, 0)), Some(Reason::LivesInTlb));
        assert_eq!(reason(Region { page_tables: 100, ..region(0, 1e6, 0) }), None);
    }

    #[test]
    fn walks_along_addresses_pay_by_what_they_cost() {
        let passed = |walks| reason(Region { in_order: true, ..region(0, walks, 0) }, true, false);
        let reasons = [Some(Reason::TooCold), Some(Reason::InOrder), None];
        assert_eq!([50.0, 4_000.0, 5_000.0].map(passed), reasons);
    }

    #[test]
    fn what_other_processes_walk_takes_tlb_entries_too() {
        let mut heat = heat_of((0..4).map(|number| region(number, 1e6, 0)).collect());
        heat.regions.iter_mut().for_each(|region| region.walked_in_window = 0);
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        assert_eq!(why_walks_are_cheap(&heat, Some(0.1), &limits), Some(Reason::LivesInTlb));
        heat.walked_by_others = limits.tlb_entries;
        assert_eq!(why_walks_are_cheap(&heat, Some(0.1), &limits), None);
    }

    #[test]
    fn an_object_that_another_process_promotes_is_left_to_it() {
        let mut heat = heat_of(vec![region(0, 1e6, 0)]);
        heat.mappings[0].shared = Some(MEMFD);
        let left_to_others = [MEMFD.object].into();
        let limits = Limits { left_to_others, ..Allowance::default().limits(Bytes(0), &Spent::default()) };
        assert_eq!(reason_to_keep(&heat, &heat.regions[0], &limits, None), Some(Reason::ThroughAnother));
        heat.mappings[0].shared = None;
        assert_eq!(reason_to_keep(&heat, &heat.regions[0], &limits, None), None);
    }

    #[test]
    fn only_a_regions_own_mapping_counts() {
        let mut heat = heat_of(vec![region(0, 1e6, 0), Region { mapping: Some(1), ..region(1, 1e6, 0) }]);
        let spread = Mapping { spread_over_nodes: true, ..heat.mappings[0].clone() };
        heat.mappings.push(spread);
        let limits = Allowance::default().limits(Bytes(0), &Spent::default());
        let reasons: Vec<_> =
            heat.regions.iter().map(|region| (region.start, reason_to_keep(&heat, region, &limits, None))).collect();
        assert_eq!(reasons, [(at(0), None), (at(1), Some(Reason::SpreadOverNodes))]);
    }
}
