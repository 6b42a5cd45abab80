//! The loop over all programs under the pilot.
//!
//! Owns: which programs there are, whose turn it is, and what each may have. Never touches: how a program is observed or changed; [`Pilot`] does
//! that, and [`Member`] remembers it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use heat::clearing::ClearPolicy;
use heat::units::{Bytes, Nanos};
use heat::{Heat, HeldBack, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::target::Process;
use observe::{FaultRates, ObserveError, ObserveOptions, faults};

use crate::act::ActBounds;
use crate::clients::Client;
use crate::decide::{Demand, Fairness, Limits, OwnPressure, Plan, claim, decide};
use crate::engine::client_budget::{ClientBudget, Room};
use crate::engine::member::Member;
use crate::engine::pilot::Pilot;
use crate::engine::pilot_summary::PilotSummary;
use crate::engine::requests::GaveBack;
use crate::engine::shared::{add_others, huge_in_any};
use crate::engine::shared_state::SharedState;
use crate::engine::terms::KillsBefore;
use crate::engine::watching::Watching;
use crate::forecast::Gauges;
use crate::scope::{Enrolled, PilotMode, Scope};

/// How often resident memory, and the machine's, is polled; each poll reads one small file per process.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often new processes are searched for; each search reads one small file of every process on the machine.
const CENSUS: Duration = Duration::from_secs(1);
/// A new process is noticed within this time, however many processes there are.
const LATEST_CENSUS: Duration = Duration::from_secs(10);
/// The rest after a census, or after a poll of all, in multiples of its own cost: each takes at most a five-hundredth of a CPU, except for a census
/// forced by [`LATEST_CENSUS`].
const REST_AFTER: u32 = 500;
/// How often the shared state is updated while idle.
const SHOWING: Duration = Duration::from_secs(1);
/// The shortest window when many wait for their turn: rates are based on the first 100 ms.
const SHORTEST_WINDOW: Nanos = Nanos(150_000_000);

/// Clients scanned in one step.
const SCANS_OF_A_STEP: u32 = 4;
/// The longest that a step goes on from one process to the next; meanwhile new processes and requests wait.
const STEP: Duration = Duration::from_secs(2);
/// Programs start together, as the pods of a node do: so long after one is found, turns are short, so that the next soon has its first scan.
const ARRIVING: Duration = Duration::from_secs(10);
/// How often memory is given back while it is short.
const RELIEF: Duration = Duration::from_secs(5);

/// The rules for all programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Smaller processes are left alone: the TLB covers them or nearly so, and scanning costs more than it gains.
    pub min_size: Bytes,
    /// How the limit on huge pages is divided.
    pub fairness: Fairness,
    /// Give back what is cold and mostly empty and, when memory is short, what holds empty pages.
    pub give_back: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { min_size: Bytes(16 << 20), fairness: Fairness::Benefit, give_back: true }
    }
}

/// All programs under the pilot.
pub struct Fleet {
    pub(super) scope: Scope,
    pub(super) rules: Rules,
    pub(super) shared_state: SharedState,
    /// The processes alive at the last census, large or small.
    pub(super) alive: Vec<Enrolled>,
    pub(super) next_census: Instant,
    pub(super) next_poll: Instant,
    next_relief: Instant,
    next_showing: Instant,
    /// The living processes that were ever large enough.
    pub(super) members: BTreeMap<Process, Member>,
    /// Programs that manage their own memory, by their places.
    pub(super) watching: BTreeMap<u64, Watching>,
    client_budget: ClientBudget,
    /// What was done, and the members that have ended.
    pub(super) pilot_summary: PilotSummary,
    /// The largest resident memory seen of any process.
    largest: Bytes,
    /// When the latest member was found.
    latest: Option<Instant>,
    /// Why the machine has no memory to spare.
    pub(super) shortage: Option<HeldBack>,
    own_pressure: OwnPressure,
    /// Whether a split frees empty pages here; None if that could not be tried. Where it frees nothing, limits apply only when regions are promoted.
    pub(super) frees_empty_pages: Option<bool>,
    /// The tracker, once a process has been scanned.
    pub(super) tracker: Option<TrackerKind>,
    pub(super) began: Instant,
    /// When piloting ends in any case; None if that is not known.
    ends: Option<Instant>,
    /// Processes that gave back a moment ago, and were not piloted since.
    pub(super) gave_back: BTreeMap<Process, GaveBack>,
    pub(super) kills_before: KillsBefore,
}

impl Fleet {
    /// Programs in the scope, by these rules; progress is published in the shared state.
    pub fn begin(scope: Scope, rules: Rules, shared_state: SharedState, pilot: &mut Pilot<'_>) -> Self {
        let frees_empty_pages = pilot.world.frees_empty_pages();
        Self::new(scope, rules, shared_state, pilot.now(), frees_empty_pages)
    }

    pub(super) fn new(
        scope: Scope,
        rules: Rules,
        shared_state: SharedState,
        now: Instant,
        frees_empty_pages: Option<bool>,
    ) -> Self {
        Self {
            scope,
            rules,
            shared_state,
            alive: Vec::new(),
            next_census: now,
            next_poll: now,
            next_relief: now,
            next_showing: now,
            members: BTreeMap::new(),
            watching: BTreeMap::new(),
            client_budget: ClientBudget::default(),
            pilot_summary: PilotSummary::default(),
            largest: Bytes(0),
            latest: None,
            shortage: None,
            own_pressure: OwnPressure::default(),
            frees_empty_pages,
            tracker: None,
            began: now,
            ends: None,
            gave_back: BTreeMap::new(),
            kills_before: KillsBefore::default(),
        }
    }

    /// Goes on with another scope and other rules, and keeps what it knows of programs.
    pub fn change(&mut self, scope: Scope, rules: Rules, now: Instant) {
        let scope = scope.in_place_of(&self.scope);
        (self.scope, self.rules, self.next_census, self.next_poll) = (scope, rules, now, now);
        // Only a scan shows which programs have too much or too little by the new rules.
        self.members.values_mut().for_each(|member| member.plan_anew(now));
    }

    /// Pilots all programs until none is left, until that time, or until a stop is requested; calls `progress` after each round.
    pub fn run(
        mut self,
        pilot: &mut Pilot<'_>,
        until: Option<Instant>,
        mut progress: impl FnMut(&Self),
    ) -> PilotSummary {
        self.ends = until;
        loop {
            self.step(pilot, &mut progress);
            let now = pilot.now();
            let next = until.map_or(now + POLL_INTERVAL, |until| until.min(now + POLL_INTERVAL));
            let over = self.alive.is_empty() || until.is_some_and(|until| until <= now);
            if over || pilot.world.sleep_until(next, &pilot.stop.clone()).is_err() {
                return self.finish(now);
            }
        }
    }

    /// Serves everyone once, as far as that is due and affordable.
    pub fn step(&mut self, pilot: &mut Pilot<'_>, progress: &mut impl FnMut(&Self)) {
        self.take_assignments(pilot);
        self.take_census(pilot);
        self.handle_requests(pilot);
        self.poll(pilot);
        self.relieve(pilot);
        self.serve_targets(pilot, progress);
        self.serve_clients(pilot);
    }

    /// Observes, decides and acts on those whose turn it is.
    fn serve_targets(&mut self, pilot: &mut Pilot<'_>, progress: &mut impl FnMut(&Self)) {
        let begin = pilot.now();
        let due = self.due(pilot);
        let waiting = due.len() as u64;
        if waiting > 0 || self.next_showing <= begin {
            // Rounds take long, and requests to pause or give back must be known before.
            self.show(pilot);
        }
        for process in due {
            self.handle_requests(pilot);
            if pilot.now() - begin > STEP || pilot.stop.requested() {
                break;
            }
            let member = &self.members[&process];
            let may_scan = member.next_scan <= begin && pilot.can_afford_a_scan();
            let may_go_on = member.is_unfinished() && pilot.may_step_soon();
            if self.shared_state.is_paused(process) || !may_scan && !may_go_on {
                continue;
            }
            let window = pilot.watch.window;
            pilot.watch.window = window.min(SHORTEST_WINDOW.max(Nanos(4 * window.0 / waiting)));
            self.gave_back.remove(&process);
            self.shared_state.work_on(Some(process));
            let scanned = self.round(process, pilot);
            // This thread may use every processor again.
            let _nobody = pilot.world.work_for(None);
            self.shared_state.work_on(None);
            pilot.watch.window = window;
            self.note(process, scanned, pilot);
            progress(self);
            self.show(pilot);
        }
    }

    /// Publishes the current state.
    pub fn show(&mut self, pilot: &Pilot<'_>) {
        self.shared_state.show(self.state(pilot));
        self.next_showing = pilot.now() + SHOWING;
    }

    /// The results so far.
    pub fn summary(&self) -> PilotSummary {
        let mut pilot_summary = self.pilot_summary.clone();
        self.members.values().for_each(|member| pilot_summary.add_program(&member.summary()));
        pilot_summary
    }

    fn finish(self, now: Instant) -> PilotSummary {
        let pilot_summary = self.summary();
        let is_small = Bytes(0) < self.largest && self.largest < self.rules.min_size;
        let known_small = pilot_summary.processes == 0 && is_small && now - self.began >= CENSUS;
        PilotSummary { too_small: known_small.then_some(self.largest), ..pilot_summary }
    }

    fn gives_back(&self) -> bool {
        self.rules.give_back && self.frees_empty_pages != Some(false)
    }

    /// Finds the processes that live. Members that have ended are summed up and forgotten.
    fn take_census(&mut self, pilot: &mut Pilot<'_>) {
        if self.next_census > pilot.now() {
            return;
        }
        let cpu_before = pilot.world.cpu_time();
        self.alive = pilot.world.census(&mut self.scope);
        let lives = |process: &Process| self.alive.iter().any(|enrolled| enrolled.process == *process);
        let ended: Vec<Process> = self.members.keys().filter(|process| !lives(process)).copied().collect();
        self.shared_state.forget_ended(lives);
        for member in ended.iter().filter_map(|process| self.members.remove(process)) {
            self.pilot_summary.add_program(&member.summary());
        }
        if !ended.is_empty() {
            self.divide(pilot.allowance.max_huge, pilot.now());
        }
        // Measured in CPU time, not wall time: on a busy machine, where a census waits for its turn, new processes would wait for minutes.
        let cost = pilot.world.cpu_time().saturating_sub(cpu_before).duration();
        self.next_census = pilot.now() + CENSUS.max(cost * REST_AFTER).min(LATEST_CENSUS);
    }

    /// Notices which programs have grown or walk other memory than before, and whether memory is short.
    fn poll(&mut self, pilot: &mut Pilot<'_>) {
        let now = pilot.now();
        if self.next_poll > now {
            return;
        }
        let cpu_before = pilot.world.cpu_time();
        let somebody_waits = !self.due(pilot).is_empty();
        self.own_pressure.note(pilot.busy(), pilot.now());
        self.shortage = pilot.world.memory(self.own_pressure).and_then(|state| state.shortage());
        for &Enrolled { process, weight, mode, ref assigned } in &self.alive {
            let Some(status) = pilot.world.status(process) else { continue };
            self.largest = self.largest.max(status.vm_rss);
            if status.vm_rss < self.rules.min_size {
                continue;
            }
            let member = self.members.entry(process).or_insert_with(|| {
                let splits_free = self.frees_empty_pages != Some(false);
                let mut member = Member::new(now, weight, splits_free);
                self.latest = Some(now);
                // What others may have depends on what this one has, even before its first scan.
                member.restore(process, pilot);
                member.place = pilot.world.place(process);
                member
            });
            member.enroll(weight, mode, assigned.as_ref(), now);
            member.notice(&status, now);
            if self.shared_state.is_paused(process) {
                member.clear_demand(now);
            } else if !somebody_waits && pilot.can_afford_a_scan() {
                member.poll(process, pilot);
            }
        }
        let cost = pilot.world.cpu_time().saturating_sub(cpu_before).duration();
        self.next_poll = pilot.now() + POLL_INTERVAL.max(cost * REST_AFTER);
    }

    /// While memory is short, gives back regions with empty pages.
    fn relieve(&mut self, pilot: &mut Pilot<'_>) {
        if self.shortage.is_none() || !self.gives_back() || self.next_relief > pilot.now() {
            return;
        }
        let is_piloted = |process: &Process, member: &Member| {
            member.mode != PilotMode::Observe && !self.shared_state.is_paused(*process)
        };
        for (process, member) in self.members.iter_mut().filter(|(process, member)| is_piloted(process, member)) {
            member.relieve(*process, pilot, &mut self.pilot_summary);
        }
        self.next_relief = pilot.now() + RELIEF;
    }

    /// Tells programs that manage their own memory which of it is active. Each user's clients have their own part of the CPU time: one user's many
    /// clients delay neither other clients nor targets.
    fn serve_clients(&mut self, pilot: &mut Pilot<'_>) {
        let mut clients = self.shared_state.clients().all();
        // Longest waiting first, and new clients before all.
        clients.sort_by_key(|(id, _)| self.watching.get(id).map(Watching::due));
        self.watching.retain(|id, _| clients.iter().any(|(other, _)| other == id));
        let users: BTreeSet<u32> = clients.iter().map(|(_, client)| client.uid).collect();
        self.client_budget.divide(pilot.budget.share(), !self.members.is_empty(), &users, pilot.now());
        if !clients.is_empty() {
            // The loop's own work until here is no client's.
            pilot.charge(Nanos(0));
        }
        let mut scans = 0;
        for (id, client) in clients.iter().filter(|(_, client)| !self.shared_state.is_paused(client.process)) {
            let now = pilot.now();
            let room = self.room_for(*id, client.uid, users.len(), &clients);
            let watching = self.watching.entry(*id).or_insert_with(|| Watching::new(now));
            // Each scan takes a while, and many clients may want one.
            let may_observe =
                scans < SCANS_OF_A_STEP && !pilot.stop.requested() && self.client_budget.is_free(client.uid, now);
            scans += u32::from(may_observe && watching.wants_a_scan(client, now));
            let charged_before = pilot.budget.charged();
            self.shared_state.work_on(Some(client.process));
            let stop = pilot.stop.or(self.shared_state.call());
            let went_on = watching.go_on(client, may_observe, room, pilot, &stop);
            self.shared_state.work_on(None);
            // What was computed since the last entry, and what failed, is this client's.
            pilot.charge(Nanos(0));
            let spent = pilot.budget.charged().saturating_sub(charged_before);
            let time = Nanos::from_duration(pilot.now() - now);
            self.client_budget.charge(client.uid, spent, time, now);
            match went_on {
                Ok(false) => {}
                Ok(true) => self.shared_state.clients().wake(*id),
                Err(_) if !client.is_there() => self.shared_state.clients().forget(*id),
                Err(error) => watching.left_alone = Some(format!("{error:#}")),
            }
        }
    }

    /// The memory that a client of this user may take.
    fn room_for(&self, id: u64, uid: u32, users: usize, clients: &[(u64, Client)]) -> Room {
        let others = clients.iter().filter(|(other, _)| *other != id);
        let taken = |(other, _): &(u64, Client)| self.watching.get(other).map(Watching::taken).unwrap_or_default();
        let of_user = others.clone().filter(|(_, client)| client.uid == uid);
        Room::of_client(users, of_user.clone().count() + 1, of_user.map(taken).sum(), others.map(taken).sum())
    }

    /// The processes whose turn it is; none while nothing is promoted because memory is short or collapses go badly.
    fn due(&self, pilot: &Pilot<'_>) -> Vec<Process> {
        let may_act = self.shortage.is_none() && pilot.held_back().is_none();
        if may_act { self.waiting(pilot.now()) } else { Vec::new() }
    }

    /// Members whose scan is due: first those that others wait for, then those that have waited longest, then those whose plan is unfinished. New
    /// members are due at once.
    pub(super) fn waiting(&self, now: Instant) -> Vec<Process> {
        let represented = self.represented();
        let waits = |(process, member): &(&Process, &Member)| {
            let is_left_alone = self.shared_state.is_paused(**process) || self.shared_state.clients().hold(**process);
            let is_due = member.next_scan <= now && !self.is_promoted_by_another(member) || member.is_unfinished();
            is_due && !is_left_alone && !represented.contains(process)
        };
        let mut waiting: Vec<Process> = self.members.iter().filter(waits).map(|(process, _)| *process).collect();
        let turn = |member: &Member| (member.next_scan > now, !member.is_awaited, member.next_scan);
        waiting.sort_by_key(|process| turn(&self.members[process]));
        waiting
    }

    /// Observes, decides and acts on one process, or continues an earlier decision.
    fn round(&mut self, process: Process, pilot: &mut Pilot<'_>) -> anyhow::Result<()> {
        pilot.world.work_for(Some(process))?;
        let stop = pilot.stop.or(self.shared_state.call());
        let may_promote = self.may_promote(process, pilot);
        let member = &self.members[&process];
        if member.is_unfinished() && !may_promote {
            self.members.get_mut(&process).expect("due means known").plan_anew(pilot.now());
            return Ok(());
        }
        if member.next_scan > pilot.now() || member.is_unfinished() && !pilot.can_afford_a_scan() {
            let turn = self.turn(pilot, &stop);
            let member = self.members.get_mut(&process).expect("due means known");
            return Ok(member.go_on(process, &turn, pilot, &mut self.pilot_summary)?);
        }
        let tells_use = self.is_contended(pilot) || self.gives_back() && self.members[&process].may_hold_waste();
        let mut gauges = if may_promote { None } else { pilot.world.gauges(process) };
        let Some((mut heat, faults)) = self.scan(process, tells_use, pilot, &stop)? else { return Ok(()) };
        if !may_promote {
            let gauged = gauges.as_mut().map(Gauges::read).unwrap_or_default();
            self.note_forecast(process, heat, &faults, gauged, pilot);
            return Ok(());
        }
        let huge_elsewhere = huge_in_any(self.others(process).map(|member| &member.view));
        let turn = self.turn(pilot, &stop);
        let member = self.members.get_mut(&process).expect("still known");
        member.collapse_shared(process, &mut heat, &huge_elsewhere, &turn, pilot);
        faults::note(&faults, &mut heat);
        let plan = self.plan(process, &mut heat, pilot);
        let turn = self.turn(pilot, &stop);
        let member = self.members.get_mut(&process).expect("still known");
        let shared_before = member.view.bytes();
        member.carry_out(process, heat, &plan, &turn, pilot, &mut self.pilot_summary);
        // The next scan tells what may give way, or whether unused memory stays unused.
        if member.lacks_huge_pages() && !tells_use || tells_use && member.past.is_in_doubt() {
            member.scan_soon(pilot.now());
        }
        self.expedite(process, shared_before, pilot.now());
        Ok(())
    }

    /// The bounds of acting from now on.
    fn turn(&self, pilot: &Pilot<'_>, stop: &Stop) -> ActBounds {
        let turn = pilot.turn_from_now(stop);
        let now = pilot.now();
        let short = self.latest.filter(|&found| now < found + ARRIVING).map(|_| now + STEP);
        ActBounds { until: [self.ends, short].into_iter().flatten().fold(turn.until, Instant::min), ..turn }
    }

    /// Whether something must be given back before anything else can become huge.
    fn is_contended(&self, pilot: &Pilot<'_>) -> bool {
        self.members.values().any(Member::lacks_huge_pages) || self.is_used_up(&pilot.allowance)
    }

    /// Observes a process, and counts the page faults of all processes that share memory with it. None if it was paused meanwhile.
    fn scan(
        &mut self,
        process: Process,
        tell_use_of_huge: bool,
        pilot: &mut Pilot<'_>,
        stop: &Stop,
    ) -> Result<Option<(Heat, FaultRates)>, ObserveError> {
        let clearing = if self.is_one_of_many(process) { ClearPolicy::OneOfMany } else { pilot.watch.clearing };
        let max_slowdown = self.members[&process].terms.slowdown_within(pilot.watch.max_slowdown);
        let options = ObserveOptions { tell_use_of_huge, which_pages: false, clearing, max_slowdown, ..pilot.watch };
        self.count_faults(process, pilot);
        let member = self.members.get_mut(&process).expect("still known");
        let lost = member.past.lost();
        let seen = member.scan(process, pilot, &options, stop);
        self.pilot_summary.counts.lost += member.past.lost() - lost;
        let faults = pilot.world.faults();
        let heat = match seen {
            // Observing may take long where it is spread over time.
            Err(ObserveError::Stopped(_)) if self.shared_state.is_paused(process) => return Ok(None),
            seen => seen?,
        };
        if self.shared_state.is_paused(process) {
            return Ok(None);
        }
        self.tracker = Some(heat.tracker);
        self.members.get_mut(&process).expect("still known").busy_cpus = heat.busy_cpus;
        self.pilot_summary.counts.scans += 1;
        Ok(Some((heat, faults)))
    }

    /// What is to be done to a process, including what others lose on memory that they share with it; divides the limits that hold for all.
    fn plan(&mut self, process: Process, heat: &mut Heat, pilot: &Pilot<'_>) -> Plan {
        add_others(heat, self.others(process).map(|member| &member.view), self.times_observed(process));
        let limits = Limits { give_back: self.gives_back(), ..self.limits_for(process, heat, &pilot.allowance) };
        let most_of_its_own = self.own_max_huge(process, heat.promotable_here(&BTreeSet::new()));
        let member = self.members.get_mut(&process).expect("still known");
        member.faults_per_second = heat.faults_per_second();
        member.forecast = None;
        member.may_grow = Some(limits.max_growth + member.growth());
        member.claim = Demand { weight: member.weight, ..claim(heat, &member.limits(limits.clone()), &member.past) };
        member.limit_claim(most_of_its_own);
        self.divide(pilot.allowance.max_huge, pilot.now());
        let member = &self.members[&process];
        let plan = decide(heat, &member.limits(limits), &member.past);
        tracing::debug!(pid = process.pid, "decided: {:?}", plan.counts());
        plan
    }

    /// Schedules early scans of the programs that a round's results concern.
    fn expedite(&mut self, process: Process, shared_before: Bytes, now: Instant) {
        let member = &self.members[&process];
        let (has_more, waits) = (member.view.bytes() > shared_before, member.waits_for_another());
        if has_more {
            self.expedite_sharers(process, now);
        }
        if waits {
            let left_to_others = self.left_to_others(process);
            self.expedite_promoters(left_to_others.values(), now);
        }
        self.expedite_over_quota(now);
    }

    pub(super) fn others(&self, process: Process) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |(other, _)| **other != process).map(|(_, member)| member)
    }

    /// Records how a scan went.
    fn note(&mut self, process: Process, scanned: anyhow::Result<()>, pilot: &Pilot<'_>) {
        let Some(member) = self.members.get_mut(&process) else { return };
        match scanned {
            Ok(()) => member.left_alone = None,
            Err(_) if pilot.stop.requested() => {}
            Err(error) => {
                tracing::debug!(pid = process.pid, "left alone for a while: {error:#}");
                // Its memory goes before it counts as ended.
                let ends = matches!(error.downcast_ref(), Some(ObserveError::Exited { .. }));
                let tells = pilot.world.lives(process) && !(ends && member.scanned_at.is_some());
                member.left_alone = tells.then(|| format!("{error:#}"));
                member.wait_longer(pilot.now());
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use heat::Snapshot;
    use heat::samples::{at, heat_of, huge};
    use heat::units::HUGE_PAGE;

    pub(in crate::engine) fn process(pid: u32) -> Process {
        Process { pid, start_ticks: 7 }
    }

    /// A member with `held` regions that we put on huge pages, worth 1000 walks each, and more that are wanted.
    pub(in crate::engine) fn member(held: u64, foreign: u64, wanted: usize) -> Member {
        let mut member = Member::new(Instant::now(), 1.0, true);
        let regions = (0..held).map(|number| huge(number, 0.0)).collect();
        (0..held).for_each(|number| member.past.promoted(at(number), 1000.0));
        _ = member.past.notice(&heat_of(regions), Instant::now());
        member.last = Some(Snapshot { huge: Bytes((held + foreign) * HUGE_PAGE), ..Snapshot::default() });
        member.claim = Demand { weight: 1.0, held: vec![1000.0; held as usize], wanted: vec![1000.0; wanted] };
        member
    }

    pub(in crate::engine) fn fleet(fairness: Fairness, members: Vec<Member>) -> Fleet {
        let rules = Rules { fairness, ..Rules::default() };
        let scope = Scope::process(process(1), true);
        let mut fleet = Fleet::new(scope, rules, SharedState::default(), Instant::now(), Some(true));
        fleet.members = (1..).map(process).zip(members).collect();
        fleet
    }

    #[test]
    fn new_rules_make_scans_due_and_pauses_end_claims() {
        let later = Instant::now() + Duration::from_secs(40);
        let mut fleet = fleet(Fairness::Share, vec![member(4, 0, 100)]);
        let only = fleet.members.get_mut(&process(1)).expect("a member");
        only.next_scan = later;
        only.reasons.regions.insert(crate::decide::Reason::HugeLimit, 100);
        only.clear_demand(Instant::now());
        assert!(!only.lacks_huge_pages() && only.claim.wanted.is_empty() && only.claim.held.len() == 4);
        fleet.change(Scope::process(process(1), true), Rules::default(), Instant::now());
        assert!(fleet.members[&process(1)].next_scan < later);
    }

    #[test]
    fn what_is_left_of_a_plan_waits_for_scans_and_keeps_its_room() {
        let later = Instant::now() + Duration::from_secs(40);
        let mut fleet = fleet(Fairness::Benefit, vec![member(1, 0, 0), member(2, 0, 0), member(4, 0, 0)]);
        fleet.members.values_mut().skip(1).for_each(|member| member.next_scan = later);
        fleet.members.get_mut(&process(2)).expect("a member").leave_unfinished(5);
        assert_eq!(fleet.waiting(Instant::now()), [process(1), process(2)]);
        let mut another = member(0, 0, 0);
        another.is_awaited = true;
        fleet.members.insert(process(4), another);
        assert_eq!(fleet.waiting(Instant::now()), [process(4), process(1), process(2)], "others wait for it");
        fleet.members.remove(&process(4));
        assert_eq!(fleet.spent(process(1)).huge_elsewhere, Bytes((2 + 4 + 5) * HUGE_PAGE));
        assert_eq!(fleet.spent(process(1)).growth_elsewhere, Bytes(5 * 4096));
        assert_eq!(fleet.spent(process(2)).huge_elsewhere, Bytes((1 + 4) * HUGE_PAGE), "its own next plan replaces it");
        fleet.change(Scope::process(process(1), true), Rules::default(), Instant::now());
        assert!(fleet.members.values().all(|member| !member.is_unfinished()));
    }

    #[test]
    fn programs_that_stayed_small_say_how_small() {
        let small = |members, began| Fleet { largest: Bytes(5), began, ..fleet(Fairness::Benefit, members) };
        let long_ago = Instant::now().checked_sub(CENSUS * 2).expect("the machine runs longer");
        assert_eq!(small(Vec::new(), long_ago).finish(Instant::now()).too_small, Some(Bytes(5)));
        assert_eq!(small(Vec::new(), Instant::now()).finish(Instant::now()).too_small, None, "it hardly lived");
        let large = Fleet { largest: Rules::default().min_size, ..small(Vec::new(), long_ago) };
        assert_eq!(large.finish(Instant::now()).too_small, None, "it was only not observed in time");
        let mut seen = member(0, 0, 0);
        seen.scanned_at = Some(Instant::now());
        assert_eq!(small(vec![seen], long_ago).finish(Instant::now()).too_small, None);
    }
}
