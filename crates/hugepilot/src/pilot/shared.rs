//! Memory that programs under the pilot share: promoted in one of them, mapped huge in each, counted once.
//!
//! Owns: which pieces of shared objects are on huge pages in whom. Never touches: memory.
//!
//! The kernel maps shared memory huge only in the process for which it was collapsed (and in those that touch it for the first time
//! later); each other one takes a call of its own, which moves nothing.

use std::collections::BTreeSet;

use super::member::Member;
use crate::observe::Heat;
use crate::observe::heat::{Mapping, Object, Region};
use crate::units::{Address, Bytes, HUGE_PAGE};

/// Aligned 2 MiB of an object, by their number in it.
pub(super) type Piece = (Object, u64);

/// The pieces that one program has on huge pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SharedView {
    huge: BTreeSet<Piece>,
    objects: BTreeSet<Object>,
}

impl SharedView {
    /// What a look showed.
    pub(super) fn of(heat: &Heat) -> Self {
        let huge = heat.regions.iter().filter(|region| region.huge);
        Self {
            huge: huge.filter_map(|region| piece(region, &heat.mappings)).collect(),
            objects: heat.mappings.iter().filter_map(|mapping| Some(mapping.shared?.object)).collect(),
        }
    }

    /// Memory that is on huge pages in this program, and shared.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.huge.len() as u64 * HUGE_PAGE)
    }

    /// Whether both map the same object.
    pub(super) fn meets(&self, other: &SharedView) -> bool {
        !self.objects.is_disjoint(&other.objects)
    }
}

/// The pieces that are on huge pages in any of these programs.
pub(super) fn huge_in_any<'a>(views: impl Iterator<Item = &'a SharedView>) -> BTreeSet<Piece> {
    views.flat_map(|view| view.huge.iter().copied()).collect()
}

/// Regions that base pages map though their memory is on a huge page.
pub(super) fn mapped_small(heat: &Heat, huge: &BTreeSet<Piece>) -> Vec<Address> {
    let candidates = heat.regions.iter().filter(|region| !region.huge && region.obstacle.is_none());
    let small = candidates.filter(|region| piece(region, &heat.mappings).is_some_and(|piece| huge.contains(&piece)));
    small.map(|region| region.start).collect()
}

/// The piece that a region shows whole; None for private memory, or where the two are not aligned alike.
fn piece(region: &Region, mappings: &[Mapping]) -> Option<Piece> {
    let mapping = &mappings[region.mapping_index()?];
    let shared = mapping.shared?;
    let of_object = shared.offset.checked_add(region.start.0.checked_sub(mapping.range.start.0)?)?;
    of_object.is_multiple_of(HUGE_PAGE).then_some((shared.object, of_object / HUGE_PAGE))
}

/// Memory on huge pages in these programs, what they share counted once.
pub(super) fn huge_once<'a>(members: impl Iterator<Item = &'a Member> + Clone) -> Bytes {
    let private: Bytes = members.clone().map(|member| member.huge() - member.view.bytes()).sum();
    private + Bytes(huge_in_any(members.map(|member| &member.view)).len() as u64 * HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::samples::{MEMFD, at, heat_of, huge, region};
    use crate::observe::heat::{Obstacle, Shared};
    use crate::units::AddressRange;

    /// A program that maps the memory from this offset on.
    fn sharing(offset: u64, regions: Vec<Region>) -> Heat {
        let mut heat = heat_of(regions);
        heat.mappings[0].range = AddressRange { start: at(0), end: at(100) };
        heat.mappings[0].shared = Some(Shared { offset, ..MEMFD });
        heat
    }

    #[test]
    fn what_is_huge_in_one_is_mapped_huge_in_the_other() {
        let one = sharing(0, vec![huge(0, 0.0), region(1, 1.0, 0), huge(2, 0.0)]);
        let all = huge_in_any([SharedView::of(&one)].iter());
        let other = sharing(HUGE_PAGE, vec![region(0, 1.0, 0), region(1, 0.0, 500)]);
        assert_eq!(mapped_small(&other, &all), [at(1)], "its second region is the third piece");
        let stack = Region { obstacle: Some(Obstacle::Split), ..region(1, 1.0, 0) };
        assert_eq!(mapped_small(&sharing(HUGE_PAGE, vec![stack]), &all), []);
        assert_eq!(mapped_small(&sharing(4096, vec![region(0, 1.0, 0), region(1, 1.0, 0)]), &all), []);
        assert_eq!(mapped_small(&heat_of(vec![region(0, 1.0, 0)]), &all), [], "private memory");
    }

    #[test]
    fn shared_memory_is_counted_once() {
        let views =
            [sharing(0, vec![huge(0, 0.0), huge(1, 0.0)]), sharing(HUGE_PAGE, vec![huge(0, 0.0), huge(1, 0.0)])]
                .map(|heat| SharedView::of(&heat));
        assert_eq!(views[0].bytes(), Bytes(2 * HUGE_PAGE));
        assert_eq!(huge_in_any(views.iter()).len(), 3);
        assert!(views[0].meets(&views[1]) && !views[0].meets(&SharedView::of(&heat_of(vec![huge(0, 0.0)]))));
    }
}
