//! Heats for tests.

use crate::{Cost, Growth, Heat, Mapping, Meaning, Object, PageSet, Region, Shared, TrackerKind, Walks};
use crate::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, Nanos};

/// A mapping of the beginning of some shared memory.
pub const MEMFD: Shared = Shared { object: Object { device: (0, 1), inode: 7, ipc_namespace: None }, offset: 0 };

/// The address of the region with this number.
pub fn at(number: u64) -> Address {
    Address((1 << 40) + number * HUGE_PAGE)
}

/// A region with this many page walks a second, of which `unpopulated` base pages are not present.
pub fn region(number: u64, walks_per_second: f64, unpopulated: u16) -> Region {
    let mut present = PageSet::NONE;
    (usize::from(unpopulated)..512).for_each(|page| present.insert(page));
    let walked = if walks_per_second > 0.0 { present.clone() } else { PageSet::NONE };
    Region {
        start: at(number),
        mapping: Some(0),
        obstacle: None,
        huge: false,
        present,
        walked_in_window: walked.len() as u16,
        walked,
        unobserved: 0,
        walks_per_second,
        growth: Growth { unpopulated, ..Growth::default() },
        faults_per_second: 0.0,
        page_tables: 0,
        at_most_accesses_per_second: None,
    }
}

/// A region that is huge already.
pub fn huge(number: u64, walks_per_second: f64) -> Region {
    Region { huge: true, ..region(number, walks_per_second, 0) }
}

/// The heat of a process with these regions, in one mapping, which kept one CPU busy.
pub fn heat_of(regions: Vec<Region>) -> Heat {
    let end = regions.last().map_or(at(0), |region| region.range().end);
    let present: usize = regions.iter().map(|region| region.present.len()).sum();
    Heat {
        pid: 4242,
        address_space: None,
        tracker: TrackerKind::PageWalk,
        meaning: Meaning::Walked,
        clearing: None,
        window: Nanos(1_000_000_000),
        busy_cpus: Some(1.0),
        rss: Bytes(present as u64 * BASE_PAGE),
        mappings: vec![Mapping {
            range: AddressRange { start: at(0), end },
            name: "[heap]".to_owned(),
            obstacle: None,
            shared: None,
            asked_for: false,
            spread_over_nodes: false,
        }],
        regions,
        cost: Cost {
            clear: Nanos(13_000_000),
            longest_stall: Nanos(13_000_000),
            read: Nanos(1_500_000),
            reads: 3,
            glimpse: Nanos(0),
            inspect: Nanos(0),
            kernel: Nanos(0),
            program: Nanos(20_000_000),
        },
        walks: Walks::default(),
        sample: None,
    }
}
