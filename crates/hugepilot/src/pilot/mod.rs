//! The loop: observe, decide, act. Every command that changes a process calls it.
//!
//! Owns: the order of the three, and what the target looked like before. Never touches: how each is done.

pub mod watch;

use std::collections::HashSet;

use crate::act::{Outcome, Pace, Record, promote};
use crate::decide::{Limits, Plan, decide};
use crate::kernel::Root;
use crate::kernel::process::Status;
use crate::observe::{Heat, ObserveError, Options, Tracker};
use crate::report::Snapshot;
use crate::stop::Stop;
use crate::target::Target;
use crate::units::{Address, Bytes};

/// Everything a round needs.
pub struct Pilot<'a> {
    /// Who looks.
    pub tracker: &'a mut dyn Tracker,
    /// How to look.
    pub watch: Options,
    /// What may be spent, given a process's resident memory.
    pub limits: &'a dyn Fn(Bytes) -> Limits,
    /// How fast to act.
    pub pace: Pace,
    /// Ends everything early.
    pub stop: Stop,
}

/// What a target looked like, and what is to be done.
pub struct Round {
    /// What the tracker saw.
    pub heat: Heat,
    /// What follows from it.
    pub plan: Plan,
    /// The target before anything was done.
    pub before: Snapshot,
}

impl Pilot<'_> {
    /// Observes and decides; changes nothing. `grown` is what earlier rounds took of the growth allowed.
    pub fn look(&mut self, target: &Target, grown: Bytes) -> Result<Round, ObserveError> {
        let heat = self.tracker.observe(target, &self.watch, &self.stop)?;
        let limits = (self.limits)(heat.rss);
        let plan = decide(&heat, &Limits { max_growth: limits.max_growth - grown, ..limits });
        let before = Snapshot::of(&heat, page_tables(target));
        Ok(Round { heat, plan, before })
    }

    /// Promotes these regions, which a plan named, and keeps them on record for `give-back`.
    pub fn act(&self, target: &Target, regions: &[Address], progress: impl FnMut(&Outcome)) -> Outcome {
        let outcome = promote(target.handle(), regions, self.pace, &self.stop, progress);
        if let Err(error) = remember(target, regions, &outcome) {
            tracing::warn!("{error}");
        }
        outcome
    }

    /// The target now; walks are told only if it is watched again.
    pub fn look_again(&mut self, target: &Target) -> Result<Snapshot, ObserveError> {
        let heat = self.tracker.observe(target, &self.watch, &self.stop)?;
        Ok(Snapshot::of(&heat, page_tables(target)))
    }
}

/// Memory in the target's page tables; 0 once it has ended.
pub(crate) fn page_tables(target: &Target) -> Bytes {
    Status::read(&Root::host(), target.pid()).map_or(Bytes(0), |status| status.vm_pte)
}

/// Adds the regions that were promoted to the record.
fn remember(target: &Target, regions: &[Address], outcome: &Outcome) -> Result<(), crate::act::RecordError> {
    if outcome.applied == 0 {
        return Ok(());
    }
    let refused: HashSet<Address> = outcome.refused.iter().map(|refusal| refusal.start).collect();
    let applied = regions.iter().take(outcome.tried as usize).filter(|region| !refused.contains(region));
    let mut record = Record::read(target)?;
    record.regions.extend(applied);
    record.write(target)
}
