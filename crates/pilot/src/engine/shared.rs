//! Memory that programs under the pilot share: promoted in one of them for all of them, and counted once.
//!
//! Owns: which pieces of shared objects are on huge pages in which process, what all processes together lose on the others, and which process
//! promotes them. Never touches: memory.
//!
//! A collapse maps shared memory huge in the process for which it is done. Current kernels drop the page tables of the other processes, which map it
//! huge at their next access (seen on 6.18); otherwise each process needs a call of its own, which moves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use heat::units::{Address, Bytes, HUGE_PAGE};
use heat::{Heat, Mapping, Object, Region};
use kernel::target::Process;

use crate::engine::shared_once::SharedAmounts;

/// How many similar processes are observed on behalf of all of them.
pub(super) const SAMPLE_OF_FAMILY: usize = 4;

/// Aligned 2 MiB of an object, by index.
pub(super) type Piece = (Object, u64);

/// One program's part of shared memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SharedView {
    huge: BTreeSet<Piece>,
    /// The pieces whose base pages are in its page tables, and its page walks a second there.
    small: BTreeMap<Piece, f32>,
    /// The objects that can be promoted, and how much of each it maps.
    objects: BTreeMap<Object, Bytes>,
    /// Those, and the objects that it maps where no huge page fits.
    mapped: BTreeSet<Object>,
    /// How much it has of each object.
    pub(super) amounts: SharedAmounts,
    /// The base pages of these pieces that it walked in its window.
    walked: u64,
    /// Processors kept busy.
    busy_cpus: f64,
    /// Memory covered by the page tables that it used within a tenth of a second.
    pub(super) footprint: Bytes,
    /// Its page walks a second on all memory.
    pub(super) all_walks_per_second: f64,
}

impl SharedView {
    /// The view that a scan gives.
    pub(super) fn of(heat: &Heat) -> Self {
        let busy_cpus = heat.busy_cpus.unwrap_or(0.0);
        let mut view = Self {
            busy_cpus,
            footprint: heat.footprint(),
            all_walks_per_second: heat.walks_per_second(),
            amounts: SharedAmounts::of(heat),
            ..Self::default()
        };
        for region in heat.regions.iter().filter(|region| !region.present.is_empty()) {
            let Some(piece) = piece(region, &heat.mappings) else { continue };
            if region.huge {
                view.huge.insert(piece);
            } else {
                view.small.insert(piece, region.walks_per_second as f32);
                view.walked += u64::from(region.walked_in_window);
            }
        }
        for mapping in heat.mappings.iter().filter(|mapping| mapping.would_fit()) {
            let Some(shared) = mapping.shared else { continue };
            view.mapped.insert(shared.object);
            if mapping.obstacle.is_none() {
                *view.objects.entry(shared.object).or_default() += mapping.range.len();
            }
        }
        view
    }

    /// The same after acting, when only the huge pieces are known anew.
    pub(super) fn after_acting(self, heat: &Heat) -> Self {
        let now = Self::of(heat);
        let small = self.small.into_iter().filter(|(piece, _)| now.small.contains_key(piece)).collect();
        Self { huge: now.huge, objects: now.objects, mapped: now.mapped, amounts: now.amounts, small, ..self }
    }

    /// Shared memory that this program maps huge.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.huge.len() as u64 * HUGE_PAGE)
    }

    /// Page walks a second on shared memory that is not huge.
    pub(super) fn walks_per_second(&self) -> f64 {
        self.small.values().map(|&walks| f64::from(walks)).sum()
    }

    /// Memory of objects that can be promoted.
    pub(super) fn mapped_bytes(&self) -> Bytes {
        self.objects.values().copied().sum()
    }

    /// Whether both map the same object.
    pub(super) fn meets(&self, other: &SharedView) -> bool {
        !self.mapped.is_disjoint(&other.mapped)
    }

    /// How much it maps of each object that can be promoted.
    pub(super) fn objects(&self) -> impl Iterator<Item = (Object, Bytes)> {
        self.objects.iter().map(|(&object, &mapped)| (object, mapped))
    }
}

/// The pieces that are on huge pages in any of these programs.
pub(super) fn huge_in_any<'a>(views: impl Iterator<Item = &'a SharedView>) -> BTreeSet<Piece> {
    views.flat_map(|view| view.huge.iter().copied()).collect()
}

/// Adds to a heat what the other processes that map the same memory lose: their page walks, and their page tables. `times` is how many processes
/// share it for each one observed, this one included.
pub(super) fn add_others<'a>(heat: &mut Heat, others: impl Iterator<Item = &'a SharedView>, times: f64) {
    let Heat { regions, mappings, busy_cpus, walked_by_others, .. } = heat;
    let mut total: BTreeMap<Piece, (f64, f64)> = BTreeMap::new();
    let (mut others_busy, mut others_walked, mut own_walked) = (0.0, 0, 0);
    for view in others {
        others_busy += view.busy_cpus;
        others_walked += view.walked;
        for (&piece, &walks) in &view.small {
            let (tables, sum) = total.entry(piece).or_default();
            (*tables, *sum) = (*tables + 1.0, *sum + f64::from(walks));
        }
    }
    for region in regions.iter_mut().filter(|region| !region.huge) {
        let would_fit = region.mapping_index().is_some_and(|mapping| mappings[mapping].would_fit());
        let Some(piece) = piece(region, mappings).filter(|_| would_fit) else { continue };
        let (tables, walks) = total.get(&piece).copied().unwrap_or_default();
        let own = if region.present.is_empty() { 0.0 } else { 1.0 };
        own_walked += u64::from(region.walked_in_window);
        region.page_tables = ((own + tables) * times).round().min(u16::MAX.into()) as u16;
        // Whether the others pass along it is not known.
        region.in_order &= walks <= 0.0;
        region.walks_per_second = (region.walks_per_second + walks) * times;
    }
    if !total.is_empty() {
        *busy_cpus = Some((busy_cpus.unwrap_or(0.0) + others_busy) * times);
        *walked_by_others = ((own_walked + others_walked) as f64 * times) as u64 - own_walked;
    }
}

/// Regions mapped by base pages although their memory is on a huge page.
pub(super) fn mapped_small(heat: &Heat, huge: &BTreeSet<Piece>) -> Vec<Address> {
    let is_mapped = |region: &&Region| !region.huge && !region.present.is_empty();
    let candidates = heat.regions.iter().filter(is_mapped).filter(|region| region.obstacle.is_none());
    let is_whole = |region: &Region| offset(region, &heat.mappings).is_some_and(|(_, at)| at.is_multiple_of(HUGE_PAGE));
    let small = candidates
        .filter(|region| is_whole(region) && piece(region, &heat.mappings).is_some_and(|piece| huge.contains(&piece)));
    small.map(|region| region.start).collect()
}

/// The piece in which a region begins; None for private memory.
fn piece(region: &Region, mappings: &[Mapping]) -> Option<Piece> {
    offset(region, mappings).map(|(object, at)| (object, at / HUGE_PAGE))
}

/// The offset of a region in its object.
fn offset(region: &Region, mappings: &[Mapping]) -> Option<(Object, u64)> {
    let mapping = &mappings[region.mapping_index()?];
    let shared = mapping.shared?;
    Some((shared.object, shared.offset.checked_add(region.start.0.checked_sub(mapping.range.start.0)?)?))
}

/// Whether a process uses so little shared memory, compared with the one that uses most, that it must do other work.
pub(super) fn is_helper(shared_rss: Bytes, largest: Bytes) -> bool {
    shared_rss.0 < largest.0 / 8
}

/// An order independent of age and use.
pub(super) fn hash(process: &Process) -> u64 {
    let mut hasher = DefaultHasher::new();
    (process.pid, process.start_ticks).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use heat::samples::{MEMFD, at, heat_of, huge, region};
    use heat::units::AddressRange;
    use heat::{Obstacle, Shared};

    use super::*;

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

    #[test]
    fn what_others_lose_on_the_same_memory_counts() {
        let other = Heat { busy_cpus: Some(0.5), ..sharing(HUGE_PAGE, vec![region(0, 3.0, 0), region(1, 4.0, 0)]) };
        let mut heat =
            Heat { busy_cpus: Some(0.5), ..sharing(0, vec![region(0, 1.0, 0), region(1, 2.0, 0), huge(2, 1.0)]) };
        add_others(&mut heat, [SharedView::of(&other)].iter(), 10.0);
        let found: Vec<_> = heat.regions.iter().map(|region| (region.walks_per_second, region.page_tables)).collect();
        assert_eq!(found, [(10.0, 10), (50.0, 20), (1.0, 0)], "ten times as many as the two that were observed");
        assert_eq!(heat.busy_cpus, Some(10.0));
        let each = u64::from(region(0, 1.0, 0).walked_in_window);
        assert_eq!(heat.walked_by_others, 10 * 4 * each - 2 * each, "its own two regions are not theirs");
    }

    #[test]
    fn where_others_walk_nobody_knows_whether_they_pass() {
        let passed = |number| Region { in_order: true, ..region(number, 5e3, 0) };
        let other = sharing(HUGE_PAGE, vec![region(0, 3.0, 0), region(1, 0.0, 0)]);
        let mut heat = sharing(0, vec![passed(0), passed(1), passed(2)]);
        add_others(&mut heat, [SharedView::of(&other)].iter(), 1.0);
        assert_eq!(heat.regions.iter().map(|region| region.in_order).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn memory_that_no_huge_page_fits_counts_too() {
        let misaligned = || {
            let mut heat = sharing(4096, vec![Region { obstacle: Some(Obstacle::Misaligned), ..region(0, 1.0, 0) }]);
            heat.mappings[0].obstacle = Some(Obstacle::Misaligned);
            heat
        };
        let (view, mut heat) = (SharedView::of(&misaligned()), misaligned());
        assert!(view.meets(&view) && view.objects().next().is_none());
        add_others(&mut heat, [view].iter(), 1.0);
        assert_eq!((heat.regions[0].walks_per_second, heat.regions[0].page_tables), (2.0, 2));
    }

    #[test]
    fn private_memory_frees_no_page_tables() {
        let mut heat = heat_of(vec![region(0, 1.0, 0)]);
        add_others(&mut heat, std::iter::empty(), 1.0);
        assert_eq!((heat.regions[0].walks_per_second, heat.regions[0].page_tables), (1.0, 0));
    }
}
