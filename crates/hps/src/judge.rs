//! Decides what to do with each region that has active pages, and carries it out.
//!
//! Owns: the rule, the limits on huge pages and on growth, and the report on what was done. Never touches: the source of lists, or memory; the caller
//! converts regions, and the application moves its objects.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::Page;

/// Bytes of a region: an aligned huge page's worth.
pub(crate) const REGION: u64 = 2 << 20;
/// Base pages of a region.
pub(crate) const PAGES: u64 = 512;
/// One in this many of a region's pages must be active for it to be converted in place.
const ONE_IN: u64 = 4;

/// A region with active pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActiveRegion<'a> {
    /// Where it starts; a multiple of 2 MiB.
    pub start: u64,
    /// Its active pages, ascending.
    pub pages: &'a [Page],
    /// Page walks a second in all of them.
    pub walks_per_second: f64,
}

/// What to do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionVerdict {
    /// Nothing.
    Keep,
    /// Put it on a huge page in place.
    Convert,
    /// The application moves its hot objects together.
    Compact,
}

/// What an application knows about its own memory. Methods are called one at a time, on the thread that works through a list.
pub trait Application: Send + Sync {
    /// Called before a list is worked through: all active pages, ascending.
    fn begin(&self, pages: &[Page]) {
        let _ = pages;
    }

    /// What to do with a region. Regions come in descending order of page walks.
    fn judge(&self, region: &ActiveRegion<'_>) -> RegionVerdict {
        self::judge(region)
    }

    /// Moves the hot objects of a region elsewhere, for example into an [`crate::Arena`]. Returns the bytes moved, or an errno. None if
    /// the application cannot.
    ///
    /// Errors: the application's own errno, reported as [`Report::last_error`].
    fn compact(&self, region: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
        let _ = region;
        None
    }

    /// Called after a list was worked through.
    fn end(&self, report: &Report) {
        let _ = report;
    }
}

/// An application that leaves everything to the library.
pub struct Judge;

impl Application for Judge {}

/// The rule for applications without their own: a region is converted if at least a quarter of it is active, otherwise compacted.
pub fn judge(region: &ActiveRegion<'_>) -> RegionVerdict {
    verdict(region.pages.len() as u64)
}

/// The same, by the number of active pages.
pub(crate) fn verdict(active_pages: u64) -> RegionVerdict {
    if active_pages * ONE_IN >= PAGES { RegionVerdict::Convert } else { RegionVerdict::Compact }
}

/// The outcome of one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Report {
    /// Active pages in it.
    pub pages: u64,
    /// Regions that hold them.
    pub regions: u64,
    /// Regions put on huge pages.
    pub converted: u64,
    /// Regions whose hot objects the application moved.
    pub compacted: u64,
    /// Bytes that it moved.
    pub compacted_bytes: u64,
    /// Regions left as they are: by verdict, because they are on a huge page already, or because nothing can compact them or nothing had to be moved.
    pub kept: u64,
    /// Regions left as they are because a limit is reached: of huge pages, or of growth where the application cannot compact either.
    pub over_limit: u64,
    /// Regions that the kernel or the application refused.
    pub refused: u64,
    /// The errno of the last refusal; 0 if there was none.
    pub last_error: i32,
    /// Active pages missing from the list, which had no room for the least walked.
    pub left_out: u64,
}

/// The regions of ascending pages, in descending order of page walks.
pub(crate) fn regions(pages: &[Page]) -> Vec<ActiveRegion<'_>> {
    let same = |one: &Page, other: &Page| one.address / REGION == other.address / REGION;
    let mut regions: Vec<ActiveRegion<'_>> = pages
        .chunk_by(same)
        .map(|pages| ActiveRegion {
            start: pages[0].address / REGION * REGION,
            pages,
            walks_per_second: pages.iter().map(|page| page.walks_per_second).sum(),
        })
        .collect();
    regions.sort_by(|one, other| other.walks_per_second.total_cmp(&one.walks_per_second));
    regions
}

/// How regions are put on huge pages, and how much memory each would add.
pub(crate) trait Convert {
    /// Bytes of a region that have no memory yet. Errors: this cannot be told.
    fn missing_bytes(&self, region: u64) -> io::Result<u64>;

    /// Whether a region is on a huge page already: a list may be older than what became of the one before.
    fn is_huge(&self, region: u64) -> bool;

    /// Puts a region on a huge page. Errors: the kernel refuses.
    fn convert(&mut self, region: u64) -> io::Result<()>;
}

/// The limits on converting in place.
#[derive(Debug)]
pub(crate) struct Limits<'a> {
    pub(crate) huge: &'a Allowance,
    pub(crate) growth: &'a Allowance,
}

/// The result of trying to convert a region in place.
enum Conversion {
    Done,
    /// It is on a huge page already.
    NotNeeded,
    /// The limit on huge pages is reached.
    NoHugePageLeft,
    /// It would add more memory than the limit on growth leaves.
    GrowsTooMuch,
    Refused(io::Error),
}

/// A limit in bytes, and how much of it is used.
#[derive(Debug)]
pub(crate) struct Allowance {
    pub(crate) most_bytes: u64,
    pub(crate) used_bytes: AtomicU64,
}

impl Allowance {
    pub(crate) fn of(most_bytes: u64) -> Self {
        Self { most_bytes, used_bytes: AtomicU64::new(0) }
    }

    /// Uses up this many bytes if there is room for them.
    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.most_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Limits<'_> {
    fn convert(&self, region: u64, by: &mut impl Convert) -> Conversion {
        if by.is_huge(region) {
            return Conversion::NotNeeded;
        }
        let missing = match by.missing_bytes(region) {
            Ok(missing) => missing,
            Err(error) => return Conversion::Refused(error),
        };
        if !self.huge.take(REGION) {
            return Conversion::NoHugePageLeft;
        }
        if !self.growth.take(missing) {
            self.huge.give_back(REGION);
            return Conversion::GrowsTooMuch;
        }
        match by.convert(region) {
            Ok(()) => Conversion::Done,
            Err(error) => {
                self.huge.give_back(REGION);
                self.growth.give_back(missing);
                Conversion::Refused(error)
            }
        }
    }
}

/// Works through a list. A region that would grow beyond the limit is compacted instead, if the application can.
pub(crate) fn work_through(
    pages: &[Page],
    left_out: u64,
    application: &dyn Application,
    limits: &Limits<'_>,
    by: &mut impl Convert,
) -> Report {
    application.begin(pages);
    let regions = regions(pages);
    let (pages, region_count) = (pages.len() as u64, regions.len() as u64);
    let mut report = Report { pages, regions: region_count, left_out, ..Report::default() };
    for region in &regions {
        match application.judge(region) {
            RegionVerdict::Keep => report.kept += 1,
            RegionVerdict::Convert => match limits.convert(region.start, by) {
                Conversion::Done => report.converted += 1,
                Conversion::NotNeeded => report.kept += 1,
                Conversion::NoHugePageLeft => report.over_limit += 1,
                Conversion::GrowsTooMuch => match application.compact(region) {
                    None => report.over_limit += 1,
                    Some(moved) => report.note_compacted(moved),
                },
                Conversion::Refused(error) => report.refuse(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            RegionVerdict::Compact => match application.compact(region) {
                None => report.kept += 1,
                Some(moved) => report.note_compacted(moved),
            },
        }
    }
    application.end(&report);
    report
}

impl Report {
    fn note_compacted(&mut self, moved: Result<u64, i32>) {
        match moved {
            Ok(0) => self.kept += 1,
            Ok(bytes) => {
                self.compacted += 1;
                self.compacted_bytes += bytes;
            }
            Err(errno) => self.refuse(errno),
        }
    }

    fn refuse(&mut self, errno: i32) {
        self.refused += 1;
        self.last_error = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn page(region: u64, number: u64, walks_per_second: f64) -> Page {
        Page { address: region * REGION + number * 4096, walks_per_second }
    }

    #[test]
    fn a_quarter_of_the_pages_makes_a_region_worth_converting() {
        let of = |pages: u64| (0..pages).map(|number| page(3, number, 1.0)).collect::<Vec<_>>();
        let verdict = |pages: &[Page]| judge(&regions(pages)[0]);
        assert_eq!([verdict(&of(127)), verdict(&of(128))], [RegionVerdict::Compact, RegionVerdict::Convert]);
    }

    #[test]
    fn regions_come_by_their_walks() {
        let pages = [page(1, 0, 1.0), page(1, 511, 1.5), page(2, 7, 9.0), page(5, 0, 0.5)];
        let found: Vec<_> = regions(&pages).iter().map(|region| (region.start / REGION, region.pages.len())).collect();
        assert_eq!(found, [(2, 1), (1, 2), (5, 1)]);
        assert_eq!(regions(&[]), []);
    }

    /// Judges by the number of pages, and records what it is asked to compact.
    #[derive(Default)]
    struct Notes {
        compacted: Mutex<Vec<u64>>,
        seen: Mutex<Vec<u64>>,
    }

    impl Application for Notes {
        fn begin(&self, pages: &[Page]) {
            self.seen.lock().unwrap().push(pages.len() as u64);
        }

        fn judge(&self, region: &ActiveRegion<'_>) -> RegionVerdict {
            [RegionVerdict::Keep, RegionVerdict::Convert, RegionVerdict::Compact][region.pages.len().min(3) - 1]
        }

        fn compact(&self, region: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
            self.compacted.lock().unwrap().push(region.start);
            Some(if region.pages.len() > 3 { Err(libc::ENOSPC) } else { Ok(64) })
        }

        fn end(&self, report: &Report) {
            self.seen.lock().unwrap().push(report.regions);
        }
    }

    /// Converts all but what it refuses, where each region lacks that much memory.
    #[derive(Default)]
    struct Converts {
        converted: Vec<u64>,
        missing: u64,
        huge: Vec<u64>,
        refuses: Option<i32>,
    }

    impl Convert for Converts {
        fn missing_bytes(&self, _: u64) -> io::Result<u64> {
            Ok(self.missing)
        }

        fn is_huge(&self, region: u64) -> bool {
            self.huge.contains(&region)
        }

        fn convert(&mut self, region: u64) -> io::Result<()> {
            self.converted.push(region);
            self.refuses.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        }
    }

    fn dense(region: u64) -> Vec<Page> {
        (0..128).map(|number| page(region, number, 1.0)).collect()
    }

    #[test]
    fn what_is_huge_already_takes_nothing_of_the_limit() {
        let (huge, growth) = (Allowance::of(REGION), Allowance::of(0));
        let mut by = Converts { huge: vec![REGION], ..Converts::default() };
        let pages = [dense(1), dense(2)].concat();
        let report = work_through(&pages, 0, &Judge, &Limits { huge: &huge, growth: &growth }, &mut by);
        assert_eq!((by.converted, report.converted, report.kept, report.over_limit), (vec![2 * REGION], 1, 1, 0));
        let mut report = Report::default();
        report.note_compacted(Ok(0));
        assert_eq!((report.compacted, report.kept), (0, 1), "nothing had to be moved");
    }

    #[test]
    fn each_region_gets_what_it_is_to_get_within_the_limit() {
        let counts = [1, 2, 2, 3, 4];
        let pages: Vec<Page> = (3..)
            .zip(counts)
            .flat_map(|(region, count)| (0..count).map(move |number| page(region, number, 1.0)))
            .collect();
        let (notes, huge, growth) = (Notes::default(), Allowance::of(REGION + 5), Allowance::of(0));
        let mut by = Converts::default();
        let report = work_through(&pages, 3, &notes, &Limits { huge: &huge, growth: &growth }, &mut by);
        assert_eq!(by.converted, [4 * REGION]);
        let counted = (report.pages, report.regions, report.kept, report.converted, report.over_limit);
        assert_eq!(counted, (12, 5, 1, 1, 1));
        assert_eq!(report.left_out, 3);
        assert_eq!((report.compacted, report.compacted_bytes, report.refused), (1, 64, 1));
        assert_eq!(report.last_error, libc::ENOSPC);
        assert_eq!(*notes.compacted.lock().unwrap(), [7 * REGION, 6 * REGION]);
        assert_eq!(*notes.seen.lock().unwrap(), [12, 5]);
    }

    #[test]
    fn a_region_that_would_grow_too_much_is_compacted_or_left() {
        /// Converts whatever it may, and moves the rest.
        struct Moves;
        impl Application for Moves {
            fn compact(&self, _: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
                Some(Ok(7))
            }
        }
        let pages = [dense(1), dense(2), dense(3)].concat();
        let (huge, growth) = (Allowance::of(2 * REGION), Allowance::of(100));
        let limits = Limits { huge: &huge, growth: &growth };
        let mut by = Converts { missing: 60, ..Converts::default() };
        let report = work_through(&pages, 0, &Moves, &limits, &mut by);
        assert_eq!((report.converted, report.compacted, report.compacted_bytes, report.over_limit), (1, 2, 14, 0));
        assert_eq!((huge.used_bytes.load(Ordering::Relaxed), growth.used_bytes.load(Ordering::Relaxed)), (REGION, 60));
        let report = work_through(&pages[..128], 0, &Judge, &limits, &mut by);
        assert_eq!((report.converted, report.over_limit), (0, 1), "nobody can compact it");
        by.missing = 40;
        assert_eq!(work_through(&pages[..128], 0, &Judge, &limits, &mut by).converted, 1, "both limits have room");
    }

    #[test]
    fn what_the_kernel_refuses_leaves_the_limits_as_they_were() {
        let (huge, growth) = (Allowance::of(REGION), Allowance::of(9));
        let limits = Limits { huge: &huge, growth: &growth };
        let mut by = Converts { missing: 9, refuses: Some(libc::ENOMEM), ..Converts::default() };
        let report = work_through(&dense(1), 0, &Judge, &limits, &mut by);
        assert_eq!((report.converted, report.refused, report.last_error), (0, 1, libc::ENOMEM));
        assert_eq!((huge.used_bytes.load(Ordering::Relaxed), growth.used_bytes.load(Ordering::Relaxed)), (0, 0));
        let few = work_through(&dense(1)[..5], 0, &Judge, &limits, &mut by);
        assert_eq!((few.kept, few.refused), (1, 0), "nobody can compact it");
    }
}
