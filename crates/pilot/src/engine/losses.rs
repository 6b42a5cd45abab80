//! Huge pages of a program that go again: those that it loses, and those that are given back while memory is short.
//!
//! Owns: telling these apart from what somebody gave back on purpose. Never touches: which mappings rest because of it
//! ([`crate::decide::Past`]).

use heat::Heat;
use heat::units::{Address, Nanos, Pages};
use kernel::target::Process;

use crate::act::RegionResult;
use crate::decide::HeldRegion;
use crate::engine::member::{MOST_INSPECTED, Member};
use crate::engine::pilot::Pilot;
use crate::engine::pilot_summary::PilotSummary;

/// A region with this many empty base pages (an eighth) is split when memory is short.
const WORTH_RELIEF: u16 = 64;

impl Member {
    /// What is on record is lost, and is taken from the record; what somebody gave back, as a trial does between its windows, is on record no more.
    /// Returns how many regions were lost.
    pub(super) fn note_losses(&mut self, process: Process, heat: &Heat, pilot: &mut Pilot<'_>) -> u64 {
        let (now, lost) = (pilot.now(), self.past.lost());
        let mut gone = self.past.notice(heat, now);
        if let Some(faults) = pilot.world.minor_faults(process) {
            self.past.notice_faults(faults, heat.rss, now);
        }
        if !gone.is_empty() {
            let record = pilot.world.promotions(process).unwrap_or_default();
            gone.retain(|start| record.contains_key(start));
            pilot.forget(process, gone.iter().copied());
        }
        self.past.lose(heat, &gone, now);
        self.forget_first_if_undone();
        self.past.lost() - lost
    }

    /// When memory is short: splits regions with empty pages, those of the least worth first.
    pub(super) fn relieve(&mut self, process: Process, pilot: &mut Pilot<'_>, pilot_summary: &mut PilotSummary) {
        if self.growth.is_empty() {
            return;
        }
        // Regions split or swapped out since must not be read.
        let Ok(heat) = pilot.world.survey(process) else { return };
        if self.address_space != heat.address_space {
            return;
        }
        pilot_summary.counts.lost += self.note_losses(process, &heat, pilot);
        let worth_it = Pages(WORTH_RELIEF.into()).bytes();
        let has_grown = |held: &HeldRegion| self.growth.get(&held.start).is_some_and(|&growth| growth >= worth_it);
        let mut grown: Vec<_> = self.past.held().filter(has_grown).collect();
        grown.sort_by(|one, other| one.worth.total_cmp(&other.worth));
        let coldest: Vec<Address> = grown.iter().take(MOST_INSPECTED).map(|held| held.start).collect();
        let contents = pilot.world.empty_pages(process, &coldest);
        let holds_empty_pages = |empty: Option<u16>| empty.is_some_and(|empty| empty >= WORTH_RELIEF);
        let both = coldest.into_iter().zip(contents);
        let regions: Vec<Address> =
            both.filter(|&(_, empty)| holds_empty_pages(empty)).map(|(start, _)| start).collect();
        let results = self.give_back(process, &regions, &pilot.stop.clone(), pilot, pilot_summary);
        if results.iter().any(RegionResult::is_done) {
            self.survey(process, pilot);
        }
        pilot.charge(Nanos(0));
    }
}
