//! Processes that share memory: which are observed on behalf of all, and which one acts for all.
//!
//! Owns: these choices among the members of a fleet. Never touches: memory, or what is promoted.
//!
//! A database server has a process for each client, and all map the same buffers. Observing each of hundreds in turn would take long and show the
//! same each time; and each would promote the same memory again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use heat::Object;
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use kernel::target::Process;
use observe::Whose;

use crate::engine::fleet::Fleet;
use crate::engine::member::Member;
use crate::engine::pilot::Pilot;
use crate::engine::shared::{SAMPLE_OF_FAMILY, hash, huge_in_any, is_helper};

/// Children of one process that run the same program.
type Family<'a> = (&'a str, u32);

impl Fleet {
    /// Members that need not be observed because others of their family are: they have touched shared memory, and next to none of their own.
    pub(super) fn represented(&self) -> BTreeSet<Process> {
        let has_own_business = |member: &Member| member.is_unfinished() || member.promoted() > Bytes(0);
        let is_alike = |member: &Member| self.owns_little(member) && !has_own_business(member);
        let mut families: BTreeMap<Family<'_>, Vec<Process>> = BTreeMap::new();
        for (process, member) in self.members.iter().filter(|(_, member)| is_alike(member)) {
            families.entry(family(member)).or_default().push(*process);
        }
        let shared_rss = |process: &Process| self.members[process].shared_rss;
        for family in families.values_mut() {
            let shared = self.shared_by(family);
            family.retain(|process| !shared.is_lagging(&self.members[process]));
            let largest = family.iter().map(shared_rss).max().unwrap_or_default();
            family.sort_by_key(|process| (is_helper(shared_rss(process), largest), hash(process)));
        }
        families.into_values().flat_map(|family| family.into_iter().skip(SAMPLE_OF_FAMILY)).collect()
    }

    /// What a family shares, as mapped by one observed member of it.
    fn shared_by(&self, family: &[Process]) -> SharedMemory {
        let views = family.iter().map(|process| &self.members[process].view);
        let Some(view) = views.max_by_key(|view| view.mapped_bytes()) else { return SharedMemory::default() };
        let sharers = self.members.values().map(|member| &member.view).filter(|other| other.meets(view));
        let huge = Bytes(huge_in_any(sharers).len() as u64 * HUGE_PAGE);
        SharedMemory { mapped: view.mapped_bytes(), huge }
    }

    /// Whether others of its family do the same work on the same memory, nearly all of it shared.
    pub(super) fn is_one_of_many(&self, process: Process) -> bool {
        let member = &self.members[&process];
        let kin = self.others(process).filter(|other| family(other) == family(member));
        self.owns_little(member) && member.shared_rss > member.private_rss && kin.count() >= SAMPLE_OF_FAMILY
    }

    /// Whether the promotion that it waits for is under way: another scan could show no more, and would delay the promoting process.
    pub(super) fn is_promoted_by_another(&self, member: &Member) -> bool {
        let acts = |other: &Member| other.is_unfinished() && other.view.meets(&member.view);
        member.waits_for_another() && !member.is_unfinished() && self.members.values().any(acts)
    }

    fn owns_little(&self, member: &Member) -> bool {
        member.private_rss < self.rules.min_size
    }

    /// The number of processes that share memory with this one, for each one observed.
    pub(super) fn times_observed(&self, process: Process) -> f64 {
        let view = &self.members[&process].view;
        let shares = |member: &&Member| member.view.meets(view);
        let families: BTreeSet<Family<'_>> = self.members.values().filter(shares).map(family).collect();
        let observed: Bytes = self.members.values().filter(shares).map(|member| member.shared_rss).sum();
        let kin = self.members.values().filter(|member| families.contains(&family(member)));
        let all: Bytes = kin.map(|member| member.shared_rss).sum();
        if observed > Bytes(0) { (all.0 as f64 / observed.0 as f64).max(1.0) } else { 1.0 }
    }

    /// Counts the page faults of all processes that share memory with a process, unless it is known to share none.
    pub(super) fn count_faults(&self, process: Process, pilot: &mut Pilot<'_>) {
        let member = &self.members[&process];
        let may_share = member.scanned_at.is_none() && member.shared_rss > Bytes(0);
        if may_share || member.view.objects().next().is_some() {
            let sharers: Vec<Process> = self.sharers(process).collect();
            pilot.world.count_faults(&sharers, Whose::AndTheirChildren);
        }
    }

    /// The process, and those that share memory with it; before they were first observed, its children are assumed to.
    fn sharers(&self, process: Process) -> impl Iterator<Item = Process> {
        let view = &self.members[&process].view;
        let may_share = move |other: &Member| other.view.meets(view) || other.parent == process.pid;
        let sharers = self.members.iter().filter(move |(sharer, other)| **sharer == process || may_share(other));
        sharers.map(|(sharer, _)| *sharer)
    }

    /// The objects that another process promotes: the one that maps most of the object and, if there are several, the oldest, because it will live
    /// longest.
    pub(super) fn left_to_others(&self, process: Process) -> BTreeMap<Object, Process> {
        let rank = |(process, mapped): (Process, Bytes)| (std::cmp::Reverse(mapped), process.start_ticks, process.pid);
        let mut best: BTreeMap<Object, (Process, Bytes)> = BTreeMap::new();
        for (&other, member) in &self.members {
            if other != process && (member.left_alone.is_some() || self.shared_state.is_paused(other)) {
                continue;
            }
            for (object, mapped) in member.view.objects() {
                let first = best.entry(object).or_insert((other, mapped));
                if rank((other, mapped)) < rank(*first) {
                    *first = (other, mapped);
                }
            }
        }
        best.into_iter()
            .map(|(object, (holder, _))| (object, holder))
            .filter(|(_, holder)| *holder != process)
            .collect()
    }

    /// When more of a program's memory has become huge, the processes that share it are to map it huge, too. Among many similar ones, the size of
    /// their remaining page tables shows which.
    pub(super) fn expedite_sharers(&mut self, process: Process, now: Instant) {
        let view = &self.members[&process].view;
        let shares = |(other, member): &(&Process, &Member)| **other != process && member.view.meets(view);
        let sharers = self.members.iter().filter(shares).map(|(other, _)| *other);
        let sharers: Vec<Process> = sharers.filter(|other| !self.is_one_of_many(*other)).collect();
        sharers.into_iter().for_each(|other| self.members.get_mut(&other).expect("a member").scan_soon(now));
    }

    /// What others lose on shared memory may be reason enough to promote it now.
    pub(super) fn expedite_promoters<'a>(&mut self, processes: impl Iterator<Item = &'a Process>, now: Instant) {
        for process in processes {
            if let Some(member) = self.members.get_mut(process).filter(|member| !member.is_unfinished()) {
                member.scan_for_others(now);
            }
        }
    }
}

fn family(member: &Member) -> Family<'_> {
    (&member.name, member.parent)
}

/// Memory that a family shares.
#[derive(Clone, Copy, Debug, Default)]
struct SharedMemory {
    /// What each member maps where huge pages fit.
    mapped: Bytes,
    /// The part of it on huge pages.
    huge: Bytes,
}

impl SharedMemory {
    /// Whether a process's page tables still hold base pages of memory that is huge in others: they cover more than what is not yet huge, by half of
    /// what it uses.
    fn is_lagging(self, member: &Member) -> bool {
        let on_base_pages = member.page_tables.0.saturating_mul(HUGE_PAGE / BASE_PAGE);
        let half = member.shared_rss.0 / 2;
        self.huge.0 >= half && on_base_pages >= self.mapped.0.saturating_sub(self.huge.0) + half
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heat::samples::{MEMFD, at, heat_of, huge, region};
    use heat::units::AddressRange;
    use heat::{Growth, Heat, Region, Shared, Snapshot};

    use super::*;
    use crate::decide::{Allowance, Limits, Past, Reason, Spent, decide};
    use crate::engine::fleet::Rules;
    use crate::engine::shared::SharedView;
    use crate::engine::shared_state::{SharedState, TargetState};
    use crate::engine::unfinished::Unfinished;
    use crate::scope::Scope;

    const MIB: u64 = 1 << 20;

    fn process(pid: u32) -> Process {
        Process { pid, start_ticks: pid.into() }
    }

    /// Maps this many regions from the start of the object.
    fn sharing(mapped: u64, regions: Vec<Region>) -> Heat {
        let mut heat = heat_of(regions);
        heat.mappings[0].range = AddressRange { start: at(0), end: at(mapped) };
        heat.mappings[0].shared = Some(Shared { offset: 0, ..MEMFD });
        heat
    }

    fn server() -> Member {
        let mut member = Member::new(Instant::now(), 1.0, true);
        (member.name, member.parent) = ("postgres".to_owned(), 1);
        member.view = SharedView::of(&sharing(100, vec![region(0, 1.0, 0)]));
        member
    }

    fn backend() -> Member {
        let mut member = server();
        (member.parent, member.shared_rss, member.private_rss) = (2, Bytes(200 * MIB), Bytes(3 * MIB));
        member
    }

    fn with(mut member: Member, change: impl FnOnce(&mut Member)) -> Member {
        change(&mut member);
        member
    }

    fn fleet(members: Vec<Member>) -> Fleet {
        let scope = Scope::process(process(1), true);
        let mut fleet = Fleet::new(scope, Rules::default(), SharedState::default(), Instant::now(), Some(true));
        fleet.members = (1..).map(process).zip(members).collect();
        fleet
    }

    #[test]
    fn a_few_of_many_that_are_alike_are_observed() {
        let fleet = fleet(std::iter::once(server()).chain((0..20).map(|_| backend())).collect());
        let represented = fleet.represented();
        assert_eq!(represented.len(), 20 - SAMPLE_OF_FAMILY);
        assert!(!represented.contains(&process(1)), "the only one of its family");
    }

    #[test]
    fn helpers_are_observed_last() {
        let helper = || with(backend(), |member| member.shared_rss = Bytes(20 * MIB));
        let fleet = fleet((0..9).map(|_| helper()).chain((0..9).map(|_| backend())).collect());
        let represented = fleet.represented();
        assert!((1..=9).all(|pid| represented.contains(&process(pid))) && represented.len() == 18 - SAMPLE_OF_FAMILY);
    }

    #[test]
    fn one_of_many_shares_next_to_all_it_has() {
        let own = with(backend(), |member| member.private_rss = Bytes(64 * MIB));
        let fleet = fleet((0..5).map(|_| backend()).chain([own, server()]).collect());
        let of_many: Vec<u32> = (1..=7).filter(|&pid| fleet.is_one_of_many(process(pid))).collect();
        assert_eq!(of_many, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn whoever_has_memory_of_its_own_is_observed() {
        let large = with(backend(), |member| member.private_rss = Bytes(64 * MIB));
        let fleet = fleet((0..9).map(|_| backend()).chain([large]).collect());
        assert!(!fleet.represented().contains(&process(10)));
        assert_eq!(fleet.represented().len(), 9 - SAMPLE_OF_FAMILY);
    }

    #[test]
    fn whoever_still_maps_base_pages_of_huge_memory_is_observed() {
        let represented = |on_huge_pages, page_tables| {
            let view = SharedView::of(&sharing(100, (0..on_huge_pages).map(|number| huge(number, 0.0)).collect()));
            let promoted = with(server(), |member| member.view = view);
            let late = (0..9).map(|_| with(backend(), |member| member.page_tables = page_tables));
            fleet(std::iter::once(promoted).chain(late).collect()).represented().len()
        };
        assert_eq!(represented(100, Bytes(200 * MIB / 512)), 0);
        assert_eq!(represented(100, Bytes(64 << 10)), 9 - SAMPLE_OF_FAMILY);
        assert_eq!(represented(60, Bytes(200 * MIB / 512)), 0);
        assert_eq!(represented(60, Bytes(100 * MIB / 512)), 9 - SAMPLE_OF_FAMILY, "what is not huge needs page tables");
    }

    #[test]
    fn of_many_that_are_alike_none_is_observed_because_more_is_huge() {
        let later = Instant::now() + Duration::from_secs(40);
        let mut fleet = fleet(std::iter::once(server()).chain((0..9).map(|_| backend())).chain([server()]).collect());
        fleet.members.values_mut().for_each(|member| member.next_scan = later);
        fleet.expedite_sharers(process(1), Instant::now());
        let soon: Vec<u32> = fleet
            .members
            .iter()
            .filter(|(_, member)| member.next_scan < later)
            .map(|(process, _)| process.pid)
            .collect();
        assert_eq!(soon, [11]);
    }

    #[test]
    fn what_few_showed_counts_for_all() {
        let unobserved = || with(backend(), |member| member.view = SharedView::default());
        let fleet = fleet(vec![backend(), backend(), unobserved(), unobserved(), unobserved(), unobserved()]);
        assert!((fleet.times_observed(process(1)) - 3.0).abs() < 1e-9);
        let other = with(unobserved(), |member| member.name = "other".to_owned());
        let fleet = self::fleet(vec![backend(), other]);
        assert!((fleet.times_observed(process(1)) - 1.0).abs() < 1e-9, "of another family");
    }

    #[test]
    fn faults_of_children_count_before_they_were_observed() {
        let child = with(backend(), |member| (member.parent, member.view) = (1, SharedView::default()));
        let stranger = with(backend(), |member| member.view = SharedView::default());
        let fleet = fleet(vec![server(), child, stranger, backend()]);
        assert_eq!(fleet.sharers(process(1)).map(|sharer| sharer.pid).collect::<Vec<_>>(), [1, 2, 4]);
    }

    #[test]
    fn whoever_waits_for_another_at_work_is_not_scanned() {
        let waiting = with(backend(), |member| _ = member.reasons.regions.insert(Reason::ThroughAnother, 1));
        let mut fleet = fleet(vec![server(), waiting]);
        assert_eq!(fleet.waiting(Instant::now()).len(), 2);
        let heat = sharing(100, vec![region(0, 1e6, 0)]);
        let limits = Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(0), &Spent::default()) };
        let plan = decide(&heat, &limits, &Past::default());
        fleet.members.get_mut(&process(1)).expect("a member").unfinished = Unfinished::of(&heat, &plan, 0, 0);
        assert_eq!(fleet.waiting(Instant::now()), [process(1)]);
    }

    #[test]
    fn whoever_promotes_for_others_is_not_scanned_for_each_of_them() {
        let (asked_for, mut fleet) = ([process(1)], fleet(vec![server()]));
        fleet.members.get_mut(&process(1)).expect("a member").next_scan += Duration::from_secs(60);
        let now = Instant::now();
        let rest = |fleet: &mut Fleet| {
            fleet.expedite_promoters(asked_for.iter(), now);
            fleet.members[&process(1)].next_scan - now
        };
        assert!(rest(&mut fleet) <= Duration::from_secs(1));
        // Nothing was to be promoted again and again.
        (0..8).for_each(|_| fleet.members.get_mut(&process(1)).expect("a member").wait_longer(now));
        assert_eq!(rest(&mut fleet), Duration::from_secs(15));
    }

    #[test]
    fn shared_memory_grows_by_a_share_of_all_of_it_in_the_process_that_promotes_it() {
        let elsewhere = |number| Region { growth: Growth::default(), ..Region::blank(at(number), Some(0)) };
        let (postmaster, mut touched) = (
            sharing(100, (0..100).map(elsewhere).collect()),
            sharing(100, (0..50).map(|n| region(n, 1.0, 0)).collect()),
        );
        touched.rss += Bytes(HUGE_PAGE);
        let fleet = fleet(vec![server(), backend()]);
        let grows = |pid, heat| fleet.limits_for(process(pid), heat, &Allowance::default()).max_growth;
        assert_eq!(grows(1, &postmaster), Bytes(HUGE_PAGE), "1 % of what others have populated");
        assert_eq!(grows(2, &touched), Bytes(HUGE_PAGE).share(0.01), "1 % of its own");
    }

    #[test]
    fn memory_that_targets_share_is_divided_among_those_that_were_scanned() {
        let scanned = |own: u64| {
            let mut heat = sharing(100, (0..5).map(|number| region(number, 1.0, 0)).collect());
            heat.rss += Bytes(own * MIB);
            let last = Some(Snapshot::of(&heat, Bytes(0)));
            with(backend(), |member| (member.last, member.view) = (last, SharedView::of(&heat)))
        };
        let unscanned = with(backend(), |member| {
            (member.view, member.private_rss, member.shared_rss) = (SharedView::default(), Bytes(MIB), Bytes(10 * MIB));
        });
        let targets = fleet(vec![scanned(1), scanned(2), unscanned]).targets(Instant::now());
        let resident =
            |of: fn(&TargetState) -> Bytes| targets.iter().map(|target| of(target).0 / MIB).collect::<Vec<_>>();
        assert_eq!(resident(|target| target.rss_bytes), [11, 12, 11]);
        assert_eq!(resident(|target| target.proportional_bytes), [1 + 5, 2 + 5, 1]);
    }

    #[test]
    fn whoever_maps_most_and_is_oldest_acts_for_all() {
        let all = SharedView::of(&sharing(200, vec![region(0, 1.0, 0)]));
        let whole = || with(backend(), |member| member.view = all.clone());
        let mut fleet = fleet(vec![backend(), whole(), whole()]);
        let holder = |fleet: &Fleet, pid| fleet.left_to_others(process(pid)).into_values().next();
        assert_eq!([1, 2, 3].map(|pid| holder(&fleet, pid)), [Some(process(2)), None, Some(process(2))]);
        fleet.members.get_mut(&process(2)).expect("a member").left_alone = Some("it may not be observed".to_owned());
        assert_eq!([1, 3].map(|pid| holder(&fleet, pid)), [Some(process(3)), None]);
    }
}
