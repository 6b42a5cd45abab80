//! Which pages of a client are active, and how often each is walked, from several reads after clearing once.
//!
//! Owns: when each page was first seen to be walked. Never touches: the system, or the reader of the bits.
//!
//! A page first seen some time after the bits were cleared is walked about once in that time. Reads at growing intervals thus separate pages of very
//! different rates at the cost of clearing once.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use hps::wire::{Page, Range, WalkedRun};

use heat::Heat;
use heat::units::{Address, BASE_PAGE, HUGE_PAGE, PAGES_PER_REGION};
use heat::{Obstacle, PageSet, Region};

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Activity {
    regions: BTreeMap<Address, Seen>,
    /// When pages were read, counted from the clearing.
    reads: Vec<Duration>,
}

/// How much is active.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Runs of pages that are walked as often.
    pub(super) runs: u64,
    /// Pages.
    pub(super) pages: u64,
    /// Page walks a second.
    pub(super) walks_per_second: f64,
}

#[derive(Debug)]
struct Seen {
    /// Walks a second of each page that the scan saw.
    at_once: f64,
    first_reads: FirstReads,
    /// Whether the bits of some pages could not be cleared.
    is_partly_unobserved: bool,
}

/// For each page the number of the read that saw it first, from 1; 0 if none did, [`UNOBSERVED`] if no read can tell. Half a byte each: there may be
/// tens of thousands of regions.
#[derive(Debug)]
struct FirstReads([u8; PAGES_PER_REGION / 2]);

/// Stands for no read.
const UNOBSERVED: u8 = 15;

impl FirstReads {
    fn get(&self, page: usize) -> u8 {
        self.0[page / 2] >> (page % 2 * 4) & 15
    }

    /// Unless another read saw the page before.
    fn note(&mut self, page: usize, read: u8) {
        if self.get(page) == 0 {
            self.0[page / 2] |= read << (page % 2 * 4);
        }
    }
}

impl Activity {
    /// After a scan, which is the first read. Covers regions that lie at least partly in these ranges, or all regions if there are none.
    pub(super) fn of(heat: &Heat, ranges: &[Range]) -> Self {
        let of_interest = |region: &Region| {
            let (start, end) = (region.start.0, region.start.0 + HUGE_PAGE);
            ranges.is_empty() || ranges.iter().any(|range| range.start < end && start < range.end)
        };
        let was_observed = |region: &&Region| usize::from(region.unobserved) < region.present.len().max(1);
        let regions = heat.regions.iter().filter(was_observed);
        let regions = regions.filter(|region| concerns_clients(region) && of_interest(region));
        let regions = regions.map(|region| (region.start, Seen::of(region))).collect();
        Self { regions, reads: vec![heat.window.duration()] }
    }

    /// Whether the bits of some pages were not cleared: [`Activity::mask`] must then be told which bits are set right after the scan.
    pub(super) fn has_stale_bits(&self) -> bool {
        self.regions.values().any(|seen| seen.is_partly_unobserved)
    }

    /// Leaves out pages whose bits are set though the scan did not see them walked: they were never cleared and tell nothing.
    pub(super) fn mask(&mut self, start: Address, set: &PageSet) {
        let Some(seen) = self.regions.get_mut(&start).filter(|seen| seen.is_partly_unobserved) else { return };
        set.iter().for_each(|page| seen.first_reads.note(page, UNOBSERVED));
    }

    /// Regions that it remembers.
    pub(super) fn regions(&self) -> u64 {
        self.regions.len() as u64
    }

    /// Begins another read, this long after the clearing.
    pub(super) fn begin_read(&mut self, since_cleared: Duration) {
        self.reads.push(since_cleared);
    }

    /// Records what the read saw of a region.
    pub(super) fn note(&mut self, start: Address, walked: &PageSet) {
        let number = self.reads.len() as u8;
        let Some(seen) = self.regions.get_mut(&start) else { return };
        walked.iter().for_each(|page| seen.first_reads.note(page, number));
    }

    /// The active pages in these ranges, or everywhere if there are none, ascending.
    pub(super) fn pages(&self, ranges: &[Range]) -> impl Iterator<Item = Page> {
        let of_interest =
            |address: u64| ranges.is_empty() || ranges.iter().any(|range| (range.start..range.end).contains(&address));
        let all = self.regions.iter().flat_map(|(start, seen)| {
            let reads = (0..PAGES_PER_REGION).map(|page| (page, seen.first_reads.get(page)));
            reads.filter(|(_, read)| !matches!(*read, 0 | UNOBSERVED)).map(|(page, read)| Page {
                address: start.0 + page as u64 * BASE_PAGE,
                walks_per_second: if read == 1 { seen.at_once } else { self.rate(read) },
            })
        });
        all.filter(move |page| of_interest(page.address))
    }

    /// The same as runs, at most so many of the total: those walked most.
    pub(super) fn hottest_runs(&self, ranges: &[Range], most: u64, totals: Totals) -> impl Iterator<Item = WalkedRun> {
        let all = (f32::NEG_INFINITY, 0);
        let (least, mut room) = if totals.runs <= most { all } else { self.least_rate(ranges, most) };
        WalkedRun::of(self.pages(ranges)).filter(move |run| match run.walks_per_second.total_cmp(&least) {
            Ordering::Greater => true,
            Ordering::Equal if room > 0 => {
                room -= 1;
                true
            }
            Ordering::Equal | Ordering::Less => false,
        })
    }

    /// The least rate of the most walked runs, at most so many; and how many of that very rate they are.
    fn least_rate(&self, ranges: &[Range], most: u64) -> (f32, u64) {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        // The bits of numbers that are not negative are in their order.
        WalkedRun::of(self.pages(ranges))
            .for_each(|run| *counts.entry(run.walks_per_second.to_bits()).or_default() += 1);
        let mut room = most;
        for (bits, count) in counts.into_iter().rev() {
            if count >= room {
                return (f32::from_bits(bits), room);
            }
            room -= count;
        }
        (f32::NEG_INFINITY, 0)
    }

    /// What there is in these ranges, or everywhere if there are none.
    pub(super) fn totals(&self, ranges: &[Range]) -> Totals {
        WalkedRun::of(self.pages(ranges)).fold(Totals::default(), |sum, run| Totals {
            runs: sum.runs + 1,
            pages: sum.pages + u64::from(run.pages),
            walks_per_second: sum.walks_per_second + f64::from(run.pages) * f64::from(run.walks_per_second),
        })
    }

    /// The rate of a page that this read saw and the previous one did not.
    fn rate(&self, read: u8) -> f64 {
        let (after, by) = (self.reads[read as usize - 2], self.reads[read as usize - 1]);
        2.0 / (after + by).as_secs_f64()
    }
}

impl Seen {
    fn of(region: &Region) -> Self {
        let mut first_reads = FirstReads([0; PAGES_PER_REGION / 2]);
        region.walked.iter().for_each(|page| first_reads.note(page, 1));
        let at_once = region.walks_per_second / region.walked.len().max(1) as f64;
        Self { at_once, first_reads, is_partly_unobserved: region.unobserved > 0 }
    }
}

/// Base pages of data: what an application can act on.
fn concerns_clients(region: &Region) -> bool {
    !region.huge
        && matches!(region.obstacle, None | Some(Obstacle::NoHugePage | Obstacle::Misaligned | Obstacle::Split))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::samples::{at, heat_of, huge, region};
    use heat::units::Nanos;

    fn set(pages: &[usize]) -> PageSet {
        let mut set = PageSet::NONE;
        pages.iter().for_each(|&page| set.insert(page));
        set
    }

    #[test]
    fn pages_are_rated_by_the_read_that_saw_them_first() {
        let walked = Region { walked: set(&[0, 5]), ..region(1, 40.0, 100) };
        let stack = Region { obstacle: Some(Obstacle::Stack), ..region(2, 9.0, 100) };
        let split = Region { obstacle: Some(Obstacle::Split), walked: PageSet::NONE, ..region(3, 0.0, 100) };
        let heat = Heat {
            window: Nanos(100_000_000),
            ..heat_of(vec![walked, stack, split, Region { walked: PageSet::ALL, ..huge(4, 0.0) }])
        };
        let mut activity = Activity::of(&heat, &[]);
        activity.begin_read(Duration::from_millis(300));
        activity.note(at(1), &set(&[0, 5, 7]));
        activity.note(at(2), &set(&[1]));
        activity.note(at(9), &set(&[1]));
        activity.begin_read(Duration::from_millis(700));
        activity.note(at(1), &set(&[0, 7, 8]));
        activity.note(at(3), &set(&[511]));
        let page = |number: u64, page: u64, walks_per_second: f64| Page {
            address: at(number).0 + page * BASE_PAGE,
            walks_per_second,
        };
        let all: Vec<Page> = activity.pages(&[]).collect();
        assert_eq!(all, [page(1, 0, 20.0), page(1, 5, 20.0), page(1, 7, 5.0), page(1, 8, 2.0), page(3, 511, 2.0)]);
        let range = |number: u64, from: u64, to: u64| Range {
            start: page(number, from, 0.0).address,
            end: page(number, to, 0.0).address,
        };
        let some: Vec<Page> = activity.pages(&[range(1, 5, 8), range(3, 511, 512)]).collect();
        assert_eq!(some, [all[1], all[2], all[4]]);
        assert_eq!(activity.totals(&[]), Totals { runs: 5, pages: 5, walks_per_second: 49.0 });
        assert_eq!(activity.totals(&[range(1, 5, 8)]), Totals { runs: 2, pages: 2, walks_per_second: 25.0 });
        assert_eq!(activity.pages(&[Range { start: 0, end: 1 }]).count(), 0);
        let kept = Activity::of(&heat, &[range(3, 511, 512)]).regions;
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), [at(3)], "no others take memory");
        let run = |page: Page, pages| WalkedRun {
            address: page.address,
            pages,
            walks_per_second: page.walks_per_second as f32,
        };
        let runs = |most| activity.hottest_runs(&[], most, activity.totals(&[])).collect::<Vec<WalkedRun>>();
        let whole = [run(all[0], 1), run(all[1], 1), run(all[2], 1), run(all[3], 1), run(all[4], 1)];
        assert_eq!((runs(5), runs(99)), (whole.to_vec(), whole.to_vec()));
        assert_eq!((runs(4), runs(1), runs(0)), (whole[..4].to_vec(), whole[..1].to_vec(), Vec::new()));
    }

    #[test]
    fn bits_that_were_not_cleared_are_no_activity() {
        let observed = Region { walked: set(&[0, 5]), ..region(1, 40.0, 0) };
        let partly = Region { unobserved: 2, walked: set(&[3]), ..region(2, 40.0, 0) };
        let locked = Region { unobserved: 512, walked: PageSet::NONE, ..region(3, 0.0, 0) };
        let mut activity = Activity::of(&heat_of(vec![observed, partly, locked]), &[]);
        assert!(activity.has_stale_bits());
        for number in 1..=3 {
            activity.mask(at(number), &set(&[3, 7, 8]));
        }
        activity.begin_read(Duration::from_millis(700));
        for number in 1..=3 {
            activity.note(at(number), &set(&[3, 7, 8, 9]));
        }
        let seen: Vec<u64> = activity.pages(&[]).map(|page| page.address / BASE_PAGE).collect();
        let page = |number: u64, page: u64| at(number).0 / BASE_PAGE + page;
        assert_eq!(
            seen,
            [0, 3, 5, 7, 8, 9]
                .map(|each| page(1, each))
                .into_iter()
                .chain([page(2, 3), page(2, 9)])
                .collect::<Vec<_>>()
        );
        assert!(!Activity::of(&heat_of(vec![region(1, 40.0, 100)]), &[]).has_stale_bits());
    }
}
