//! The choice itself: regions by benefit per cost, until a limit binds.

use super::{Decision, Limits, Plan, Reason, Verdict};
use crate::observe::heat::{Heat, Region};
use crate::units::{Bytes, HUGE_PAGE, Nanos};

/// Decides for each region of the heat whether it should be on a huge page, and why.
///
/// Regions that could pay are taken greedily by page walks saved per share of the budgets spent. The order agrees with
/// dominance: a region that is at least as hot and takes at most as much memory as another never stays behind while
/// that other is taken (both free of obstacles, sharing and lazily freed pages).
pub fn decide(heat: &Heat, limits: &Limits) -> Plan {
    let walk_share = walk_share(heat, limits.walk_cost);
    let lives_in_tlb =
        walk_share.is_some_and(|share| share < limits.min_walk_share) || entries_in_use(heat) < limits.tlb_entries;
    let mut kept = Vec::new();
    let mut candidates = Vec::new();
    for region in &heat.regions {
        match reason_to_keep(region, limits, lives_in_tlb) {
            Some(reason) => kept.push(decision(region, Verdict::Keep, reason)),
            None => candidates.push(region),
        }
    }

    let mut budget = Budget::new(heat, limits);
    let mut decisions = Vec::with_capacity(heat.regions.len());
    for region in best_first(candidates, &budget) {
        match budget.take(region) {
            Ok(()) => decisions.push(decision(region, Verdict::Promote, Reason::Pays)),
            Err(reason) => kept.push(decision(region, Verdict::Keep, reason)),
        }
    }
    kept.sort_by_key(|decision| decision.start);
    decisions.extend(kept);
    Plan { pid: heat.pid, meaning: heat.meaning, decisions, walk_share }
}

/// Share of the process's CPU time that page walks take; never above 1, because the cost of a walk is a guess.
fn walk_share(heat: &Heat, walk_cost: Nanos) -> Option<f64> {
    let busy = heat.busy_cpus.filter(|&cpus| cpus > 0.0)?;
    Some((heat.walks_per_second() * walk_cost.seconds() / busy).min(1.0))
}

/// TLB entries that the pages walked in the window take.
fn entries_in_use(heat: &Heat) -> u64 {
    let entries = |region: &Region| match region.walked_in_window {
        walked if region.huge => u64::from(walked > 0),
        walked => walked.into(),
    };
    heat.regions.iter().map(entries).sum()
}

/// Why a region is kept whatever the budgets are; None if it is a candidate.
///
/// Reasons that nothing can change come first, those that an option lifts last: `Shared` is told only of a region that
/// would have paid.
fn reason_to_keep(region: &Region, limits: &Limits, lives_in_tlb: bool) -> Option<Reason> {
    let growth = &region.growth;
    if let Some(obstacle) = region.obstacle {
        Some(Reason::Obstacle(obstacle))
    } else if region.huge {
        Some(Reason::AlreadyHuge)
    } else if region.walks_per_second.is_nan() || region.walks_per_second <= 0.0 {
        Some(if region.unobserved > 0 { Reason::NotObserved } else { Reason::NotWalked })
    } else if !limits.pays(region.walks_per_second) {
        Some(Reason::TooCold)
    } else if lives_in_tlb {
        Some(Reason::LivesInTlb)
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

fn decision(region: &Region, verdict: Verdict, reason: Reason) -> Decision {
    Decision {
        start: region.start,
        verdict,
        reason,
        walks_per_second: region.walks_per_second,
        growth: region.growth.bytes(),
    }
}

/// The candidates by page walks saved per share of the budgets, best first.
///
/// A region costs its share of the huge-page budget (where there is no limit: one of the candidates) plus its share of
/// the growth budget, so that whichever budget is scarcer weighs more. Both grow with growth and neither with walks,
/// and ties go to the hotter, then the cheaper, then the lower address: that is what makes the order agree with
/// dominance.
fn best_first<'a>(candidates: Vec<&'a Region>, budget: &Budget) -> Vec<&'a Region> {
    let slots = budget.huge_pages_left.unwrap_or(u64::MAX).clamp(1, candidates.len().max(1) as u64) as f64;
    let growth_limit = budget.growth_left.0.max(1) as f64;
    let score =
        |region: &Region| region.walks_per_second / (1.0 / slots + region.growth.bytes().0 as f64 / growth_limit);
    let mut scored: Vec<_> = candidates.into_iter().map(|region| (score(region), region)).collect();
    scored.sort_by(|(left_score, left), (right_score, right)| {
        let hotter = right.walks_per_second.total_cmp(&left.walks_per_second);
        let cheaper = left.growth.pages().cmp(&right.growth.pages());
        right_score.total_cmp(left_score).then(hotter).then(cheaper).then(left.start.cmp(&right.start))
    });
    scored.into_iter().map(|(_, region)| region).collect()
}

/// What is left to spend.
struct Budget {
    growth_left: Bytes,
    /// None for no limit.
    huge_pages_left: Option<u64>,
    walks_accounted: f64,
    walks_enough: f64,
}

impl Budget {
    fn new(heat: &Heat, limits: &Limits) -> Self {
        let huge = heat.huge_bytes();
        Self {
            growth_left: limits.max_growth,
            huge_pages_left: limits.max_huge.map(|max| (max - huge).0 / HUGE_PAGE),
            walks_accounted: heat
                .regions
                .iter()
                .filter(|region| region.huge)
                .map(|region| region.walks_per_second)
                .fold(0.0, |sum, walks| sum + walks),
            walks_enough: heat.walks_per_second() * limits.coverage,
        }
    }

    /// Pays for one region, or says which limit forbids it and leaves the budget as it was.
    fn take(&mut self, region: &Region) -> Result<(), Reason> {
        let growth = region.growth.bytes();
        if self.walks_accounted >= self.walks_enough {
            return Err(Reason::Covered);
        }
        if self.huge_pages_left == Some(0) {
            return Err(Reason::HugeLimit);
        }
        if growth > self.growth_left {
            return Err(Reason::GrowthLimit);
        }
        self.growth_left = self.growth_left - growth;
        self.huge_pages_left = self.huge_pages_left.map(|left| left - 1);
        self.walks_accounted += region.walks_per_second;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::samples::{at, heat_of, huge, region};
    use crate::decide::{Allowance, Spent};
    use crate::observe::heat::{Growth, Obstacle};
    use crate::units::Address;
    use proptest::prelude::*;

    /// Limits under which every walked region is promoted, unless a test narrows one.
    fn generous() -> Limits {
        Limits {
            max_growth: Bytes(1 << 40),
            coverage: 1.0,
            min_walk_share: 0.0,
            tlb_entries: 0,
            ..Allowance::default().limits(Bytes(0), &Spent::default())
        }
    }

    /// The reason given for the region with this number.
    fn reason(plan: &Plan, number: u64) -> Reason {
        plan.decisions.iter().find(|decision| decision.start == at(number)).expect("a decision").reason
    }

    fn promoted(plan: &Plan) -> Vec<Address> {
        plan.promotions().map(|decision| decision.start).collect()
    }

    #[test]
    fn regions_that_cannot_move_are_kept() {
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(0, 1e6, 0) };
        let hugetlb = Region { obstacle: Some(Obstacle::Hugetlb), ..huge(2, 1e6) };
        let locked = Region { unobserved: 512, ..region(4, 0.0, 0) };
        let plan = decide(&heat_of(vec![stack, huge(1, 1e6), hugetlb, region(3, 0.0, 0), locked]), &generous());
        assert_eq!(reason(&plan, 0), Reason::Obstacle(Obstacle::Stack));
        assert_eq!(reason(&plan, 1), Reason::AlreadyHuge);
        assert_eq!(reason(&plan, 2), Reason::Obstacle(Obstacle::Hugetlb));
        assert_eq!((reason(&plan, 3), reason(&plan, 4)), (Reason::NotWalked, Reason::NotObserved));
        assert_eq!(plan.promotions().count(), 0);
    }

    #[test]
    fn a_region_must_earn_its_move() {
        let plan = decide(&heat_of(vec![region(0, 111.0, 0), region(1, 112.0, 0)]), &generous());
        assert_eq!(reason(&plan, 0), Reason::TooCold);
        assert_eq!(reason(&plan, 1), Reason::Pays);
    }

    #[test]
    fn a_process_that_lives_in_the_tlb_is_left_alone() {
        // 60,000 walks a second at 30 ns: 0.18 % of one CPU, 0.36 % of half of one.
        let limits = Limits { min_walk_share: Limits::MIN_WALK_SHARE, ..generous() };
        let mut heat = heat_of(vec![region(0, 59_999.0, 0), region(1, 1.0, 0)]);
        let plan = decide(&heat, &limits);
        assert_eq!((reason(&plan, 0), reason(&plan, 1)), (Reason::LivesInTlb, Reason::TooCold));
        assert!((plan.walk_share.unwrap() - 0.0018).abs() < 1e-9);
        for busy_cpus in [Some(0.5), Some(0.0), None] {
            heat.busy_cpus = busy_cpus;
            let plan = decide(&heat, &limits);
            assert_eq!(reason(&plan, 0), Reason::Pays, "{busy_cpus:?}");
            assert_eq!(plan.walk_share.is_some(), busy_cpus == Some(0.5));
        }
    }

    #[test]
    fn a_working_set_that_the_tlb_holds_is_left_alone() {
        // Two regions of base pages and a huge page in use: 1,025 entries.
        let heat = heat_of(vec![region(0, 1e6, 0), region(1, 1e6, 0), huge(2, 10.0), huge(3, 0.0)]);
        let holding = |tlb_entries| decide(&heat, &Limits { tlb_entries, ..generous() });
        assert_eq!(reason(&holding(1026), 0), Reason::LivesInTlb);
        assert_eq!(holding(1026).promotions().count(), 0);
        assert_eq!(holding(1025).promotions().count(), 2);
    }

    #[test]
    fn growth_that_does_not_fit_is_skipped_for_growth_that_does() {
        let limits = Limits { max_growth: Bytes(100 * 4096), ..generous() };
        let plan = decide(&heat_of(vec![region(0, 1e6, 101), region(1, 1e3, 60), region(2, 1e3, 41)]), &limits);
        assert_eq!(reason(&plan, 0), Reason::GrowthLimit);
        assert_eq!(reason(&plan, 1), Reason::GrowthLimit);
        assert_eq!(promoted(&plan), [at(2)]);
        assert_eq!(plan.growth(), Bytes(41 * 4096));
    }

    #[test]
    fn a_growth_of_nothing_admits_full_regions() {
        let limits = Limits { max_growth: Bytes(0), ..generous() };
        let plan = decide(&heat_of(vec![region(0, 1e3, 0), region(1, 1e6, 1)]), &limits);
        assert_eq!((reason(&plan, 0), reason(&plan, 1)), (Reason::Pays, Reason::GrowthLimit));
    }

    #[test]
    fn what_is_huge_already_counts_towards_the_huge_limit() {
        let limits = Limits { max_huge: Some(Bytes(3 * HUGE_PAGE - 1)), ..generous() };
        let plan = decide(&heat_of(vec![huge(0, 0.0), region(1, 1e3, 0), region(2, 1e6, 0)]), &limits);
        assert_eq!(promoted(&plan), [at(2)]);
        assert_eq!(reason(&plan, 1), Reason::HugeLimit);
        let full = Limits { max_huge: Some(Bytes(HUGE_PAGE / 2)), ..generous() };
        assert_eq!(decide(&heat_of(vec![huge(0, 0.0), region(1, 1e6, 0)]), &full).promotions().count(), 0);
    }

    #[test]
    fn the_last_few_walks_are_not_chased() {
        let limits = Limits { coverage: 0.9, ..generous() };
        let plan = decide(&heat_of(vec![huge(0, 500.0), region(1, 100.0e3, 0), region(2, 1e3, 0)]), &limits);
        assert_eq!(promoted(&plan), [at(1)]);
        assert_eq!(reason(&plan, 2), Reason::Covered);
        let already = decide(&heat_of(vec![huge(0, 100e3), region(1, 1e3, 0)]), &limits);
        assert_eq!(reason(&already, 1), Reason::Covered);
    }

    #[test]
    fn shared_and_lazily_freed_memory_is_kept_unless_asked_for() {
        let with = |number, growth| Region { growth, ..region(number, 1e6, 0) };
        let heat = heat_of(vec![
            with(0, Growth { shared_by_fork: 7, ..Growth::default() }),
            with(1, Growth { merged: 1, ..Growth::default() }),
            with(2, Growth { lazily_freed: 2, ..Growth::default() }),
            Region { walks_per_second: 1.0, ..with(3, Growth { merged: 1, ..Growth::default() }) },
        ]);
        let plan = decide(&heat, &generous());
        assert_eq!((reason(&plan, 0), reason(&plan, 1)), (Reason::Shared, Reason::Shared));
        assert_eq!((reason(&plan, 2), reason(&plan, 3)), (Reason::LazilyFreed, Reason::TooCold));
        let included = decide(&heat, &Limits { include_shared: true, ..generous() });
        assert_eq!(promoted(&included), [at(1), at(2), at(0)]);
        assert_eq!(included.growth(), Bytes(10 * 4096));
    }

    #[test]
    fn promotions_come_best_first_and_the_rest_by_address() {
        let heat =
            heat_of(vec![region(0, 0.0, 0), region(1, 1e3, 0), region(2, 5e3, 0), region(3, 1e3, 0), huge(4, 1.0)]);
        let plan = decide(&heat, &generous());
        let order: Vec<_> = plan.decisions.iter().map(|decision| decision.start).collect();
        assert_eq!(order, [at(2), at(1), at(3), at(0), at(4)]);
        assert_eq!(plan.walks_saved_per_second(), 7e3);
        assert_eq!(plan.counts()[&Reason::Pays], 3);
        assert_eq!(plan.counts()[&Reason::NotWalked], 1);
        let limited = decide(&heat, &Limits { max_huge: Some(Bytes(2 * HUGE_PAGE)), ..generous() });
        let order: Vec<_> = limited.decisions.iter().map(|decision| decision.start).collect();
        assert_eq!(order, [at(2), at(0), at(1), at(3), at(4)]);
    }

    fn any_region(number: u64) -> impl Strategy<Value = Region> {
        // Few distinct values, so that ties are common.
        let walks = prop_oneof![Just(0.0), Just(50.0), (0..6u32).prop_map(|n| f64::from(n) * 500.0), 0.0..1e6];
        let parts = (prop_oneof![Just(0u16), 0..6u16, 0..300u16], 0..2u16, 0..2u16, 0..2u16);
        let obstacle = prop_oneof![9 => Just(None), 1 => Just(Some(Obstacle::Stack))];
        (walks, parts, obstacle, prop::bool::weighted(0.2), prop::bool::weighted(0.8)).prop_map(
            move |(walks, (unpopulated, lazily_freed, shared_by_fork, merged), obstacle, huge, plain)| {
                let mut region = Region { obstacle, huge, ..region(number, walks, 0) };
                region.growth = Growth { unpopulated, ..Growth::default() };
                if !plain {
                    region.growth = Growth { unpopulated, zero: 1, lazily_freed, shared_by_fork, merged };
                }
                region
            },
        )
    }

    fn any_heat() -> impl Strategy<Value = Heat> {
        let regions = prop::collection::vec(any::<bool>(), 0..40)
            .prop_flat_map(|seeds| (0..seeds.len() as u64).map(any_region).collect::<Vec<_>>());
        (regions, prop_oneof![Just(None), (0.0..4.0).prop_map(Some)])
            .prop_map(|(regions, busy_cpus)| Heat { busy_cpus, ..heat_of(regions) })
    }

    fn any_limits() -> impl Strategy<Value = Limits> {
        let max_huge = prop_oneof![Just(None), (0..40u64).prop_map(|n| Some(Bytes(n * HUGE_PAGE)))];
        let min_walk_share = prop_oneof![Just(0.0), Just(Limits::MIN_WALK_SHARE)];
        (0..2000u64, max_huge, 0.5..=1.0, min_walk_share, any::<bool>()).prop_map(
            |(growth, max_huge, coverage, min_walk_share, include_shared)| Limits {
                max_growth: Bytes(growth * 4096),
                max_huge,
                coverage,
                min_walk_share,
                include_shared,
                ..generous()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn no_budget_is_exceeded(heat in any_heat(), limits in any_limits()) {
            let plan = decide(&heat, &limits);
            let promoted = Bytes(plan.promotions().count() as u64 * HUGE_PAGE);
            prop_assert!(plan.growth() <= limits.max_growth);
            if let (Some(max), true) = (limits.max_huge, promoted > Bytes(0)) {
                prop_assert!(promoted + heat.huge_bytes() <= max);
            }
        }

        #[test]
        fn a_hotter_and_cheaper_region_is_never_left_for_a_worse_one(heat in any_heat(), limits in any_limits()) {
            let plan = decide(&heat, &limits);
            let eligible = |decision: &&Decision| {
                let region = heat.regions.iter().find(|region| region.start == decision.start).unwrap();
                reason_to_keep(region, &limits, false).is_none()
            };
            for left in plan.decisions.iter().filter(|decision| decision.verdict == Verdict::Keep).filter(eligible) {
                for taken in plan.promotions() {
                    let as_hot = left.walks_per_second >= taken.walks_per_second;
                    prop_assert!(!(as_hot && left.growth <= taken.growth) || same_cost(left, taken), "{left:?} {taken:?}");
                }
            }
        }

        #[test]
        fn every_region_gets_one_decision(heat in any_heat(), limits in any_limits()) {
            let plan = decide(&heat, &limits);
            let mut decided: Vec<_> = plan.decisions.iter().map(|decision| decision.start).collect();
            decided.sort();
            prop_assert_eq!(decided, heat.regions.iter().map(|region| region.start).collect::<Vec<_>>());
            for decision in &plan.decisions {
                prop_assert_eq!(decision.verdict == Verdict::Promote, decision.reason == Reason::Pays);
            }
        }

        #[test]
        fn the_same_heat_gives_the_same_plan(heat in any_heat(), limits in any_limits()) {
            prop_assert_eq!(decide(&heat, &limits), decide(&heat.clone(), &limits.clone()));
        }
    }

    /// Equal regions may fall on both sides of a limit, the one at the lower address taken.
    fn same_cost(left: &Decision, taken: &Decision) -> bool {
        let same = left.walks_per_second == taken.walks_per_second && left.growth == taken.growth;
        same && left.start > taken.start
    }
}
