//! Allocators that give memory back by the page, which splits huge pages.
//!
//! Owns: whether a program has one of them, and whether it gives back. Never touches: huge pages that were lost; [`super::Past`] remembers those.
//!
//! jemalloc and mimalloc serve many programs that hardly free anything, and some that free in waves. The first gain from huge pages; of the others
//! nearly every huge page would be split. Which kind a program is shows on base pages, too: so it is watched before anything of it is promoted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use heat::units::{Address, BASE_PAGE, Bytes, HUGE_PAGE, PAGES_PER_REGION};
use heat::{Growth, Heat, Region};
use launch::manager::MemoryManager;

use crate::decide::Reason;

/// How to tell whether an allocator that gives memory back by the page does so in this program.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// How long a program is watched first.
    watched_for: Duration,
    /// A program gives back if more than this share of its regions did,
    share: f64,
    /// and at least so many,
    fewest: usize,
    /// from one scan to the next, and before that within this time.
    adds_up_for: Duration,
}

/// 1 % of the regions in ten minutes is about one promotion in twenty in an hour.
const TEN_MINUTES: Duration = Duration::from_secs(10 * 60);

/// jemalloc's decay takes ten seconds, and a program that frees in waves frees in many regions at once; a hash table that grows, as in Redis, leaves
/// two or three. mimalloc gave back for the first time a minute after the start of a program that frees half of its memory every forty seconds, and
/// then in few regions of each wave, which add up. Go's runtime took more than five minutes for the same, and gperftools' tcmalloc gives back nothing
/// before the fourth minute, and then one piece in each of one to five regions of a wave.
fn watch(manager: MemoryManager) -> Option<Watch> {
    match manager {
        MemoryManager::Jemalloc => {
            Some(Watch { watched_for: Duration::from_secs(45), share: 0.05, fewest: 4, adds_up_for: Duration::ZERO })
        }
        MemoryManager::Mimalloc => {
            Some(Watch { watched_for: Duration::from_secs(90), share: 0.01, fewest: 2, adds_up_for: TEN_MINUTES })
        }
        MemoryManager::Go | MemoryManager::Tcmalloc => {
            Some(Watch { watched_for: Duration::from_secs(6 * 60), share: 0.01, fewest: 2, adds_up_for: TEN_MINUTES })
        }
        MemoryManager::Java | MemoryManager::Glibc => None,
    }
}

/// A program is watched for longer if it took or gave back more than this share of its memory between two scans: whoever frees in waves takes in waves,
/// and takes before it frees.
const IN_MOTION: f64 = 0.01;
/// Until it has been at rest for so long, several times jemalloc's decay,
const AT_REST_FOR: Duration = Duration::from_secs(30);
/// but no longer than this in all, unless the allocator takes longer: many programs only grow.
const LONGEST_WATCH: Duration = Duration::from_secs(4 * 60);
/// How long it is left alone after it gave memory back.
const LEFT_ALONE: Duration = TEN_MINUTES;
/// A region has given back if so many fewer of its pages hold something, and some still do.
const FEWEST_PAGES: u16 = 4;
/// Of a large program, about so many regions are watched.
const MOST_REGIONS: usize = 4096;

/// What a program with such an allocator does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settling {
    /// Allocators that are part of its own file.
    linked_in: BTreeSet<MemoryManager>,
    /// Until when it is watched at least; None if it has no such allocator.
    known_at: Option<Instant>,
    /// The latest end of that.
    latest: Option<Instant>,
    /// Its page faults so far, and its resident memory, at the last scan.
    used: Option<(u64, Bytes)>,
    /// The pages that held something in these regions.
    held: BTreeMap<Address, u16>,
    /// When these regions gave back.
    fallen: BTreeMap<Address, Instant>,
    /// When it last gave back.
    gave_back: Option<Instant>,
}

impl Settling {
    /// Of a program of which nothing is known yet, but the allocators in its own file.
    pub(super) fn of(linked_in: BTreeSet<MemoryManager>) -> Self {
        Self { linked_in, ..Self::default() }
    }

    /// Records a scan.
    pub(super) fn notice(&mut self, heat: &Heat, now: Instant) {
        let mapped = MemoryManager::mapped(heat.mappings.iter().map(|mapping| mapping.name.as_str()));
        let watches = mapped.union(&self.linked_in).filter_map(|&manager| watch(manager));
        let Some(watch) = watches.max_by_key(|watch| watch.watched_for) else {
            return *self = Self::of(std::mem::take(&mut self.linked_in));
        };
        self.known_at = self.known_at.or(Some(now + watch.watched_for));
        self.latest = self.latest.or(Some(now + watch.watched_for.max(LONGEST_WATCH)));
        let on_base_pages = || heat.regions.iter().filter(|region| !region.huge && region.obstacle.is_none());
        // By address, so that each scan watches the same ones.
        let one_in = (on_base_pages().count() / MOST_REGIONS).max(1) as u64;
        let is_watched = |region: &&Region| (region.start.0 / HUGE_PAGE).is_multiple_of(one_in);
        let held = on_base_pages().filter(is_watched).map(|region| (region.start, pages_held(region))).collect();
        let before = std::mem::replace(&mut self.held, held);
        let known = || before.iter().filter_map(|(&start, &before)| Some((start, before, *self.held.get(&start)?)));
        let counts = |start: &Address, when: Instant| now < when + watch.adds_up_for && self.held.contains_key(start);
        self.fallen.retain(|start, when| counts(start, *when));
        let fell = known().filter(|&(_, before, now)| now > 0 && before >= now + FEWEST_PAGES);
        self.fallen.extend(fell.map(|(start, ..)| (start, now)));
        if self.fallen.len() >= watch.fewest && self.fallen.len() as f64 > known().count() as f64 * watch.share {
            self.gave_back = self.fallen.values().max().copied();
        }
    }

    /// Records the page faults that it has had so far, and its resident memory. Each page that is taken, or taken again, is a fault.
    pub(super) fn notice_faults(&mut self, faults: u64, rss: Bytes, now: Instant) {
        let Some((faults_before, rss_before)) = self.used.replace((faults, rss)) else { return };
        let moved = faults.saturating_sub(faults_before) + rss_before.saturating_sub(rss).0 / BASE_PAGE;
        if moved as f64 > IN_MOTION * (rss.0 / BASE_PAGE) as f64 {
            let end = self.latest.map(|latest| latest.min(now + AT_REST_FOR));
            self.known_at = self.known_at.max(end);
        }
    }

    /// Why nothing of the program may be promoted now; None if it may.
    pub(super) fn reason_to_wait(&self, now: Instant) -> Option<Reason> {
        let known_at = self.known_at?;
        if self.gave_back.is_some_and(|when| now < when + LEFT_ALONE) {
            Some(Reason::GivenBackByPage)
        } else {
            (now < known_at).then_some(Reason::Watched)
        }
    }

    /// When it will have been watched for long enough; None if it has, or need not be.
    pub(super) fn is_known_at(&self, now: Instant) -> Option<Instant> {
        self.known_at.filter(|&known_at| now < known_at)
    }
}

/// Pages that the program would miss. What it gave back may be a zero page by now, or be taken by the kernel at any time.
fn pages_held(region: &Region) -> u16 {
    let Growth { unpopulated, zero, lazily_freed, .. } = region.growth;
    (PAGES_PER_REGION as u16).saturating_sub(unpopulated + zero + lazily_freed)
}

#[cfg(test)]
mod tests {
    use heat::samples::{heat_of, huge, region};
    use heat::units::Pages;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A scan of a hundred regions, of which this many lack so many pages.
    fn scan(lacking: u64, pages: u16, library: &str) -> Heat {
        let mut heat = heat_of((0..100).map(|at| region(at, 5.0, if at < lacking { pages } else { 0 })).collect());
        heat.mappings[0].name = library.to_owned();
        heat
    }

    const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    const MIMALLOC: &str = "libmimalloc.so.2.0";
    const WATCHED_FOR: Duration = Duration::from_secs(45);

    #[test]
    fn an_allocator_that_may_give_back_is_watched_first_and_no_other() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        settling.notice(&scan(0, 0, "/usr/lib/libc.so.6"), now);
        assert_eq!((settling.reason_to_wait(now), settling.is_known_at(now)), (None, None));
        settling.notice(&scan(0, 0, JEMALLOC), now);
        settling.notice(&scan(0, 0, JEMALLOC), now + 30 * SECOND);
        assert_eq!(settling.reason_to_wait(now + 44 * SECOND), Some(Reason::Watched));
        assert_eq!(settling.is_known_at(now + SECOND), Some(now + WATCHED_FOR));
        let known = now + WATCHED_FOR;
        assert_eq!((settling.reason_to_wait(known), settling.is_known_at(known)), (None, None));
        let mut settling = Settling::default();
        settling.notice(&scan(0, 0, MIMALLOC), now);
        assert_eq!(settling.reason_to_wait(now + 89 * SECOND), Some(Reason::Watched));
        assert_eq!(settling.reason_to_wait(now + 90 * SECOND), None);
    }

    #[test]
    fn what_is_part_of_the_program_counts_as_a_library_does() {
        let now = Instant::now();
        let watched_for = |manager| {
            let mut settling = Settling::of([manager].into());
            settling.notice(&scan(0, 0, "/srv/app"), now);
            settling.is_known_at(now).map(|known| (known - now).as_secs())
        };
        let managers = [MemoryManager::Jemalloc, MemoryManager::Go, MemoryManager::Java, MemoryManager::Tcmalloc];
        assert_eq!(managers.map(watched_for), [Some(45), Some(360), None, Some(360)]);
        let mut both = Settling::of([MemoryManager::Go].into());
        both.notice(&scan(0, 0, JEMALLOC), now);
        assert_eq!(both.is_known_at(now), Some(now + 360 * SECOND), "the longest");
    }

    #[test]
    fn who_gives_back_is_left_alone_for_as_long_as_it_does() {
        let (mut settling, mut now) = (Settling::default(), Instant::now());
        for round in 0..40 {
            // A wave of twenty seconds, and one of as many in which it takes pages again.
            settling.notice(&scan(50, if round % 2 == 0 { 0 } else { 100 }, JEMALLOC), now);
            now += 20 * SECOND;
            assert!(round == 0 || settling.reason_to_wait(now) == Some(Reason::GivenBackByPage), "{round}");
        }
        assert_eq!(settling.reason_to_wait(now + LEFT_ALONE), None);
    }

    #[test]
    fn whole_regions_single_pages_and_few_regions_are_no_reason() {
        let found = |before: &Heat, after: &Heat| {
            let (mut settling, now) = (Settling::default(), Instant::now());
            settling.notice(before, now);
            settling.notice(after, now + SECOND);
            settling.reason_to_wait(now + WATCHED_FOR)
        };
        let full = scan(0, 0, JEMALLOC);
        assert_eq!(found(&full, &scan(50, 512, JEMALLOC)), None, "whole regions split nothing");
        assert_eq!(found(&full, &scan(50, FEWEST_PAGES - 1, JEMALLOC)), None);
        assert_eq!(found(&full, &scan(5, 100, JEMALLOC)), None, "the tables of a Redis that grows");
        assert_eq!(found(&full, &scan(6, 100, JEMALLOC)), Some(Reason::GivenBackByPage));
        let small = |lacking| {
            let of =
                |lacking| Heat { regions: scan(lacking, 100, JEMALLOC).regions[..30].to_vec(), ..scan(0, 0, JEMALLOC) };
            found(&of(0), &of(lacking))
        };
        assert_eq!([small(3), small(4)], [None, Some(Reason::GivenBackByPage)], "of 60 MiB");
        let mimalloc = |lacking| found(&scan(0, 0, MIMALLOC), &scan(lacking, 100, MIMALLOC));
        assert_eq!([mimalloc(1), mimalloc(2)], [Some(Reason::Watched), Some(Reason::GivenBackByPage)]);
        assert_eq!(found(&scan(50, 100, JEMALLOC), &full), None, "it only takes");
        let mut promoted = scan(50, 100, JEMALLOC);
        promoted.regions.iter_mut().take(50).zip(0..).for_each(|(region, at)| *region = huge(at, 0.0));
        assert_eq!(found(&full, &promoted), None);
    }

    #[test]
    fn memory_in_motion_prolongs_the_watch() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        let used = |settling: &mut Settling, second: u32, faults: u64, pages: u64| {
            settling.notice(&scan(0, 0, JEMALLOC), now + second * SECOND);
            settling.notice_faults(faults, Pages(pages).bytes(), now + second * SECOND);
            settling.is_known_at(now).map(|known| (known - now).as_secs())
        };
        assert_eq!(used(&mut settling, 0, 1_000, 100_000), Some(45));
        assert_eq!(used(&mut settling, 10, 51_000, 150_000), Some(45), "it grows, and may rest then");
        assert_eq!(used(&mut settling, 20, 52_000, 150_000), Some(45), "a little");
        assert_eq!(used(&mut settling, 40, 55_000, 150_500), Some(70), "taken");
        assert_eq!(used(&mut settling, 60, 55_000, 148_000), Some(90), "given back");
        assert_eq!(used(&mut settling, 230, 95_000, 148_000), Some(240), "at the latest");
        let mut other = Settling::default();
        other.notice(&scan(0, 0, "libc.so.6"), now);
        [0, 50_000].into_iter().for_each(|faults| other.notice_faults(faults, Bytes(1 << 30), now));
        assert_eq!(other.is_known_at(now), None);
    }

    #[test]
    fn single_regions_add_up_unless_they_are_those_of_growing_tables() {
        let fallen = |library: &str, every: u32| {
            let (mut settling, now) = (Settling::default(), Instant::now());
            for round in 0..40u32 {
                let mut heat = scan(0, 0, library);
                heat.regions[round as usize / 2].growth.unpopulated = if round % 2 == 0 { 0 } else { 100 };
                settling.notice(&heat, now + round * every * SECOND);
                if settling.gave_back.is_some() {
                    return Some(round);
                }
            }
            None
        };
        assert_eq!(fallen("libtcmalloc.so.4", 20), Some(3), "the second of them");
        assert_eq!(fallen("libtcmalloc.so.4", 310), None, "one in ten minutes");
        assert_eq!(fallen(JEMALLOC, 20), None);
        let (mut settling, now) = (Settling::default(), Instant::now());
        settling.notice(&scan(0, 0, MIMALLOC), now);
        (1..=10).for_each(|minute| settling.notice(&scan(5, 100, MIMALLOC), now + minute * 60 * SECOND));
        assert_eq!(settling.gave_back, Some(now + 60 * SECOND), "once, however long it is remembered");
        settling.notice(&Heat { regions: Vec::new(), ..scan(0, 0, MIMALLOC) }, now + 610 * SECOND);
        assert!(settling.fallen.is_empty(), "memory that is gone");
    }

    #[test]
    fn of_a_large_program_a_part_is_watched() {
        let of = |lacking: u16| {
            let mut heat = heat_of((0..20_000).map(|at| region(at, 5.0, lacking)).collect());
            heat.mappings[0].name = JEMALLOC.to_owned();
            heat
        };
        let (mut settling, now) = (Settling::default(), Instant::now());
        settling.notice(&of(0), now);
        assert!((MOST_REGIONS..=5000).contains(&settling.held.len()), "{}", settling.held.len());
        settling.notice(&of(100), now + SECOND);
        assert_eq!(settling.reason_to_wait(now + WATCHED_FOR), Some(Reason::GivenBackByPage));
    }
}
