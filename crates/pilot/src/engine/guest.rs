//! A virtual machine from its host: surveyed, not observed, because its guest walks page tables of its own.
//!
//! Owns: how such a process is surveyed. Never touches: the choice of regions, which is [`crate::decide`]'s, or acting, which is as for any process.

use heat::{Heat, Snapshot};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::{ObserveError, ObserveOptions};

use crate::decide::{Limits, Past, Spent, decide};
use crate::engine::family::Family;
use crate::engine::pilot::{Pilot, Round};

impl Pilot<'_> {
    /// As [`Pilot::scan`] for a virtual machine: surveys it and decides, and changes nothing. Page walks stay unknown.
    ///
    /// Errors: as observing.
    pub fn scan_guest(&mut self, process: Process, spent: &Spent) -> Result<Round, ObserveError> {
        let (watch, stop) = (self.watch, self.stop.clone());
        let heat = self.survey_guest(process, &watch, &stop)?;
        let page_tables = self.page_tables(process);
        let limits = Limits { guest: true, ..self.allowance.limits(heat.rss, spent) };
        let plan = decide(&heat, &limits, &Past::default());
        let before = Snapshot { walks_per_second: None, ..Snapshot::of(&heat, page_tables) };
        let family = Family::alone(page_tables, heat.footprint());
        let growth_limit = self.allowance.growth_limit(heat.rss);
        Ok(Round { heat, plan, before, family, growth_limit })
    }

    /// What is populated, what is huge, and what promoting would take, at the end of a window that shows how long threads wait by themselves.
    ///
    /// Errors: as observing.
    pub(super) fn survey_guest(
        &mut self,
        process: Process,
        options: &ObserveOptions,
        stop: &Stop,
    ) -> Result<Heat, ObserveError> {
        self.world.watch_waits(process);
        let until = self.now() + options.window.duration();
        self.world.sleep_until(until, stop)?;
        let mut heat = self.world.survey_growth(process)?;
        self.world.complete(&mut heat);
        self.charge(heat.cost.kernel);
        Ok(heat)
    }
}
