//! Which memory is reclaimed next, how much of it, and why the rest is not.
//!
//! Owns: the options for each use of memory, and the pure function from them and the current memory to a plan. Never touches: memory.

mod preset;
mod written;

use std::fmt;

pub use preset::Preset;

use heat::memory_use::{ByUse, MemoryUse, Uses};
use heat::units::{Bytes, Nanos, SizeOrShare};
use serde::Serialize;

const MINUTE: Nanos = Nanos(60_000_000_000);

/// A host that takes free memory back returns it at about 8 ms per huge page, sixteen times the cost of one from page cache. With little
/// memory the cache is too fragmented to yield many, so free memory is needed anyway; with more it is not (measured: docs/REPRODUCTION.md,
/// D).
const LITTLE_MEMORY: Bytes = Bytes(8 << 30);
const KEPT_IN_LITTLE: Bytes = Bytes(2 << 30);
const KEPT_IN_MORE: Bytes = Bytes(512 << 20);

/// What is requested for one use of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassPolicy {
    /// How much is reclaimed per minute: a size, a share of what the class holds (`10%`), or of the machine's memory (`1%ram`). 0 for none.
    pub rate: SizeOrShare,
    /// How much always stays: a size, or a share of the machine's memory.
    pub floor: SizeOrShare,
}

/// How strongly unmapped cache is preferred over mapped pages, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedPageCost(u8);

impl MappedPageCost {
    /// Mapped pages are reclaimed at their own rates.
    pub const NONE: Self = Self(0);
    /// Mapped pages are not reclaimed at all.
    pub const FORBIDS: Self = Self(100);

    /// None for values above 100.
    pub fn new(cost: u8) -> Option<Self> {
        (cost <= 100).then_some(Self(cost))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// How many bytes of mapped memory are reclaimed for each byte of unmapped cache at the same rate: 1 at 0, a half at 50, nothing at
    /// 100.
    fn mapped_part(self) -> f64 {
        f64::from(100 - self.0) / 100.0
    }
}

/// The whole request.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// For each use of memory.
    pub classes: ByUse<ClassPolicy>,
    /// How strongly unmapped cache is preferred.
    pub mapped_page_cost: MappedPageCost,
    /// Reclaim while less memory than this is free; None if that does not matter.
    pub free_below: Option<SizeOrShare>,
    /// Reclaim while less memory than this is free in huge pages; None if that does not matter. If neither is given, always reclaim.
    pub huge_below: Option<SizeOrShare>,
    /// Whether these two come from a preset, which knows nothing about the machine.
    pub marks_are_presets: bool,
}

/// The current memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// The machine's memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Of it, memory in blocks that hold a huge page.
    pub free_huge: Bytes,
    /// What each use holds.
    pub held: ByUse<Bytes>,
    /// Whether swap space is left; without it, some uses cannot be reclaimed.
    pub swap: bool,
    /// Whether this virtual machine's host takes free memory back, and is slow to return it.
    pub host_takes_free: bool,
}

/// The decision for one use of memory in the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseDecision {
    /// How much of it is reclaimed.
    pub bytes: Bytes,
    /// Why this much, or why none.
    pub reason: ReclaimReason,
}

/// Why memory is reclaimed, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReclaimReason {
    /// It is reclaimed.
    Reclaimed,
    /// Nothing is requested: its rate is 0.
    NotRequested,
    /// It is mapped, and the cost of mapped pages forbids it.
    CostForbids,
    /// It would have to be swapped, and there is no swap space.
    NoSwap,
    /// Enough memory is free, also in huge pages if that is requested.
    EnoughFree,
    /// Only what should stay is left.
    AtFloor,
    /// No mechanism here can reclaim it without also taking memory that must stay.
    CannotTellApart,
}

/// A short name for it.
impl fmt::Display for ReclaimReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Memory that a mechanism reclaims without distinguishing its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The uses that it may come from.
    pub uses: Uses,
    /// The total for them.
    pub bytes: Bytes,
    /// The most that a mechanism may scan in a step, however little of that it can take: all of it may belong to one use.
    pub most: Bytes,
}

/// What the next step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimPlan {
    /// The decision for each use, with its expected share in the batches.
    pub decisions: ByUse<UseDecision>,
    /// The work to do.
    pub batches: Vec<Batch>,
}

impl Policies {
    /// Whether enough memory is free that none needs to be reclaimed.
    pub fn are_met(&self, stock: &Stock) -> bool {
        self.missing(stock) == Some(Bytes(0))
    }

    /// How much more must become free before reclaim stops; None without marks.
    fn missing(&self, stock: &Stock) -> Option<Bytes> {
        let (free, huge) = self.marks(stock);
        let of = |mark: Option<Bytes>, free: Bytes| mark.map(|mark| mark.saturating_sub(free));
        of(free, stock.free).max(of(huge, stock.free_huge))
    }

    /// The targets for free memory, and free memory in huge pages. If a host takes free memory away, a preset keeps no more than comes back
    /// soon.
    pub fn marks(&self, stock: &Stock) -> (Option<Bytes>, Option<Bytes>) {
        let most = self.most_free(stock).unwrap_or(Bytes(u64::MAX));
        let mark = |wanted| of_machine(wanted, stock.total).min(most);
        (self.free_below.map(mark), self.huge_below.map(mark))
    }

    /// The most that is kept free, whatever the marks of a preset say; None if there is no such limit.
    pub fn most_free(&self, stock: &Stock) -> Option<Bytes> {
        let kept = if stock.total <= LITTLE_MEMORY { KEPT_IN_LITTLE } else { KEPT_IN_MORE };
        (self.marks_are_presets && stock.host_takes_free).then_some(kept)
    }

    /// How much of a use stays.
    pub fn floor(&self, class: MemoryUse, stock: &Stock) -> Bytes {
        of_machine(self.classes[class].floor, stock.total)
    }

    /// What is due after this much time, by the rates alone.
    pub fn due(&self, stock: &Stock, elapsed: Nanos) -> ByUse<Bytes> {
        ByUse::of(|class| {
            let a_minute = match self.classes[class].rate {
                SizeOrShare::Share(share) => stock.held[class].share(share),
                rate => of_machine(rate, stock.total),
            };
            let part = if class.is_mapped() { self.mapped_page_cost.mapped_part() } else { 1.0 };
            a_minute.share(part * elapsed.seconds() / MINUTE.seconds()).min(stock.held[class])
        })
    }

    /// Whether a mechanism of this reach could do anything that is requested if enough of it were present.
    pub fn are_served_by(&self, stock: &Stock, reach: &[Uses]) -> bool {
        let nothing_stays =
            |class: MemoryUse| ClassPolicy { floor: SizeOrShare::Size(Bytes(0)), ..self.classes[class] };
        let policies =
            Policies { classes: ByUse::of(nothing_stays), free_below: None, huge_below: None, ..self.clone() };
        let enough = |class: MemoryUse| if policies.allow(class).is_ok() { stock.total } else { stock.held[class] };
        let stock = Stock { held: ByUse::of(enough), ..*stock };
        !plan(&policies, &stock, &stock.held, reach).batches.is_empty()
    }

    /// The uses within this reach that hold memory and must not be reclaimed, but share a set with uses that may be.
    pub fn in_the_way(&self, stock: &Stock, reach: &[Uses]) -> Uses {
        let may_go = Uses::that(|class| self.allow(class).is_ok());
        let there = Uses::that(|class| stock.held[class] > Bytes(0) && (stock.swap || !class.needs_swap()));
        let sets = reach.iter().filter(|set| !set.and(may_go).is_empty());
        sets.flat_map(|set| set.without(may_go).and(there).iter().collect::<Vec<_>>()).collect()
    }

    /// Whether a use may be reclaimed at all.
    fn allow(&self, class: MemoryUse) -> Result<(), ReclaimReason> {
        let is_off = match self.classes[class].rate {
            SizeOrShare::Size(size) => size == Bytes(0),
            SizeOrShare::Share(share) | SizeOrShare::ShareOfRam(share) => share <= 0.0,
        };
        match () {
            () if is_off => Err(ReclaimReason::NotRequested),
            () if class.is_mapped() && self.mapped_page_cost == MappedPageCost::FORBIDS => {
                Err(ReclaimReason::CostForbids)
            }
            () => Ok(()),
        }
    }
}

/// The next step's work, given what is due and a mechanism that reclaims these sets of uses, best first, without distinguishing the uses
/// within a set. Wherever a batch takes its memory from, no use drops below its floor, and none that must not be reclaimed loses any.
pub fn plan(policies: &Policies, stock: &Stock, due: &ByUse<Bytes>, reach: &[Uses]) -> ReclaimPlan {
    let met = policies.are_met(stock);
    // Memory reclaimed beyond the marks would have to be read again for nothing.
    let mut missing = policies.missing(stock).unwrap_or(Bytes(u64::MAX));
    let takeable = Uses::that(|class| stock.swap || !class.needs_swap());
    // A use without a floor can be taken completely.
    let spare = ByUse::of(|class| match policies.floor(class, stock) {
        Bytes(0) => Bytes(u64::MAX),
        floor => stock.held[class].saturating_sub(floor),
    });
    let kept = ByUse::of(|class| match policies.allow(class) {
        Err(reason) => Some(reason),
        Ok(()) if !takeable.has(class) => Some(ReclaimReason::NoSwap),
        Ok(()) if met => Some(ReclaimReason::EnoughFree),
        Ok(()) if stock.held[class] <= policies.floor(class, stock) => Some(ReclaimReason::AtFloor),
        Ok(()) => None,
    });
    let mut decisions = ByUse::of(|class| UseDecision {
        bytes: Bytes(0),
        reason: kept[class].unwrap_or(ReclaimReason::CannotTellApart),
    });
    let mut batches = Vec::new();
    for &uses in reach {
        // A use that holds nothing cannot be taken by mistake.
        let touched = Uses::that(|class| uses.and(takeable).has(class) && stock.held[class] > Bytes(0));
        let wanted =
            Uses::that(|class| touched.has(class) && decisions[class].reason == ReclaimReason::CannotTellApart);
        if wanted.is_empty() || touched.iter().any(|class| kept[class].is_some()) {
            continue;
        }
        let all_due: Bytes = wanted.iter().map(|class| due[class]).sum();
        // A use may be in several sets: its spare memory is divided among all of them.
        let least = touched.iter().map(|class| spare[class]).min().unwrap_or_default();
        let most = Bytes(least.0 / reach.len() as u64);
        let bytes = all_due.min(most).min(missing);
        missing = missing.saturating_sub(bytes);
        divide(bytes, wanted, due, &mut decisions);
        batches.extend((bytes > Bytes(0)).then_some(Batch { uses: touched, bytes, most }));
    }
    ReclaimPlan { decisions, batches }
}

/// Divides a batch among its classes in proportion to what is due, without a remainder.
fn divide(bytes: Bytes, wanted: Uses, due: &ByUse<Bytes>, decisions: &mut ByUse<UseDecision>) {
    let mut left = bytes;
    let mut due_left: Bytes = wanted.iter().map(|class| due[class]).sum();
    for class in wanted.iter() {
        let part = if due_left == Bytes(0) { 0 } else { mul_div(left.0, due[class].0, due_left.0) };
        decisions[class] = UseDecision { bytes: Bytes(part), reason: ReclaimReason::Reclaimed };
        (left, due_left) = (left.saturating_sub(Bytes(part)), due_left.saturating_sub(due[class]));
    }
}

fn mul_div(value: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(value) * u128::from(numerator) / u128::from(denominator)) as u64
}

/// A share without `ram` means the machine's memory, too: nothing else would make sense here.
fn of_machine(wanted: SizeOrShare, total: Bytes) -> Bytes {
    match wanted {
        SizeOrShare::Size(size) => size,
        SizeOrShare::Share(share) | SizeOrShare::ShareOfRam(share) => total.share(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILES: Uses = Uses::OF_FILES;

    fn only(class: MemoryUse) -> Uses {
        [class].into_iter().collect()
    }

    /// Everything is reclaimed at half of what it holds per minute, and mapped pages have no cost; each use holds 100.
    fn policies() -> Policies {
        let request = ClassPolicy { rate: SizeOrShare::Share(0.5), floor: SizeOrShare::Size(Bytes(0)) };
        let classes = ByUse::of(|_| request);
        Policies {
            classes,
            mapped_page_cost: MappedPageCost::NONE,
            free_below: None,
            huge_below: None,
            marks_are_presets: false,
        }
    }

    fn stock() -> Stock {
        let held = ByUse::of(|_| Bytes(100));
        Stock { total: Bytes(1000), free: Bytes(100), free_huge: Bytes(40), held, ..Stock::default() }
    }

    fn after_a_minute(policies: &Policies, stock: &Stock, reach: &[Uses]) -> ReclaimPlan {
        plan(policies, stock, &policies.due(stock, MINUTE), reach)
    }

    fn reason(plan: &ReclaimPlan, class: MemoryUse) -> ReclaimReason {
        plan.decisions[class].reason
    }

    #[test]
    fn the_cost_sets_the_ratio_of_unmapped_to_mapped() {
        let due = |cost| {
            let policies = Policies { mapped_page_cost: MappedPageCost::new(cost).unwrap(), ..policies() };
            let due = policies.due(&stock(), MINUTE);
            (due[MemoryUse::UnmappedCache].0, due[MemoryUse::MappedFiles].0, due[MemoryUse::Code].0)
        };
        assert_eq!([due(0), due(50), due(80), due(100)], [(50, 50, 50), (50, 25, 25), (50, 10, 10), (50, 0, 0)]);
        assert_eq!(MappedPageCost::new(101), None);
    }

    /// The stock of these tests has a few bytes, which nobody would write without a unit.
    fn written(text: &str) -> SizeOrShare {
        text.parse().map(|bytes| SizeOrShare::Size(Bytes(bytes))).unwrap_or_else(|_| text.parse().unwrap())
    }

    #[test]
    fn rates_are_of_what_a_class_holds_or_of_the_machine() {
        let mut policies = policies();
        policies.classes[MemoryUse::UnmappedCache].rate = written("3%ram");
        policies.classes[MemoryUse::MappedFiles].rate = written("7");
        let due = policies.due(&stock(), MINUTE);
        assert_eq!((due[MemoryUse::UnmappedCache], due[MemoryUse::MappedFiles]), (Bytes(30), Bytes(7)));
        policies.classes[MemoryUse::MappedFiles].rate = written("1G");
        assert_eq!(policies.due(&stock(), MINUTE)[MemoryUse::MappedFiles], Bytes(100), "there is no more");
    }

    #[test]
    fn every_class_has_its_reason() {
        let mut policies = policies();
        policies.classes[MemoryUse::Code].rate = SizeOrShare::Share(0.0);
        policies.classes[MemoryUse::MappedFiles].floor = SizeOrShare::Share(0.1);
        let made = after_a_minute(&policies, &stock(), &[only(MemoryUse::UnmappedCache)]);
        let reasons = MemoryUse::ALL.map(|class| reason(&made, class));
        let (cannot, no_swap) = (ReclaimReason::CannotTellApart, ReclaimReason::NoSwap);
        assert_eq!(
            reasons,
            [ReclaimReason::NotRequested, cannot, no_swap, no_swap, ReclaimReason::AtFloor, ReclaimReason::Reclaimed]
        );
        let uses = only(MemoryUse::UnmappedCache);
        assert_eq!(made.batches, [Batch { uses, bytes: Bytes(50), most: Bytes(u64::MAX) }]);
        policies.mapped_page_cost = MappedPageCost::FORBIDS;
        let made = after_a_minute(&policies, &stock(), &[FILES]);
        assert_eq!(reason(&made, MemoryUse::ReadOnlyData), ReclaimReason::CostForbids);
        assert_eq!(reason(&made, MemoryUse::UnmappedCache), cannot, "what maps files would lose them too");
    }

    #[test]
    fn nothing_is_reclaimed_while_enough_is_free() {
        let is_met = |free_below: Option<&str>, huge_below: Option<&str>| {
            let policies =
                Policies { free_below: free_below.map(written), huge_below: huge_below.map(written), ..policies() };
            let made = after_a_minute(&policies, &stock(), &[FILES]);
            assert_eq!(made.batches.is_empty(), reason(&made, MemoryUse::Code) == ReclaimReason::EnoughFree);
            made.batches.is_empty()
        };
        assert!(!is_met(None, None), "nothing is said of when");
        assert!(is_met(Some("10%"), None) && !is_met(Some("101"), None));
        assert!(is_met(None, Some("40")) && !is_met(None, Some("41")));
        assert!(!is_met(Some("10%"), Some("41")), "free, but not in huge pages");
    }

    #[test]
    fn no_more_is_reclaimed_than_is_missing() {
        let taken = |free_below: &str, huge_below: Option<&str>| {
            let policies =
                Policies { free_below: Some(written(free_below)), huge_below: huge_below.map(written), ..policies() };
            let each: Vec<Uses> = FILES.iter().map(only).collect();
            after_a_minute(&policies, &stock(), &each).batches.iter().map(|batch| batch.bytes.0).sum::<u64>()
        };
        assert_eq!(taken("107", None), 7);
        assert_eq!(taken("107", Some("160")), 120, "in huge pages more is missing");
        assert_eq!(taken("1000", None), 200, "no more is due");
    }

    #[test]
    fn where_the_host_takes_what_is_free_a_preset_keeps_little() {
        let mark = |total, host_takes_free, given: Option<&str>| {
            let mut policies = Preset::Database.policies();
            policies.set_marks(given.map(written), None);
            policies.marks(&Stock { total: Bytes(total), host_takes_free, ..stock() }).0
        };
        let share = Bytes(64 << 30).share(0.2);
        assert_eq!((mark(64 << 30, true, None), mark(64 << 30, false, None)), (Some(KEPT_IN_MORE), Some(share)));
        assert_eq!(mark(8 << 30, true, None), Some(Bytes(8 << 30).share(0.2)));
        assert_eq!(mark(1 << 30, true, None), Some(Bytes(1 << 30).share(0.2)));
        assert_eq!(mark(64 << 30, true, Some("20%")), Some(share), "whoever says so is obeyed");
    }

    #[test]
    fn what_cannot_be_told_apart_shares_the_smallest_spare_part() {
        let mut policies = policies();
        policies.classes[MemoryUse::Code].floor = SizeOrShare::Size(Bytes(88));
        let made = after_a_minute(&policies, &stock(), &[FILES]);
        assert_eq!(made.batches, [Batch { uses: FILES, bytes: Bytes(12), most: Bytes(12) }], "all of it may be code");
        let parts: Vec<u64> = FILES.iter().map(|class| made.decisions[class].bytes.0).collect();
        assert_eq!(parts, [3, 3, 3, 3]);
    }

    #[test]
    fn a_class_that_holds_nothing_is_in_nobodys_way() {
        let mut policies = policies();
        policies.classes[MemoryUse::Code].rate = SizeOrShare::Share(0.0);
        let mut stock = stock();
        stock.held[MemoryUse::Code] = Bytes(0);
        let made = after_a_minute(&policies, &stock, &[FILES]);
        let uses = FILES.without(only(MemoryUse::Code));
        assert_eq!(made.batches, [Batch { uses, bytes: Bytes(150), most: Bytes(u64::MAX) }]);
    }

    #[test]
    fn who_cannot_tell_what_must_stay_serves_nobody() {
        let serves = |preset: Preset, swap, reach: &[Uses]| {
            preset.policies().are_served_by(&Stock { swap, ..with_some_of_all() }, reach)
        };
        let (all, files, cache) = ([Uses::ALL], [FILES, only(MemoryUse::Anonymous)], [only(MemoryUse::UnmappedCache)]);
        for preset in Preset::ALL {
            assert!(serves(preset, true, &cache), "{preset}");
        }
        assert!(serves(Preset::Balanced, false, &files) && serves(Preset::Balanced, true, &files));
        assert!(serves(Preset::Balanced, false, &all));
        assert!(!serves(Preset::Balanced, true, &all), "shared memory would be swapped");
        assert!(!serves(Preset::BackupServer, false, &files), "what is mapped would go");
    }

    /// A machine that has little of everything, and enough free.
    fn with_some_of_all() -> Stock {
        Stock {
            total: Bytes(1000),
            free: Bytes(900),
            free_huge: Bytes(900),
            held: ByUse::of(|_| Bytes(10)),
            ..Stock::default()
        }
    }

    fn amount() -> impl Strategy<Value = SizeOrShare> {
        prop_oneof![
            (0..2000u64).prop_map(|size| SizeOrShare::Size(Bytes(size))),
            (0.0..1.5f64).prop_map(SizeOrShare::Share),
            (0.0..1.0f64).prop_map(SizeOrShare::ShareOfRam),
            Just(SizeOrShare::Share(0.0)),
        ]
    }

    prop_compose! {
        fn any_policies()(
            classes in prop::array::uniform6((amount(), amount())),
            cost in prop_oneof![Just(100u8), Just(0), 0..=100u8],
            free_below in prop::option::of(amount()),
            huge_below in prop::option::of(amount()),
            marks_are_presets: bool,
        ) -> Policies {
            let classes = ByUse::of(|class| {
                let (rate, floor) = classes[class as usize];
                ClassPolicy { rate, floor }
            });
            let mapped_page_cost = MappedPageCost::new(cost).expect("at most 100");
            Policies { classes, mapped_page_cost, free_below, huge_below, marks_are_presets }
        }
    }

    prop_compose! {
        fn any_stock()(
            held in prop::array::uniform6(0..3000u64), free in 0..5000u64, huge in 0..5000u64, swap: bool, host_takes_free: bool
        ) -> Stock {
            let held = ByUse::of(|class| Bytes(held[class as usize]));
            Stock { total: Bytes(20_000), free: Bytes(free), free_huge: Bytes(huge.min(free)), held, swap, host_takes_free }
        }
    }

    fn any_reach() -> impl Strategy<Value = Vec<Uses>> {
        prop::collection::vec((0..64u8).prop_map(|bits| Uses::that(|class| bits & (1 << class as u8) != 0)), 0..4)
    }

    proptest! {
        #[test]
        fn no_class_loses_what_must_stay_whatever_the_batches_take(
            policies in any_policies(), stock in any_stock(), reach in any_reach(), seconds in 0..600u64
        ) {
            let made = plan(&policies, &stock, &policies.due(&stock, Nanos(seconds * 1_000_000_000)), &reach);
            for class in MemoryUse::ALL {
                let batches = made.batches.iter().filter(|batch| batch.uses.has(class));
                let (bytes, most) = batches.fold((Bytes(0), Bytes(0)), |sums, each| (sums.0 + each.bytes, sums.1 + each.most));
                prop_assert!(bytes <= most);
                prop_assert!(most == Bytes(0) || stock.held[class].saturating_sub(most) >= policies.floor(class, &stock));
                prop_assert!(most == Bytes(0) || policies.allow(class).is_ok(), "{}: mapped at 100, or of rate 0", class);
                prop_assert!(most == Bytes(0) || !policies.are_met(&stock));
            }
        }

        #[test]
        fn sums_are_right(policies in any_policies(), stock in any_stock(), reach in any_reach()) {
            let due = policies.due(&stock, MINUTE);
            let made = plan(&policies, &stock, &due, &reach);
            let of_batches: Bytes = made.batches.iter().map(|batch| batch.bytes).sum();
            prop_assert_eq!(made.decisions.iter().map(|(_, decision)| decision.bytes).sum::<Bytes>(), of_batches);
            for (class, decision) in made.decisions.iter() {
                prop_assert!(decision.bytes <= due[class], "{}: {} of {}", class, decision.bytes, due[class]);
                prop_assert!(decision.bytes == Bytes(0) || decision.reason == ReclaimReason::Reclaimed);
            }
        }

        #[test]
        fn what_is_mapped_is_never_reclaimed_more_at_a_higher_cost(
            policies in any_policies(), stock in any_stock(), reach in any_reach(), more in 0..=100u8
        ) {
            let at = |cost| {
                let policies = Policies { mapped_page_cost: cost, ..policies.clone() };
                policies.due(&stock, MINUTE)
            };
            let cost = policies.mapped_page_cost;
            let higher = MappedPageCost::new(cost.get().saturating_add(more).min(100)).expect("at most 100");
            for class in MemoryUse::ALL {
                prop_assert!(at(higher)[class] <= at(cost)[class]);
            }
            // The plan is monotonic if each use is taken separately; together, one use may get another's share.
            let alone: Vec<Uses> = reach.iter().filter(|uses| uses.iter().count() == 1).copied().collect();
            let planned = |cost| plan(&Policies { mapped_page_cost: cost, ..policies.clone() }, &stock, &at(cost), &alone);
            for class in MemoryUse::ALL.into_iter().filter(|class| class.is_mapped()) {
                prop_assert!(planned(higher).decisions[class].bytes <= planned(cost).decisions[class].bytes);
            }
        }
    }
}
