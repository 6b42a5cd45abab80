//! Memory of several processes in which what they share counts once.
//!
//! Owns: how much of each shared object each process has, and joining that. Never touches: which memory is promoted.

use std::collections::BTreeMap;

use heat::units::{Bytes, HUGE_PAGE};
use heat::{Heat, Object, Obstacle, Snapshot};

/// Objects that a sum knows; a pilot may run for months. What is shared beyond them is left out.
const MOST_OBJECTS: usize = 10_000;

/// Memory of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// In page tables; hugetlb pages are not resident memory.
    resident: Bytes,
    /// On huge pages, hugetlb included.
    huge: Bytes,
}

/// What a process has in its page tables of each shared object; of several processes, what the one has that has most.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SharedAmounts(BTreeMap<Object, Amount>);

impl SharedAmounts {
    /// Those of one process.
    pub(super) fn of(heat: &Heat) -> Self {
        let mut amounts: BTreeMap<Object, Amount> = BTreeMap::new();
        for region in heat.regions.iter().filter(|region| !region.present.is_empty()) {
            let Some(shared) = heat.mapping_of(region).and_then(|mapping| mapping.shared) else { continue };
            let amount = amounts.entry(shared.object).or_default();
            if region.obstacle != Some(Obstacle::Hugetlb) {
                amount.resident += region.amount().present.bytes();
            }
            if region.huge {
                amount.huge += Bytes(HUGE_PAGE);
            }
        }
        Self(amounts)
    }

    fn total(&self) -> Amount {
        self.0.values().fold(Amount::default(), |sum, each| sum.and(*each))
    }

    fn raise_to(&mut self, other: &Self) {
        for (object, amount) in &other.0 {
            if self.0.len() < MOST_OBJECTS || self.0.contains_key(object) {
                let most = self.0.entry(*object).or_default();
                *most = most.max(*amount);
            }
        }
    }
}

impl Amount {
    fn and(self, other: Self) -> Self {
        Self { resident: self.resident + other.resident, huge: self.huge + other.huge }
    }

    fn max(self, other: Self) -> Self {
        Self { resident: self.resident.max(other.resident), huge: self.huge.max(other.huge) }
    }
}

/// Processes at one moment each, added up.
#[derive(Clone, Debug, Default)]
pub(super) struct SnapshotSum {
    /// Without shared memory.
    private: Option<Snapshot>,
    shared: SharedAmounts,
}

impl SnapshotSum {
    /// Adds a process.
    pub(super) fn add(&mut self, snapshot: Snapshot, shared: &SharedAmounts) {
        let of_shared = shared.total();
        let (rss, huge) =
            (snapshot.rss.saturating_sub(of_shared.resident), snapshot.huge.saturating_sub(of_shared.huge));
        let own = Snapshot { rss, huge, ..snapshot };
        self.private = Some(self.private.map_or(own, |sum| together(sum, own)));
        self.shared.raise_to(shared);
    }

    /// The sum; None of no process.
    pub(super) fn total(&self) -> Option<Snapshot> {
        let Amount { resident, huge } = self.shared.total();
        self.private.map(|sum| Snapshot { rss: sum.rss + resident, huge: sum.huge + huge, ..sum })
    }
}

fn together(one: Snapshot, other: Snapshot) -> Snapshot {
    let sum = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one + other);
    Snapshot {
        walks_per_second: sum(one.walks_per_second, other.walks_per_second),
        busy_cpus: sum(one.busy_cpus, other.busy_cpus),
        rss: one.rss + other.rss,
        huge: one.huge + other.huge,
        page_tables: one.page_tables + other.page_tables,
    }
}

/// What several processes have of each shared object: all together, and the one that has most.
#[derive(Debug, Default)]
pub(super) struct Proportions(BTreeMap<Object, (Amount, Amount)>);

impl Proportions {
    /// Those of these processes.
    pub(super) fn of<'a>(processes: impl Iterator<Item = &'a SharedAmounts>) -> Self {
        let mut all: BTreeMap<Object, (Amount, Amount)> = BTreeMap::new();
        for (object, amount) in processes.flat_map(|each| &each.0) {
            let (sum, most) = all.entry(*object).or_default();
            (*sum, *most) = (sum.and(*amount), most.max(*amount));
        }
        Self(all)
    }

    /// A process's resident memory and memory on huge pages with its proportion of what it shares: summed over the processes, shared memory counts once,
    /// as with the kernel's Pss.
    pub(super) fn part_of(&self, shared: &SharedAmounts, rss: Bytes, huge: Bytes) -> (Bytes, Bytes) {
        let of_others = |own: Bytes, sum: Bytes, most: Bytes| {
            Bytes((own.0 as f64 * (1.0 - most.0 as f64 / sum.0.max(1) as f64)) as u64)
        };
        shared.0.iter().fold((rss, huge), |(rss, huge), (object, own)| {
            let (sum, most) = self.0.get(object).copied().unwrap_or_default();
            (
                rss.saturating_sub(of_others(own.resident, sum.resident, most.resident)),
                huge.saturating_sub(of_others(own.huge, sum.huge, most.huge)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use heat::Region;
    use heat::samples::{MEMFD, heat_of, huge, region};

    use super::*;

    /// A process with this many MiB of its own, and shared regions of 2 MiB, of which some are huge.
    fn process(own: u64, small: u64, huge_ones: u64) -> (Snapshot, SharedAmounts) {
        let regions: Vec<Region> = (0..small).map(|number| region(number, 1.0, 0)).collect();
        let huge_ones = (small..small + huge_ones).map(|number| huge(number, 1.0));
        let mut heat = heat_of(regions.into_iter().chain(huge_ones).collect());
        heat.mappings[0].shared = Some(MEMFD);
        heat.rss += Bytes(own << 20);
        (Snapshot::of(&heat, Bytes(100)), SharedAmounts::of(&heat))
    }

    #[test]
    fn shared_memory_is_summed_up_once() {
        let mut sum = SnapshotSum::default();
        assert_eq!(sum.total(), None);
        for (snapshot, shared) in [process(1, 10, 0), process(2, 5, 6), process(3, 0, 4)] {
            sum.add(snapshot, &shared);
        }
        let total = sum.total().expect("three");
        assert_eq!((total.rss, total.huge, total.page_tables), (Bytes((6 + 22) << 20), Bytes(12 << 20), Bytes(300)));
    }

    #[test]
    fn each_has_its_proportion_of_what_is_shared() {
        let processes = [process(1, 10, 0), process(2, 5, 5), process(3, 0, 5)];
        let proportions = Proportions::of(processes.iter().map(|(_, shared)| shared));
        let parts = processes.each_ref().map(|(snapshot, shared)| {
            let (rss, huge) = proportions.part_of(shared, snapshot.rss, snapshot.huge);
            (rss.0 >> 20, huge.0 >> 20)
        });
        assert_eq!(parts, [(1 + 8, 0), (2 + 8, 5), (3 + 4, 5)], "20 MiB, 10 of them huge");
        let (alone, shared) = process(1, 3, 2);
        let all = Proportions::of(std::iter::once(&shared)).part_of(&shared, alone.rss, alone.huge);
        assert_eq!(all, (alone.rss, alone.huge));
    }

    #[test]
    fn a_pools_pages_are_huge_and_not_resident() {
        let mut heat = heat_of(vec![Region { obstacle: Some(Obstacle::Hugetlb), ..huge(0, 1.0) }]);
        (heat.mappings[0].shared, heat.rss) = (Some(MEMFD), Bytes(1 << 20));
        let mut sum = SnapshotSum::default();
        (0..2).for_each(|_| sum.add(Snapshot::of(&heat, Bytes(0)), &SharedAmounts::of(&heat)));
        let total = sum.total().expect("two");
        assert_eq!((total.rss, total.huge), (Bytes(2 << 20), Bytes(2 << 20)));
    }
}
