//! One process under the pilot: when to scan it, and what is remembered of it.
//!
//! Owns: its rhythm, its past, and the account of what was done to it. Never touches: which other programs are piloted, and what each may have.
//!
//! Scans are frequent while promoting still pays, then ever rarer; frequent again when the program has grown, or walks memory that it did not walk
//! before. Observing never costs more of a CPU than it may.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use heat::units::{Address, Bytes, HUGE_PAGE, Nanos};
use heat::{Heat, PageSizes, Snapshot};
use hugepilot_os::stop::Stop;
use kernel::process::ProcessStatus;
use kernel::target::Process;
use observe::{ObserveError, ObserveOptions};

use crate::act::{ActBounds, RegionResult};
use crate::decide::{Decision, Demand, Limits, Past, Plan, PlanReasons, Reason, Trend};
use crate::engine::coverage::Known;
use crate::engine::done::LastDone;
use crate::engine::pilot::{Acted, Pilot, on_record, promotions};
use crate::engine::pilot_summary::{PilotSummary, ProgramSummary};
use crate::engine::shared::{Piece, SharedView, mapped_small};
use crate::engine::shared_once::SharedAmounts;
use crate::engine::shared_state::ForecastState;
use crate::engine::terms::Terms;
use crate::engine::unfinished::Unfinished;
use crate::programs::ProcessPlace;
use crate::scope::PilotMode;
use crate::world::Promoted;

/// The interval between scans while promoting still pays.
const SOONEST: Duration = Duration::from_secs(1);
/// The longest interval between scans.
const LATEST: Duration = Duration::from_secs(60);
/// The same while it is watched before anything of it is promoted.
const WATCHED_EVERY: Duration = Duration::from_secs(15);
/// How often newly walked pages are counted between scans; each poll reads the page tables once.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Growth of resident memory by this share makes a scan due.
const GROWN: f64 = 0.05;
/// A plan that saves less than this share of all walks was hardly worth it.
const WORTH_A_SCAN: f64 = 0.01;
/// Regions whose contents are read in one scan: 2 MiB each, some 80 ms in all.
pub(super) const MOST_INSPECTED: usize = 256;
/// The assumed duration of a collapse until it is measured: with a prepared page.
const USUAL_COLLAPSE: Nanos = Nanos(1_000_000);
/// Counting newly walked pages may take this fraction (1/n) of what scanning may.
const SHARE_OF_POLLS: u32 = 4;

/// One process.
pub(super) struct Member {
    pub(super) name: String,
    /// Where it ran when it was first seen.
    pub(super) place: ProcessPlace,
    pub(super) uid: u32,
    /// Shared memory that it has touched.
    pub(super) shared_rss: Bytes,
    /// Its private memory.
    pub(super) private_rss: Bytes,
    pub(super) page_tables: Bytes,
    /// Memory on huge pages below 2 MiB at its last scan; None if unknown.
    pub(super) smaller_pages: Option<PageSizes>,
    /// On shared memory, summed over all processes that map it, at its last scan.
    pub(super) faults_per_second: f64,
    pub(super) parent: u32,
    pub(super) weight: f64,
    pub(super) mode: PilotMode,
    pub(super) terms: Terms,
    /// What it would gain, where it is only observed.
    pub(super) forecast: Option<ForecastState>,
    /// The processors that it kept busy at its last scan.
    pub(super) busy_cpus: Option<f64>,
    pub(super) next_scan: Instant,
    /// Others wait for what it promotes for them; it goes first.
    pub(super) is_awaited: bool,
    interval: Duration,
    /// The shortest interval at which scanning takes no more from the process than it may.
    affordable: Duration,
    next_poll: Instant,
    trend: Trend,
    pub(super) scanned_at: Option<Instant>,
    rss: Bytes,
    /// Growth of each region that we put on a huge page and that still exists; `splits_free` says whether a split frees it.
    pub(super) growth: HashMap<Address, Bytes>,
    splits_free: bool,
    /// The most growth that its last plan allowed, what earlier ones took included.
    pub(super) may_grow: Option<Bytes>,
    pub(super) address_space: Option<u64>,
    /// Before anything was promoted. A program's first moments say nothing.
    pub(super) first: Option<(Snapshot, SharedAmounts)>,
    pub(super) acted: bool,
    /// Whether something was promoted since the last scan: how it walks now is not known.
    acted_since_scan: bool,
    pub(super) last: Option<Snapshot>,
    /// Why the last scan of it failed.
    pub(super) left_alone: Option<String>,
    pub(super) past: Past,
    /// What is known from complete observations.
    known: Known,
    /// Its part of shared memory on huge pages.
    pub(super) view: SharedView,
    pub(super) claim: Demand,
    /// What it may have on huge pages; None for no limit.
    pub(super) quota: Option<Bytes>,
    /// What is left of the last plan.
    pub(super) unfinished: Unfinished,
    /// Those of the last plan.
    pub(super) reasons: PlanReasons,
    pub(super) done: LastDone,
}

impl Member {
    /// `splits_free`: whether a split frees empty pages on this kernel.
    pub(super) fn new(now: Instant, weight: f64, splits_free: bool) -> Self {
        Self {
            name: String::new(),
            place: ProcessPlace::default(),
            uid: 0,
            shared_rss: Bytes(0),
            private_rss: Bytes(0),
            page_tables: Bytes(0),
            smaller_pages: None,
            faults_per_second: 0.0,
            parent: 0,
            weight,
            mode: PilotMode::default(),
            terms: Terms::default(),
            forecast: None,
            busy_cpus: None,
            next_scan: now,
            is_awaited: false,
            interval: SOONEST,
            affordable: Duration::ZERO,
            next_poll: now,
            trend: Trend::default(),
            scanned_at: None,
            rss: Bytes(0),
            growth: HashMap::new(),
            splits_free,
            may_grow: None,
            address_space: None,
            first: None,
            acted: false,
            acted_since_scan: false,
            last: None,
            left_alone: None,
            past: Past::default(),
            known: Known::default(),
            view: SharedView::default(),
            claim: Demand { weight, ..Demand::default() },
            quota: None,
            unfinished: Unfinished::default(),
            reasons: PlanReasons::default(),
            done: LastDone::default(),
        }
    }

    /// Its part of the overall summary.
    pub(super) fn summary(&self) -> ProgramSummary<'_> {
        ProgramSummary {
            was_scanned: self.scanned_at.is_some(),
            growth: self.growth(),
            left_alone: self.left_alone.as_deref(),
            reasons: &self.reasons,
            before: self.first.as_ref().map(|(first, shared)| (*first, shared)),
            after: self.last.map(|last| {
                let walks_per_second = last.walks_per_second.filter(|_| !self.acted_since_scan);
                (Snapshot { walks_per_second, ..last }, &self.view.amounts)
            }),
        }
    }

    /// Memory growth that promoting took.
    pub(super) fn growth(&self) -> Bytes {
        self.growth.values().copied().sum()
    }

    /// Memory that we put on huge pages.
    pub(super) fn promoted(&self) -> Bytes {
        Bytes(self.past.held().count() as u64 * HUGE_PAGE)
    }

    /// Memory on huge pages, no matter how it got there.
    pub(super) fn huge(&self) -> Bytes {
        self.last.map_or(Bytes(0), |last| last.huge)
    }

    /// Whether regions would pay but the limit on huge pages keeps them from being promoted.
    pub(super) fn lacks_huge_pages(&self) -> bool {
        self.reasons.regions.contains_key(&Reason::HugeLimit)
    }

    /// Whether shared memory would pay but another process is to promote it.
    pub(super) fn waits_for_another(&self) -> bool {
        self.reasons.regions.contains_key(&Reason::ThroughAnother)
    }

    pub(super) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// What the rest of its plan will take: memory on huge pages, and growth.
    pub(super) fn reserved(&self) -> (Bytes, Bytes) {
        (self.unfinished.huge(), self.unfinished.growth())
    }

    /// Drops the rest of the plan, because the plan was made for other circumstances.
    pub(super) fn plan_anew(&mut self, now: Instant) {
        self.unfinished = Unfinished::default();
        self.scan_soon(now);
    }

    /// While it is left alone, nobody waits for it and no quota is kept for its demand.
    pub(super) fn clear_demand(&mut self, now: Instant) {
        let held = self.past.held().count();
        self.claim.held.truncate(held);
        self.claim.wanted.clear();
        if self.is_unfinished() {
            self.plan_anew(now);
        }
        self.reasons.regions.remove(&Reason::HugeLimit);
    }

    /// Updates it from the kernel's status.
    pub(super) fn notice(&mut self, status: &ProcessStatus, now: Instant) {
        self.name.clone_from(&status.name);
        (self.uid, self.parent, self.page_tables) = (status.uid, status.parent, status.vm_pte);
        (self.shared_rss, self.private_rss) = (status.rss_shmem, status.rss_anon);
        if self.rss.0 > 0 && status.vm_rss.0 as f64 > self.rss.0 as f64 * (1.0 + GROWN) {
            self.scan_soon(now);
        }
    }

    /// Counts newly walked pages, if that is due.
    pub(super) fn poll(&mut self, process: Process, pilot: &mut Pilot<'_>) {
        let now = pilot.now();
        if (self.mode == PilotMode::Guest)
            || self.scanned_at.is_none()
            || now < self.next_poll
            || self.next_scan < now + POLL_INTERVAL
        {
            return;
        }
        let before = pilot.world.cpu_time();
        let walked = pilot.world.walked_pages(process);
        let cost = Nanos(pilot.world.cpu_time().0 - before.0);
        self.next_poll = now + POLL_INTERVAL.max(pilot.budget.rest_for(cost) * SHARE_OF_POLLS);
        pilot.charge(Nanos(0));
        if walked.is_some_and(|walked| self.trend.rises(pilot.now(), walked)) {
            self.scan_soon(now);
        }
    }

    pub(super) fn scan_soon(&mut self, now: Instant) {
        self.interval = SOONEST;
        self.next_scan = self.next_scan.min(now + self.rest());
    }

    /// Others lose on memory that it promotes for them. Each of many says so; the less it had to promote lately, the later its scan may be.
    pub(super) fn scan_for_others(&mut self, now: Instant) {
        self.is_awaited = true;
        let rest = (self.interval / 4).max(self.affordable);
        self.next_scan = self.next_scan.min(now + rest);
    }

    pub(super) fn wait_longer(&mut self, now: Instant) {
        self.interval = (self.interval * 2).min(LATEST);
        let next = now + self.rest();
        // What is only watched may be promoted as soon as enough is known, and what it gives back may soon be taken again.
        let watched = |known: Instant| next.min(known).min(now + WATCHED_EVERY.max(self.affordable));
        self.next_scan = self.past.is_known_at(now).map_or(next, watched);
    }

    /// The time between scans: the interval, or longer where a scan costs much.
    fn rest(&self) -> Duration {
        self.interval.max(self.affordable)
    }

    /// Observes, and updates the past; changes nothing.
    pub(super) fn scan(
        &mut self,
        process: Process,
        pilot: &mut Pilot<'_>,
        options: &ObserveOptions,
        stop: &Stop,
    ) -> Result<Heat, ObserveError> {
        // Dividing a limit requires knowing all that each program could use.
        let is_limited = options.tell_use_of_huge || pilot.allowance.max_huge.is_some();
        let known = if is_limited { Known::Changing } else { self.known };
        let heat = match self.mode {
            PilotMode::Guest => pilot.survey_guest(process, options, stop)?,
            PilotMode::Promote | PilotMode::Observe => pilot.observe(process, options, known, stop)?,
        };
        if self.address_space != heat.address_space {
            self.known = Known::default();
            self.past.forget(pilot.world.linked_in(process));
            self.growth.clear();
        }
        self.note_losses(process, &heat, pilot);
        if options.tell_use_of_huge {
            self.inspect_cold_regions(process, pilot);
        }
        self.growth.retain(|start, _| heat.regions.binary_search_by_key(start, |region| region.start).is_ok());
        let now = pilot.now();
        self.scanned_at = Some(now);
        self.acted_since_scan = false;
        self.is_awaited = false;
        self.next_poll = now + POLL_INTERVAL;
        self.trend = Trend::after(&heat, pilot.now());
        self.address_space = heat.address_space;
        self.rss = heat.rss;
        self.view = SharedView::of(&heat);
        self.smaller_pages = pilot.world.smaller_pages(&heat);
        let mut before = Snapshot::of(&heat, pilot.page_tables(process));
        before.walks_per_second = before.walks_per_second.filter(|_| self.mode != PilotMode::Guest);
        self.last = Some(before);
        if self.first.is_none() && !self.acted {
            self.set_first();
        }
        self.affordable = pilot.budget.rest_for(heat.cost.program);
        Ok(heat)
    }

    /// Continues where an earlier pilot was stopped or killed: what it promoted is ours.
    pub(super) fn restore(&mut self, process: Process, pilot: &mut Pilot<'_>) {
        let record = pilot.world.promotions(process).unwrap_or_default();
        if record.is_empty() {
            return;
        }
        let Ok(heat) = pilot.world.survey(process) else { return };
        self.past.forget(pilot.world.linked_in(process));
        for region in heat.regions.iter().filter(|region| region.huge) {
            let promoted = record.get(&region.start).filter(|promoted| promoted.walks_per_second > 0.0);
            if let Some(Promoted { walks_per_second, growth_bytes }) = promoted {
                self.past.promoted(region.start, *walks_per_second);
                self.growth.insert(region.start, *growth_bytes);
            }
        }
        (self.address_space, self.rss, self.view) = (heat.address_space, heat.rss, SharedView::of(&heat));
        self.last = Some(Snapshot { walks_per_second: None, ..Snapshot::of(&heat, pilot.page_tables(process)) });
        // Its earlier state is unknown.
        self.acted = true;
        pilot.charge(Nanos(0));
    }

    /// Maps huge what is already on huge pages in other processes; that moves nothing, and takes no memory.
    pub(super) fn collapse_shared(
        &mut self,
        process: Process,
        heat: &mut Heat,
        huge: &BTreeSet<Piece>,
        turn: &ActBounds,
        pilot: &mut Pilot<'_>,
    ) {
        let small = mapped_small(heat, huge);
        if small.is_empty() {
            return;
        }
        let small_now: Vec<_> = small.iter().map(|&start| (start, Promoted::default())).collect();
        let acted = pilot.act_while_fresh(process, heat, &small_now, turn, &mut |_| ());
        for done in acted.results.iter().filter(|result| result.is_done()) {
            if let Ok(index) = heat.regions.binary_search_by_key(&done.start, |region| region.start) {
                heat.regions[index].huge = true;
            }
        }
        self.view = std::mem::take(&mut self.view).after_acting(heat);
        if let Some(last) = &mut self.last {
            last.huge = heat.huge_bytes();
        }
    }

    /// Whether the next scan should tell which huge pages are used: some of ours may be waste.
    pub(super) fn may_hold_waste(&self) -> bool {
        let grown = |start: &Address| self.growth.get(start).is_some_and(|&growth| growth >= Bytes(HUGE_PAGE / 2));
        self.past.held().any(|held| grown(&held.start))
    }

    /// Finds out what cold regions hold.
    fn inspect_cold_regions(&mut self, process: Process, pilot: &mut Pilot<'_>) {
        let cold: Vec<Address> = self.past.cold_and_unread().take(MOST_INSPECTED).collect();
        for (&start, empty) in cold.iter().zip(pilot.world.empty_pages(process, &cold)) {
            // What cannot be read is no waste that could be told, and must not be tried in every scan.
            self.past.inspected(start, empty.unwrap_or(0));
        }
    }

    /// Gives back and promotes what the plan says, and schedules the next scan.
    pub(super) fn carry_out(
        &mut self,
        process: Process,
        heat: Heat,
        plan: &Plan,
        turn: &ActBounds,
        pilot: &mut Pilot<'_>,
        pilot_summary: &mut PilotSummary,
    ) {
        self.reasons = plan.reasons();
        let gains = self.gains(plan);
        let of_turn = give_backs_of_a_turn(plan, pilot.steps_of_a_turn(USUAL_COLLAPSE));
        let starts: Vec<Address> = of_turn.iter().map(|decision| decision.start).collect();
        let given_back = self.give_back(process, &starts, &turn.stop, pilot, pilot_summary);
        of_turn.iter().zip(&given_back).for_each(|(decision, result)| self.done.add(decision, result, pilot.now()));
        // What was not given back makes no room.
        let missing = plan.give_backs().count() - given_back.iter().filter(|result| result.is_done()).count();
        let mut regions = promotions(plan);
        regions.truncate(regions.len().saturating_sub(missing));
        let acted = promote(process, &heat, &regions, turn, pilot, pilot_summary);
        self.unfinished = Unfinished::of(&heat, plan, acted.results.len(), missing);
        self.remember(plan.promotions(), &acted.results, pilot.now());
        let has_promoted = acted.results.iter().any(RegionResult::is_done);
        if has_promoted && !std::mem::replace(&mut self.acted, true) {
            self.set_first();
        }
        self.known = self.known.after(&heat, has_promoted);
        // The survey takes as much memory again.
        drop(heat);
        if has_promoted || !given_back.is_empty() {
            self.survey(process, pilot);
        }
        let is_unfinished = acted.results.len() < regions.len() || given_back.len() < plan.give_backs().count();
        self.plan_next_scan(is_unfinished || has_promoted && gains, pilot);
    }

    /// `goes_on`: more is to be done, or may be worth it.
    fn plan_next_scan(&mut self, goes_on: bool, pilot: &Pilot<'_>) {
        let now = pilot.now();
        if !goes_on {
            return self.wait_longer(now);
        }
        self.interval = SOONEST;
        // With fast promotion, scan again at once while it pays; the cost to the program is soon over.
        let rest = if pilot.max_slowdown().is_fast() { SOONEST } else { self.rest() };
        self.next_scan = now + if self.is_unfinished() { rest.max(LATEST) } else { rest };
    }

    /// Promotes more of the last plan, if that memory is still as it was.
    ///
    /// Errors: the process cannot be read, or has called exec; the plan is then dropped.
    pub(super) fn go_on(
        &mut self,
        process: Process,
        turn: &ActBounds,
        pilot: &mut Pilot<'_>,
        pilot_summary: &mut PilotSummary,
    ) -> Result<(), ObserveError> {
        let mut unfinished = std::mem::take(&mut self.unfinished);
        let now = pilot.survey(process)?;
        unfinished.check(&now, self.quota.map(|quota| quota.saturating_sub(self.huge())))?;
        pilot_summary.counts.lost += self.note_losses(process, &now, pilot);
        let regions: Vec<(Address, Promoted)> = unfinished.decisions().iter().map(on_record).collect();
        let acted = promote(process, &now, &regions, turn, pilot, pilot_summary);
        self.remember(unfinished.decisions().iter(), &acted.results, pilot.now());
        unfinished.reached(acted.results.len());
        self.survey(process, pilot);
        pilot.charge(Nanos(0));
        self.unfinished = unfinished;
        if !self.is_unfinished() {
            self.scan_soon(pilot.now());
        }
        Ok(())
    }

    /// Whether the plan saves enough of all walks that the next one may, too. Where a limit binds, regions of similar worth would otherwise swap
    /// places forever, because rates scatter.
    fn gains(&self, plan: &Plan) -> bool {
        let worth = |sum: f64, decision: &Decision| sum + decision.worth;
        let gained = plan.promotions().fold(0.0, worth) - plan.give_backs().fold(0.0, worth);
        let saved = self.past.held().fold(0.0, |sum, held| sum + held.worth);
        let all = plan.decisions.iter().fold(saved, worth);
        gained >= all * WORTH_A_SCAN
    }

    pub(super) fn give_back(
        &mut self,
        process: Process,
        regions: &[Address],
        stop: &Stop,
        pilot: &mut Pilot<'_>,
        pilot_summary: &mut PilotSummary,
    ) -> Vec<RegionResult> {
        if regions.is_empty() {
            return Vec::new();
        }
        let results = pilot.give_back(process, regions, stop, &mut |result| pilot_summary.count(result));
        let now = pilot.now();
        results.iter().filter(|result| result.is_done()).for_each(|result| self.remember_given_back(result.start, now));
        self.forget_first_if_undone();
        results
    }

    /// Growth that a split does not free stays on the account.
    fn remember_given_back(&mut self, start: Address, now: Instant) {
        self.past.given_back(start, now);
        if self.splits_free {
            self.growth.remove(&start);
        }
    }

    /// Remembers the results of these decisions, which were carried out in this order.
    fn remember<'a>(&mut self, decisions: impl Iterator<Item = &'a Decision>, results: &[RegionResult], now: Instant) {
        for (decision, result) in decisions.zip(results) {
            if result.is_done() {
                self.past.promoted(decision.start, decision.worth);
                *self.growth.entry(decision.start).or_default() += decision.growth;
                self.acted_since_scan = true;
            } else {
                self.past.refused(decision.start, now);
            }
            self.done.add(decision, result, now);
        }
    }

    /// How much is huge after acting.
    pub(super) fn survey(&mut self, process: Process, pilot: &mut Pilot<'_>) {
        if let Ok(heat) = pilot.world.survey(process) {
            let walks_per_second = self.last.and_then(|last| last.walks_per_second);
            self.rss = heat.rss;
            self.view = std::mem::take(&mut self.view).after_acting(&heat);
            self.last = Some(Snapshot { walks_per_second, ..Snapshot::of(&heat, pilot.page_tables(process)) });
            // The bits went with the page tables that collapsing removed.
            self.trend = Trend::default();
        }
    }

    /// The limits of the plan: `limits` with this member's quota, and for what it is.
    pub(super) fn limits(&self, limits: Limits) -> Limits {
        Limits { quota: self.quota, guest: self.mode == PilotMode::Guest, ..limits }
    }
}

/// What the plan gives back; of places that other regions take, no more than can be promoted in a turn, since a split region saves nothing meanwhile.
fn give_backs_of_a_turn(plan: &Plan, mut places: usize) -> Vec<&Decision> {
    let mut has_its_turn = |decision: &&Decision| {
        let waits = decision.reason == Reason::Displaced && places == 0;
        places -= usize::from(decision.reason == Reason::Displaced && !waits);
        !waits
    };
    plan.give_backs().filter(|decision| has_its_turn(decision)).collect()
}

/// Promotes these regions until the turn ends, and counts the results.
fn promote(
    process: Process,
    heat: &Heat,
    regions: &[(Address, Promoted)],
    turn: &ActBounds,
    pilot: &mut Pilot<'_>,
    pilot_summary: &mut PilotSummary,
) -> Acted {
    if regions.is_empty() {
        return Acted::default();
    }
    let acted = pilot.act_while_fresh(process, heat, regions, turn, &mut |result| pilot_summary.count(result));
    let outcome = acted.outcome_of(regions.len());
    tracing::info!("process {}: {} of {} regions promoted", process.pid, outcome.applied, outcome.tried);
    pilot_summary.add_outcome(outcome);
    acted
}

#[cfg(test)]
mod tests {
    use heat::samples::at;
    use heat::{Meaning, Walks};

    use super::*;

    impl Member {
        /// As if its plan had this many more regions.
        pub(in crate::engine) fn leave_unfinished(&mut self, regions: u64) {
            self.unfinished = Unfinished::sample(regions);
        }
    }

    #[test]
    fn growth_leaves_the_account_only_where_a_split_frees_it() {
        let held_after_giving_back = |splits_free| {
            let mut member = Member::new(Instant::now(), 1.0, splits_free);
            (0..3).for_each(|number| member.past.promoted(at(number), 1.0));
            member.growth = (0..3).map(|number| (at(number), Bytes(100))).collect();
            member.remember_given_back(at(0), Instant::now());
            (member.past.held().map(|held| held.start).collect::<Vec<_>>(), member.growth())
        };
        assert_eq!(held_after_giving_back(true), (vec![at(1), at(2)], Bytes(200)));
        assert_eq!(held_after_giving_back(false), (vec![at(1), at(2)], Bytes(300)));
    }

    #[test]
    fn no_more_places_change_hands_than_are_filled_in_a_turn() {
        let give_back = |number, reason| Decision::give_back(at(number), reason, 1.0);
        let places = (0..40).map(|number| give_back(number, Reason::Displaced));
        let decisions = places.chain((40..43).map(|number| give_back(number, Reason::OverQuota))).collect();
        let plan = Plan { pid: 1, meaning: Meaning::Walked, decisions, walk_share: None, walks: Walks::default() };
        assert_eq!(give_backs_of_a_turn(&plan, 8).len(), 8 + 3);
        assert_eq!(give_backs_of_a_turn(&plan, 1000).len(), 43);
    }
}
