//! Heats for tests.

use crate::clearing::{CallSample, ClearMethod, ClearReason, Clearing};
use crate::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, Nanos};
use crate::{Cost, Growth, Heat, Mapping, Meaning, Object, Obstacle, PageSet, Region, Shared, TrackerKind};

/// A mapping of the beginning of some shared memory.
pub const MEMFD: Shared = Shared { object: Object { device: (0, 1), inode: 7, ipc_namespace: None }, offset: 0 };

/// The address of the region with this index.
pub fn at(number: u64) -> Address {
    Address((1 << 40) + number * HUGE_PAGE)
}

/// A region with this many page walks a second, of which `unpopulated` base pages are not present.
pub fn region(number: u64, walks_per_second: f64, unpopulated: u16) -> Region {
    let mut present = PageSet::NONE;
    (usize::from(unpopulated)..512).for_each(|page| present.insert(page));
    let walked = if walks_per_second > 0.0 { present.clone() } else { PageSet::NONE };
    Region {
        present,
        walked_in_window: walked.len() as u16,
        walked,
        walks_per_second,
        growth: Growth { unpopulated, ..Growth::default() },
        ..Region::blank(at(number), Some(0))
    }
}

/// A region that is already huge.
pub fn huge(number: u64, walks_per_second: f64) -> Region {
    Region { huge: true, ..region(number, walks_per_second, 0) }
}

/// The heat of a process with these regions, in one mapping, which kept one CPU busy.
pub fn heat_of(regions: Vec<Region>) -> Heat {
    let end = regions.last().map_or(at(0), |region| region.range().end);
    let present: usize = regions.iter().map(|region| region.present.len()).sum();
    Heat {
        window: Nanos(1_000_000_000),
        busy_cpus: Some(1.0),
        rss: Bytes(present as u64 * BASE_PAGE),
        mappings: vec![Mapping {
            range: AddressRange { start: at(0), end },
            name: "[heap]".to_owned(),
            ..Mapping::default()
        }],
        regions,
        cost: Cost {
            clear: Nanos(13_000_000),
            longest_stall: Nanos(13_000_000),
            read: Nanos(1_500_000),
            reads: 3,
            program: Nanos(20_000_000),
            ..Cost::default()
        },
        ..Heat::blank(4242, TrackerKind::PageWalk, Meaning::Walked)
    }
}

/// Three calls seen before a clearing of a quarter of a second.
pub fn clearing() -> Clearing {
    let calls = CallSample { length: Nanos(750_000_000), faults: 1, mmap_calls: Some(2), resized: true };
    let (method, reason) = (ClearMethod::ClearRefs, ClearReason::FewCalls);
    let (expected, bits_set_again) = (Nanos(250_000_000), Nanos(768_000_000));
    Clearing { method, reason, expected, bits_set_again, calls: Some(calls), reclaim: None }
}

/// A heat with a region of nearly every kind, in three mappings, of which one went away.
pub fn mixed_heat() -> Heat {
    let second = |region| Region { mapping: Some(1), ..region };
    let mut heat = heat_of(vec![
        region(0, 2e6, 0),
        region(1, 1e6, 1),
        region(2, 0.0, 511),
        region(3, 0.0, 0),
        huge(4, 10.0),
        second(region(8, 5e3, 400)),
        second(Region { growth: Growth { shared_by_fork: 9, ..Growth::default() }, ..region(9, 4e3, 0) }),
        second(Region { obstacle: Some(Obstacle::Split), ..region(10, 1e3, 3) }),
        Region { mapping: None, ..region(20, 1.0, 510) },
    ]);
    heat.mappings[0].range.end = at(5);
    heat.mappings.push(Mapping { range: AddressRange { start: at(8), end: at(11) }, ..Mapping::default() });
    heat
}
