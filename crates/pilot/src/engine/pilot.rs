//! One program at one moment: scan it, act on it, give back.
//!
//! Owns: the order of these steps, how long a plan holds, recording regions before they become huge, and the limits on all of it. Never touches:
//! which program, and when; callers and [`crate::engine::Fleet`] decide.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use heat::units::{Address, Bytes, CpuShare, Nanos, Pages, Slowdown};
use heat::{Heat, HeldBack, Region, Snapshot};
use hugepilot_os::stop::Stop;
use kernel::probe::CollapseTimes;
use kernel::target::Process;
use observe::{ObserveError, ObserveOptions, Waited};

use crate::act::{self, ActBounds, Outcome, Pacer, RegionResult};
use crate::decide::{Allowance, Decision, GrowthLimit, Past, Plan, Spent, WhoWaits, decide, give_back_on_request};
use crate::engine::budget::Budget;
use crate::engine::coverage::{self, Known, Most};
use crate::engine::family::{Family, FamilyWatch, add_family};
use crate::world::{Candidate, Promoted, Promotions, RecordError, World};

/// How long a plan is carried out before the memory is surveyed again: meanwhile programs free memory, fork and call exec.
pub(super) const FRESH: Duration = Duration::from_secs(10);

/// Promoting this many regions takes longer than the two seconds that free memory waits before it is reported to the host.
const TAKE_LONG: usize = 64;

/// The cost of unmapping a region's base pages from one more process, as measured with a hundred of PostgreSQL's.
const UNMAPPING: Nanos = Nanos(100_000);

/// The user's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How to observe.
    pub watch: ObserveOptions,
    /// What may be spent, as sizes ([`Allowance::with_ram`]).
    pub allowance: Allowance,
    /// The share of a CPU that observing and deciding may take.
    pub max_cpu: CpuShare,
    /// How much promoting may slow a program down.
    pub max_slowdown: Slowdown,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            watch: ObserveOptions::default(),
            allowance: Allowance::default(),
            max_cpu: CpuShare::default(),
            max_slowdown: Slowdown::ASKED_FOR,
        }
    }
}

/// Scans programs and acts on them, in one world, within one budget.
pub struct Pilot<'a> {
    /// The machine.
    pub world: &'a mut dyn World,
    /// How to observe.
    pub(super) watch: ObserveOptions,
    /// What observing again and again may take.
    pub(super) budget: Budget,
    /// What may be spent.
    pub(super) allowance: Allowance,
    /// When the next region may be promoted.
    pacer: Pacer,
    /// Ends everything early.
    pub stop: Stop,
    /// For how long pages were prepared and collapsed, waiting for memory included.
    busy: Nanos,
}

/// The state of a target, and what is to be done.
pub struct Round {
    /// What the tracker observed.
    pub heat: Heat,
    /// What follows from it.
    pub plan: Plan,
    /// The target before anything was done.
    pub before: Snapshot,
    /// The processes that share its memory.
    pub family: Family,
    /// The memory growth allowed.
    pub growth_limit: GrowthLimit,
}

/// The result of a turn.
#[derive(Debug, Default)]
pub struct Acted {
    /// One for each region that was reached, in the order of the plan.
    pub results: Vec<RegionResult>,
    /// How long the program's threads waited for the lock of its memory; None where the kernel does not tell.
    pub waited: Option<Waited>,
    /// Wall time.
    pub elapsed: Nanos,
}

impl Acted {
    /// The account of a plan for this many regions.
    pub(super) fn outcome_of(&self, regions: usize) -> Outcome {
        let of_results = Outcome::of(&self.results);
        let not_reached = (regions - self.results.len()) as u64;
        Outcome { not_reached, waited: self.waited, elapsed: self.elapsed, ..of_results }
    }
}

impl<'a> Pilot<'a> {
    /// For callers that want one program done once and soon: no CPU time is saved up, and there is no rest when contiguous memory runs out.
    pub fn once(world: &'a mut dyn World, settings: Settings, stop: Stop) -> Self {
        let (now, cpu_time) = (world.now(), world.cpu_time());
        let budget = Budget::new(settings.max_cpu, cpu_time, now);
        Self::new(world, settings, budget, Pacer::new(settings.max_slowdown, now), stop)
    }

    /// For as long as there is something to pilot.
    pub fn lasting(world: &'a mut dyn World, settings: Settings, stop: Stop) -> Self {
        let (now, cpu_time) = (world.now(), world.cpu_time());
        let budget = Budget::saving(settings.max_cpu, settings.max_slowdown, cpu_time, now);
        Self::new(world, settings, budget, Pacer::backing_off(settings.max_slowdown, now), stop)
    }

    fn new(world: &'a mut dyn World, settings: Settings, budget: Budget, pacer: Pacer, stop: Stop) -> Self {
        let Settings { watch, allowance, .. } = settings;
        Self { world, watch, budget, allowance, pacer, stop, busy: Nanos(0) }
    }

    /// Goes on with other settings; what was spent so far still counts.
    pub fn change(&mut self, settings: Settings) {
        let now = self.world.now();
        (self.watch, self.allowance) = (settings.watch, settings.allowance);
        self.budget.set_share(settings.max_cpu);
        if self.max_slowdown() != settings.max_slowdown {
            self.pacer = Pacer::backing_off(settings.max_slowdown, now);
        }
    }

    /// Observes and decides; changes nothing. `spent` is what earlier rounds took of the allowance. `with_children` also counts what the process's
    /// children lose on shared memory. Errors: as observing.
    pub fn scan(&mut self, process: Process, with_children: bool, spent: &Spent) -> Result<Round, ObserveError> {
        self.world.watch_waits(process);
        let family = FamilyWatch::begin(self.world, process, with_children)?;
        let (watch, stop) = (self.watch, self.stop.clone());
        let mut heat = coverage::observe(self.world, process, &watch, Known::default(), Most::Everything, &stop)?;
        self.world.complete(&mut heat);
        let before = Snapshot::of(&heat, self.page_tables(process));
        let family = add_family(&mut heat, process, with_children, self.world, &watch, family, &stop)?;
        let memory = heat.promotable_here(&BTreeSet::new());
        let plan = decide(&heat, &self.allowance.limits(memory, spent), &Past::default());
        self.charge(heat.cost.kernel);
        Ok(Round { heat, plan, before, family, growth_limit: self.allowance.growth_limit(memory) })
    }

    /// Observes a program, a large one as far as time allows. Errors: as observing.
    pub(super) fn observe(
        &mut self,
        process: Process,
        options: &ObserveOptions,
        known: Known,
        stop: &Stop,
    ) -> Result<Heat, ObserveError> {
        self.world.watch_waits(process);
        let mut heat = coverage::observe(self.world, process, options, known, Most::InTime, stop)?;
        self.world.complete(&mut heat);
        self.charge(heat.cost.kernel);
        Ok(heat)
    }

    pub(super) fn now(&self) -> Instant {
        self.world.now()
    }

    /// How much promoting may slow a program down.
    pub fn max_slowdown(&self) -> Slowdown {
        self.pacer.max_slowdown()
    }

    /// How much promoting may slow the next program down, where that is less than [`Pilot::max_slowdown`].
    pub(super) fn limit_slowdown(&mut self, own: Option<Slowdown>) {
        self.pacer.limit(own);
    }

    /// For how long pages have been prepared and collapsed so far.
    pub(super) fn busy(&self) -> Nanos {
        self.busy
    }

    /// Whether regions are promoted more slowly than is allowed, because programs waited.
    pub fn is_pace_reduced(&self) -> bool {
        self.pacer.is_reduced()
    }

    /// Why no step may be taken at present; None if one may.
    pub(super) fn held_back(&self) -> Option<HeldBack> {
        self.pacer.held_back(self.now())
    }

    /// Enters our CPU time since the last entry, and that of kernel threads that worked for us.
    pub(super) fn charge(&mut self, kernel: Nanos) {
        self.budget.charge(self.world.cpu_time(), kernel, self.world.now());
    }

    /// Leaves out our CPU time since the last entry: acting has its own pace.
    fn pass_over(&mut self) {
        self.budget.pass_over(self.world.cpu_time(), self.world.now());
    }

    pub(super) fn can_afford_a_scan(&self) -> bool {
        self.budget.free_at() <= self.now()
    }

    /// Whether a turn that begins now can promote anything: after a long step, the rest that is owed may be longer than the turn.
    pub(super) fn may_step_soon(&self) -> bool {
        self.pacer.next_step() < self.now() + FRESH
    }

    /// About how many regions can be promoted in a turn.
    pub(super) fn steps_of_a_turn(&self, collapse: Nanos) -> usize {
        self.pacer.steps_within(FRESH, collapse)
    }

    /// How long a collapse takes, tried on our own memory; None if no huge page could be had.
    pub fn collapse_times(&mut self) -> Option<CollapseTimes> {
        self.world.collapse_times().ok()
    }

    /// Time from one region to the next if this many processes map base pages of it; otherwise as in collapses of our own memory.
    pub fn time_for(&self, who_waits: WhoWaits, page_tables: u64, times: &CollapseTimes) -> Nanos {
        let collapse = times.usual() + Nanos(UNMAPPING.0 * page_tables.saturating_sub(1));
        let counted = who_waits.counted(collapse, self.world.processors());
        self.pacer.time_for(counted).max(collapse + times.preparing)
    }

    /// What is present and what is huge, including what others have populated of shared memory. Errors: as observing.
    pub(super) fn survey(&mut self, process: Process) -> Result<Heat, ObserveError> {
        let mut heat = self.world.survey(process)?;
        self.world.complete(&mut heat);
        Ok(heat)
    }

    /// Carries out the whole plan. If that takes long, surveys repeatedly which regions are still as they were.
    ///
    /// Errors: the process has called exec meanwhile, or cannot be read any more; what was done is recorded.
    pub fn act(
        &mut self,
        process: Process,
        round: &Round,
        progress: &mut dyn FnMut(&RegionResult),
    ) -> Result<Outcome, ObserveError> {
        let mut outcome = Outcome::default();
        let mut regions = promotions(&round.plan);
        let mut seen = None;
        loop {
            let turn = self.turn_from_now(&self.stop.clone());
            let heat = seen.as_ref().unwrap_or(&round.heat);
            let acted = self.act_while_fresh(process, heat, &regions, &turn, progress);
            outcome = outcome.and(acted.outcome_of(regions.len()));
            regions.drain(..acted.results.len());
            let has_ended = acted.results.last().is_some_and(RegionResult::target_exited);
            let is_over = regions.is_empty() || has_ended || !self.world.lives(process);
            if is_over || self.world.sleep_until(self.pacer.next_step(), &self.stop.clone()).is_err() {
                return Ok(outcome);
            }
            let now = match self.survey(process) {
                // It ended during the preceding rest.
                Err(_) if !self.world.lives(process) => return Ok(outcome),
                surveyed => surveyed?,
            };
            ensure_same_program(round.heat.address_space, &now)?;
            let changed = changed(&round.heat.regions, &now, regions.iter().map(|(start, _)| *start));
            changed.iter().for_each(|&start| outcome.leave_changed(start));
            regions.retain(|(start, _)| !changed.contains(start));
            seen = Some(now);
        }
    }

    /// Promotes these regions, which a plan for this heat named, until the turn ends.
    pub(super) fn act_while_fresh(
        &mut self,
        process: Process,
        heat: &Heat,
        regions: &[(Address, Promoted)],
        turn: &ActBounds,
        progress: &mut dyn FnMut(&RegionResult),
    ) -> Acted {
        let takes_long = regions.len() >= TAKE_LONG;
        let _unreported = takes_long.then(|| self.world.hold_reporting_back());
        let added = self.remember(process, regions);
        let candidates: Vec<Candidate> = regions.iter().map(|&(start, _)| candidate(start, heat)).collect();
        self.charge(Nanos(0));
        self.world.begin_waits(process);
        let began = self.now();
        let results = act::promote(self.world, process, &candidates, &mut self.pacer, turn, progress);
        let elapsed = Nanos::from_duration(self.now() - began);
        self.busy = results.iter().fold(self.busy, |busy, result| busy + result.preparing + result.took);
        let waited = self.world.end_waits();
        self.pass_over();
        let done: HashSet<Address> = results.iter().filter(|result| result.is_done()).map(|each| each.start).collect();
        let in_vain: HashMap<Address, Promoted> =
            added.into_iter().filter(|(start, _)| !done.contains(start)).collect();
        self.forget_if(process, !in_vain.is_empty(), |start, promoted| in_vain.get(start) == Some(promoted));
        Acted { results, waited, elapsed }
    }

    /// Splits these regions, and removes them from the record.
    pub fn give_back(
        &mut self,
        process: Process,
        regions: &[Address],
        stop: &Stop,
        progress: &mut dyn FnMut(&RegionResult),
    ) -> Vec<RegionResult> {
        self.charge(Nanos(0));
        let results = act::give_back(self.world, process, regions, stop, progress);
        self.pass_over();
        self.forget(process, results.iter().filter(|result| result.is_done()).map(|result| result.start));
        results
    }

    /// The same plan for the target as it is now, to promote what was given back since. Regions that are gone, huge or have an obstacle are left out.
    ///
    /// Errors: as observing, and if the process has called exec since the round.
    pub fn plan_again(&mut self, process: Process, round: &Round) -> Result<Round, ObserveError> {
        let heat = self.survey(process)?;
        ensure_same_program(round.heat.address_space, &heat)?;
        let can_be = |start: Address| {
            let found = heat.regions.binary_search_by_key(&start, |region| region.start);
            found.is_ok_and(|index| !heat.regions[index].huge && heat.regions[index].obstacle.is_none())
        };
        let mut plan = round.plan.clone();
        plan.decisions.retain(|decision| can_be(decision.start));
        let page_tables = self.page_tables(process);
        let before = Snapshot { walks_per_second: None, ..Snapshot::of(&heat, page_tables) };
        Ok(Round { heat, plan, before, family: round.family, growth_limit: round.growth_limit })
    }

    /// Plans to split what is huge and on record, or everything that can be split. Nothing was observed, so no walks are reported.
    ///
    /// Errors: the process or its record cannot be read.
    pub fn plan_to_give_back(&mut self, process: Process, all: bool) -> anyhow::Result<Round> {
        let heat = self.world.survey(process)?;
        let record = self.world.promotions(process)?;
        let plan = give_back_on_request(&heat, |start| all || record.contains_key(&start));
        let page_tables = self.page_tables(process);
        let before = Snapshot { walks_per_second: None, ..Snapshot::of(&heat, page_tables) };
        let family = Family::alone(page_tables, heat.footprint());
        let growth_limit = self.allowance.growth_limit(heat.rss);
        Ok(Round { heat, plan, before, family, growth_limit })
    }

    /// Splits what a plan gives back. Returns the account of it.
    pub fn carry_out_give_backs(
        &mut self,
        process: Process,
        plan: &Plan,
        progress: &mut dyn FnMut(&RegionResult),
    ) -> Outcome {
        let regions: Vec<Address> = plan.give_backs().map(|decision| decision.start).collect();
        let began = self.now();
        let results = act::give_back(self.world, process, &regions, &self.stop.clone(), progress);
        let elapsed = Nanos::from_duration(self.now() - began);
        Acted { elapsed, results, waited: None }.outcome_of(regions.len())
    }

    /// Removes from the record what was on it before and is no longer huge. What the kernel did not split stays, whatever the kernel answered, and can
    /// be tried again; so does what another hugepilot has recorded since, and may not have promoted yet. Returns the target as it is now, or None if it
    /// has ended.
    ///
    /// Errors: the record cannot be written.
    pub fn settle_record(&mut self, process: Process, before: &Promotions) -> Result<Option<Snapshot>, RecordError> {
        let Ok(heat) = self.world.survey(process) else { return Ok(None) };
        let is_settled = |start: &Address| before.contains_key(start) && !heat.is_huge(*start);
        self.world.change_promotions(process, &mut |record| record.retain(|start, _| !is_settled(start)))?;
        Ok(Some(Snapshot { walks_per_second: None, ..Snapshot::of(&heat, self.page_tables(process)) }))
    }

    /// The target after acting. Errors: as observing, and if the process has called exec since the round.
    pub fn scan_again(&mut self, process: Process, round: &Round) -> Result<Snapshot, ObserveError> {
        let options = ObserveOptions { coverage: coverage::some(), ..self.watch };
        let heat = self.world.observe(process, &options, &self.stop.clone())?;
        ensure_same_program(round.heat.address_space, &heat)?;
        Ok(Snapshot::of(&heat, self.page_tables(process)))
    }

    /// Memory in the target's page tables; 0 after it has ended.
    pub fn page_tables(&self, process: Process) -> Bytes {
        self.world.status(process).map_or(Bytes(0), |status| status.vm_pte)
    }

    /// The time for which a plan made now holds.
    pub(super) fn turn_from_now(&self, stop: &Stop) -> ActBounds {
        ActBounds { until: self.now() + FRESH, stop: stop.clone() }
    }

    /// Records regions before they are promoted: `give-back` then finds them even if hugepilot is killed meanwhile. Returns those that were not on
    /// record. Nothing is removed: another hugepilot may just have recorded what this one's scan did not see on a huge page yet.
    fn remember(&mut self, process: Process, regions: &[(Address, Promoted)]) -> Vec<(Address, Promoted)> {
        let mut added = Vec::new();
        warned(self.world.change_promotions(process, &mut |record| {
            let is_new = |&&(start, promoted): &&(Address, Promoted)| record.insert(start, promoted).is_none();
            added = regions.iter().filter(is_new).copied().collect();
        }));
        added
    }

    /// Removes from the record what is no longer huge.
    pub(super) fn forget(&mut self, process: Process, regions: impl Iterator<Item = Address>) {
        let regions: HashSet<Address> = regions.collect();
        self.forget_if(process, !regions.is_empty(), |start, _| regions.contains(start));
    }

    /// Removes from the record what `is_gone`, if anything is. What another hugepilot has recorded again meanwhile has another value.
    fn forget_if(&mut self, process: Process, any: bool, is_gone: impl Fn(&Address, &Promoted) -> bool) {
        if any {
            warned(self.world.change_promotions(process, &mut |record| {
                record.retain(|start, promoted| !is_gone(start, promoted));
            }));
        }
    }
}

/// A region of a heat, as a candidate for promotion.
pub fn candidate(start: Address, heat: &Heat) -> Candidate {
    let who_waits = if heat.is_shared(start) { WhoWaits::WhoTouchesIt } else { WhoWaits::AnyThread };
    let found = heat.regions.binary_search_by_key(&start, |region| region.start);
    let present = found.map_or(0, |index| heat.regions[index].present.len() as u64);
    Candidate { start, who_waits, present: Pages(present) }
}

pub(super) fn ensure_same_program(before: Option<u64>, now: &Heat) -> Result<(), ObserveError> {
    match (before, now.address_space) {
        (Some(one), Some(other)) if one != other => Err(ObserveError::Exec { pid: now.pid }),
        _ => Ok(()),
    }
}

/// Which of the regions that start here have changed: unmapped, partly given back, already on a huge page, or in another kind of mapping. `before`:
/// the regions as they were, ascending.
pub(super) fn changed(before: &[Region], now: &Heat, starts: impl Iterator<Item = Address>) -> HashSet<Address> {
    let find = |regions: &[Region], start| regions.binary_search_by_key(&start, |region| region.start).ok();
    let as_it_was = |start: Address| {
        let (before, now) = (&before[find(before, start)?], &now.regions[find(&now.regions, start)?]);
        let lost = before.present.without(&now.present);
        (now.obstacle.is_none() && !now.huge && lost.is_empty()).then_some(())
    };
    starts.filter(|&start| as_it_was(start).is_none()).collect()
}

/// What the plan promotes, in its order, as recorded.
pub(super) fn promotions(plan: &Plan) -> Vec<(Address, Promoted)> {
    plan.promotions().map(on_record).collect()
}

pub(super) fn on_record(decision: &Decision) -> (Address, Promoted) {
    let &Decision { start, worth, growth, .. } = decision;
    (start, Promoted { walks_per_second: worth, growth_bytes: growth })
}

/// Promotion continues without a record; `give-back --all` needs none.
fn warned(result: Result<(), RecordError>) {
    if let Err(error) = result {
        tracing::warn!("{error}");
    }
}

#[cfg(test)]
mod tests {
    use heat::Obstacle;
    use heat::samples::{at, heat_of, huge, region};

    use super::*;

    #[test]
    fn only_what_is_as_it_was_is_still_promoted() {
        let before = heat_of((0..6).map(|number| region(number, 1e3, 100)).collect());
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(2, 0.0, 100) };
        let now = heat_of(vec![region(0, 0.0, 100), huge(1, 0.0), stack, region(3, 0.0, 101), region(4, 0.0, 99)]);
        let mut changed: Vec<Address> = changed(&before.regions, &now, (0..6).map(at)).into_iter().collect();
        changed.sort_unstable();
        assert_eq!(changed, [at(1), at(2), at(3), at(5)]);
    }

    #[test]
    fn another_address_space_is_another_program() {
        let of = |address_space| Heat { address_space, ..heat_of(Vec::new()) };
        assert!(ensure_same_program(Some(1), &of(Some(1))).is_ok());
        assert!(ensure_same_program(None, &of(Some(1))).is_ok(), "what is unknown is not another");
        assert!(matches!(ensure_same_program(Some(1), &of(Some(2))), Err(ObserveError::Exec { pid: 4242 })));
    }
}
