//! Each program's quota of the limits that hold for all together.
//!
//! Owns: dividing them among the members of a fleet, and what the others already have of them. Never touches: memory, or how a member uses its quota.

use std::time::Instant;

use heat::units::{Bytes, HUGE_PAGE, SizeOrShare};
use kernel::target::Process;

use crate::decide::{Allowance, Demand, Spent, divide};
use crate::engine::fleet::Fleet;
use crate::engine::member::Member;
use crate::engine::shared::huge_in_any;

/// Memory on huge pages in these programs; shared memory counts once.
pub(super) fn huge_once<'a>(members: impl Iterator<Item = &'a Member> + Clone) -> Bytes {
    let private: Bytes = members.clone().map(|member| member.huge().saturating_sub(member.view.bytes())).sum();
    private + Bytes(huge_in_any(members.map(|member| &member.view)).len() as u64 * HUGE_PAGE)
}

/// A limit counts as used up when less than this fraction (1/n) is left: the next scan tells what may give way. So much more is worth a scan.
const USED_UP: u64 = 16;

impl Fleet {
    /// Sets each member's quota of a limit that holds for all together. Who lacks huge pages and may now have many more is scanned soon: nobody else
    /// would wake it, and its own scans are far apart by now.
    pub(super) fn divide(&mut self, max_huge: Option<SizeOrShare>, now: Instant) {
        let Some(SizeOrShare::Size(all)) = max_huge else {
            self.members.values_mut().for_each(|member| member.quota = None);
            return;
        };
        // Huge pages made by others can be neither moved nor divided.
        let foreign: Vec<Bytes> =
            self.members.values().map(|member| member.huge().saturating_sub(member.promoted())).collect();
        let claims: Vec<Demand> = self.members.values().map(|member| member.claim.clone()).collect();
        let promoted = self.members.values().map(Member::promoted).sum();
        let ours = all.saturating_sub(huge_once(self.members.values()).saturating_sub(promoted)).0 / HUGE_PAGE;
        let quotas = divide(ours, &claims, self.rules.fairness);
        // What no member can use is open to all.
        let unclaimed = ours - quotas.iter().sum::<u64>();
        for ((member, foreign), quota) in self.members.values_mut().zip(foreign).zip(quotas) {
            let quota = foreign + Bytes((quota + unclaimed) * HUGE_PAGE);
            let had = member.quota.replace(quota).unwrap_or(quota).max(member.huge());
            if member.lacks_huge_pages() && quota >= had + Bytes(all.0 / USED_UP) {
                member.scan_soon(now);
            }
        }
    }

    /// While some program waits for huge pages, those over their quota are scanned next, and then those that wait.
    pub(super) fn expedite_over_quota(&mut self, now: Instant) {
        let is_beyond = |member: &Member| member.quota.is_some_and(|quota| member.huge() > quota);
        let waits = self.members.values().any(Member::lacks_huge_pages);
        if waits && self.members.values().any(is_beyond) {
            let concerned = self.members.values_mut().filter(|member| is_beyond(member) || member.lacks_huge_pages());
            concerned.for_each(|member| member.plan_anew(now));
        }
    }

    /// Whether a limit that holds for all is nearly used up: something must go before anything else becomes huge.
    pub(super) fn is_used_up(&self, allowance: &Allowance) -> bool {
        let Some(SizeOrShare::Size(all)) = allowance.max_huge else { return false };
        all.saturating_sub(huge_once(self.members.values())) < Bytes(all.0 / USED_UP)
    }

    /// What the allowance has already granted to the others.
    pub(super) fn spent(&self, process: Process) -> Spent {
        let own = self.members.get(&process).map_or(Bytes(0), Member::huge);
        Spent {
            growth: Bytes(0),
            growth_elsewhere: self.others(process).map(|other| other.growth() + other.reserved().1).sum(),
            huge_elsewhere: huge_once(self.members.values()).saturating_sub(own)
                + self.others(process).map(|other| other.reserved().0).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decide::Fairness;
    use crate::engine::fleet::tests::{fleet, member, process};

    fn quotas(fleet: &Fleet) -> Vec<u64> {
        fleet.members.values().map(|member| member.quota.expect("a limit").0 / HUGE_PAGE).collect()
    }

    #[test]
    fn a_limit_for_all_is_divided_whoever_came_first() {
        let all = Some(SizeOrShare::Size(Bytes(100 * HUGE_PAGE)));
        let mut fleet = fleet(Fairness::Share, vec![member(100, 0, 0), member(0, 0, 100)]);
        fleet.divide(all, Instant::now());
        assert_eq!(quotas(&fleet), [50, 50]);
        fleet.rules.fairness = Fairness::Benefit;
        fleet.divide(all, Instant::now());
        assert_eq!(quotas(&fleet), [100, 0], "nobody moves for equal benefit");
    }

    #[test]
    fn what_nobody_uses_may_be_anybodys() {
        let mut fleet = fleet(Fairness::Share, vec![member(10, 0, 5), member(0, 0, 20)]);
        fleet.divide(Some(SizeOrShare::Size(Bytes(100 * HUGE_PAGE))), Instant::now());
        assert_eq!(quotas(&fleet), [15 + 65, 20 + 65]);
    }

    #[test]
    fn huge_pages_of_others_are_not_divided() {
        let mut fleet = fleet(Fairness::Share, vec![member(10, 40, 100), member(0, 0, 100)]);
        fleet.divide(Some(SizeOrShare::Size(Bytes(100 * HUGE_PAGE))), Instant::now());
        assert_eq!(quotas(&fleet), [70, 30], "30 for each of the 60 that can be moved");
        fleet.divide(None, Instant::now());
        assert!(fleet.members.values().all(|member| member.quota.is_none()));
    }

    #[test]
    fn whoever_has_too_much_is_scanned_next_while_another_waits() {
        let later = Instant::now() + Duration::from_secs(40);
        let mut fleet = fleet(Fairness::Share, vec![member(100, 0, 0), member(0, 0, 100), member(1, 0, 0)]);
        fleet.divide(Some(SizeOrShare::Size(Bytes(100 * HUGE_PAGE))), Instant::now());
        fleet.members.values_mut().for_each(|member| member.next_scan = later);
        fleet.expedite_over_quota(Instant::now());
        assert!(fleet.members.values().all(|member| member.next_scan == later), "nobody waits");
        let second = fleet.members.get_mut(&process(2)).expect("a member");
        second.reasons.regions.insert(crate::decide::Reason::HugeLimit, 100);
        fleet.expedite_over_quota(Instant::now());
        let soon: Vec<bool> = fleet.members.values().map(|member| member.next_scan < later).collect();
        assert_eq!(soon, [true, true, false]);
    }

    #[test]
    fn whoever_lacks_huge_pages_is_scanned_soon_once_it_may_have_more() {
        let all = Some(SizeOrShare::Size(Bytes(100 * HUGE_PAGE)));
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(40));
        let mut fleet = fleet(Fairness::Share, vec![member(50, 0, 50), member(50, 0, 50)]);
        let is_soon = |fleet: &mut Fleet, others_claim: usize| {
            fleet.members.get_mut(&process(2)).expect("a member").claim.held.truncate(others_claim);
            let first = fleet.members.get_mut(&process(1)).expect("a member");
            first.reasons.regions.insert(crate::decide::Reason::HugeLimit, 50);
            first.next_scan = later;
            fleet.divide(all, now);
            fleet.members[&process(1)].next_scan < later
        };
        assert!(!is_soon(&mut fleet, 50), "nothing has changed");
        fleet.members.get_mut(&process(2)).expect("a member").claim.wanted.clear();
        assert!(!is_soon(&mut fleet, 48), "two are not worth a scan");
        assert!(is_soon(&mut fleet, 0));
        assert!(!is_soon(&mut fleet, 0), "once is enough");
    }

    #[test]
    fn an_allowance_is_shared_with_the_others() {
        let fleet = fleet(Fairness::Benefit, vec![member(1, 0, 0), member(2, 3, 0), member(4, 0, 0)]);
        let spent = |pid| fleet.spent(process(pid)).huge_elsewhere.0 / HUGE_PAGE;
        assert_eq!([spent(1), spent(2), spent(9)], [9, 5, 10]);
    }

    #[test]
    fn a_limit_is_used_up_when_next_to_nothing_is_left() {
        let is_used_up = |held, foreign, max_huge| {
            let allowance = Allowance { max_huge, ..Allowance::default() };
            fleet(Fairness::Benefit, vec![member(held, foreign, 0)]).is_used_up(&allowance)
        };
        let all = Some(SizeOrShare::Size(Bytes(160 * HUGE_PAGE)));
        assert!(!is_used_up(140, 10, all) && is_used_up(140, 11, all) && is_used_up(160, 40, all));
        assert!(!is_used_up(160, 0, None));
    }
}
