//! The choice in a virtual machine, seen from its host: guest memory that is populated.
//!
//! Owns: which mappings hold guest memory, and which of their regions are taken. Never touches: heat, of which nothing is known because a guest
//! walks page tables of its own; and the system.
//!
//! KVM's memory slots cannot be read from outside. So guest memory is told by its mappings: large, of no file on a disk, and not executable.

use std::collections::BTreeMap;

use heat::units::{Address, AddressRange, Bytes, HUGE_PAGE, PAGES_PER_REGION, Pages};
use heat::{Heat, Mapping, Obstacle, Region};

use crate::decide::budget::Budget;
use crate::decide::choose::{HeldRegions, in_order};
use crate::decide::keep::not_included;
use crate::decide::{Decision, Limits, Past, Plan, Reason, Verdict};

/// What is no larger may be a heap of glibc, which grows to 64 MiB, a stack, firmware or video memory.
const LARGER_THAN: Bytes = Bytes(64 << 20);
/// How monitors name the guest memory that they map.
const NAMES: [&str; 5] = [
    "/memfd:memory-backend-memfd",
    "/dev/shm/qemu_back_mem.",
    "/memfd:ch_ram",
    "/memfd:crosvm_guest",
    "/memfd:guest_mem",
];
/// Large mappings that are something else: QEMU's translated code.
const OTHER_NAMES: [&str; 2] = ["[heap]", "/memfd:tcg-jit"];
/// The most base pages that may be missing in a region which is taken, however much growth is allowed: a sixteenth. A balloon that took more out
/// of it is not undone.
const MOST_MISSING: u64 = PAGES_PER_REGION as u64 / 16;

/// The memory of a virtual machine, as far as its host can tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestMemory {
    /// The mappings that hold it, ascending; those without a populated page are left out.
    pub blocks: Vec<GuestBlock>,
}

/// A mapping that holds guest memory.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestBlock {
    /// Its addresses in the host's process.
    pub range: AddressRange,
    /// What backs it, for people.
    pub name: String,
    /// Memory that is populated.
    pub populated: Bytes,
    /// The part of it on huge pages.
    pub huge: Bytes,
    /// Why none of it can be promoted.
    pub obstacle: Option<Obstacle>,
    /// A program serves its page faults or its writes (userfaultfd): a migration by postcopy, or a snapshot.
    pub userfaultfd: bool,
    /// No memory is reserved for it (`MAP_NORESERVE`), as for virtio-mem.
    pub unreserved: bool,
}

impl GuestBlock {
    fn of(mapping: &Mapping) -> Option<Self> {
        let named = |names: &[&str]| names.iter().any(|name| mapping.name.starts_with(name));
        let may_be = match mapping.obstacle {
            None | Some(Obstacle::Misaligned | Obstacle::NoHugePage | Obstacle::Hugetlb) => !mapping.executable,
            Some(
                Obstacle::Stack
                | Obstacle::Special
                | Obstacle::File
                | Obstacle::FileOpenForWriting
                | Obstacle::FileMisaligned
                | Obstacle::ReadOnlyFile
                | Obstacle::Split,
            ) => false,
        };
        let is_one = may_be && !named(&OTHER_NAMES) && (named(&NAMES) || mapping.range.len() > LARGER_THAN);
        is_one.then(|| Self {
            range: mapping.range,
            name: mapping.name.clone(),
            populated: Bytes(0),
            huge: Bytes(0),
            obstacle: mapping.obstacle,
            userfaultfd: mapping.userfaultfd,
            unreserved: mapping.unreserved,
        })
    }

    fn add(&mut self, region: &Region) {
        self.populated += populated(region).bytes();
        self.huge += Bytes(if region.huge { HUGE_PAGE } else { 0 });
    }

    /// By how much its first address exceeds a multiple of 2 MiB. Guest memory begins at guest-physical 0 or 4 GiB; unless this is 0, no 2 MiB of the
    /// guest are 2 MiB of the host, and KVM maps 4 KiB at a time whatever the host has.
    pub fn incongruent_by(&self) -> Bytes {
        Bytes(self.range.start.0 % HUGE_PAGE)
    }
}

impl GuestMemory {
    /// The guest memory in a survey that tells growth.
    pub fn of(heat: &Heat) -> Self {
        let mut found: BTreeMap<usize, GuestBlock> = heat
            .mappings
            .iter()
            .enumerate()
            .filter_map(|(index, mapping)| Some((index, GuestBlock::of(mapping)?)))
            .collect();
        for region in &heat.regions {
            if let Some(block) = region.mapping_index().and_then(|index| found.get_mut(&index)) {
                block.add(region);
            }
        }
        Self { blocks: found.into_values().filter(|block| block.populated > Bytes(0)).collect() }
    }

    /// Memory that is populated.
    pub fn populated(&self) -> Bytes {
        self.blocks.iter().map(|block| block.populated).sum()
    }

    /// The part of it on huge pages.
    pub fn huge(&self) -> Bytes {
        self.blocks.iter().map(|block| block.huge).sum()
    }

    /// The block in which a region begins.
    fn block_of(&self, start: Address) -> Option<&GuestBlock> {
        let index = self.blocks.partition_point(|block| block.range.end <= start);
        self.blocks.get(index).filter(|block| block.range.contains(start))
    }
}

/// Decides for each region of a virtual machine: populated guest memory is taken in the order of its addresses, until a limit binds.
pub(super) fn decide(heat: &Heat, limits: &Limits, past: &Past) -> Plan {
    let guest = GuestMemory::of(heat);
    let most_missing = most_missing(heat.rss, limits);
    let mut held = HeldRegions::of(heat, past);
    let mut budget = Budget::for_all(heat, limits);
    let given_back = held.give_back(limits, &mut budget);
    let (mut promoted, mut kept) = (Vec::new(), Vec::new());
    for region in &heat.regions {
        let taken = match reason_to_keep(heat, region, guest.block_of(region.start), limits, most_missing) {
            Some(reason) => Err(reason),
            // A guest's memory is one mapping of many programs: what one of them frees says nothing about the others.
            None if past.is_cooling_down(region.start) => Err(Reason::CoolingDown),
            None => budget.take(region, 0.0),
        };
        match taken {
            Ok(()) => promoted.push(Decision {
                // Where programs compete for huge pages, what is not known to be walked counts as what just pays.
                worth: limits.break_even(),
                ..Decision::about(region, limits, Verdict::Promote, Reason::Populated)
            }),
            Err(reason) => kept.push(Decision::about(region, limits, Verdict::Keep, reason)),
        }
    }
    let decisions = in_order(given_back, promoted, kept);
    Plan { pid: heat.pid, meaning: heat.meaning, decisions, walk_share: None, walks: heat.walks }
}

/// The first reason that applies; None if the region may be taken.
fn reason_to_keep(
    heat: &Heat,
    region: &Region,
    block: Option<&GuestBlock>,
    limits: &Limits,
    most_missing: u64,
) -> Option<Reason> {
    let Some(block) = block else { return Some(Reason::NotGuestMemory) };
    if region.huge {
        Some(Reason::AlreadyHuge)
    } else if block.userfaultfd {
        // Before obstacles: QEMU also switches huge pages off while pages arrive.
        Some(Reason::Userfaultfd)
    } else if let Some(obstacle) = region.obstacle {
        Some(Reason::Obstacle(obstacle))
    } else if PAGES_PER_REGION as u64 - populated(region).0 > most_missing {
        Some(Reason::NotPopulated)
    } else {
        not_included(heat, region, limits)
    }
}

/// How many base pages may be missing in a region which is taken: the share by which all memory may grow. So whichever regions are taken, all of them
/// together stay within the limit, and none uses it up for the others.
fn most_missing(rss: Bytes, limits: &Limits) -> u64 {
    let share = limits.max_growth.0 as f64 / rss.0.max(1) as f64;
    ((PAGES_PER_REGION as f64 * share) as u64).min(MOST_MISSING)
}

/// The base pages of a region that hold something, in this process or in an object that it shares. Growth is known only of regions that can be
/// promoted.
fn populated(region: &Region) -> Pages {
    let missing = u64::from(region.growth.unpopulated) + u64::from(region.growth.zero);
    Pages(match region.obstacle {
        _ if region.huge => PAGES_PER_REGION as u64,
        Some(_) => region.present.len() as u64,
        None => (PAGES_PER_REGION as u64).saturating_sub(missing),
    })
}

#[cfg(test)]
mod tests {
    use heat::samples::{MEMFD, at, heat_of, huge, region};
    use heat::{Growth, Shared};
    use proptest::prelude::*;

    use super::*;
    use crate::decide::{Allowance, Spent};
    use heat::units::SizeOrShare;
    use std::time::Instant;

    /// A guest of 1 GiB with these regions.
    fn guest_of(regions: Vec<Region>) -> Heat {
        let mut heat = heat_of(regions);
        heat.mappings = vec![mapping("", 1 << 30)];
        heat.rss = Bytes(1 << 30);
        heat
    }

    fn mapping(name: &str, size: u64) -> Mapping {
        Mapping { range: AddressRange::new(at(0), Bytes(size)), name: name.to_owned(), ..Mapping::default() }
    }

    fn limits(max_growth: SizeOrShare) -> Limits {
        let allowance = Allowance { max_growth, ..Allowance::default() };
        Limits { guest: true, ..allowance.limits(Bytes(1 << 30), &Spent::default()) }
    }

    /// The usual limits: 1 % of growth.
    fn usual() -> Limits {
        limits(Limits::MAX_GROWTH)
    }

    fn reasons(heat: &Heat, limits: &Limits, past: &Past) -> Vec<Reason> {
        let mut decisions = crate::decide::decide(heat, limits, past).decisions;
        decisions.sort_by_key(|decision| decision.start);
        decisions.into_iter().map(|decision| decision.reason).collect()
    }

    #[test]
    fn guest_memory_is_told_by_size_name_and_flags() {
        let is_guest = |mapping: Mapping| GuestBlock::of(&mapping).is_some();
        let large = || mapping("", 128 << 20);
        assert!(is_guest(large()));
        assert!(is_guest(Mapping { shared: Some(Shared { offset: 0, ..MEMFD }), ..large() }));
        assert!(is_guest(mapping("/memfd:memory-backend-memfd (deleted)", 16 << 20)), "by its name");
        assert!(is_guest(Mapping { obstacle: Some(Obstacle::Hugetlb), ..large() }));
        assert!(!is_guest(mapping("", 64 << 20)), "a heap of glibc");
        assert!(!is_guest(mapping("[heap]", 1 << 30)));
        assert!(!is_guest(Mapping { executable: true, ..mapping("", 1 << 30) }), "translated code");
        assert!(!is_guest(mapping("/memfd:tcg-jit (deleted)", 1 << 30)));
        assert!(!is_guest(Mapping { obstacle: Some(Obstacle::File), ..large() }));
    }

    #[test]
    fn what_is_populated_is_taken_in_the_order_of_addresses() {
        let heat =
            guest_of(vec![region(0, 0.0, 0), region(1, 9e9, 5), huge(2, 0.0), region(3, 0.0, 6), region(4, 0.0, 0)]);
        let plan = crate::decide::decide(&heat, &usual(), &Past::default());
        let promoted: Vec<Address> = plan.promotions().map(|decision| decision.start).collect();
        assert_eq!(promoted, [at(0), at(1), at(4)]);
        assert_eq!(reasons(&heat, &usual(), &Past::default())[2..4], [Reason::AlreadyHuge, Reason::NotPopulated]);
        assert!(plan.promotions().all(|decision| decision.worth > 0.0 && decision.reason == Reason::Populated));
        assert_eq!((plan.walk_share, plan.growth()), (None, Bytes(5 * 4096)));
    }

    #[test]
    fn a_balloon_is_not_undone_however_much_growth_is_allowed() {
        let heat =
            guest_of([0, 1, 32, 33].iter().zip(0..).map(|(&missing, number)| region(number, 0.0, missing)).collect());
        let taken = |max_growth| {
            let reasons = reasons(&heat, &limits(max_growth), &Past::default());
            reasons.iter().take_while(|reason| **reason == Reason::Populated).count()
        };
        assert_eq!(taken(SizeOrShare::Size(Bytes(0))), 1, "no growth, no missing page");
        assert_eq!(taken(SizeOrShare::Share(0.01)), 2);
        assert_eq!(taken(SizeOrShare::Share(10.0)), 3);
    }

    #[test]
    fn pages_of_zeros_are_no_more_populated_than_missing_ones() {
        let zeros = Region { growth: Growth { zero: 6, ..Growth::default() }, ..region(0, 0.0, 0) };
        assert_eq!(reasons(&guest_of(vec![zeros]), &usual(), &Past::default()), [Reason::NotPopulated]);
    }

    #[test]
    fn what_must_be_left_alone_is_left_with_its_reason() {
        let of = |change: fn(&mut Heat)| {
            let mut heat = guest_of(vec![region(0, 0.0, 0)]);
            change(&mut heat);
            reasons(&heat, &usual(), &Past::default())[0]
        };
        assert_eq!(of(|_| ()), Reason::Populated);
        assert_eq!(of(|heat| heat.mappings[0].executable = true), Reason::NotGuestMemory);
        assert_eq!(of(|heat| heat.mappings[0].spread_over_nodes = true), Reason::SpreadOverNodes);
        assert_eq!(of(|heat| heat.regions[0].growth.merged = 1), Reason::Shared);
        assert_eq!(of(|heat| heat.regions[0].obstacle = Some(Obstacle::Split)), Reason::Obstacle(Obstacle::Split));
        // As QEMU does it during a migration by postcopy.
        let postcopy = of(|heat| {
            (heat.mappings[0].userfaultfd, heat.mappings[0].obstacle) = (true, Some(Obstacle::NoHugePage));
            heat.regions[0].obstacle = Some(Obstacle::NoHugePage);
        });
        assert_eq!(postcopy, Reason::Userfaultfd);
    }

    #[test]
    fn what_was_refused_or_is_over_quota_is_treated_as_elsewhere() {
        let (mut past, now) = (Past::default(), Instant::now());
        past.promoted(at(0), 56.0);
        past.promoted(at(1), 56.0);
        past.refused(at(2), now);
        let heat = guest_of(vec![huge(0, 0.0), huge(1, 0.0), region(2, 0.0, 0), region(3, 0.0, 0)]);
        _ = past.notice(&heat, now);
        assert_eq!(reasons(&heat, &usual(), &past)[2..], [Reason::CoolingDown, Reason::Populated]);
        let quota = Limits { quota: Some(Bytes(HUGE_PAGE)), ..usual() };
        let plan = crate::decide::decide(&heat, &quota, &past);
        assert_eq!((plan.give_backs().count(), plan.promotions().count()), (1, 0));
        assert_eq!(plan.counts()[&Reason::HugeLimit], 1);
    }

    #[test]
    fn a_guest_says_how_much_of_it_is_populated_and_huge() {
        let blocked = Region { obstacle: Some(Obstacle::Split), ..region(3, 0.0, 500) };
        let mut heat = guest_of(vec![region(0, 0.0, 100), huge(1, 0.0), region(2, 0.0, 512), blocked]);
        let guest = GuestMemory::of(&heat);
        assert_eq!((guest.populated(), guest.huge()), (Pages(412 + 512 + 12).bytes(), Bytes(HUGE_PAGE)));
        assert_eq!(guest.blocks[0].incongruent_by(), Bytes(0));
        heat.mappings[0].range.start = Address(at(0).0 + 0x3000);
        assert_eq!(GuestMemory::of(&heat).blocks[0].incongruent_by(), Bytes(0x3000));
        heat.regions.clear();
        assert_eq!(GuestMemory::of(&heat), GuestMemory::default(), "nothing is populated");
    }

    proptest! {
        #[test]
        fn growth_and_huge_pages_stay_within_their_limits(
            missing in prop::collection::vec(0..=512u16, 1..60), share in 0.0..0.2f64, most in 0..60u64
        ) {
            let regions: Vec<Region> = missing.iter().zip(0..).map(|(&missing, number)| region(number, 0.0, missing)).collect();
            let allowed = limits(SizeOrShare::Share(share));
            let allowed = Limits { max_huge: Some(Bytes(most * HUGE_PAGE)), ..allowed };
            let plan = crate::decide::decide(&guest_of(regions), &allowed, &Past::default());
            let promoted = plan.promotions().count() as u64;
            prop_assert!(promoted <= most && plan.growth() <= allowed.max_growth);
            prop_assert!(plan.growth().0 as f64 <= promoted as f64 * HUGE_PAGE as f64 * share);
        }
    }
}
