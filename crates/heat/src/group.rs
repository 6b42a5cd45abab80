//! The heats of several processes joined, with shared memory counted once.
//!
//! Owns: the join, as a pure function. Never touches: the system, or which processes belong together.
//!
//! Private memory is counted for each process. Shared memory is counted by object and offset: processes may map the same 2 MiB
//! of an object at any address, aligned like the object or not.

use std::collections::BTreeMap;

use crate::parts::{Part, cut};
use crate::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, PAGES_PER_REGION};
use crate::{Heat, Mapping, Object, PageSet, Region, SeenMemory, Summary};

/// Processes that were observed.
#[derive(Clone, Debug, Default)]
pub struct Group {
    members: BTreeMap<u32, Member>,
    objects: BTreeMap<Object, SharedObject>,
}

/// One process of a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What was seen of it.
    pub summary: Summary,
    /// What it maps privately.
    pub private: SeenMemory,
}

/// Memory, or a file, that processes of the group share.
#[derive(Clone, Debug, Default)]
pub struct SharedObject {
    /// Its name, for people: the first of several.
    pub name: String,
    /// Its aligned pieces of 2 MiB with a page present in some process, by their index in the object.
    pub pieces: BTreeMap<u64, Piece>,
    /// Every mapping of it, by process and address.
    pub mappings: BTreeMap<(u32, Address), SharedMapping>,
}

/// Aligned 2 MiB of an object, whichever processes map them.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// Base pages present in the page tables of any process.
    pub present: PageSet,
    /// Base pages that any process walked.
    pub walked: PageSet,
    /// Mappings in which a huge page maps it.
    pub huge_in: u32,
    /// Page walks a second, of all processes together.
    pub walks_per_second: f64,
}

/// One process's view of an object.
#[derive(Clone, Copy, Debug)]
pub struct SharedMapping {
    /// The addresses it covers.
    pub range: AddressRange,
    /// Bytes of the object before it.
    pub offset: u64,
    /// What was seen of it.
    pub amount: SeenMemory,
}

impl Group {
    /// Adds a process, which must not be in the group yet. The order does not matter.
    pub fn add(&mut self, name: &str, heat: &Heat) {
        for mapping in &heat.mappings {
            self.note(heat.pid, mapping);
        }
        let mut private = SeenMemory::default();
        for region in &heat.regions {
            let mut next = heat.mappings.partition_point(|mapping| mapping.range.end <= region.start);
            let home_of = |page| {
                let address = region.page(page);
                next += heat.mappings[next..].iter().take_while(|mapping| mapping.range.end <= address).count();
                heat.mappings.get(next).and_then(|mapping| home(mapping, region, page))
            };
            for part in cut(region, home_of) {
                match part.owner {
                    None => private += part.amount(),
                    Some(home) => self.add_shared(heat.pid, home, &part),
                }
            }
        }
        let member = Member { name: name.to_owned(), summary: heat.summary(), private };
        self.members.insert(heat.pid, member);
    }

    /// Remembers a mapping, even if nothing of it is present.
    fn note(&mut self, pid: u32, mapping: &Mapping) {
        let Some(shared) = mapping.shared else { return };
        let object = self.objects.entry(shared.object).or_default();
        if object.mappings.is_empty() || mapping.name < object.name {
            object.name.clone_from(&mapping.name);
        }
        let seen = SharedMapping { range: mapping.range, offset: shared.offset, amount: SeenMemory::default() };
        object.mappings.insert((pid, mapping.range.start), seen);
    }

    fn add_shared(&mut self, pid: u32, home: Home, part: &Part<Option<Home>>) {
        let object = self.objects.entry(home.object).or_default();
        let piece = object.pieces.entry(home.piece).or_default();
        let place = |page: usize| (page + home.shift) % PAGES_PER_REGION;
        part.present.iter().for_each(|page| piece.present.insert(place(page)));
        part.walked.iter().for_each(|page| piece.walked.insert(place(page)));
        piece.huge_in += u32::from(part.huge);
        piece.walks_per_second += part.walks_per_second;
        if let Some(mapping) = object.mappings.get_mut(&(pid, home.mapping)) {
            mapping.amount += part.amount();
        }
    }

    /// The processes, by their ids.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    /// The shared objects of which something is present.
    pub fn objects(&self) -> impl Iterator<Item = (&Object, &SharedObject)> {
        self.objects.iter().filter(|(_, object)| !object.pieces.is_empty())
    }

    /// The same, the most walked first.
    pub fn hottest_objects(&self) -> Vec<(&Object, &SharedObject)> {
        let mut objects: Vec<_> = self.objects().map(|each| (each, each.1.amount().walks_per_second)).collect();
        objects.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        objects.into_iter().map(|(object, _)| object).collect()
    }

    /// The private memory of all processes.
    pub fn private(&self) -> SeenMemory {
        self.members().map(|member| member.private).sum()
    }

    /// The shared memory, each object counted once.
    pub fn shared(&self) -> SeenMemory {
        self.objects().map(|(_, object)| object.amount()).sum()
    }
}

impl SharedObject {
    /// All memory, counted once; a piece counts as huge if it is huge in one process.
    pub fn amount(&self) -> SeenMemory {
        self.pieces.values().map(Piece::amount).sum()
    }

    /// Bytes up to the end of its last mapping: the object may be larger.
    pub fn size(&self) -> Bytes {
        let ends = self.mappings.values().map(|mapping| mapping.offset.saturating_add(mapping.range.len().0));
        Bytes(ends.max().unwrap_or(0))
    }
}

impl Piece {
    /// All of it.
    pub fn amount(&self) -> SeenMemory {
        let huge = Bytes(if self.huge_in > 0 { HUGE_PAGE } else { 0 });
        SeenMemory::of(self.walks_per_second, &self.present, &self.walked, huge)
    }
}

/// The place of shared pages.
#[derive(Clone, Copy, PartialEq)]
struct Home {
    object: Object,
    /// The index of the piece in the object.
    piece: u64,
    /// Added to a page's index in its region it gives that in its piece.
    shift: usize,
    /// The start of the mapping that covers it.
    mapping: Address,
}

/// The place of a page of a region; None if it is private, or its mapping went away.
fn home(mapping: &Mapping, region: &Region, page: usize) -> Option<Home> {
    let address = region.page(page);
    let shared = mapping.shared.filter(|_| mapping.range.contains(address))?;
    // Offsets come from the kernel and never wrap; a wrong one must still do no harm.
    let of_object = shared.offset.wrapping_add(address.0 - mapping.range.start.0) / BASE_PAGE;
    let (piece, place) = (of_object / PAGES_PER_REGION as u64, (of_object % PAGES_PER_REGION as u64) as usize);
    let shift = (place + PAGES_PER_REGION - page) % PAGES_PER_REGION;
    Some(Home { object: shared.object, piece, shift, mapping: mapping.range.start })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Shared;
    use crate::samples::{MEMFD, at, heat_of, huge, region};
    use crate::units::Pages;

    /// A process that maps this many regions of some shared memory, from this offset on, followed by as many private ones.
    fn heat(pid: u32, offset: u64, regions: Vec<Region>, shared_regions: u64) -> Heat {
        let mut heat = Heat { pid, ..heat_of(regions) };
        let mut private = heat.mappings[0].clone();
        private.range = AddressRange { start: at(shared_regions), end: at(shared_regions + 1000) };
        let range = AddressRange { start: at(0), end: at(shared_regions) };
        let name = "/memfd:cache (deleted)".to_owned();
        heat.mappings = vec![Mapping { range, name, shared: Some(Shared { offset, ..MEMFD }), ..private.clone() }];
        heat.mappings.push(private);
        heat
    }

    fn group(heats: &[Heat]) -> Group {
        let mut group = Group::default();
        heats.iter().for_each(|heat| group.add("postgres", heat));
        group
    }

    #[test]
    fn shared_memory_is_there_once_with_the_mappings_of_each() {
        let regions = |walks| vec![region(0, walks, 12), region(1, 1.0, 0), region(2, 5.0, 0)];
        let group = group(&[heat(9, 0, regions(10.0), 2), heat(7, 0, vec![huge(0, 4.0)], 2)]);
        let objects: Vec<_> = group.objects().collect();
        assert_eq!((objects.len(), objects[0].0, &objects[0].1.name[..]), (1, &MEMFD.object, "/memfd:cache (deleted)"));
        let object = objects[0].1;
        assert_eq!((object.amount().present, object.amount().walks_per_second), (Pages(1024), 15.0));
        assert_eq!((object.amount().huge, object.size()), (Bytes(HUGE_PAGE), Bytes(2 * HUGE_PAGE)));
        assert_eq!(object.pieces.values().map(|piece| piece.huge_in).collect::<Vec<_>>(), [1, 0]);
        let mappings: Vec<_> = object.mappings.iter().map(|(&(pid, _), each)| (pid, each.amount)).collect();
        let amount = |walks_per_second, present, huge| SeenMemory {
            walks_per_second,
            present: Pages(present),
            walked: Pages(present),
            huge: Bytes(huge),
        };
        assert_eq!(mappings, [(7, amount(4.0, 512, HUGE_PAGE)), (9, amount(11.0, 1012, 0))]);
        assert_eq!(group.private(), amount(5.0, 512, 0));
        assert_eq!(group.members().map(|member| member.summary.pid).collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn mappings_that_are_not_aligned_alike_meet_in_the_object() {
        let half = HUGE_PAGE / 2;
        let mut low = region(0, 8.0, 0);
        low.walked = PageSet::first(64);
        // The upper half of its region 0, and the lower half of the one after.
        let group = group(&[heat(1, 0, vec![region(0, 2.0, 0)], 1), heat(2, half, vec![low], 1)]);
        let (_, object) = group.objects().next().unwrap();
        let pieces = object.pieces.iter().map(|(&at, each)| (at, each.present.len(), each.walks_per_second));
        assert_eq!(pieces.collect::<Vec<_>>(), [(0, 512, 10.0), (1, 256, 0.0)]);
        assert_eq!((object.amount().present, object.size()), (Pages(768), Bytes(3 * half)));
    }

    #[test]
    fn a_region_with_several_mappings_is_taken_apart() {
        let mut heat = heat(1, 0, vec![region(0, 512.0, 0)], 1);
        let middle = Address(at(0).0 + 100 * BASE_PAGE);
        heat.mappings[0].range.end = middle;
        heat.mappings[1].range.start = Address(middle.0 + 12 * BASE_PAGE);
        let group = group(&[heat]);
        assert_eq!((group.shared().walks_per_second, group.private().walks_per_second), (100.0, 412.0));
        assert_eq!((group.shared().present, group.private().present), (Pages(100), Pages(412)));
    }

    #[test]
    fn what_nobody_touched_is_no_object() {
        let group = group(&[heat(1, 0, vec![region(5, 1.0, 0)], 2)]);
        assert_eq!(group.objects().count(), 0);
    }

    prop_compose! {
        /// A process that maps one of three objects somewhere, besides private memory.
        fn any_heat()(
            offset in 0u64..4 * 512, inode in 7u64..10, shared_regions in 1u64..6,
            regions in prop::collection::btree_map(0u64..9, (0.0..100.0f64, 0u16..512, any::<bool>()), 0..9),
            walked in 0usize..512, name in "/[a-c]",
        ) -> Heat {
            let regions = regions.into_iter().map(|(number, (walks, unpopulated, is_huge))| {
                let aligned = offset % 512 == 0 || number >= shared_regions;
                let mut region = if is_huge && aligned { huge(number, walks) } else { region(number, walks, unpopulated) };
                region.walked = region.present.without(&PageSet::first(walked));
                region
            });
            let mut heat = heat(0, offset * BASE_PAGE, regions.collect(), shared_regions);
            heat.mappings[0].shared.as_mut().unwrap().object.inode = inode;
            heat.mappings[0].name = name;
            heat
        }
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * (1.0 + one.abs())
    }

    proptest! {
        #[test]
        fn totals_are_the_sums_and_shared_memory_counts_once(heats in prop::collection::vec(any_heat(), 1..6)) {
            let heats: Vec<Heat> = heats.into_iter().zip(1..).map(|(heat, pid)| Heat { pid, ..heat }).collect();
            let joined = group(&heats);
            let (private, shared) = (joined.private(), joined.shared());
            let all: SeenMemory = joined.members().map(|member| member.summary.amount).sum();
            let mappings: Vec<SharedMapping> =
                joined.objects().flat_map(|(_, object)| object.mappings.values().copied()).collect();
            let mapped: SeenMemory = mappings.iter().map(|mapping| mapping.amount).sum();
            prop_assert!(close(private.walks_per_second + shared.walks_per_second, all.walks_per_second));
            prop_assert!(close(mapped.walks_per_second, shared.walks_per_second));
            prop_assert_eq!(private.present.0 + mapped.present.0, all.present.0);
            prop_assert_eq!(private.walked.0 + mapped.walked.0, all.walked.0);
            prop_assert_eq!(private.huge + mapped.huge, all.huge);
            prop_assert!(shared.present <= mapped.present && shared.walked <= mapped.walked && shared.huge <= mapped.huge);
            for (object, found) in joined.objects() {
                let bytes = |heat: &&Heat| heat.mappings[0].shared.is_some_and(|shared| shared.object == *object);
                let most = heats.iter().filter(bytes).map(|heat| heat.mappings[0].range.len().0).sum::<u64>();
                prop_assert!(found.amount().present.bytes().0 <= most.min(found.size().0));
            }
        }

        #[test]
        fn the_order_of_processes_does_not_matter(heats in prop::collection::vec(any_heat(), 1..6), by in 0usize..6) {
            let mut heats: Vec<Heat> = heats.into_iter().zip(1..).map(|(heat, pid)| Heat { pid, ..heat }).collect();
            let one = group(&heats);
            let len = heats.len();
            heats.rotate_left(by % len);
            heats.reverse();
            let other = group(&heats);
            prop_assert!(one.members().map(|member| member.summary.pid).eq(other.members().map(|member| member.summary.pid)));
            prop_assert!(one.objects().count() == other.objects().count());
            for ((object, one), (same, other)) in one.objects().zip(other.objects()) {
                prop_assert_eq!((object, &one.name, one.size()), (same, &other.name, other.size()));
                prop_assert_eq!(one.amount().present, other.amount().present);
                prop_assert_eq!((one.amount().walked, one.amount().huge), (other.amount().walked, other.amount().huge));
                prop_assert!(close(one.amount().walks_per_second, other.amount().walks_per_second));
                prop_assert!(one.mappings.keys().eq(other.mappings.keys()));
            }
        }

        #[test]
        fn the_same_memory_seen_twice_is_not_more_memory(heat in any_heat()) {
            let twin = Heat { pid: 2, ..heat.clone() };
            let (one, two) = (group(std::slice::from_ref(&heat)), group(&[heat, twin]));
            prop_assert_eq!(one.shared().present, two.shared().present);
            prop_assert_eq!(one.shared().huge, two.shared().huge);
            prop_assert_eq!(one.private().present.0 * 2, two.private().present.0);
            prop_assert!(close(one.shared().walks_per_second * 2.0, two.shared().walks_per_second));
        }
    }
}
