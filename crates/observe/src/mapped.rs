//! What is mapped where, however a tracker learns it: the mappings with their obstacles, and the regions with a page present.
//!
//! Owns: turning mappings, flags and present pages into [`Mapping`]s and [`Region`]s. Never touches: the system.

use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE};
use heat::{Mapping, Object, Obstacle, PageSet, Region, Shared};
use kernel::maps;
use kernel::vm_flags::{
    GROWSDOWN, HUGEPAGE, HUGETLB, IO, MAY_WRITE, MIXEDMAP, NOHUGEPAGE, NORESERVE, PFNMAP, UFFD_MISSING, UFFD_WP,
};

use crate::ObserveError;

/// The default maximum size of a thread's stack. Before Linux 6.7 a stack may be one mapping with the memory above it; in a mapping larger than two
/// stacks, only memory this close to a stack pointer is a stack.
const STACK: Bytes = Bytes(8 << 20);

/// The beginning of the names of SysV memory; it appears as deleted files of the same device as memfd.
const SYSV: &str = "/SYSV";
/// Names of promotable shared memory in `/proc/PID/maps`.
const SHARED_MEMORY: [&str; 4] = ["/memfd:", SYSV, "/dev/zero", "/dev/shm/"];
/// Mappings made by the kernel.
const SPECIAL: [&str; 5] = ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]"];

/// The flags of one mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappingFlags {
    pub(super) range: AddressRange,
    /// Bits of [`kernel::vm_flags`].
    pub(super) flags: u64,
}

/// Joins `/proc/PID/maps` with the kernel's flags. Both ascend; a mapping in only one of them came or went in between and counts as special until the
/// next scan. Neither has memory policies ([`crate::node_policy`]). Stack pointers ascend, too.
pub(super) fn mappings(
    lines: Vec<maps::Line>,
    flags: &[MappingFlags],
    stack_pointers: &[Address],
    ipc_namespace: Option<u64>,
) -> Vec<Mapping> {
    let join = |line: maps::Line| {
        let found = flags.binary_search_by_key(&line.range.start, |mapping| mapping.range.start);
        let flags = found.ok().map(|at| flags[at]).filter(|mapping| mapping.range == line.range).map(|each| each.flags);
        let has = |any_of: u64| flags.is_some_and(|flags| flags & any_of != 0);
        let holds_stack = line.range.len() <= Bytes(2 * STACK.0) && holds_any(stack_pointers, line.range);
        Mapping {
            range: line.range,
            obstacle: obstacle(&line, flags, holds_stack),
            shared: line.shared.then(|| shared(&line, ipc_namespace)),
            asked_for: has(HUGEPAGE),
            spread_over_nodes: false,
            executable: line.executable,
            userfaultfd: has(UFFD_MISSING | UFFD_WP),
            unreserved: has(NORESERVE),
            name: line.name,
        }
    };
    lines.into_iter().map(join).collect()
}

/// Whether one of these ascending addresses is in the range. A program may have thousands of stacks and of mappings.
fn holds_any(addresses: &[Address], range: AddressRange) -> bool {
    let first = addresses.partition_point(|&address| address < range.start);
    addresses.get(first).is_some_and(|&address| range.contains(address))
}

fn shared(line: &maps::Line, ipc_namespace: Option<u64>) -> Shared {
    let ipc_namespace = ipc_namespace.filter(|_| line.name.starts_with(SYSV));
    Shared { object: Object { device: line.device, inode: line.inode, ipc_namespace }, offset: line.offset }
}

fn obstacle(line: &maps::Line, flags: Option<u64>, holds_stack: bool) -> Option<Obstacle> {
    let flags = flags.unwrap_or(IO);
    // The inode alone is not enough: the first SysV segment has 0.
    let backed = line.inode != 0 || line.device != (0, 0);
    // Shared memory is collapsed only where its offset in the file is also a multiple of 2 MiB.
    let misaligned = backed && !line.range.start.0.wrapping_sub(line.offset).is_multiple_of(HUGE_PAGE);
    let file = backed && !SHARED_MEMORY.iter().any(|prefix| line.name.starts_with(prefix));
    match line.name.as_str() {
        name if name.starts_with("[stack") || flags & GROWSDOWN != 0 => Some(Obstacle::Stack),
        name if SPECIAL.contains(&name) || flags & (IO | PFNMAP | MIXEDMAP) != 0 => Some(Obstacle::Special),
        _ if flags & HUGETLB != 0 => Some(Obstacle::Hugetlb),
        _ if holds_stack => Some(Obstacle::Stack),
        _ if flags & NOHUGEPAGE != 0 => Some(Obstacle::NoHugePage),
        _ if file && line.writable && line.shared => Some(Obstacle::File),
        _ if file && (misaligned || !holds_huge_page(line.range)) => Some(Obstacle::FileMisaligned),
        _ if file && line.shared && flags & MAY_WRITE != 0 => Some(Obstacle::FileOpenForWriting),
        _ if file && line.writable => Some(Obstacle::File),
        _ if file => Some(Obstacle::ReadOnlyFile),
        _ if misaligned => Some(Obstacle::Misaligned),
        _ => None,
    }
}

/// Whether a present page of a region is after the end of the mapping that holds its first.
fn holds_beyond(region: AddressRange, present: &PageSet, mapping: AddressRange) -> bool {
    present.iter().any(|page| region.start.0 + page as u64 * BASE_PAGE >= mapping.end.0)
}

/// Whether an aligned 2 MiB is in the range.
fn holds_huge_page(range: AddressRange) -> bool {
    range.start.0.checked_next_multiple_of(HUGE_PAGE).is_some_and(|start| start + HUGE_PAGE <= range.end.0)
}

/// Collects regions that arrive in ascending order, up to a bound: page tables tell little of their number, since one page of them can map 512
/// regions of shared memory on huge pages.
pub(super) struct RegionCollector<'a> {
    pid: u32,
    most: usize,
    mappings: &'a [Mapping],
    stack_pointers: &'a [Address],
    pub(super) regions: Vec<Region>,
}

impl<'a> RegionCollector<'a> {
    /// For at most this many regions of a process; stack pointers ascend.
    pub(super) fn new(pid: u32, most: usize, mappings: &'a [Mapping], stack_pointers: &'a [Address]) -> Self {
        Self { pid, most, mappings, stack_pointers, regions: Vec::new() }
    }

    /// Adds a region, if a page is present.
    ///
    /// Errors: there are as many as there may be.
    pub(super) fn add(&mut self, start: Address, present: PageSet, huge: bool) -> Result<(), ObserveError> {
        if present.is_empty() {
            return Ok(());
        }
        if self.regions.len() >= self.most {
            return Err(ObserveError::TooManyRegions { pid: self.pid, most: self.most });
        }
        self.regions.push(self.region(start, present, huge));
        Ok(())
    }

    fn region(&self, start: Address, present: PageSet, huge: bool) -> Region {
        let range = AddressRange::new(start, Bytes(HUGE_PAGE));
        let mapping = self.first_overlapping(range, &present);
        let obstacle = match mapping.map(|index| &self.mappings[index]) {
            None => Some(Obstacle::Special),
            // What a file's mapping forbids is not the reason for the memory beside it.
            Some(Mapping { obstacle: Some(obstacle), range: own, .. }) if obstacle.is_of_file() => {
                Some(if holds_beyond(range, &present, *own) { Obstacle::Split } else { *obstacle })
            }
            // At the ends of a file no huge page fits.
            Some(Mapping { obstacle: Some(obstacle), .. }) if *obstacle != Obstacle::ReadOnlyFile => Some(*obstacle),
            Some(mapping) if mapping.range.start > range.start || mapping.range.end < range.end => {
                Some(Obstacle::Split)
            }
            Some(Mapping { obstacle: Some(obstacle), .. }) => Some(*obstacle),
            Some(mapping) if self.near_stack(range, mapping) => Some(Obstacle::Stack),
            Some(_) => None,
        };
        Region { obstacle, huge, present, ..Region::blank(start, mapping.map(|index| index as u32)) }
    }

    fn near_stack(&self, range: AddressRange, mapping: &Mapping) -> bool {
        // The difference to a pointer must be less than a stack on both sides.
        let start = Address((range.start.0 + 1).saturating_sub(STACK.0)).max(mapping.range.start);
        let end = Address(range.end.0.saturating_add(STACK.0)).min(mapping.range.end);
        holds_any(self.stack_pointers, AddressRange { start, end })
    }

    /// The mapping that holds the region's first present page.
    fn first_overlapping(&self, range: AddressRange, present: &PageSet) -> Option<usize> {
        let page = present.iter().next()? as u64;
        let address = Address(range.start.0 + page * BASE_PAGE);
        let index = self.mappings.partition_point(|mapping| mapping.range.end <= address);
        self.mappings.get(index).is_some_and(|mapping| mapping.range.contains(address)).then_some(index)
    }
}

/// Runs of neighbouring regions, each cut to one mapping, for clearing.
pub(super) fn spans(regions: &[Region], mappings: &[Mapping]) -> Vec<AddressRange> {
    let mut spans: Vec<AddressRange> = Vec::new();
    let mut mapping = 0;
    for region in regions {
        let range = region.range();
        while mappings.get(mapping).is_some_and(|mapping| mapping.range.end <= range.start) {
            mapping += 1;
        }
        for mapping in mappings[mapping..].iter().take_while(|mapping| mapping.range.start < range.end) {
            let part =
                AddressRange { start: range.start.max(mapping.range.start), end: range.end.min(mapping.range.end) };
            match spans.last_mut() {
                // Extend the last span only within its mapping.
                Some(last) if last.end == part.start && part.start != mapping.range.start => last.end = part.end,
                _ => spans.push(part),
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start: Address(start), end: Address(end) }
    }

    fn line(start: u64, end: u64, name: &str, inode: u64) -> maps::Line {
        let text = format!("{start:x}-{end:x} rw-p 00000000 00:00 {inode} {name}\n");
        maps::parse(&text).unwrap().remove(0)
    }

    fn obstacle_of(name: &str, inode: u64, flags: u64, stack: &[Address]) -> Option<Obstacle> {
        let flags = [MappingFlags { range: range(0x1000, 0x2000), flags }];
        mappings(vec![line(0x1000, 0x2000, name, inode)], &flags, stack, None)[0].obstacle
    }

    #[test]
    fn obstacles_are_found() {
        assert_eq!(obstacle_of("", 0, 0, &[]), None);
        assert_eq!(obstacle_of("[heap]", 0, 0, &[]), None);
        assert_eq!(obstacle_of("/memfd:cache (deleted)", 7, 0, &[]), Some(Obstacle::Misaligned));
        assert_eq!(obstacle_of("/dev/zero (deleted)", 0, 0, &[]), None);
        assert_eq!(obstacle_of("/usr/lib/libc.so.6", 7, 0, &[]), Some(Obstacle::FileMisaligned));
        assert_eq!(obstacle_of("[stack]", 0, GROWSDOWN, &[]), Some(Obstacle::Stack));
        assert_eq!(obstacle_of("", 0, 0, &[Address(0x1ff8)]), Some(Obstacle::Stack));
        assert_eq!(obstacle_of("", 0, NOHUGEPAGE, &[]), Some(Obstacle::NoHugePage));
        assert_eq!(obstacle_of("/anon_hugepage (deleted)", 7, HUGETLB, &[]), Some(Obstacle::Hugetlb));
        assert_eq!(obstacle_of("/dev/mem", 7, PFNMAP, &[]), Some(Obstacle::Special));
        assert_eq!(obstacle_of("[vdso]", 0, 0, &[]), Some(Obstacle::Special));
    }

    #[test]
    fn only_what_is_read_and_fits_can_come_from_the_page_cache() {
        let of = |access: &str, offset: u64, flags: u64| {
            let text = format!("200000-800000 {access} {offset:x} 08:01 7 /srv/index\n");
            let flags = [MappingFlags { range: range(0x20_0000, 0x80_0000), flags }];
            mappings(maps::parse(&text).unwrap(), &flags, &[], None)[0].obstacle
        };
        assert_eq!([of("r--s", 0, 0), of("r-xp", 0x20_0000, MAY_WRITE)], [Some(Obstacle::ReadOnlyFile); 2]);
        assert_eq!([of("rw-s", 0, MAY_WRITE), of("rw-p", 0, MAY_WRITE)], [Some(Obstacle::File); 2]);
        assert_eq!([of("r--s", 0x1000, 0), of("r--p", 0x1000, 0)], [Some(Obstacle::FileMisaligned); 2]);
        let lmdb = of("r--s", 0, MAY_WRITE);
        assert_eq!(lmdb, Some(Obstacle::FileOpenForWriting), "`cache` refuses it");
    }

    #[test]
    fn no_huge_page_fits_into_a_small_file_or_at_the_end_of_one() {
        let text = "400000-401000 r-xp 00000000 08:01 7 /bin/small\n600000-a01000 r--s 00000000 08:01 8 /srv/index\n";
        let flags =
            [range(0x40_0000, 0x40_1000), range(0x60_0000, 0xa0_1000)].map(|range| MappingFlags { range, flags: 0 });
        let mappings = mappings(maps::parse(text).unwrap(), &flags, &[], None);
        let mut collector = RegionCollector::new(5, 9, &mappings, &[]);
        (2..6).for_each(|number| collector.add(Address(number * HUGE_PAGE), PageSet::first(1), false).unwrap());
        let obstacles: Vec<_> = collector.regions.iter().map(|region| region.obstacle).collect();
        let read_only = Some(Obstacle::ReadOnlyFile);
        assert_eq!(obstacles, [Some(Obstacle::FileMisaligned), read_only, read_only, Some(Obstacle::Split)]);
    }

    #[test]
    fn anonymous_memory_beside_a_file_does_not_take_the_reason_of_the_file() {
        let text = "400000-401000 r--p 00000000 08:01 7 /lib/small\n401000-800000 rw-p 00000000 00:00 0\n";
        let flags =
            [range(0x40_0000, 0x40_1000), range(0x40_1000, 0x80_0000)].map(|range| MappingFlags { range, flags: 0 });
        let mappings = mappings(maps::parse(text).unwrap(), &flags, &[], None);
        let obstacle = |present: PageSet| {
            let mut collector = RegionCollector::new(5, 9, &mappings, &[]);
            collector.add(Address(2 * HUGE_PAGE), present, false).unwrap();
            collector.regions[0].obstacle
        };
        assert_eq!(obstacle(PageSet::first(1)), Some(Obstacle::FileMisaligned), "only the file is there");
        assert_eq!(obstacle(PageSet::ALL), Some(Obstacle::Split));
    }

    #[test]
    fn flags_of_guest_memory_are_told() {
        let of = |flags: u64, access: &str| {
            let line = maps::parse(&format!("1000-2000 {access} 0 0:0 0\n")).unwrap();
            mappings(line, &[MappingFlags { range: range(0x1000, 0x2000), flags }], &[], None).remove(0)
        };
        let told = |mapping: Mapping| (mapping.executable, mapping.userfaultfd, mapping.unreserved);
        assert_eq!(told(of(0, "rw-p")), (false, false, false));
        assert_eq!(told(of(0, "rwxp")), (true, false, false));
        assert_eq!(told(of(UFFD_MISSING, "rw-p")), (false, true, false));
        assert_eq!(told(of(UFFD_WP, "rw-p")), (false, true, false));
        assert_eq!(told(of(NORESERVE, "rw-p")), (false, false, true));
    }

    #[test]
    fn shared_memory_is_told_by_its_object() {
        let text = "200000-400000 rw-s 00200000 00:01 7 /memfd:cache (deleted)\n\
                    400000-600000 rw-s 00000000 00:01 0 /SYSV0000002a (deleted)\n\
                    600000-800000 rw-p 00000000 00:01 7 /memfd:cache (deleted)\n";
        let mappings = mappings(maps::parse(text).unwrap(), &[], &[], Some(99));
        let shared = |inode, ipc_namespace, offset| {
            Some(Shared { object: Object { device: (0, 1), inode, ipc_namespace }, offset })
        };
        let found: Vec<_> = mappings.iter().map(|mapping| mapping.shared).collect();
        assert_eq!(found, [shared(7, None, 2 << 20), shared(0, Some(99), 0), None]);
    }

    #[test]
    fn the_first_segment_of_sysv_memory_is_one_although_its_inode_is_0() {
        let text = "201000-401000 rw-s 00000000 00:01 0 /SYSV0000002a (deleted)\n";
        let flags = [MappingFlags { range: range(0x201000, 0x401000), flags: 0 }];
        let mappings = mappings(maps::parse(text).unwrap(), &flags, &[], None);
        assert_eq!(mappings[0].obstacle, Some(Obstacle::Misaligned));
    }

    #[test]
    fn a_mapping_without_flags_is_left_alone() {
        assert_eq!(mappings(vec![line(0x1000, 0x2000, "", 0)], &[], &[], None)[0].obstacle, Some(Obstacle::Special));
    }

    #[test]
    fn a_stack_spoils_only_its_surroundings_in_a_large_mapping() {
        let flags = [MappingFlags { range: range(0, 100 * HUGE_PAGE), flags: 0 }];
        let pointers = [Address(10 * HUGE_PAGE + 64)];
        let mappings = mappings(vec![line(0, 100 * HUGE_PAGE, "", 0)], &flags, &pointers, None);
        assert_eq!(mappings[0].obstacle, None);
        let mut collector = RegionCollector::new(5, 100, &mappings, &pointers);
        (0..100).for_each(|number| collector.add(Address(number * HUGE_PAGE), PageSet::first(1), false).unwrap());
        let stacks: Vec<u64> = collector
            .regions
            .iter()
            .filter(|region| region.obstacle == Some(Obstacle::Stack))
            .map(|region| region.start.0 / HUGE_PAGE)
            .collect();
        assert_eq!(stacks, (6..=14).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_regions_are_kept_than_there_may_be() {
        let mut collector = RegionCollector::new(5, 2, &[], &[]);
        let mut add = |number: u64, present| collector.add(Address(number * HUGE_PAGE), present, true);
        add(0, PageSet::ALL).unwrap();
        add(1, PageSet::ALL).unwrap();
        add(2, PageSet::NONE).unwrap();
        let error = add(3, PageSet::ALL).unwrap_err();
        assert!(matches!(error, ObserveError::TooManyRegions { pid: 5, most: 2 }), "{error}");
        assert!(error.to_string().contains("process 5") && error.to_string().contains("[[never]]"), "{error}");
        assert_eq!(collector.regions.len(), 2);
    }

    #[test]
    fn each_of_many_stacks_is_found() {
        let pointers: Vec<Address> = [3, 40, 41, 90].map(|number| Address(number * HUGE_PAGE)).into();
        let holds = |start, end| holds_any(&pointers, range(start * HUGE_PAGE, end * HUGE_PAGE));
        assert_eq!(
            [holds(0, 3), holds(3, 4), holds(4, 40), holds(4, 41), holds(41, 90)],
            [false, true, false, true, true]
        );
        assert!(!holds(91, 99) && !holds(5, 5) && !holds_any(&[], range(0, 1)));
    }

    #[test]
    fn a_region_in_several_mappings_is_split() {
        let flags: Vec<_> = [range(0, HUGE_PAGE + 4096), range(HUGE_PAGE + 4096, 3 * HUGE_PAGE)]
            .map(|range| MappingFlags { range, flags: 0 })
            .into();
        let lines = flags.iter().map(|mapping| line(mapping.range.start.0, mapping.range.end.0, "", 0)).collect();
        let mappings = mappings(lines, &flags, &[], None);
        let mut collector = RegionCollector::new(5, 3, &mappings, &[]);
        (0..3).for_each(|number| collector.add(Address(number * HUGE_PAGE), PageSet::first(1), false).unwrap());
        collector.add(Address(3 * HUGE_PAGE), PageSet::NONE, false).unwrap();
        let obstacles: Vec<_> = collector.regions.iter().map(|region| region.obstacle).collect();
        assert_eq!(obstacles, [None, Some(Obstacle::Split), None]);
        assert_eq!(collector.regions[1].mapping, Some(0));
        let spans = spans(&collector.regions, &mappings);
        assert_eq!(spans, [range(0, HUGE_PAGE + 4096), range(HUGE_PAGE + 4096, 3 * HUGE_PAGE)]);
    }
}
