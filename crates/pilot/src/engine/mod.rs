//! The loop: observe, decide, act. Every command that changes a process calls it.
//!
//! Owns: the order of the three, how long a plan holds, and what the target looked like before. Never touches: how each is
//! done.

mod activity;
mod budget;
pub mod clients;
mod coverage;
mod done;
mod family;
mod fleet;
mod group;
mod member;
mod pilot_summary;
mod quota;
pub mod scope;
mod series;
mod shared;
pub mod shared_state;
mod sharers;
mod state;
mod unfinished;
mod watching;

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use heat::units::{Address, Bytes, Nanos};
use heat::{Heat, MemoryState, Region, Snapshot};
use hugepilot_os::run_directory::RUN_DIRECTORY;
use hugepilot_os::stop::Stop;
use kernel::memory::Memory;
use kernel::pressure::Pressure;
use kernel::process::Status;
use kernel::target::Target;
use kernel::{KernelError, Root};
use observe::{Faults, ObserveError, Options, Tracker, Waited, Waits, populated};

use crate::act::{self, Candidate, Outcome, Promoted, Promoter, Record, RecordError, ReportingHeldBack, Turn};
use crate::decide::{Allowance, Decision, OwnPressure, Past, Plan, Spent, WhoWaits, decide};

pub use budget::Budget;
use coverage::{Known, Most};
pub use family::{Family, FamilyWatch, add_family};
pub use fleet::{Fleet, Rules};
pub use group::{GroupError, GroupSeen, Selector, observe_group};
pub use pilot_summary::PilotSummary;
pub use scope::{Enrolled, Matcher, Rule, Scope};
pub use series::{Rhythm, Series};

/// How long a plan is carried out before the memory is looked at again: programs free memory, fork and call exec meanwhile.
const FRESH: Duration = Duration::from_secs(10);

/// Promoting so many regions takes longer than free memory waits to be reported to the host, which is two seconds.
const TAKE_LONG: usize = 64;

/// So many of those that are alike are observed for all of them.
const SAMPLE_OF_FAMILY: usize = 4;

/// Everything a round needs.
pub struct Pilot<'a> {
    /// Who looks.
    pub tracker: &'a mut dyn Tracker,
    /// How to look.
    pub watch: Options,
    /// What looking again and again may take.
    pub budget: Budget,
    /// What may be spent.
    pub allowance: Allowance,
    /// Promotes, at its pace.
    pub promoter: Promoter,
    /// Counts page faults on shared memory.
    pub faults: Faults,
    /// Tells how long the target waits meanwhile.
    pub waits: Waits,
    /// Ends everything early.
    pub stop: Stop,
    /// When it began.
    pub began: Instant,
}

/// What a target looked like, and what is to be done.
pub struct Round {
    /// What the tracker saw.
    pub heat: Heat,
    /// What follows from it.
    pub plan: Plan,
    /// The target before anything was done.
    pub before: Snapshot,
    /// Those that it shares memory with.
    pub family: Family,
}

/// What the user allows, with shares of the machine's memory turned into sizes.
pub fn on_this_machine(allowance: Allowance) -> Result<Allowance, KernelError> {
    Ok(allowance.with_ram(Memory::read(&Root::host())?.total))
}

impl Pilot<'_> {
    /// Observes and decides; changes nothing. `spent` is what earlier rounds took of the allowance; with its children what they lose on
    /// shared memory counts, too.
    pub fn scan(&mut self, target: &Target, with_children: bool, spent: &Spent) -> Result<Round, ObserveError> {
        self.waits.watch(target);
        let family = FamilyWatch::begin(&mut self.faults, target.pid(), with_children)?;
        let mut heat =
            coverage::observe(self.tracker, target, &self.watch, Known::default(), Most::Everything, &self.stop)?;
        populated::complete(&Root::host(), &mut heat);
        let before = Snapshot::of(&heat, page_tables(target));
        let Self { tracker, watch, stop, .. } = self;
        let family = add_family(&mut heat, with_children, &mut **tracker, watch, family, stop)?;
        let plan = decide(&heat, &self.allowance.limits(heat.rss, spent), &Past::default());
        self.budget.charge(heat.cost.kernel);
        Ok(Round { heat, plan, before, family })
    }

    /// A clock that never goes back, for what is remembered.
    pub fn clock(&self) -> Nanos {
        Nanos::from_duration(self.began.elapsed())
    }

    /// What is present and what is huge, with what others have populated of shared memory.
    pub(crate) fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        let mut heat = self.tracker.survey(target)?;
        populated::complete(&Root::host(), &mut heat);
        Ok(heat)
    }

    fn can_afford_a_scan(&self) -> bool {
        self.budget.free_at() <= Instant::now()
    }

    /// Carries the whole plan out. Where that takes long, looks every now and then which regions are still as they were.
    ///
    /// Errors: the process has called exec meanwhile, or cannot be read any more; what was done is on record.
    pub fn act(
        &mut self,
        target: &Target,
        round: &Round,
        mut progress: impl FnMut(&Outcome),
    ) -> Result<Outcome, ObserveError> {
        let mut outcome = Outcome::default();
        let mut regions = promotions(&round.plan);
        let mut seen = None;
        loop {
            let turn = turn_from_now(&self.stop);
            let heat = seen.as_ref().unwrap_or(&round.heat);
            self.act_while_fresh(target, heat, &regions, &turn, &mut outcome, &mut progress);
            regions.drain(..regions.len() - outcome.not_reached as usize);
            let done = regions.is_empty() || target.handle().has_exited();
            if done || self.stop.sleep_until(self.promoter.pacer.next_step()).is_err() {
                return Ok(outcome);
            }
            let now = match self.survey(target) {
                // It ended during the rest before this.
                Err(_) if target.handle().has_exited() => return Ok(outcome),
                surveyed => surveyed?,
            };
            ensure_same_program(round.heat.address_space, &now)?;
            let changed = changed(&round.heat.regions, &now, regions.iter().map(|(start, _)| *start));
            changed.iter().for_each(|&start| outcome.leave_changed(start));
            regions.retain(|(start, _)| !changed.contains(start));
            seen = Some(now);
        }
    }

    /// Promotes these regions, which a plan for this heat named, until the turn ends; regions left over are `not_reached`. Adds to the
    /// account.
    pub fn act_while_fresh(
        &mut self,
        target: &Target,
        heat: &Heat,
        regions: &[(Address, Promoted)],
        turn: &Turn,
        outcome: &mut Outcome,
        progress: impl FnMut(&Outcome),
    ) {
        let refused_before = outcome.refused.len();
        let takes_long = regions.len() >= TAKE_LONG;
        let _unreported = takes_long.then(|| ReportingHeldBack::begin(&Root::host(), Path::new(RUN_DIRECTORY)));
        let added = warned(remember(target, heat, regions));
        let candidates: Vec<Candidate> = regions.iter().map(|&(start, _)| candidate(start, heat)).collect();
        self.budget.charge(Nanos(0));
        self.waits.begin(target);
        let waits = &mut self.waits;
        self.promoter.promote(target.handle(), &candidates, turn, &mut || waits.sample(), outcome, progress);
        outcome.waited = outcome.waited.into_iter().chain(self.waits.end()).reduce(Waited::and);
        self.budget.pass_over();
        let refused = outcome.refused[refused_before..].iter().map(|refusal| refusal.start);
        let reached = regions.len() - outcome.not_reached as usize;
        let in_vain = refused.chain(regions[reached..].iter().map(|(start, _)| *start)).collect();
        warned(forget(target, &added, &in_vain));
    }

    /// Splits these regions, and takes them off the record.
    pub fn give_back(&mut self, target: &Target, regions: &[Address], stop: &Stop) -> Outcome {
        self.budget.charge(Nanos(0));
        let outcome = act::give_back(target.handle(), regions, stop, |_| ());
        self.budget.pass_over();
        let refused: HashSet<Address> = outcome.refused.iter().map(|refusal| refusal.start).collect();
        let tried = &regions[..outcome.tried as usize];
        let split: Vec<Address> = tried.iter().copied().filter(|start| !refused.contains(start)).collect();
        warned(forget(target, &split, &split.iter().copied().collect()));
        outcome
    }

    /// The target after acting. Errors: as observing, and if the process has called exec since the round.
    pub fn look_again(&mut self, target: &Target, round: &Round) -> Result<Snapshot, ObserveError> {
        let options = Options { coverage: coverage::some(), ..self.watch };
        let heat = self.tracker.observe(target, &options, &self.stop)?;
        ensure_same_program(round.heat.address_space, &heat)?;
        Ok(Snapshot::of(&heat, page_tables(target)))
    }
}

/// A region of a heat, as it is promoted.
pub fn candidate(start: Address, heat: &Heat) -> Candidate {
    let who_waits = if heat.is_shared(start) { WhoWaits::WhoTouchesIt } else { WhoWaits::AnyThread };
    Candidate { start, who_waits }
}

/// As long as a plan that is made now holds.
fn turn_from_now(stop: &Stop) -> Turn {
    Turn { until: Instant::now() + FRESH, stop: stop.clone() }
}

fn ensure_same_program(before: Option<u64>, now: &Heat) -> Result<(), ObserveError> {
    match (before, now.address_space) {
        (Some(one), Some(other)) if one != other => Err(ObserveError::Exec { pid: now.pid }),
        _ => Ok(()),
    }
}

/// Which of the regions that start here are not any more what they were: unmapped, given back in part, on a huge page already, or in
/// another kind of mapping. `before`: as they were, ascending.
fn changed(before: &[Region], now: &Heat, starts: impl Iterator<Item = Address>) -> HashSet<Address> {
    let find = |regions: &[Region], start| regions.binary_search_by_key(&start, |region| region.start).ok();
    let as_it_was = |start: Address| {
        let (before, now) = (&before[find(before, start)?], &now.regions[find(&now.regions, start)?]);
        let lost = before.present.without(&now.present);
        (now.obstacle.is_none() && !now.huge && lost.is_empty()).then_some(())
    };
    starts.filter(|&start| as_it_was(start).is_none()).collect()
}

/// What the plan promotes, in its order, as it goes on record.
fn promotions(plan: &Plan) -> Vec<(Address, Promoted)> {
    plan.promotions().map(on_record).collect()
}

fn on_record(decision: &Decision) -> (Address, Promoted) {
    let &Decision { start, worth, growth, .. } = decision;
    (start, Promoted { walks_per_second: worth, growth_bytes: growth })
}

/// Puts regions on record before they are promoted, so that `give-back` finds them even if hugepilot is killed meanwhile; what is not huge
/// any more goes. Answers with those that were not on record.
fn remember(target: &Target, heat: &Heat, regions: &[(Address, Promoted)]) -> Result<Vec<Address>, RecordError> {
    let is_huge = |start: &Address| {
        let found = heat.regions.binary_search_by_key(start, |region| region.start);
        found.is_ok_and(|index| heat.regions[index].huge)
    };
    Record::update(target, |record| {
        record.retain(|start, _| is_huge(start));
        let is_new = |&&(start, promoted): &&(Address, Promoted)| record.insert(start, promoted).is_none();
        regions.iter().filter(is_new).map(|(start, _)| *start).collect()
    })
}

/// Takes off the record what was added to it in vain.
fn forget(target: &Target, added: &[Address], in_vain: &HashSet<Address>) -> Result<(), RecordError> {
    Record::update(target, |record| {
        added.iter().filter(|region| in_vain.contains(region)).for_each(|region| {
            record.remove(region);
        })
    })
}

/// Promoting goes on without a record; `give-back --all` needs none.
fn warned<T: Default>(result: Result<T, RecordError>) -> T {
    result.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        T::default()
    })
}

/// Memory in the target's page tables; 0 once it has ended.
pub fn page_tables(target: &Target) -> Bytes {
    Status::read(&Root::host(), target.pid()).map_or(Bytes(0), |status| status.vm_pte)
}

/// None where it cannot be read; what is unknown is no shortage.
fn memory_state(root: &Root, own: OwnPressure) -> Option<MemoryState> {
    let memory = Memory::read(root).ok()?;
    let pressure = Pressure::read(root).ok().flatten().map(|pressure| own.leave_out(pressure.some));
    Some(MemoryState { total: memory.total, available: memory.available, pressure })
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
