//! What holds for one member alone: what was assigned to its control group, and what that group's memory allows.
//!
//! Owns: the reasons to promote nothing in it, and its own limits. Never touches: what holds for all programs, or control groups.
//!
//! A container at its memory limit loses processes, so nothing is promoted in the last tenth below the limit, and nothing any more after the kernel has
//! killed a process of the group for lack of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use heat::units::{Bytes, HUGE_PAGE, SizeOrShare, Slowdown};
use heat::{Heat, Object};
use kernel::group_memory::GroupMemory;
use kernel::target::Process;

use crate::decide::{Allowance, Limits, Spent};
use crate::engine::fleet::Fleet;
use crate::engine::member::Member;
use crate::engine::pilot::Pilot;
use crate::engine::shared_state::TargetHeldBack;
use crate::scope::{Assignment, PilotMode};

/// The part (1/n) of a group's memory limit that promoting leaves free.
const LEFT_FREE: u64 = 10;
/// Groups of members that have ended are forgotten when there are so many more than members.
const MOST_FORMER_GROUPS: usize = 64;

/// What holds for one member alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) assigned: Option<Arc<Assignment>>,
    /// Why nothing is promoted in it, although its mode says so.
    pub(super) held_back: Option<TargetHeldBack>,
    /// What its control group can still take; None for no limit.
    room: Option<Bytes>,
    /// Its control group.
    group: String,
}

/// The kills of each group when the first member in it was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct KillsBefore(BTreeMap<String, u64>);

impl KillsBefore {
    /// Of the top group, which nobody made for these programs, nothing is counted.
    fn have_risen(&mut self, memory: &GroupMemory) -> bool {
        if memory.cgroup.is_empty() {
            return false;
        }
        let before = *self.0.entry(memory.cgroup.clone()).or_insert(memory.oom_kills);
        memory.oom_kills > before
    }
}

impl Terms {
    /// Notes the state of the group's memory.
    fn note(&mut self, memory: GroupMemory, has_killed: bool) {
        let spare = |left: Bytes, limit: Bytes| left.saturating_sub(Bytes(limit.0 / LEFT_FREE));
        self.room = memory.room.map(|room| spare(room.left(), room.limit));
        self.held_back = match self.room {
            _ if has_killed => Some(TargetHeldBack::OomKilled),
            // A collapse takes the new page before it frees the old ones.
            Some(room) if room < Bytes(HUGE_PAGE) => Some(TargetHeldBack::NearMemoryLimit),
            _ => None,
        };
        self.group = memory.cgroup;
    }

    /// How much promoting may slow it down, where that is less than for all.
    pub(super) fn max_slowdown(&self) -> Option<Slowdown> {
        self.assigned.as_ref()?.max_slowdown
    }

    /// The same, and no more than what holds for all.
    pub(super) fn slowdown_within(&self, for_all: Option<Slowdown>) -> Option<Slowdown> {
        match (self.max_slowdown(), for_all) {
            (Some(own), Some(all)) => Some(if own < all { own } else { all }),
            (own, all) => own.or(all),
        }
    }

    fn max_growth(&self) -> Option<SizeOrShare> {
        self.assigned.as_ref()?.max_growth
    }

    fn max_huge(&self) -> Option<SizeOrShare> {
        self.assigned.as_ref()?.max_huge
    }

    fn are_shared_with(&self, other: &Self) -> bool {
        self.assigned.as_ref().zip(other.assigned.as_ref()).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }
}

/// A limit with one's own: a share of one's own takes the place of the share for everybody, and a size for everybody holds besides.
fn with_own(for_all: Option<SizeOrShare>, left_of_all: Option<Bytes>, own: Option<Bytes>) -> Option<Bytes> {
    match (for_all, own) {
        (_, None) => left_of_all,
        (Some(SizeOrShare::Size(_) | SizeOrShare::ShareOfRam(_)), Some(own)) => left_of_all.map(|left| left.min(own)),
        (None | Some(SizeOrShare::Share(_)), Some(own)) => Some(own),
    }
}

/// What is left of an own limit after what others under the same assignment took; `memory`: what is promoted through the process.
fn left_of(own: SizeOrShare, memory: Bytes, taken_by_others: Bytes) -> Bytes {
    match own {
        SizeOrShare::Size(size) => size.saturating_sub(taken_by_others),
        SizeOrShare::Share(share) => memory.share(share),
        SizeOrShare::ShareOfRam(_) => Bytes(0),
    }
}

impl Fleet {
    /// The limits of a process's plan as it was observed, and what others promote for it. Shared memory grows on the account of the process that
    /// promotes it; what is huge of it is huge in each.
    pub(super) fn limits_for(&self, process: Process, heat: &Heat, allowance: &Allowance) -> Limits {
        let spent = Spent { growth: self.members[&process].growth(), ..self.spent(process) };
        let left_to_others: BTreeSet<Object> = self.left_to_others(process).into_keys().collect();
        let limits_of = |memory| self.limits_of(process, memory, &spent, allowance);
        let max_growth = limits_of(heat.promotable_here(&left_to_others)).max_growth;
        Limits { max_growth, left_to_others, ..limits_of(heat.promotable_here(&BTreeSet::new())) }
    }

    /// The limits of a process's plan: those for all, those assigned to its control group, and what that group can still take.
    fn limits_of(&self, process: Process, memory: Bytes, spent: &Spent, allowance: &Allowance) -> Limits {
        let limits = allowance.limits(memory, spent);
        let terms = &self.members[&process].terms;
        let grown = self.siblings(process).map(|other| other.growth() + other.reserved().1).sum();
        let growth = terms.max_growth().map(|own| left_of(own, memory, grown).saturating_sub(spent.growth));
        let max_growth = with_own(Some(allowance.max_growth), Some(limits.max_growth), growth);
        Limits {
            max_growth: max_growth.into_iter().chain(terms.room).min().unwrap_or_default(),
            max_huge: with_own(allowance.max_huge, limits.max_huge, self.own_max_huge(process, memory)),
            ..limits
        }
    }

    /// What is left for a process of its own limit on huge pages; None without one.
    pub(super) fn own_max_huge(&self, process: Process, memory: Bytes) -> Option<Bytes> {
        let huge = self.siblings(process).map(|other| other.huge() + other.reserved().0).sum();
        self.members[&process].terms.max_huge().map(|own| left_of(own, memory, huge))
    }

    /// The other processes under the same assignment.
    fn siblings(&self, process: Process) -> impl Iterator<Item = &Member> {
        let terms = &self.members[&process].terms;
        self.others(process).filter(|other| other.terms.are_shared_with(terms))
    }

    /// Reads what the process's control group allows. Returns whether something may be promoted in it.
    pub(super) fn may_promote(&mut self, process: Process, pilot: &mut Pilot<'_>) -> bool {
        let memory = pilot.world.group_memory(process);
        let has_killed = memory.as_ref().is_some_and(|memory| self.kills_before.have_risen(memory));
        let member = self.members.get_mut(&process).expect("still known");
        match memory {
            Some(memory) => member.terms.note(memory, has_killed),
            None => member.terms = Terms { assigned: member.terms.assigned.take(), ..Terms::default() },
        }
        pilot.limit_slowdown(member.terms.max_slowdown());
        let may = member.mode != PilotMode::Observe && member.terms.held_back.is_none();
        self.forget_former_groups();
        may
    }

    fn forget_former_groups(&mut self) {
        if self.kills_before.0.len() > self.members.len() + MOST_FORMER_GROUPS {
            let members = &self.members;
            self.kills_before.0.retain(|group, _| members.values().any(|member| member.terms.group == *group));
        }
    }
}

impl Member {
    /// Notes what is to be done to it; what is new makes a scan due.
    pub(super) fn enroll(&mut self, weight: f64, mode: PilotMode, assigned: Option<&Arc<Assignment>>, now: Instant) {
        let is_new = self.mode != mode || self.terms.assigned.as_ref() != assigned;
        (self.weight, self.mode) = (weight, mode);
        self.terms.assigned = assigned.cloned();
        if is_new {
            self.plan_anew(now);
        }
    }

    /// Claims no more huge pages than its own limit lets it have.
    pub(super) fn limit_claim(&mut self, most: Option<Bytes>) {
        if let Some(most) = most {
            let more = (most.0 / HUGE_PAGE) as usize;
            self.claim.wanted.truncate(more.saturating_sub(self.claim.held.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel::cgroup::Room;

    use super::*;
    use crate::decide::Fairness;
    use crate::engine::fleet::tests::{fleet, member, process};

    const RSS: Bytes = Bytes(1 << 30);

    fn memory(limit: u64, usage: u64, oom_kills: u64) -> GroupMemory {
        let room = Room { cgroup: "/pod/1".into(), limit: Bytes(limit), usage: Bytes(usage), reclaimable: Bytes(0) };
        GroupMemory { cgroup: "/pod/1".into(), room: Some(room), oom_kills }
    }

    fn noted(memory: GroupMemory, has_killed: bool) -> Terms {
        let mut terms = Terms::default();
        terms.note(memory, has_killed);
        terms
    }

    #[test]
    fn nothing_is_promoted_in_the_last_tenth_below_the_limit_or_after_a_kill() {
        let gib = 1 << 30;
        let full = gib - gib / 10;
        assert_eq!(noted(memory(gib, full - HUGE_PAGE, 0), false).held_back, None);
        let near = noted(memory(gib, full - HUGE_PAGE + 1, 0), false);
        assert_eq!((near.held_back, near.room), (Some(TargetHeldBack::NearMemoryLimit), Some(Bytes(HUGE_PAGE - 1))));
        assert_eq!(noted(memory(gib, 0, 1), true).held_back, Some(TargetHeldBack::OomKilled));
        let unlimited = GroupMemory { room: None, ..memory(0, 0, 0) };
        assert_eq!((noted(unlimited.clone(), false).held_back, noted(unlimited, false).room), (None, None));
    }

    #[test]
    fn only_kills_since_the_first_scan_count() {
        let mut kills = KillsBefore::default();
        assert!(!kills.have_risen(&memory(1, 0, 3)) && !kills.have_risen(&memory(1, 0, 3)));
        assert!(kills.have_risen(&memory(1, 0, 4)) && kills.have_risen(&memory(1, 0, 4)), "for good");
        assert!(!kills.have_risen(&GroupMemory { cgroup: "/pod/2".into(), ..memory(1, 0, 9) }));
        let top = |oom_kills| GroupMemory { cgroup: String::new(), ..memory(1, 0, oom_kills) };
        assert!(!kills.have_risen(&top(1)) && !kills.have_risen(&top(2)), "it may be any program's");
    }

    fn limits(fleet: &Fleet, spent: Spent, allowance: Allowance) -> (u64, Option<u64>) {
        let limits = fleet.limits_of(process(1), RSS, &spent, &allowance);
        (limits.max_growth.0, limits.max_huge.map(|huge| huge.0))
    }

    fn assigned_to_all(max_growth: SizeOrShare, max_huge: SizeOrShare) -> Fleet {
        let own = Assignment { max_growth: Some(max_growth), max_huge: Some(max_huge), ..Assignment::sample(&["/a"]) };
        let own = Arc::new(own);
        let mut fleet = fleet(Fairness::Benefit, vec![member(0, 0, 0), member(3, 0, 0), member(5, 0, 0)]);
        fleet.members.values_mut().take(2).for_each(|member| member.terms.assigned = Some(Arc::clone(&own)));
        fleet
    }

    #[test]
    fn a_share_of_ones_own_takes_the_place_of_the_share_for_all_and_a_size_for_all_holds() {
        let (half, size) = (SizeOrShare::Share(0.5), |bytes| SizeOrShare::Size(Bytes(bytes)));
        let fleet = assigned_to_all(half, half);
        let spent = Spent { growth: Bytes(5), ..Spent::default() };
        let shares = Allowance { max_growth: SizeOrShare::Share(0.01), ..Allowance::default() };
        assert_eq!(limits(&fleet, spent, shares), ((1 << 29) - 5, Some(1 << 29)), "it may be more");
        let sizes = Allowance { max_growth: size(100), max_huge: Some(size(70)), ..Allowance::default() };
        assert_eq!(limits(&fleet, spent, sizes), (95, Some(70)));
    }

    #[test]
    fn a_size_of_ones_own_holds_for_all_under_the_assignment() {
        let fleet = assigned_to_all(SizeOrShare::Size(Bytes(100)), SizeOrShare::Size(Bytes(10 * HUGE_PAGE)));
        let spent = Spent { growth: Bytes(40), ..Spent::default() };
        let allowance = Allowance { max_growth: SizeOrShare::Share(1.0), ..Allowance::default() };
        assert_eq!(
            limits(&fleet, spent, allowance),
            (60, Some(7 * HUGE_PAGE)),
            "the second has 3, the third is another's"
        );
    }

    #[test]
    fn nobody_claims_more_than_may_be_had_or_is_slowed_down_more_than_all_may() {
        let mut member = member(3, 0, 9);
        member.limit_claim(Some(Bytes(5 * HUGE_PAGE)));
        assert_eq!((member.claim.held.len(), member.claim.wanted.len()), (3, 2));
        let own = |max_slowdown| Arc::new(Assignment { max_slowdown, ..Assignment::sample(&["/a"]) });
        member.terms.assigned = Some(own(Some(Slowdown(0.02))));
        let within = |all| member.terms.slowdown_within(all).expect("a limit").0;
        assert_eq!((within(Some(Slowdown(0.01))), within(Some(Slowdown(0.5))), within(None)), (0.01, 0.02, 0.02));
    }

    #[test]
    fn growth_fits_into_the_group() {
        let mut fleet = fleet(Fairness::Benefit, vec![member(0, 0, 0)]);
        let allowance = Allowance { max_growth: SizeOrShare::Share(1.0), ..Allowance::default() };
        assert_eq!(limits(&fleet, Spent::default(), allowance).0, 1 << 30);
        fleet.members.get_mut(&process(1)).unwrap().terms.note(memory(1000 << 20, 800 << 20, 0), false);
        assert_eq!(limits(&fleet, Spent::default(), allowance).0, 100 << 20);
    }

    #[test]
    fn what_is_assigned_anew_makes_a_scan_due_and_the_same_again_does_not() {
        let (now, assigned) = (Instant::now(), Arc::new(Assignment::sample(&["/a"])));
        let later = now + Duration::from_secs(50);
        let mut member = member(0, 0, 0);
        let mut is_due = |mode, assigned: &Assignment| {
            member.next_scan = later;
            member.enroll(1.0, mode, Some(&Arc::new(assigned.clone())), now);
            member.next_scan < later
        };
        assert!(is_due(PilotMode::Promote, &assigned));
        assert!(!is_due(PilotMode::Promote, &assigned));
        assert!(is_due(PilotMode::Observe, &assigned));
        assert!(is_due(
            PilotMode::Observe,
            &Assignment { max_huge: Some(SizeOrShare::Share(0.1)), ..Assignment::sample(&["/a"]) }
        ));
    }
}
