//! The choice itself: regions by benefit per cost, until a limit binds.

use std::collections::HashSet;

use heat::units::{Address, HUGE_PAGE};
use heat::{Heat, Obstacle, Region};

use crate::decide::budget::Budget;
use crate::decide::guest;
use crate::decide::keep::{reason_to_keep, walk_share, why_walks_are_cheap};
use crate::decide::share::WORTH_A_MOVE;
use crate::decide::{Decision, Demand, HeldRegion, Limits, Past, Plan, Reason, Verdict};

/// Decides for each region of the heat whether it should be on a huge page, and why.
///
/// Regions that could pay are taken greedily by page walks saved per share of the budgets spent. The order agrees with dominance: a region that is at
/// least as hot and takes at most as much memory as another is never left out while the other is taken (both free of obstacles, sharing, cooling down
/// and lazily freed pages). Where only the limit on memory on huge pages is in the way, a region takes the place of one that we promoted and that
/// saves far fewer walks, if two scans agree: rates scatter, and after a single one regions would change places without an end.
///
/// In a virtual machine ([`Limits::guest`]) what is populated is taken instead.
pub fn decide(heat: &Heat, limits: &Limits, past: &Past) -> Plan {
    if limits.guest {
        return guest::decide(heat, limits, past);
    }
    let walk_share = walk_share(heat, limits.walk_cost);
    let walks_are_cheap =
        why_walks_are_cheap(heat, walk_share, limits).or_else(|| past.was_in_order().then_some(Reason::InOrder));
    let mut held = HeldRegions::of(heat, past);
    let mut budget = Budget::new(heat, limits, held.worth());
    let mut given_back = held.give_back(limits, &mut budget);
    let decision = |region, verdict, reason| Decision::about(region, limits, verdict, reason);
    let (mut kept, mut candidates) = (Vec::new(), Vec::new());
    for region in &heat.regions {
        match reason_to_keep(heat, region, limits, walks_are_cheap) {
            Some(Reason::NotObserved) if heat.sample.is_some() => {
                kept.push(decision(region, Verdict::Keep, Reason::NotInSample));
            }
            None => match past.reason_to_wait(region.start) {
                None => candidates.push(region),
                Some(reason) => kept.push(decision(region, Verdict::Keep, reason)),
            },
            Some(reason) => kept.push(decision(region, Verdict::Keep, reason)),
        }
    }
    let mut promoted = Vec::new();
    for region in best_first(candidates, limits, &budget) {
        let mut taken = budget.take(region, limits.worth(region));
        if taken == Err(Reason::HugeLimit)
            && !budget.is_exceeded()
            && let Some(displaced) = held.displaced_by(limits.surely_worth(region, past))
        {
            given_back.push((displaced, Reason::Displaced));
            budget.huge_page_is_free();
            taken = budget.take(region, limits.worth(region));
        }
        match taken {
            Ok(()) => promoted.push(decision(region, Verdict::Promote, Reason::Pays)),
            Err(reason) => kept.push(decision(region, Verdict::Keep, reason)),
        }
    }
    let decisions = in_order(given_back, promoted, kept);
    Plan { pid: heat.pid, meaning: heat.meaning, decisions, walk_share, walks: heat.walks }
}

/// Splits the chosen huge pages on request. Pages of a hugetlb pool cannot be split.
pub fn give_back_on_request(heat: &Heat, is_chosen: impl Fn(Address) -> bool) -> Plan {
    let can_be_split = |region: &&Region| !matches!(region.obstacle, Some(Obstacle::Hugetlb | Obstacle::Special));
    let huge = heat.regions.iter().filter(|region| region.huge).filter(can_be_split);
    let chosen = huge.map(|region| region.start).filter(|&start| is_chosen(start));
    let decisions = chosen.map(|start| Decision::give_back(start, Reason::Requested, 0.0)).collect();
    Plan { pid: heat.pid, meaning: heat.meaning, decisions, walk_share: None, walks: heat.walks }
}

/// What the program could do with huge pages if there were no limit on them; its weight is 1.
pub fn claim(heat: &Heat, limits: &Limits, past: &Past) -> Demand {
    let unlimited = Limits { max_huge: None, quota: None, ..limits.clone() };
    let plan = decide(heat, &unlimited, past);
    let held = HeldRegions::of(heat, past).0.into_iter().map(|held| held.claim).filter(|&claim| claim > 0.0);
    let wanted = plan.promotions().map(|decision| decision.worth);
    Demand { weight: 1.0, held: held.collect(), wanted: wanted.collect() }
}

/// First what is given back, then promotions, then what is kept; each region once.
pub(super) fn in_order(
    given_back: Vec<(HeldRegion, Reason)>,
    promoted: Vec<Decision>,
    mut kept: Vec<Decision>,
) -> Vec<Decision> {
    let gone: HashSet<Address> = given_back.iter().map(|(held, _)| held.start).collect();
    kept.retain(|decision| !gone.contains(&decision.start));
    // In place: a stable sort would copy half of them, and no two have one address.
    kept.sort_unstable_by_key(|decision| decision.start);
    let give_back = |(held, reason): (HeldRegion, Reason)| Decision::give_back(held.start, reason, held.worth);
    kept.splice(0..0, given_back.into_iter().map(give_back).chain(promoted));
    kept
}

/// The regions that we put on huge pages, those of least worth last.
pub(super) struct HeldRegions(Vec<HeldRegion>);

impl HeldRegions {
    pub(super) fn of(heat: &Heat, past: &Past) -> Self {
        let is_huge = |held: &HeldRegion| {
            let found = heat.regions.binary_search_by_key(&held.start, |region| region.start);
            found.is_ok_and(|index| heat.regions[index].huge && heat.regions[index].obstacle.is_none())
        };
        let mut held: Vec<HeldRegion> = past.held().filter(is_huge).collect();
        held.sort_unstable_by(|one, other| other.worth.total_cmp(&one.worth).then(one.start.cmp(&other.start)));
        Self(held)
    }

    /// Page walks a second that they save.
    fn worth(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, held| sum + held.worth)
    }

    /// What is given back regardless of heat: waste, and what exceeds the program's quota, lowest worth first.
    pub(super) fn give_back(&mut self, limits: &Limits, budget: &mut Budget) -> Vec<(HeldRegion, Reason)> {
        let mut given_back = Vec::new();
        if limits.give_back {
            let waste = self.0.extract_if(.., |held| held.is_waste);
            given_back.extend(waste.map(|held| (held, Reason::Waste)));
        }
        let quota = limits.quota.map_or(u64::MAX, |quota| quota.0 / HUGE_PAGE);
        let beyond = budget.huge_pages.saturating_sub(given_back.len() as u64).saturating_sub(quota);
        let beyond = self.0.len().min(usize::try_from(beyond).unwrap_or(usize::MAX));
        given_back.extend(self.0.drain(self.0.len() - beyond..).rev().map(|held| (held, Reason::OverQuota)));
        given_back.iter().for_each(|_| budget.huge_page_is_free());
        given_back
    }

    /// Removes the region of least worth, if one of this worth saves far more.
    fn displaced_by(&mut self, worth: f64) -> Option<HeldRegion> {
        self.0.pop_if(|held| worth > held.worth * WORTH_A_MOVE)
    }
}

/// The candidates by page walks saved per share of the budgets, best first.
///
/// A region costs its share of the huge-page budget (where there is no limit: one of the candidates) plus its share of the growth budget, so the
/// scarcer budget weighs more. Both rise with growth and neither with walks; ties go to the hotter, then the cheaper, then the lower address. This
/// makes the order agree with dominance.
fn best_first<'a>(candidates: Vec<&'a Region>, limits: &Limits, budget: &Budget) -> Vec<&'a Region> {
    let slots = budget.huge_pages_left().unwrap_or(u64::MAX).clamp(1, candidates.len().max(1) as u64) as f64;
    let growth_limit = budget.growth_left.0.max(1) as f64;
    let score = |region: &Region| limits.worth(region) / (1.0 / slots + region.growth.bytes().0 as f64 / growth_limit);
    let mut scored: Vec<_> = candidates.into_iter().map(|region| (score(region), region)).collect();
    scored.sort_unstable_by(|(left_score, left), (right_score, right)| {
        let hotter = limits.worth(right).total_cmp(&limits.worth(left));
        let cheaper = left.growth.pages().cmp(&right.growth.pages());
        right_score.total_cmp(left_score).then(hotter).then(cheaper).then(left.start.cmp(&right.start))
    });
    scored.into_iter().map(|(_, region)| region).collect()
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, heat_of, huge, region};
    use heat::units::Bytes;
    use heat::{Growth, Obstacle};
    use proptest::prelude::*;

    use super::*;
    use crate::decide::{Allowance, Spent};
    use std::time::Instant;

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

    /// The reason given for the region with this index.
    fn reason(plan: &Plan, number: u64) -> Reason {
        plan.decisions.iter().find(|decision| decision.start == at(number)).expect("a decision").reason
    }

    fn decide(heat: &Heat, limits: &Limits) -> Plan {
        crate::decide::decide(heat, limits, &Past::default())
    }

    fn promoted(plan: &Plan) -> Vec<Address> {
        plan.promotions().map(|decision| decision.start).collect()
    }

    #[test]
    fn a_table_that_is_read_at_random_comes_before_a_stream_beside_it() {
        let stream = |number| Region { in_order: true, ..region(number, 5e3, 0) };
        let heat = heat_of((0..7).map(stream).chain((7..500).map(|number| region(number, 2e3, 0))).collect());
        let limits = Limits { max_huge: Some(Bytes(100 << 20)), ..generous() };
        let promoted_first = promoted(&decide(&heat, &limits));
        assert_eq!(promoted_first.len(), 50);
        assert!(promoted_first.iter().all(|&start| start >= at(7)), "{promoted_first:?}");
        let without_limit = Limits { coverage: Limits::COVERAGE, ..generous() };
        assert!(
            promoted(&decide(&heat, &without_limit)).iter().all(|&start| start >= at(7)),
            "the table covers nearly all"
        );
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
        let plan = decide(&heat_of(vec![region(0, 55.0, 0), region(1, 56.0, 0)]), &generous());
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
    fn the_rest_is_left_alone_where_it_costs_next_to_nothing() {
        // 60,000 walks a second at 30 ns on base pages: 0.18 % of one CPU; those on huge pages cannot be saved.
        let limits = Limits { min_walk_share: Limits::MIN_WALK_SHARE, ..generous() };
        let of = |walks_left| {
            let plan = decide(&heat_of(vec![region(0, walks_left, 0), huge(1, 1e6)]), &limits);
            assert!(plan.walk_share.unwrap() > 0.03);
            reason(&plan, 0)
        };
        assert_eq!([59_999.0, 70_000.0].map(of), [Reason::Covered, Reason::Pays]);
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(2, 1e6, 0) };
        let beside_a_stack = decide(&heat_of(vec![region(0, 59_999.0, 0), stack]), &limits);
        assert_eq!(reason(&beside_a_stack, 0), Reason::Covered, "nobody can save the stack's");
    }

    #[test]
    fn a_process_that_goes_along_its_memory_is_left_alone() {
        let limits = Limits { min_walk_share: Limits::MIN_WALK_SHARE, ..generous() };
        let reason_of = |walks: f64, scattered| {
            let mut heat = heat_of(vec![region(0, walks, 0)]);
            heat.walks.scattered = scattered;
            reason(&decide(&heat, &limits), 0)
        };
        assert_eq!(reason_of(4e6, Some(0.0)), Reason::InOrder, "16 GB/s");
        assert_eq!(reason_of(4e6, Some(0.1)), Reason::Pays);
        assert_eq!(reason_of(4e6, None), Reason::Pays, "what is unknown is not in order");
        assert_eq!(reason_of(40e6, Some(0.0)), Reason::Pays, "nobody reads whole pages that fast");
    }

    #[test]
    fn what_was_seen_in_order_must_be_seen_otherwise_twice() {
        let limits = Limits { min_walk_share: Limits::MIN_WALK_SHARE, ..generous() };
        let mut past = Past::default();
        let mut reason_after = |scattered| {
            let mut heat = heat_of(vec![region(0, 4e6, 0)]);
            heat.walks.scattered = scattered;
            _ = past.notice(&heat, Instant::now());
            reason(&super::decide(&heat, &limits, &past), 0)
        };
        assert_eq!([Some(0.0), None, Some(1.0), None].map(&mut reason_after), [Reason::InOrder; 4]);
        assert_eq!([Some(1.0), None].map(&mut reason_after), [Reason::Pays; 2]);
        assert_eq!(reason_after(Some(0.0)), Reason::InOrder);
        past.promoted(at(1), 1e6);
        let plan = super::decide(&heat_of(vec![region(0, 4e6, 0)]), &limits, &past);
        assert_eq!(reason(&plan, 0), Reason::Pays, "it was found at random before");
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

    /// The memory of huge pages promoted at these walk rates, by index.
    fn promoted_at(walks: &[(u64, f64)]) -> Past {
        let mut past = Past::default();
        walks.iter().for_each(|&(number, walks)| past.promoted(at(number), walks));
        past
    }

    /// The plan after scans that saw these walks of the last of four regions.
    fn plan_after(scans: &[f64], limits: &Limits, mut past: Past) -> Plan {
        let heat = |walks| heat_of(vec![huge(0, 0.0), huge(1, 0.0), huge(2, 0.0), region(3, walks, 0)]);
        scans.iter().for_each(|&walks| _ = past.notice(&heat(walks), Instant::now()));
        crate::decide::decide(&heat(scans[scans.len() - 1]), limits, &past)
    }

    fn given_back(plan: &Plan) -> Vec<(Address, Reason)> {
        plan.give_backs().map(|decision| (decision.start, decision.reason)).collect()
    }

    #[test]
    fn a_far_hotter_region_takes_the_place_of_one_of_ours() {
        let limits = Limits { max_huge: Some(Bytes(3 * HUGE_PAGE)), ..generous() };
        let after = |scans: &[f64]| plan_after(scans, &limits, promoted_at(&[(0, 5000.0), (1, 1000.0)]));
        let plan = after(&[9999.0, 2600.0]);
        assert_eq!((given_back(&plan), promoted(&plan)), (vec![(at(1), Reason::Displaced)], vec![at(3)]));
        let order: Vec<_> = plan.decisions.iter().map(|decision| decision.start).collect();
        assert_eq!(order, [at(1), at(3), at(0), at(2)], "room is made first; the third was not promoted by us");
        for scans in [&[2400.0, 2400.0][..], &[2400.0, 9999.0], &[9999.0]] {
            let plan = after(scans);
            assert_eq!((plan.give_backs().count(), reason(&plan, 3)), (0, Reason::HugeLimit), "{scans:?}");
        }
    }

    #[test]
    fn nothing_gives_way_where_that_makes_no_room() {
        let limits = Limits { max_huge: Some(Bytes(2 * HUGE_PAGE)), ..generous() };
        let plan = plan_after(&[1e6, 1e6], &limits, promoted_at(&[(0, 5000.0)]));
        assert_eq!((plan.give_backs().count(), reason(&plan, 3)), (0, Reason::HugeLimit));
    }

    #[test]
    fn what_is_beyond_the_programs_part_is_given_back_coldest_first() {
        let limits = Limits { quota: Some(Bytes(2 * HUGE_PAGE)), ..generous() };
        let heat = heat_of(vec![huge(0, 0.0), huge(1, 0.0), huge(2, 0.0), huge(3, 0.0), region(4, 1e6, 0)]);
        let mut past = promoted_at(&[(0, 5000.0), (1, 1000.0), (2, 3000.0)]);
        (0..2).for_each(|_| _ = past.notice(&heat, Instant::now()));
        let plan = crate::decide::decide(&heat, &limits, &past);
        let expected = [(at(1), Reason::OverQuota), (at(2), Reason::OverQuota), (at(0), Reason::Displaced)];
        assert_eq!((given_back(&plan), promoted(&plan)), (expected.to_vec(), vec![at(4)]));
    }

    #[test]
    fn waste_is_given_back_only_where_that_is_allowed() {
        let mut past = promoted_at(&[(0, 1e6)]);
        let unused = Region { at_most_accesses_per_second: Some(0.0), ..huge(0, 0.0) };
        for _ in 0..3 {
            _ = past.notice(&heat_of(vec![unused.clone()]), Instant::now());
        }
        past.inspected(at(0), 400);
        let plan = |give_back| {
            crate::decide::decide(&heat_of(vec![unused.clone()]), &Limits { give_back, ..generous() }, &past)
        };
        assert_eq!(given_back(&plan(true)), [(at(0), Reason::Waste)]);
        assert_eq!(given_back(&plan(false)), []);
    }

    #[test]
    fn what_was_given_back_cools_down() {
        let mut past = promoted_at(&[(0, 1e6)]);
        past.given_back(at(0), Instant::now());
        let plan = crate::decide::decide(&heat_of(vec![region(0, 1e6, 0)]), &generous(), &past);
        assert_eq!((reason(&plan, 0), plan.promotions().count()), (Reason::CoolingDown, 0));
    }

    #[test]
    fn walks_that_huge_pages_save_already_count_as_covered() {
        let limits = Limits { coverage: 0.99, ..generous() };
        let heat = heat_of(vec![huge(0, 0.0), region(1, 500.0, 0), region(2, 400.0, 0)]);
        assert_eq!(promoted(&crate::decide::decide(&heat, &limits, &promoted_at(&[(0, 100_000.0)]))), []);
        assert_eq!(promoted(&crate::decide::decide(&heat, &limits, &promoted_at(&[(0, 50_000.0)]))), [at(1)]);
    }

    #[test]
    fn a_claim_is_what_is_used_and_what_would_pay() {
        let mut past = promoted_at(&[(0, 900.0), (1, 800.0)]);
        let heat = heat_of(vec![
            Region { at_most_accesses_per_second: Some(0.0), ..huge(0, 0.0) },
            Region { at_most_accesses_per_second: Some(f32::INFINITY), ..huge(1, 0.0) },
            region(2, 700.0, 0),
            region(3, 1.0, 0),
        ]);
        (0..3).for_each(|_| _ = past.notice(&heat, Instant::now()));
        let limits = Limits { max_huge: Some(Bytes(0)), quota: Some(Bytes(0)), ..generous() };
        assert_eq!(claim(&heat, &limits, &past), Demand { weight: 1.0, held: vec![800.0], wanted: vec![700.0] });
    }

    fn any_region(number: u64) -> impl Strategy<Value = Region> {
        // Few distinct values make ties common.
        let walks = prop_oneof![Just(0.0), Just(50.0), (0..6u32).prop_map(|n| f64::from(n) * 500.0), 0.0..1e6];
        let quotas = (prop_oneof![Just(0u16), 0..6u16, 0..300u16], 0..2u16, 0..2u16, 0..2u16);
        let obstacle = prop_oneof![9 => Just(None), 1 => Just(Some(Obstacle::Stack))];
        (walks, quotas, obstacle, prop::bool::weighted(0.2), prop::bool::weighted(0.8)).prop_map(
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
        fn what_is_ours_is_within_its_part_afterwards(
            heat in any_heat(), limits in any_limits(), quota in 0..40u64, worth in prop::collection::vec(0.0..1e6, 40),
        ) {
            let limits = Limits { quota: Some(Bytes(quota * HUGE_PAGE)), ..limits };
            let ours = heat.regions.iter().filter(|region| region.huge && region.obstacle.is_none());
            let past = promoted_at(&ours.clone().map(|region| {
                let number = (region.start.0 - at(0).0) / HUGE_PAGE;
                (number, worth[number as usize])
            }).collect::<Vec<_>>());
            let plan = crate::decide::decide(&heat, &limits, &past);
            let (promoted, given_back) = (plan.promotions().count() as u64, plan.give_backs().count() as u64);
            let others = heat.huge_bytes().0 / HUGE_PAGE - ours.count() as u64;
            let huge = heat.huge_bytes().0 / HUGE_PAGE + promoted - given_back;
            prop_assert!(huge <= quota.max(others));
            if let (Some(max), true) = (limits.max_huge, promoted > 0) {
                prop_assert!(Bytes(huge * HUGE_PAGE) <= max);
            }
        }

        #[test]
        fn a_hotter_and_cheaper_region_is_never_left_for_a_worse_one(heat in any_heat(), limits in any_limits()) {
            let plan = decide(&heat, &limits);
            let eligible = |decision: &&Decision| {
                let region = heat.regions.iter().find(|region| region.start == decision.start).unwrap();
                reason_to_keep(&heat, region, &limits, None).is_none()
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

    /// Equal regions may fall on both sides of a limit; the one at the lower address is taken.
    fn same_cost(left: &Decision, taken: &Decision) -> bool {
        let same = left.walks_per_second == taken.walks_per_second && left.growth == taken.growth;
        same && left.start > taken.start
    }
}
