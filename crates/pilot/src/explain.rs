//! Why memory is not on huge pages, and whether more would pay.
//!
//! Owns: combining what keeps the kernel from using huge pages by itself with what the pilot would decide. Never touches: the system; it is a pure
//! function of what was seen.

use std::collections::BTreeMap;

use crate::decide::{Decision, Plan, Reason};
use heat::by_mapping;
use heat::units::{Address, Bytes, HUGE_PAGE, PAGES_PER_REGION, Pages};
use heat::{Heat, Mapping, Obstacle, PageSizes, Region, SeenMemory};
use serde::Serialize;

/// The huge-page settings. None: the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `transparent_hugepage/enabled`: `always`, `madvise`, `never`.
    pub enabled: Option<String>,
    /// `transparent_hugepage/shmem_enabled`.
    pub shmem_enabled: Option<String>,
    /// Whether the process has switched huge pages off for itself (`PR_SET_THP_DISABLE`).
    pub switched_off: bool,
}

/// Why a part of a mapping is not on huge pages; the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nothing was ever written or read there, so no page is present.
    NeverTouched,
    /// The process has switched huge pages off for itself.
    SwitchedOff,
    /// Shared with another process by fork, or merged by KSM.
    Shared,
    /// Given back lazily (`MADV_FREE`).
    LazilyFreed,
    /// The setting is `never`.
    SettingNever,
    /// The setting is `madvise` (`advise` for shared memory), and the program does not request it.
    NotAskedFor,
    /// Some of its base pages are not populated: it was touched in pieces.
    Holes,
    /// Nothing forbids it; khugepaged has not got to it, or found no contiguous memory.
    NotYet,
    /// The mapping forbids it. Named after the obstacle.
    #[serde(untagged)]
    Obstacle(Obstacle),
}

/// One mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The mapping.
    pub mapping: Mapping,
    /// Memory present.
    pub resident: Bytes,
    /// Memory of a shared object that other processes have populated and this one has not touched.
    pub elsewhere: Bytes,
    /// The part of resident memory on pages of 2 MiB or 1 GiB.
    pub huge: Bytes,
    /// The part on huge pages of 8 KiB to 1 MiB. None: the kernel does not say.
    pub smaller: Option<PageSizes>,
    /// Base pages walked within 100 ms.
    pub walked: Pages,
    /// Page walks a second.
    pub walks_per_second: f64,
    /// Memory not on huge pages, by reason: the size of what was never touched, otherwise the memory present.
    pub not_huge: BTreeMap<Why, Bytes>,
    /// Memory present that is not on huge pages, by what the pilot would decide about it.
    pub decided: BTreeMap<Reason, Bytes>,
}

/// The whole process.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its mappings in which something is present or a huge page would fit, those with most page walks first.
    pub mappings: Vec<Explained>,
    /// Page tables that huge pages would free. Those of private memory are kept in reserve, in case a huge page is split.
    pub page_tables_saved: Bytes,
    /// Page faults a second that huge pages would save.
    pub faults_saved_per_second: f64,
}

/// Explains a heat, and the plan made for it. `smaller`: for each of its mappings, the memory on smaller huge pages.
pub fn explain(heat: &Heat, plan: &Plan, smaller: Option<&[PageSizes]>, surroundings: &Surroundings) -> Explanation {
    let decisions: BTreeMap<Address, &Decision> = plan.decisions.iter().map(|each| (each.start, each)).collect();
    let mut mappings: Vec<Explained> = heat.mappings.iter().map(Explained::of).collect();
    for (explained, sizes) in mappings.iter_mut().zip(smaller.unwrap_or_default()) {
        explained.smaller = Some(sizes.clone());
    }
    for part in by_mapping(heat) {
        let Some(explained) = part.mapping.and_then(|mapping| mappings.get_mut(mapping)) else { continue };
        let region = &heat.regions[part.region];
        let reason = decisions.get(&region.start).map(|decision| decision.reason);
        explained.add(region, &part.amount, reason, surroundings);
    }
    for explained in &mut mappings {
        let untouched =
            explained.mapping.range.len().saturating_sub(explained.resident).saturating_sub(explained.elsewhere);
        if untouched > Bytes(0) && explained.mapping.obstacle.is_none() {
            explained.not_huge.insert(Why::NeverTouched, untouched);
        }
    }
    mappings.retain(|each| each.resident > Bytes(0) || each.mapping.range.len() >= Bytes(HUGE_PAGE));
    mappings.sort_by(|left, right| right.walks_per_second.total_cmp(&left.walks_per_second));
    Explanation {
        mappings,
        page_tables_saved: plan.page_tables_freed(),
        faults_saved_per_second: plan.faults_saved_per_second(),
    }
}

impl Explanation {
    /// Whether files that the page cache could have on huge pages are on base pages.
    pub fn has_files_to_cache(&self) -> bool {
        let could = [Obstacle::ReadOnlyFile, Obstacle::File].map(Why::Obstacle);
        self.mappings.iter().any(|each| each.not_huge.keys().any(|why| could.contains(why)))
    }
}

impl Explained {
    fn of(mapping: &Mapping) -> Self {
        Self {
            mapping: mapping.clone(),
            resident: Bytes(0),
            elsewhere: Bytes(0),
            huge: Bytes(0),
            smaller: None,
            walked: Pages(0),
            walks_per_second: 0.0,
            not_huge: BTreeMap::new(),
            decided: BTreeMap::new(),
        }
    }

    /// Adds its part of a region.
    fn add(&mut self, region: &Region, amount: &SeenMemory, reason: Option<Reason>, surroundings: &Surroundings) {
        if region.present.is_empty() {
            let populated = region.populated_elsewhere();
            self.elsewhere += populated;
            return self.not_huge_yet(region, populated, reason, surroundings);
        }
        let present = amount.present.bytes();
        self.resident += present;
        self.walked.0 += amount.walked.0;
        self.walks_per_second += amount.walks_per_second;
        if region.huge {
            self.huge += present;
            return;
        }
        self.not_huge_yet(region, present, reason, surroundings);
    }

    fn not_huge_yet(&mut self, region: &Region, size: Bytes, reason: Option<Reason>, surroundings: &Surroundings) {
        *self.not_huge.entry(why(region, &self.mapping, surroundings)).or_default() += size;
        if let Some(reason) = reason {
            *self.decided.entry(reason).or_default() += size;
        }
    }

    /// The memory present that the pilot would put on huge pages.
    pub fn would_pay(&self) -> Bytes {
        self.decided.get(&Reason::Pays).copied().unwrap_or_default()
    }
}

/// Why a region is not on a huge page: first what can never change, then what the program or the machine's owner decided, then what time may fix.
fn why(region: &Region, mapping: &Mapping, surroundings: &Surroundings) -> Why {
    // What stands in the way of a file's mapping is its own, whatever else is in the same 2 MiB.
    if let Some(own) = mapping.obstacle.filter(|obstacle| obstacle.is_of_file()) {
        return Why::Obstacle(own);
    }
    let setting = if mapping.shared.is_some() { &surroundings.shmem_enabled } else { &surroundings.enabled };
    match (region.obstacle, setting.as_deref()) {
        // What forbids huge pages there is a neighbor's, which was met first.
        (Some(Obstacle::NoHugePage), _) if mapping.obstacle.is_none() => Why::Obstacle(Obstacle::Split),
        (Some(obstacle), _) => Why::Obstacle(obstacle),
        (None, _) if surroundings.switched_off => Why::SwitchedOff,
        (None, _) if region.growth.shared_by_fork > 0 || region.growth.merged > 0 => Why::Shared,
        (None, _) if region.growth.lazily_freed > 0 => Why::LazilyFreed,
        (None, Some("never" | "deny")) => Why::SettingNever,
        (None, Some("madvise" | "advise")) if !mapping.asked_for => Why::NotAskedFor,
        (None, _) if has_holes(region) => Why::Holes,
        (None, _) => Why::NotYet,
    }
}

/// Whether some of its base pages are not populated by any process.
fn has_holes(region: &Region) -> bool {
    if region.present.is_empty() { region.growth.unpopulated > 0 } else { region.present.len() < PAGES_PER_REGION }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Allowance, Limits, Past, Spent, decide};
    use heat::samples::{MEMFD, heat_of, huge, region};
    use heat::units::{AddressRange, BASE_PAGE};
    use heat::{Growth, PageSet};

    fn explained(regions: Vec<Region>, change: impl Fn(&mut Mapping), surroundings: &Surroundings) -> Explained {
        let mut heat = heat_of(regions);
        change(&mut heat.mappings[0]);
        let limits = Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(1 << 30), &Spent::default()) };
        explain(&heat, &decide(&heat, &limits, &Past::default()), None, surroundings).mappings.remove(0)
    }

    fn setting(enabled: &str) -> Surroundings {
        Surroundings { enabled: Some(enabled.to_owned()), ..Surroundings::default() }
    }

    #[test]
    fn a_mapping_adds_up() {
        let found = explained(vec![region(0, 1e6, 0), huge(1, 5.0), region(3, 0.0, 256)], |_| (), &setting("madvise"));
        assert_eq!((found.resident, found.huge), (Bytes(5 << 20), Bytes(2 << 20)));
        assert_eq!(found.would_pay(), Bytes(2 << 20));
        let expected = BTreeMap::from([(Why::NeverTouched, Bytes(3 << 20)), (Why::NotAskedFor, Bytes(3 << 20))]);
        assert_eq!(found.not_huge, expected);
        let decided = BTreeMap::from([(Reason::Pays, Bytes(2 << 20)), (Reason::NotWalked, Bytes(1 << 20))]);
        assert_eq!(found.decided, decided);
    }

    #[test]
    fn what_others_populated_is_not_untouched() {
        let elsewhere = || Region { present: PageSet::NONE, page_tables: 1000, ..region(1, 0.0, 128) };
        let share = |mapping: &mut Mapping| mapping.shared = Some(MEMFD);
        let found = explained(vec![region(0, 1e5, 0), elsewhere()], share, &Surroundings::default());
        let whole = found.mapping.range.len();
        assert_eq!((found.resident, found.elsewhere), (Bytes(2 << 20), Bytes(3 << 19)));
        assert_eq!(found.not_huge.get(&Why::NeverTouched), Some(&(whole.saturating_sub(Bytes(7 << 19)))));
        assert_eq!(found.would_pay(), Bytes(7 << 19));
    }

    #[test]
    fn the_first_reason_that_applies_is_told() {
        let why_of = |region: Region, surroundings: &Surroundings| {
            let found = explained(vec![region], |_| (), surroundings);
            found.not_huge.into_keys().find(|why| *why != Why::NeverTouched).expect("a reason")
        };
        let grown = |growth| Region { growth, ..region(0, 1.0, 0) };
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(0, 1.0, 0) };
        let off = Surroundings { switched_off: true, ..setting("always") };
        assert_eq!(why_of(stack, &off), Why::Obstacle(Obstacle::Stack));
        assert_eq!(why_of(region(0, 1.0, 0), &off), Why::SwitchedOff);
        assert_eq!(why_of(grown(Growth { merged: 1, ..Growth::default() }), &setting("never")), Why::Shared);
        assert_eq!(why_of(grown(Growth { lazily_freed: 1, ..Growth::default() }), &setting("never")), Why::LazilyFreed);
        assert_eq!(why_of(region(0, 1.0, 0), &setting("never")), Why::SettingNever);
        assert_eq!(why_of(region(0, 1.0, 7), &setting("always")), Why::Holes);
        assert_eq!(why_of(region(0, 1.0, 0), &setting("always")), Why::NotYet);
        assert_eq!(why_of(region(0, 1.0, 0), &Surroundings::default()), Why::NotYet, "what is unknown forbids nothing");
    }

    #[test]
    fn where_mappings_share_a_region_each_has_its_own_reason() {
        let why_of = |of_region, of_mapping| {
            let region = Region { obstacle: Some(of_region), ..region(0, 1.0, 0) };
            let found = explained(vec![region], |mapping| mapping.obstacle = of_mapping, &setting("always"));
            found.not_huge.into_keys().find(|why| *why != Why::NeverTouched).expect("a reason")
        };
        let (split, misaligned) = (Obstacle::Split, Obstacle::FileMisaligned);
        assert_eq!(why_of(split, Some(misaligned)), Why::Obstacle(misaligned));
        assert_eq!(why_of(Obstacle::NoHugePage, None), Why::Obstacle(split), "that is its neighbor's");
        assert_eq!(why_of(Obstacle::NoHugePage, Some(Obstacle::NoHugePage)), Why::Obstacle(Obstacle::NoHugePage));
        assert_eq!(why_of(split, Some(Obstacle::ReadOnlyFile)), Why::Obstacle(split), "its last 2 MiB are not full");
    }

    #[test]
    fn memory_that_asks_and_shared_memory_have_their_own_settings() {
        let one = || vec![region(0, 1e6, 0)];
        let asked = explained(one(), |mapping| mapping.asked_for = true, &setting("madvise"));
        assert!(asked.not_huge.contains_key(&Why::NotYet));
        let surroundings = Surroundings { shmem_enabled: Some("never".to_owned()), ..setting("always") };
        assert!(
            explained(one(), |mapping| mapping.shared = Some(MEMFD), &surroundings)
                .not_huge
                .contains_key(&Why::SettingNever)
        );
    }

    #[test]
    fn smaller_huge_pages_are_added_up_where_the_kernel_tells() {
        let mut heat = heat_of(vec![region(0, 1e6, 0), region(1, 1e6, 0)]);
        let end = heat.mappings[0].range.end;
        heat.mappings[0].range.end = Address(heat.regions[1].start.0 + 8 * BASE_PAGE);
        let upper =
            Mapping { range: AddressRange { start: heat.mappings[0].range.end, end }, ..heat.mappings[0].clone() };
        heat.mappings.push(upper);
        let plan = decide(&heat, &Allowance::default().limits(Bytes(1 << 30), &Spent::default()), &Past::default());
        let smaller = |told| {
            let mappings = explain(&heat, &plan, told, &Surroundings::default()).mappings;
            let smaller: Vec<_> = mappings.iter().map(|each| each.smaller.as_ref().map(PageSizes::to_string)).collect();
            (smaller[0].clone(), smaller[1].clone())
        };
        let sizes = [(16, 64), (64, 1024)].map(|(page, memory)| {
            let mut sizes = PageSizes::default();
            sizes.add(Bytes(page << 10), Bytes(memory << 10));
            sizes
        });
        let told = smaller(Some(&sizes));
        let expected = ["64 KiB on pages of 16 KiB", "1 MiB on pages of 64 KiB"].map(|text| Some(text.to_owned()));
        assert_eq!(told, expected.into(), "whole pages, each in its mapping");
        assert_eq!(smaller(None), (None, None));
    }

    #[test]
    fn only_page_tables_of_shared_memory_are_freed() {
        let limits = Limits { tlb_entries: 0, ..Allowance::default().limits(Bytes(1 << 30), &Spent::default()) };
        for (shared, saved) in [(Some(MEMFD), 2 * BASE_PAGE), (None, 0)] {
            let mut heat = heat_of(vec![region(0, 1e6, 0), region(1, 1e6, 0), region(2, 0.0, 0)]);
            heat.mappings[0].shared = shared;
            heat.regions.iter_mut().for_each(|region| region.page_tables = u16::from(shared.is_some()));
            let found = explain(&heat, &decide(&heat, &limits, &Past::default()), None, &Surroundings::default());
            assert_eq!(found.page_tables_saved, Bytes(saved));
        }
    }
}
