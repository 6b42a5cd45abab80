//! What the fleet publishes about itself.
//!
//! Owns: the translation into [`State`]. Never touches: the things it describes.

use std::time::{Duration, Instant};

use heat::units::{Bytes, Nanos, SizeOrShare};
use kernel::target::Process;

use crate::act::Action;
use crate::clients::Client;
use crate::engine::done::Done;
use crate::engine::fleet::Fleet;
use crate::engine::member::Member;
use crate::engine::pilot::Pilot;
use crate::engine::quota::huge_once;
use crate::engine::shared_once::Proportions;
use crate::engine::shared_state::{
    BudgetState, ClientState, DecisionResult, DecisionState, SlowedBy, State, TargetState,
};
use crate::engine::watching::Watching;
use crate::scope::PilotMode;

/// A scan that waits for this long is late.
const LATE: Duration = Duration::from_secs(1);

impl Fleet {
    /// The current state.
    pub(super) fn state(&self, pilot: &Pilot<'_>) -> State {
        let now = pilot.now();
        let of_all = |limit: SizeOrShare| match limit {
            SizeOrShare::Size(all) => Some(all),
            SizeOrShare::Share(_) | SizeOrShare::ShareOfRam(_) => None,
        };
        State {
            version: 1,
            tracker: self.tracker,
            max_slowdown: pilot.max_slowdown().0,
            fairness: self.rules.fairness,
            paused: false,
            up_ns: Nanos::from_duration(now - self.began),
            taken_ns_ago: Nanos(0),
            last_step_ns_ago: None,
            held_back: self.shortage.or(pilot.held_back()),
            slowed_by: self.slowed_by(pilot),
            frees_empty_pages: self.frees_empty_pages,
            budget: BudgetState {
                max_huge_bytes: pilot.allowance.max_huge.and_then(of_all),
                max_growth_bytes: of_all(pilot.allowance.max_growth),
                huge_bytes: huge_once(self.members.values()),
                growth_bytes: self.members.values().map(Member::growth).sum(),
                max_cpu: pilot.budget.share().0,
                cpu_ns: pilot.world.cpu_time() + self.shared_state.serving_time().total(),
                busy_ns: self.pilot_summary.outcome.busy,
            },
            counts: self.pilot_summary.counts.clone(),
            targets: self.targets(now),
            clients: self.clients(),
            reclaim: None,
            reload_refused: None,
            metrics_not_served: None,
            other_daemon: None,
        }
    }

    pub(super) fn targets(&self, now: Instant) -> Vec<TargetState> {
        let proportions = Proportions::of(self.members.values().map(|member| &member.view.amounts));
        let target = |(process, member): (&Process, &Member)| {
            let state = target_state(*process, member, now);
            // Of shared memory in a process that was never scanned, others tell.
            let resident = member.last.map_or(member.private_rss, |last| last.rss);
            let (proportional_bytes, proportional_huge_bytes) =
                proportions.part_of(&member.view.amounts, resident, state.huge_bytes);
            TargetState { proportional_bytes, proportional_huge_bytes, ..state }
        };
        self.members.iter().map(target).collect()
    }

    /// What makes promoting slow, unless nothing is promoted at all, or as fast as the kernel can.
    fn slowed_by(&self, pilot: &Pilot<'_>) -> Vec<SlowedBy> {
        if pilot.held_back().is_some() {
            return Vec::new();
        }
        let now = pilot.now();
        let is_paced = !pilot.max_slowdown().is_fast() && self.members.values().any(Member::is_unfinished);
        let by_pace = if pilot.is_pace_reduced() { SlowedBy::BusyPrograms } else { SlowedBy::MaxSlowdown };
        let is_late = |process: &Process| self.members[process].next_scan + LATE <= now;
        let waits_for_cpu = !pilot.can_afford_a_scan() && self.waiting(now).iter().any(is_late);
        let by_cpu = waits_for_cpu.then_some(SlowedBy::MaxCpu);
        is_paced.then_some(by_pace).into_iter().chain(by_cpu).collect()
    }

    fn clients(&self) -> Vec<ClientState> {
        let state = |(id, client): (u64, Client)| {
            let watching = self.watching.get(&id);
            ClientState {
                pid: client.process.pid,
                start_ticks: client.process.start_ticks,
                uid: client.uid,
                resting: client.resting,
                active_pages: watching.map_or(0, |watching| watching.active),
                lists: watching.map_or(0, Watching::lists),
                left_alone: watching.and_then(|watching| watching.left_alone.clone()),
            }
        };
        self.shared_state.clients().all().into_iter().map(state).collect()
    }
}

fn target_state(process: Process, member: &Member, now: Instant) -> TargetState {
    let last = member.last.unwrap_or_default();
    TargetState {
        pid: process.pid,
        start_ticks: process.start_ticks,
        name: member.name.clone(),
        unit: member.place.service.clone(),
        container: member.place.container.clone(),
        uid: member.uid,
        weight: member.weight,
        mode: member.mode,
        labels: member.terms.assigned.as_ref().map(|assigned| assigned.labels.clone()).unwrap_or_default(),
        held_back: member.terms.held_back.filter(|_| member.mode != PilotMode::Observe),
        forecast: member.forecast,
        busy_cpus: member.busy_cpus,
        paused: false,
        proportional_bytes: Bytes(0),
        proportional_huge_bytes: Bytes(0),
        rss_bytes: member.last.map_or(member.shared_rss + member.private_rss, |last| last.rss),
        huge_bytes: last.huge,
        promoted_bytes: member.promoted(),
        growth_bytes: member.growth(),
        may_grow_bytes: member.may_grow,
        may_have_bytes: member.quota,
        walks_per_second_before: member.walks_before(),
        walks_per_second: last.walks_per_second,
        walks_saved_per_second: member.past.held().fold(0.0, |sum, held| sum + held.worth),
        faults_per_second: member.faults_per_second,
        smaller_huge_bytes: member.smaller_pages.clone(),
        page_tables_bytes: member.page_tables,
        scanned_ns_ago: member.scanned_at.map(|at| Nanos::from_duration(now - at)),
        next_scan_in_ns: Nanos::from_duration(member.next_scan.saturating_duration_since(now)),
        left_alone: member.left_alone.clone(),
        reasons: member.reasons.regions.clone(),
        mostly_kept: member.reasons.mostly_kept,
        last_decisions: member.done.iter().map(|done| decision_state(done, now)).collect(),
    }
}

fn decision_state(done: &Done, now: Instant) -> DecisionState {
    DecisionState {
        ns_ago: Nanos::from_duration(now - done.at),
        start: done.start,
        done: match (done.refused, done.action) {
            (Some(_), _) => DecisionResult::Refused,
            (None, Action::Promote) => DecisionResult::Promoted,
            (None, Action::GiveBack) => DecisionResult::GivenBack,
        },
        reason: done.reason,
        refused: done.refused,
        walks_per_second: done.walks_per_second,
    }
}
