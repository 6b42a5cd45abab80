//! What a plan is expected to gain: an estimate, always a range.
//!
//! Owns: the step from the share of time taken by walks and page faults to speed. Never touches: how walks are counted, or what they cost
//! ([`heat::walk_cost`]).

use heat::walk_cost::MOST_COUNTED;
use heat::{WalkCost, WalkShare};
use serde::{Deserialize, Serialize};

use crate::decide::Plan;

/// Speed gained, in percent: 20 means that the target does 1.2 times as much in the same time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GainPercent {
    /// Probably at least this.
    pub low: f64,
    /// The likely value by this module's model.
    pub likely: f64,
    /// Probably at most this.
    pub high: f64,
}

/// Factors on the estimated cost of page faults: at least, likely, at most.
#[derive(Clone, Copy, Debug)]
struct Paid {
    low: f64,
    likely: f64,
    high: f64,
}

/// For page faults. The calibration takes them one after the other from one process; PostgreSQL's hundred processes took 1.1 to 1.3 times as long,
/// and faults that write half as long.
const FAULTS_PAID: Paid = Paid { low: 0.5, likely: 1.0, high: 1.4 };

impl GainPercent {
    /// How closely it is known, to either side, in percent of speed.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// No more than from saving the cycles in which the plan's page walks were under way. Whatever the processor did meanwhile only makes the gain
    /// smaller; the cycles do not tell by how much.
    pub fn within(self, counted: WalkShare, plan: &Plan) -> Self {
        let share = (counted.high * plan.share_of_walks_saved()).clamp(0.0, MOST_COUNTED);
        let most = 100.0 * share / (1.0 - share);
        Self { low: self.low.min(most), likely: self.likely.min(most), high: self.high.min(most) }
    }
}

/// What carrying out a plan saves its program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedWork {
    /// Page walks a second.
    pub walks_saved_per_second: f64,
    /// All page walks a second on base pages, by which one is rated; None in records of the first versions, which did not tell: those saved.
    #[serde(default)]
    pub base_walks_per_second: Option<f64>,
    /// The share of what all page walks on base pages cost that is saved: those along addresses cost next to nothing. None in earlier records, where
    /// each walk counts alike.
    #[serde(default)]
    pub saved_share: Option<f64>,
    /// The factor by which the program may walk more often while nobody observes it.
    pub most_times_as_often: f64,
    /// The share of these walks that is certain.
    pub certain_share: f64,
    /// The share of walks that do not go along addresses; None where that was not observed.
    pub scattered_share: Option<f64>,
    /// Page faults a second.
    pub faults_saved_per_second: f64,
}

impl SavedWork {
    /// By a plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            walks_saved_per_second: plan.walks_saved_per_second(),
            base_walks_per_second: Some(plan.base_walks_per_second()),
            saved_share: Some(plan.share_of_base_walks_saved()),
            most_times_as_often: plan.most_times_as_often(),
            certain_share: plan.certain_share(),
            scattered_share: plan.walks.scattered,
            faults_saved_per_second: plan.faults_saved_per_second(),
        }
    }
}

/// Estimates what that gains, given the CPUs that the target keeps busy (`Heat::busy_cpus`).
///
/// With f the share of busy CPU time that the saved page walks take, the same work is done in 1 − f of the time: a gain of f / (1 − f). None if the
/// target used no CPU time or it could not be told. The low end is based only on the page walks that are certain. Where it is not known whether walks
/// are scattered, they probably are, and at least none is.
pub fn expected_gain(saved: &SavedWork, cost: &WalkCost, busy_cpus: Option<f64>) -> Option<GainPercent> {
    let busy = busy_cpus.filter(|&cpus| cpus > 0.0)?;
    // What a walk costs depends on how often the program walks, however few of its walks are saved.
    let all = saved.base_walks_per_second.unwrap_or(0.0).max(saved.walks_saved_per_second);
    let by_number = || if all > 0.0 { saved.walks_saved_per_second / all } else { 0.0 };
    // Where it is not known which walks are cheap, all of them count alike.
    let part = saved.saved_share.filter(|_| saved.scattered_share.is_some()).unwrap_or_else(by_number);
    let shares_of_all = cost.shares(all / busy, saved.most_times_as_often, saved.scattered_share);
    let [low, likely, high] = shares_of_all.map(|share| part * share);
    let faults = saved.faults_saved_per_second * cost.page_fault_ns * 1e-9 / busy;
    let percent = |share: f64, faults: f64| {
        let share = (share + faults).min(MOST_COUNTED);
        100.0 * share / (1.0 - share)
    };
    let low = percent(low * saved.certain_share, faults * FAULTS_PAID.low);
    let (likely, high) = (percent(likely, faults * FAULTS_PAID.likely), percent(high, faults * FAULTS_PAID.high));
    Some(GainPercent { low: low.min(likely), likely, high: high.max(likely) })
}

#[cfg(test)]
mod tests {
    use heat::ReadTimes;
    use heat::samples::{heat_of, huge, region};
    use heat::units::{Bytes, Nanos};
    use heat::{Meaning, Region, Walks};
    use proptest::prelude::*;

    use super::*;
    use crate::decide::{Allowance, Limits, Past, Spent, decide};

    /// A plan that saves this many page walks a second.
    fn saving(walks_per_second: f64) -> Plan {
        let heat = heat_of(vec![region(0, walks_per_second, 0)]);
        decide(
            &heat,
            &Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) },
            &Past::default(),
        )
    }

    const COST: WalkCost = WalkCost {
        footprint: Bytes(1 << 30),
        ordered: ReadTimes { base_ns: 20.0, huge_ns: 18.0 },
        independent: ReadTimes { base_ns: 20.0, huge_ns: 12.0 },
        dependent: ReadTimes { base_ns: 400.0, huge_ns: 300.0 },
        occasional: ReadTimes { base_ns: 1000.0, huge_ns: 850.0 },
        page_fault_ns: 500.0,
        unmap_ns: 300.0,
    };

    fn expected(plan: &Plan, cost: &WalkCost, busy_cpus: Option<f64>) -> Option<GainPercent> {
        expected_gain(&SavedWork::of(plan), cost, busy_cpus)
    }

    fn gain(walks_per_second: f64) -> GainPercent {
        expected(&saving(walks_per_second), &COST, Some(1.0)).unwrap()
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn a_walk_costs_a_part_of_what_it_costs_the_chase_that_walks_as_often() {
        // 0.65 of 150 ns, 0.55 of 100, 0.7 of 8; who walks less often than the slowest chase pays what that one pays.
        for (walks, ns) in [(5e5, 97.5), (1e6, 97.5), (2.5e6, 55.0), (5e7, 5.6)] {
            let share = walks * ns * 1e-9;
            near(gain(walks).likely, 100.0 * share / (1.0 - share));
        }
    }

    #[test]
    fn a_part_of_the_walks_gains_that_part_of_their_time() {
        // One of a hundred regions, of a program that walks as fast as it can.
        let all = SavedWork::of(&accessed(5e7, 5e7, Some(1.0)));
        let part = SavedWork { walks_saved_per_second: 5e5, saved_share: Some(0.01), ..all };
        let earlier = SavedWork { saved_share: None, ..part };
        assert_eq!(expected_gain(&earlier, &COST, Some(1.0)), expected_gain(&part, &COST, Some(1.0)));
        let [all, part] = [all, part].map(|saved| expected_gain(&saved, &COST, Some(1.0)).unwrap());
        let share = |gain: f64| gain / (100.0 + gain);
        for (all, part) in [(all.low, part.low), (all.likely, part.likely), (all.high, part.high)] {
            near(share(part), share(all) / 100.0);
        }
    }

    #[test]
    fn a_table_beside_a_stream_gains_nearly_all_that_both_would() {
        // Both walk as often; walks along addresses make up the other half.
        let stream = Region { in_order: true, ..region(1, 5e5, 0) };
        let heat = heat_of(vec![region(0, 5e5, 0), stream]);
        let limits = Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) };
        let plan_for =
            |max_huge| decide(&heat, &Limits { max_huge, coverage: 1.0, ..limits.clone() }, &Past::default());
        let [table, both] = [Some(Bytes(2 << 20)), None].map(plan_for);
        assert_eq!([table.promotions().count(), both.promotions().count()], [1, 2]);
        let gain_if = |scattered| {
            [&table, &both].map(|plan| {
                // Walks along addresses are never certain.
                let walks = Walks { scattered, at_least_per_second: 5e5, ..plan.walks };
                let plan = Plan { walks, meaning: Meaning::Accessed, ..plan.clone() };
                expected(&plan, &COST, Some(1.0)).unwrap()
            })
        };
        let [of_table, of_both] = gain_if(Some(0.5));
        assert!(
            of_table.likely > 0.98 * of_both.likely && of_table.likely < of_both.likely,
            "{of_table:?} {of_both:?}"
        );
        assert!(of_table.low > 0.9 * of_both.low && of_table.low > 0.0, "{of_table:?} {of_both:?}");
        let [of_table, of_both] = gain_if(None);
        assert!(of_table.likely < 0.6 * of_both.likely, "which walks are cheap is not known");
    }

    #[test]
    fn saved_time_becomes_speed() {
        // 1 M walks a second at 1.1 times 150 ns: 16.5 % of one CPU. Unless they go along addresses.
        near(gain(1e6).low, 0.0);
        near(gain(1e6).high, 100.0 * 0.165 / 0.835);
        let two_cpus = expected(&saving(1e6), &COST, Some(2.0)).unwrap();
        near(two_cpus.high, 100.0 * 0.0825 / 0.9175);
    }

    #[test]
    fn the_gain_stays_within_reason() {
        // No program walks more often than the fastest chase, and each walk costs 1.3 times 8 ns at most.
        near(gain(1e12).high, 100.0 * 0.52 / 0.48);
        assert_eq!(gain(0.0), GainPercent { low: 0.0, likely: 0.0, high: 0.0 });
        assert_eq!(expected(&saving(1e6), &COST, Some(0.0)), None);
        assert_eq!(expected(&saving(1e6), &COST, None), None);
    }

    #[test]
    fn counted_cycles_limit_the_gain() {
        // A plan that saves half of the page walks.
        let heat = heat_of(vec![region(0, 2.5e6, 0), huge(1, 2.5e6)]);
        let half = decide(
            &heat,
            &Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) },
            &Past::default(),
        );
        let counted = |high| WalkShare { low: 0.0, high };
        let gain = GainPercent { low: 5.0, likely: 9.0, high: 30.0 };
        let limited = gain.within(counted(0.2), &half);
        assert!(limited.low == 5.0 && (limited.high - 100.0 * 0.1 / 0.9).abs() < 1e-9, "{limited:?}");
        assert_eq!(gain.within(counted(0.8), &half), gain);
        let little = gain.within(counted(0.02), &half);
        assert!(little.low == little.high && little.low < 5.0, "{little:?}");
        assert_eq!(gain.within(counted(0.8), &saving(0.0)), GainPercent { low: 0.0, likely: 0.0, high: 0.0 });
    }

    /// The same plan from bits that mean accesses: this many are certain, and this share is scattered.
    fn accessed(walks_per_second: f64, at_least_per_second: f64, scattered: Option<f64>) -> Plan {
        let walks = Walks { at_least_per_second, at_most_per_second: walks_per_second, scattered };
        Plan { meaning: Meaning::Accessed, walks, ..saving(walks_per_second) }
    }

    #[test]
    fn accessed_bits_promise_what_is_certain() {
        let gain = |at_least| expected(&accessed(2.5e6, at_least, Some(1.0)), &COST, Some(1.0)).unwrap();
        assert_eq!(gain(0.0).low, 0.0);
        assert!(gain(0.0).high > 30.0);
        let share = |gain: f64| gain / (100.0 + gain);
        near(share(gain(2.0e6).low), 0.8 * share(gain(2.5e6).low));
        let unknown = expected(&accessed(2.5e6, 2.5e6, None), &COST, Some(1.0)).unwrap();
        assert_eq!(unknown, GainPercent { low: 0.0, ..gain(2.5e6) }, "whether they go along addresses");
        let sampled = Plan { meaning: Meaning::Sampled, ..saving(2.5e6) };
        assert_eq!(expected(&sampled, &COST, Some(1.0)).unwrap().low, 0.0);
    }

    #[test]
    fn scattered_walks_gain_much_and_walks_in_order_next_to_nothing() {
        for walks in [1e6, 2.5e6, 1e7, 5e7, 2e8] {
            let of = |scattered| expected(&accessed(walks, walks, Some(scattered)), &COST, Some(1.0)).unwrap();
            let GainPercent { low, likely, high } = of(1.0);
            assert!(low > 0.0 && low < high && (100.0 + high) / (100.0 + low) <= 1.8, "{walks}: {low} {likely} {high}");
            let ordered = of(0.0);
            assert!(ordered.low == 0.0 && ordered.likely < 6.0 && ordered.high < low, "{walks}: {ordered:?}, {low}");
        }
    }

    #[test]
    fn a_program_that_may_walk_more_often_may_gain_more() {
        let plan = accessed(1e6, 1e6, Some(1.0));
        let more = Plan { walks: Walks { at_most_per_second: 2e6, ..plan.walks }, ..plan.clone() };
        let [gain, more] = [plan, more].map(|plan| expected(&plan, &COST, Some(1.0)).unwrap());
        assert!(more.low == gain.low && more.likely > gain.likely && more.high > 1.2 * gain.high);
    }

    #[test]
    fn page_faults_that_are_saved_count() {
        let mut plan = saving(5e5);
        plan.decisions[0].faults_per_second = 1e5;
        let with = expected(&plan, &COST, Some(1.0)).unwrap();
        // 5e5 walks take 4.875 %, 1e5 page faults 5 % of the time.
        near(with.likely, 100.0 * 0.09875 / 0.90125);
        assert!(with.low > gain(5e5).low && with.high > gain(5e5).high);
        assert!(expected(&plan, &COST, Some(2.0)).unwrap().likely < with.likely / 2.0, "of two busy processors");
    }

    #[test]
    fn the_cost_is_that_of_the_size() {
        let cheap = |base_ns| ReadTimes { base_ns, huge_ns: base_ns - 20.0 };
        let small = WalkCost { footprint: Bytes(128 << 20), dependent: cheap(200.0), occasional: cheap(900.0), ..COST };
        let both = [small, WalkCost { footprint: Bytes(512 << 20), ..COST }];
        let high = |bytes| WalkCost::at(&both, Bytes(bytes)).unwrap().high();
        let expected = [
            (1 << 20, 20),
            (128 << 20, 20),
            (256 << 20, 85),
            (512 << 20, 150),
            (1 << 30, 215),
            (4 << 30, 345),
            (1 << 40, 345),
        ];
        for (bytes, ns) in expected {
            assert_eq!(high(bytes), Nanos(ns), "{bytes}");
        }
        assert_eq!(WalkCost::at(&both[..1], Bytes(1 << 40)).unwrap().high(), Nanos(20));
        assert_eq!(WalkCost::at(&[], Bytes(1)), None);
    }

    proptest! {
        #[test]
        fn the_range_is_in_order(walks in 0.0..1e9f64, ns in prop::collection::vec(1.0..1000.0f64, 8)) {
            let chase = |number: usize| ReadTimes { base_ns: ns[2 * number], huge_ns: ns[2 * number + 1] };
            let [ordered, independent, dependent, occasional] = [0, 1, 2, 3].map(chase);
            let cost = WalkCost { footprint: Bytes(1), ordered, independent, dependent, occasional, ..COST };
            let GainPercent { low, likely, high } = expected(&saving(walks), &cost, Some(1.0)).unwrap();
            prop_assert!(0.0 <= low && low <= likely && likely <= high && high.is_finite(), "{low} {likely} {high}");
        }

        #[test]
        fn the_range_is_in_order_and_rises_with_what_is_known(
            walks in 1.0..1e8f64,
            certain in 0.0..1.0f64,
            more_certain in 0.0..1.0f64,
            times in 1.0..10.0f64,
            scattered in 0.0..1.0f64,
            more_scattered in 0.0..1.0f64,
        ) {
            let of = |certain: f64, scattered: f64| {
                let plan = accessed(walks, walks * certain, Some(scattered));
                let walks = Walks { at_most_per_second: walks * times, ..plan.walks };
                expected(&Plan { walks, ..plan }, &WalkCost::UNCALIBRATED, Some(1.0)).unwrap()
            };
            let one = of(certain, scattered);
            prop_assert!(0.0 <= one.low && one.low <= one.likely && one.likely <= one.high && one.high.is_finite());
            let more = of(certain.max(more_certain), scattered.max(more_scattered));
            prop_assert!(more.low >= one.low && more.likely >= one.likely * 0.999 && more.high >= one.high * 0.999, "{one:?} {more:?}");
        }

        #[test]
        fn of_random_readers_the_range_is_no_wider_than_programs_differ(walks in 1e5..1e8f64) {
            let plan = accessed(walks, walks, Some(0.95));
            let GainPercent { low, high, .. } = expected(&plan, &WalkCost::UNCALIBRATED, Some(1.0)).unwrap();
            prop_assert!(low > 0.0 && low < high && (100.0 + high) / (100.0 + low) <= 1.8, "{low} to {high}");
        }
    }
}
