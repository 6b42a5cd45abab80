//! Which pages of a client are active, and how often each is walked, from several reads after clearing once.
//!
//! Owns: when each page was first seen to be walked. Never touches: the system, or the reader of the bits.
//!
//! A page first seen some time after the bits were cleared is walked about once in that time. Reads at growing intervals thus separate pages of very
//! different rates at the cost of clearing once.

use std::collections::BTreeMap;
use std::time::Duration;

use hps::wire::{Page, Range};

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

#[derive(Debug)]
struct Seen {
    /// Walks a second of each page that the scan saw.
    at_once: f64,
    /// For each page the number of the read that saw it first, from 1; 0 if none did.
    first_read: [u8; PAGES_PER_REGION],
}

impl Activity {
    /// After a scan, which is the first read. Covers regions that lie at least partly in these ranges, or all regions if there are none.
    pub(super) fn of(heat: &Heat, ranges: &[Range]) -> Self {
        let of_interest = |region: &Region| {
            let (start, end) = (region.start.0, region.start.0 + HUGE_PAGE);
            ranges.is_empty() || ranges.iter().any(|range| range.start < end && start < range.end)
        };
        let regions = heat.regions.iter().filter(|region| concerns_clients(region) && of_interest(region));
        let regions = regions.map(|region| (region.start, Seen::of(region))).collect();
        Self { regions, reads: vec![heat.window.duration()] }
    }

    /// Begins another read, this long after the clearing.
    pub(super) fn begin_read(&mut self, since_cleared: Duration) {
        self.reads.push(since_cleared);
    }

    /// Records what the read saw of a region.
    pub(super) fn note(&mut self, start: Address, walked: &PageSet) {
        let number = self.reads.len() as u8;
        let Some(seen) = self.regions.get_mut(&start) else { return };
        for page in walked.iter() {
            let first = &mut seen.first_read[page];
            *first = if *first == 0 { number } else { *first };
        }
    }

    /// The active pages in these ranges, or everywhere if there are none, ascending.
    pub(super) fn pages(&self, ranges: &[Range]) -> impl Iterator<Item = Page> {
        let of_interest =
            |address: u64| ranges.is_empty() || ranges.iter().any(|range| (range.start..range.end).contains(&address));
        let all = self.regions.iter().flat_map(|(start, seen)| {
            seen.first_read.iter().enumerate().filter(|(_, read)| **read > 0).map(|(page, &read)| Page {
                address: start.0 + page as u64 * BASE_PAGE,
                walks_per_second: if read == 1 { seen.at_once } else { self.rate(read) },
            })
        });
        all.filter(move |page| of_interest(page.address))
    }

    /// Page walks a second in these ranges, or everywhere if there are none.
    pub(super) fn walks_per_second(&self, ranges: &[Range]) -> f64 {
        self.pages(ranges).map(|page| page.walks_per_second).sum()
    }

    /// The rate of a page that this read saw and the previous one did not.
    fn rate(&self, read: u8) -> f64 {
        let (after, by) = (self.reads[read as usize - 2], self.reads[read as usize - 1]);
        2.0 / (after + by).as_secs_f64()
    }
}

impl Seen {
    fn of(region: &Region) -> Self {
        let mut first_read = [0; PAGES_PER_REGION];
        region.walked.iter().for_each(|page| first_read[page] = 1);
        Self { at_once: region.walks_per_second / region.walked.len().max(1) as f64, first_read }
    }
}

/// Base pages of data: what an application can act on.
fn concerns_clients(region: &Region) -> bool {
    let of_no_use = [Obstacle::Stack, Obstacle::Hugetlb, Obstacle::Special, Obstacle::File];
    !region.huge && !region.obstacle.is_some_and(|obstacle| of_no_use.contains(&obstacle))
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
        assert_eq!((activity.walks_per_second(&[]), activity.walks_per_second(&[range(1, 5, 8)])), (49.0, 25.0));
        assert_eq!(activity.pages(&[Range { start: 0, end: 1 }]).count(), 0);
        let kept = Activity::of(&heat, &[range(3, 511, 512)]).regions;
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), [at(3)], "no others take memory");
    }
}
