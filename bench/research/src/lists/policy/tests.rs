//! Each policy on a dozen pages, worked out by hand. A frame is 32 base pages, which is a cluster, so one frame is scanned at a time.

use super::super::pages::Class::{self, Cache, Code, Data, ReadOnly, Shared};
use super::super::pages::{Bit, Frames};
use super::*;

/// 4 processes map code, 3 map shared memory, 1 maps anything else.
const MAPPERS: [u32; 5] = [4, 1, 1, 3, 0];
const LEAST_MAPPED: [u32; 5] = [1, 1, 1, 1, 0];

struct Memory {
    pages: Frames,
    policy: Box<dyn ReplacementPolicy>,
}

impl Memory {
    fn new(kind: PolicyKind, frames: u32, mappers: [u32; 5]) -> Self {
        Self { pages: Frames::new(frames, 32, mappers), policy: kind.build(frames) }
    }

    /// Pages arrive one after the other from frame 0: a mapped page by a use, another by a system call.
    fn with(kind: PolicyKind, classes: &[Class]) -> Self {
        let mut memory = Self::new(kind, classes.len() as u32, MAPPERS);
        classes.iter().enumerate().for_each(|(frame, &class)| memory.come(frame as u32, class, None));
        memory
    }

    fn come(&mut self, frame: u32, class: Class, evicted: Option<u32>) {
        self.pages.fill(frame, class, frame);
        self.policy.insert(&mut self.pages, frame, evicted);
        if class.is_mapped() {
            self.pages.set(frame, Bit::Young);
        } else {
            self.call(frame);
        }
    }

    fn call(&mut self, frame: u32) {
        self.policy.called(&mut self.pages, frame);
    }

    /// The frames freed, in order, and the cost.
    fn reclaim(&mut self, wanted: u32) -> (Vec<u32>, Scan, Taken) {
        let mut taken = Taken::default();
        let scan = self.policy.reclaim(&mut self.pages, wanted, &mut taken);
        taken.freed.iter().for_each(|&(frame, _)| self.pages.empty(frame));
        (taken.freed.iter().map(|&(frame, _)| frame).collect(), scan, taken)
    }

    fn list(&self, list: usize) -> Vec<u32> {
        self.policy.lists().newest_first(list)
    }
}

/// Frames 0 to 3 are anonymous, 4 to 9 cache.
fn four_data_six_cache(kind: PolicyKind) -> Memory {
    let mut memory = Memory::new(kind, 12, MAPPERS);
    (0..4).for_each(|frame| memory.come(frame, Data, None));
    (4..10).for_each(|frame| memory.come(frame, Cache, None));
    memory
}

#[test]
fn mixed_scans_mapped_pages_in_vain() {
    let mut memory = four_data_six_cache(PolicyKind::Mixed);
    assert_eq!((memory.list(0), memory.list(1)), (vec![3, 2, 1, 0], vec![9, 8, 7, 6, 5, 4]));
    let (freed, scan, _) = memory.reclaim(2);
    // In base pages, 128 are active and 192 inactive. Each pass adds 32 * 128 / 385 + 1 = 11 to the refill debt, so frames 0, 1 and 2 are scanned and
    // put back at priorities 10, 7 and 4. The shrink debt grows by 192 >> priority: 1 at 7, then 3, 6, 12, 24: 46 at priority 3, where frame 4 is
    // freed and 14 are left. Again from 12, with 160 inactive and 13 per pass: frames 3, 0, 1 and 2 are put back at 11, 9, 6 and 4, and with 1, 2, 5
    // and 10 more the shrink debt reaches 32 at 4, where frame 5 is freed.
    assert_eq!(freed, [4, 5]);
    assert_eq!((memory.list(0), memory.list(1)), (vec![2, 1, 0, 3], vec![9, 8, 7, 6]));
    // A frame that is put back is moved twice, one that is freed once.
    let expected = Scan { scanned: 7 + 2, mappings: 0, walked: 0, held: 2 * 7 + 2, longest_hold: 1, reclaimed: 2 };
    assert_eq!(scan, expected);
}

#[test]
fn later_both_lists_are_scanned_by_their_length() {
    let mut memory = four_data_six_cache(PolicyKind::MixedLater);
    let (freed, scan, _) = memory.reclaim(2);
    // Each pass adds (128 >> priority) + 1 to the refill debt and (192 >> priority) + 1 to the shrink debt: 24 and 31 by priority 4, 41 and 56 at 3,
    // where frame 0 is put back and frame 4 is freed; 9 and 24 are left. Again from 12, with 160 inactive, the shrink debt reaches 34 at 6, where
    // frame 5 is freed, before the refill debt reaches 32.
    assert_eq!((freed, scan.scanned), (vec![4, 5], 1 + 2));
    assert_eq!(memory.list(0), [0, 3, 2, 1]);
}

#[test]
fn mixed_ages_mapped_pages_when_nearly_all_are() {
    // 83 % are mapped: 41 + 60 is more than 100.
    let mut memory =
        Memory::with(PolicyKind::Mixed, &[Data, Data, Data, Data, Data, Data, Data, Data, Data, Data, Cache, Cache]);
    let (freed, scan, _) = memory.reclaim(2);
    assert_eq!(freed, [10, 11]);
    assert!(scan.mappings > 0, "who maps them has been asked: {scan:?}");
    // Each was used when it came in, so its first scan only clears that mark.
    assert_eq!(memory.list(0).len() + memory.list(1).len(), 10);
}

#[test]
fn split_at_100_leaves_mapped_pages_alone() {
    let mut memory = four_data_six_cache(PolicyKind::Split(100));
    let (freed, scan, _) = memory.reclaim(2);
    assert_eq!(freed, [4, 5]);
    assert_eq!((memory.list(0), memory.list(1), memory.list(2)), (vec![3, 2, 1, 0], vec![], vec![9, 8, 7, 6]));
    assert_eq!(scan, Scan { scanned: 2, mappings: 0, walked: 0, held: 2, longest_hold: 1, reclaimed: 2 });
}

#[test]
fn split_ages_mapped_pages_by_their_cost() {
    let mut memory = four_data_six_cache(PolicyKind::Split(8));
    let (freed, scan, _) = memory.reclaim(2);
    // No other list is active, so all scanning falls to the mapped one, in the steps of the mixed lists' first five refills: 0, 1 and 2, then 3, each
    // found used and put back, and at priority 9 frame 0 again, now unused: it becomes inactive. From then on 96 are active and 192 inactive, 8 per
    // pass: frame 1 follows at 5. The shrink debt was 14, and 1, 3 and 6 more, then (224 inactive) 14: 38 at priority 4.
    assert_eq!(freed, [4, 5]);
    assert_eq!((memory.list(0), memory.list(2)), (vec![3, 2], vec![1, 0, 9, 8, 7, 6]));
    assert_eq!((scan.scanned, scan.mappings), (6 + 2, 6));
}

#[test]
fn split_makes_active_cache_bear_what_mapped_pages_are_spared_and_by_use_does_not() {
    let active_cache = |kind: PolicyKind| {
        let mut memory = Memory::new(kind, 16, MAPPERS);
        (0..8).for_each(|frame| memory.come(frame, Data, None));
        (8..14).for_each(|frame| memory.come(frame, Cache, None));
        // Four become active.
        (8..12).for_each(|frame| memory.call(frame));
        let (freed, scan, _) = memory.reclaim(1);
        assert_eq!((freed, scan.mappings), (vec![12], 0), "{kind}");
        scan.scanned - 1
    };
    // 384 base pages are active and 64 inactive. In each pass all of 32 * 384 / 129 = 95 and one more, three frames, are taken from the cache; they
    // become inactive, so passes end early. The list's own 128 give 31 and one more, one frame.
    assert!(active_cache(PolicyKind::Split(100)) > active_cache(PolicyKind::split_by_use(100)));
}

#[test]
fn split_takes_mapped_pages_when_nothing_else_is_left() {
    let mut memory = Memory::with(PolicyKind::Split(100), &[Data, Data, Data, Data]);
    let (freed, ..) = memory.reclaim(1);
    assert_eq!(freed.len(), 1, "a machine with swap space need not stop");
}

#[test]
fn split_by_use_keeps_shared_memory_longest() {
    let mut memory = Memory::with(PolicyKind::split_by_use(1), &[Shared, Shared, Data, Data, Cache, Cache, Cache]);
    // Shared memory enters the inactive list, like files, and is found used there.
    let (first, ..) = memory.reclaim(3);
    assert_eq!(first, [4, 5, 6]);
    let (then, ..) = memory.reclaim(2);
    assert_eq!(then, [2, 3]);
    assert_eq!(memory.list(3).len(), 2, "shared memory is active on its own list");
}

#[test]
fn split_by_use_ages_each_use_by_its_own_cost() {
    let scans = |data, shared| {
        let mut memory = Memory::new(PolicyKind::SplitByUse([100, 100, data, shared]), 12, MAPPERS);
        (0..4).for_each(|frame| memory.come(frame, Data, None));
        (4..8).for_each(|frame| memory.come(frame, Shared, None));
        (8..12).for_each(|frame| memory.come(frame, Cache, None));
        memory.reclaim(4).1.mappings
    };
    // Shared memory enters the inactive list; each of four pages that three processes map is found used there, and is active afterwards.
    assert_eq!(scans(100, 100), 4 * 3);
    assert!(scans(1, 100) > 4 * 3 && scans(100, 1) > 4 * 3, "{} {}", scans(1, 100), scans(100, 1));
}

#[test]
fn a_second_call_makes_a_page_active() {
    let kinds = [
        (PolicyKind::Mixed, 0, 1),
        (PolicyKind::MixedLater, 0, 1),
        (PolicyKind::Split(8), 1, 2),
        (PolicyKind::AnonFile, 3, 2),
    ];
    for (kind, active, inactive) in kinds {
        let mut memory = Memory::with(kind, &[Cache, Cache]);
        assert_eq!((memory.list(active), memory.list(inactive)), (vec![], vec![1, 0]), "{kind}");
        memory.call(0);
        assert_eq!((memory.list(active), memory.list(inactive)), (vec![0], vec![1]), "{kind}");
    }
}

#[test]
fn a_dirty_page_goes_after_it_is_written() {
    for kind in [PolicyKind::Mixed, PolicyKind::Split(100)] {
        let mut memory = Memory::with(kind, &[Cache, Cache, Cache]);
        memory.pages.soil(0);
        // A system call used frame 0 when it came in, so it is kept once; then it is the oldest again, and written.
        let (freed, _, taken) = memory.reclaim(3);
        assert_eq!((&freed[..], &taken.writes[..]), (&[1, 2][..], &[0][..]), "{kind}");
        assert!(memory.pages.has(0, Bit::Writeback), "{kind}");
        let (freed, _, taken) = memory.reclaim(1);
        assert_eq!((freed, taken.writes), (vec![], vec![]), "{kind}: the disk has it");
        memory.pages.take(0, Bit::Writeback);
        memory.pages.take(0, Bit::Reclaim);
        memory.policy.written(&mut memory.pages, 0);
        assert_eq!(memory.reclaim(1).0, [0], "{kind}");
    }
}

#[test]
fn today_mapped_pages_are_used_twice_before_they_are_active() {
    let mut memory = Memory::new(PolicyKind::AnonFile, 8, LEAST_MAPPED);
    for (frame, class) in [(0, Code), (1, ReadOnly), (2, Cache), (3, Cache)] {
        memory.come(frame, class, None);
    }
    assert_eq!(memory.list(2), [3, 2, 1, 0]);
    let (freed, ..) = memory.reclaim(2);
    assert_eq!(freed, [2, 3]);
    assert_eq!((memory.list(3), memory.list(2)), (vec![0], vec![1]), "code that is used is active at once");
    memory.pages.set(1, Bit::Young);
    (4..7).for_each(|frame| memory.come(frame, Cache, None));
    let (freed, ..) = memory.reclaim(2);
    assert_eq!(freed, [4, 5]);
    assert!(memory.list(3).contains(&1), "the second use counts");
}

#[test]
fn today_what_comes_back_soon_is_active() {
    let mut memory = Memory::with(PolicyKind::AnonFile, &[Data, Data, Data, Cache, Cache]);
    let (freed, _, taken) = memory.reclaim(2);
    assert_eq!((freed, memory.list(0)), (vec![3, 4], vec![2, 1, 0]));
    // Two were evicted since frame 3, itself included: with the space of the three anonymous pages it would still be here.
    memory.come(3, Cache, Some(taken.freed[0].1));
    // The activation is a clock tick, too: frame 4 was away for two as well.
    memory.come(4, Cache, Some(taken.freed[1].1));
    assert_eq!((memory.list(3), memory.list(2)), (vec![4, 3], vec![]));
}

#[test]
fn today_what_comes_back_late_is_not_active() {
    let mut memory = Memory::with(PolicyKind::AnonFile, &[Data, Cache, Cache]);
    let (freed, _, taken) = memory.reclaim(2);
    assert_eq!(freed, [1, 2]);
    // Two were evicted, and there would have been space for one.
    memory.come(1, Cache, Some(taken.freed[0].1));
    assert_eq!((memory.list(3), memory.list(2)), (vec![], vec![1]));
}

#[test]
fn today_dirty_files_wait_among_the_active_and_anonymous_pages_are_swapped() {
    let mut memory = Memory::new(PolicyKind::AnonFile, 6, LEAST_MAPPED);
    memory.come(0, Cache, None);
    memory.pages.soil(0);
    memory.come(1, Cache, None);
    memory.reclaim(1);
    assert_eq!((memory.list(3), memory.list(2)), (vec![0], vec![]));
    memory.pages.clean(0);
    memory.policy.written(&mut memory.pages, 0);
    assert_eq!(memory.list(2), [0], "written, it is the next to go");
    memory.come(2, Data, None);
    memory.pages.soil(2);
    memory.pages.take(2, Bit::Young);
    let (freed, _, taken) = memory.reclaim(2);
    assert_eq!((&freed[..], &taken.writes[..]), (&[0][..], &[2][..]));
}

#[test]
fn generations_take_cache_without_reading_page_tables() {
    let mut memory = Memory::with(PolicyKind::Generations, &[Data, Data, Cache, Cache]);
    // Lists 0 to 3 are the generations of anonymous memory, 4 to 7 those of files; the youngest is the fourth.
    assert_eq!((memory.list(3), memory.list(4)), (vec![1, 0], vec![3, 2]));
    let (freed, scan, _) = memory.reclaim(2);
    assert_eq!(freed, [2, 3]);
    assert_eq!(scan, Scan { scanned: 2, mappings: 0, walked: 0, held: 2, longest_hold: 2, reclaimed: 2 });
}

#[test]
fn generations_age_by_a_walk_and_keep_what_is_young() {
    let mut memory = Memory::with(PolicyKind::Generations, &[Data, Data, Shared, Shared, Shared, Shared]);
    memory.pages.take(1, Bit::Young);
    let (freed, scan, _) = memory.reclaim(1);
    // All are in the youngest generation, 3. A walk (2 entries, and 4 from 3 processes each) finds five used, moves them to its young end and begins
    // 4; a second walk begins 5, so that 3 may be evicted from: the page that was not used, and the next one in the batch.
    assert_eq!(freed[0], 1);
    assert_eq!(scan.walked, 2 * (2 + 4 * 3));
}

#[test]
fn names_are_read_as_they_are_written() {
    let kinds = [
        PolicyKind::Mixed,
        PolicyKind::MixedLater,
        PolicyKind::Split(0),
        PolicyKind::Split(100),
        PolicyKind::split_by_use(8),
        PolicyKind::AnonFile,
    ];
    for kind in kinds.into_iter().chain([PolicyKind::Generations]) {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("split-by-use-8".parse(), Ok(PolicyKind::SplitByUse([8, 8, 8, 100])));
    let costs = PolicyKind::SplitByUse([1, 2, 8, 50]);
    assert_eq!((costs.to_string().as_str(), costs.to_string().parse()), ("split-by-use-1-2-8-50", Ok(costs)));
    for name in ["split", "split-101", "split-by-use-", "split-by-use-1-2", "split-by-use-1-2-3-101", "best", ""] {
        assert!(name.parse::<PolicyKind>().is_err(), "{name}");
    }
}
