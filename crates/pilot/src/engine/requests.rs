//! What users and owners of targets request of the loop.
//!
//! Owns: giving back on request, and taking over what was assigned. Never touches: who may request it.

use std::time::{Duration, Instant};

use anyhow::Context;
use heat::Snapshot;
use heat::units::Address;
use kernel::target::Process;

use crate::act::RegionResult;
use crate::decide::{Decision, PlanReasons, Reason};
use crate::engine::fleet::Fleet;
use crate::engine::member::Member;
use crate::engine::pilot::Pilot;
use crate::engine::shared_state::GiveBackRequest;

/// Whoever asks again within this time gets the same answer: each attempt reads the page tables of the process.
const GIVES_BACK_AGAIN: Duration = Duration::from_secs(5);

/// The last request to give back what was promoted in a process.
pub(super) struct GaveBack {
    at: Instant,
    /// Regions that could not be split.
    left: u64,
}

impl Fleet {
    /// Takes over what was assigned to control groups since the last step.
    pub(super) fn take_assignments(&mut self, pilot: &Pilot<'_>) {
        if let Some(assigned) = self.shared_state.take_assignments() {
            let now = pilot.now();
            self.scope.assign(assigned, now);
            (self.next_census, self.next_poll) = (now, now);
        }
    }

    /// Gives back what was requested, and leaves those processes alone.
    pub(super) fn handle_requests(&mut self, pilot: &mut Pilot<'_>) {
        for GiveBackRequest { give_back, answer } in self.shared_state.take_requests() {
            self.shared_state.pause(Some(give_back));
            let done = self.give_all_back(give_back, pilot).map_err(|error| format!("{error:#}"));
            if done.as_ref().is_ok_and(|&regions| regions > 0) {
                // Whoever has the answer may ask for the state next.
                self.show(pilot);
            }
            // The requester may have gone.
            let _gone = answer.send(done);
        }
    }

    fn give_all_back(&mut self, process: Process, pilot: &mut Pilot<'_>) -> anyhow::Result<u64> {
        let now = pilot.now();
        self.gave_back.retain(|_, last| now < last.at + GIVES_BACK_AGAIN);
        if let Some(GaveBack { left, .. }) = self.gave_back.get(&process) {
            let again = GIVES_BACK_AGAIN.as_secs();
            anyhow::ensure!(
                *left == 0,
                "{left} of its regions could not be split a moment ago; ask again in {again} s"
            );
            return Ok(0);
        }
        let record = pilot.world.promotions(process)?;
        if record.is_empty() {
            return Ok(0);
        }
        let member = self.members.get_mut(&process).context("it is not piloted here any more")?;
        // The survey reads all of its page tables, also where it fails.
        self.gave_back.insert(process, GaveBack { at: now, left: record.len() as u64 });
        let heat = pilot.world.survey(process)?;
        let huge = heat.regions.iter().filter(|region| region.huge).map(|region| region.start);
        let regions: Vec<Address> = huge.filter(|start| record.contains_key(start)).collect();
        let results = member.give_back(process, &regions, &pilot.stop.clone(), pilot, &mut self.pilot_summary);
        member.survey(process, pilot);
        let done = results.iter().filter(|result| RegionResult::is_done(result)).count();
        for result in &results {
            member.done.add(&Decision::give_back(result.start, Reason::Requested, 0.0), result, now);
        }
        if done > 0 {
            member.forget_last_plan(pilot.now());
        }
        self.gave_back.insert(process, GaveBack { at: now, left: (regions.len() - done) as u64 });
        Ok(done as u64)
    }
}

impl Member {
    /// What it promoted is undone: what the last scan told of walks, and the last plan of regions, holds no longer.
    fn forget_last_plan(&mut self, now: Instant) {
        self.reasons = PlanReasons::default();
        self.last = self.last.map(|last| Snapshot { walks_per_second: None, ..last });
        self.plan_anew(now);
    }
}
