//! What users and owners of targets request of the loop.
//!
//! Owns: giving back on request, and taking over what was assigned. Never touches: who may request it.

use std::time::Duration;

use anyhow::Context;
use heat::units::Address;
use kernel::target::Process;

use crate::act::RegionResult;
use crate::engine::fleet::Fleet;
use crate::engine::pilot::Pilot;
use crate::engine::shared_state::GiveBackRequest;

/// A process whose regions could not all be split is asked again after this time.
const GIVES_BACK_AGAIN: Duration = Duration::from_secs(5);

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
            // The requester may have gone.
            let _gone = answer.send(done);
        }
    }

    fn give_all_back(&mut self, process: Process, pilot: &mut Pilot<'_>) -> anyhow::Result<u64> {
        let record = pilot.world.promotions(process)?;
        if record.is_empty() {
            return Ok(0);
        }
        let now = pilot.now();
        self.gave_back.retain(|_, at| now < *at + GIVES_BACK_AGAIN);
        anyhow::ensure!(
            !self.gave_back.contains_key(&process),
            "{} of its regions could not be split a moment ago; ask again in {} s",
            record.len(),
            GIVES_BACK_AGAIN.as_secs()
        );
        self.gave_back.insert(process, now);
        let heat = pilot.world.survey(process)?;
        let huge = heat.regions.iter().filter(|region| region.huge).map(|region| region.start);
        let regions: Vec<Address> = huge.filter(|start| record.contains_key(start)).collect();
        let member = self.members.get_mut(&process).context("it is not piloted here any more")?;
        let results = member.give_back(process, &regions, &pilot.stop.clone(), pilot, &mut self.pilot_summary);
        member.survey(process, pilot);
        Ok(results.iter().filter(|result| RegionResult::is_done(result)).count() as u64)
    }
}
