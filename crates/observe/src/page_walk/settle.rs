//! What the bits of observed regions mean: settled for a few regions at a time, while it is known which pages were walked.
//!
//! Owns: what promoting a region would take, and which bits tell nothing. Never touches: bits, or rates.

use std::ops::Range;
use std::time::Instant;

use heat::clearing::ClearMethod;
use heat::rate::{DELAYS, ReadCounts};
use heat::units::{AddressRange, Nanos, PAGES_PER_REGION};
use heat::{Mapping, Obstacle, PageSet, Region};

use crate::frames::{Finding, Frame, Inquiry};
use crate::page_walk::reader::{Entries, Entry, PageTable};
use crate::page_walk::{Cursor, Layout, ObserveError, Watch};

/// Regions whose frames are queried at once: 32 GiB.
const SETTLED_AT_ONCE: usize = 16 << 10;

impl Watch<'_> {
    /// Settles the next regions, up to `end`. Unless the caller wants to know which pages are walked, that is kept for only a few regions at a time:
    /// it would take most of the memory.
    pub(super) fn settle(&mut self, end: usize) -> Result<(), ObserveError> {
        while self.settled < end {
            let next = self.settled..end.min(self.settled + SETTLED_AT_ONCE);
            self.settled = next.end;
            self.pass_over_pools(next.clone());
            self.inspect_frames(next.clone())?;
            if self.options.tell_use_of_huge {
                self.keep_pieces(next.clone());
            }
            if !self.options.which_pages {
                self.forget_which_pages(next);
            }
        }
        Ok(())
    }

    /// Keeps only the number of pages walked at the last read.
    fn forget_which_pages(&mut self, of: Range<usize>) {
        let both = self.regions[of.clone()].iter_mut().zip(&self.read_counts[of]);
        for (region, read_counts) in both.filter(|(region, _)| !region.huge) {
            region.walked = PageSet::first(read_counts[DELAYS.len()].walked as usize);
        }
    }

    /// The bits of pool pages tell nothing: neither `clear_refs` nor `MADV_COLD` reaches them, so once set they stay.
    fn pass_over_pools(&mut self, of: Range<usize>) {
        let both = self.regions[of.clone()].iter_mut().zip(&mut self.read_counts[of]);
        for (region, read_counts) in both.filter(|(region, _)| is_of_pool(region)) {
            *read_counts = ReadCounts::default();
            region.walked = PageSet::NONE;
            region.unobserved = region.present.len() as u16;
        }
    }

    /// Finds out what promoting each walked region would take, and which bits tell nothing.
    fn inspect_frames(&mut self, of: Range<usize>) -> Result<(), ObserveError> {
        let regions = &self.regions[of.clone()];
        let Some((first, last)) = regions.first().zip(regions.last()) else { return Ok(()) };
        let range = AddressRange { start: first.start, end: last.range().end };
        let started = Instant::now();
        let mut inquiry = Inquiry::new(self.frames);
        let mut failed = None;
        let mut at = Cursor::new(&mut self.regions);
        let (layout, which_pages) = (self.layout, self.options.which_pages);
        let asked = match self.clearing.method {
            ClearMethod::ClearRefs => Asked::Growth,
            // It skips pages that are mapped more than once.
            ClearMethod::MadvCold => Asked::GrowthAndMappings,
        };
        let mut visit = |table: PageTable<'_>| {
            let Some((index, region)) = at.find(table.start) else { return };
            // Growth is irrelevant where promotion is impossible.
            let settled = region.obstacle.is_some() && asked == Asked::Growth;
            if failed.is_some() || region.huge || settled || region.walked.is_empty() {
                return;
            }
            if !which_pages {
                let collapsed = table.pages.is_huge();
                region.walked = if collapsed { PageSet::NONE } else { table.pages.present_and_accessed().1 };
            }
            failed = inquire(&mut inquiry, index - of.start, region, &self.mappings, &table.pages, layout, asked).err();
        };
        self.reach.within(range).into_iter().try_for_each(|range| self.reader.read(range, &mut visit))?;
        if let Some(error) = failed {
            return Err(error);
        }
        let findings = inquiry.finish(of.len())?;
        self.take(of, &findings);
        self.cost.inspect += Nanos::since(started);
        Ok(())
    }

    /// Stores the findings about each of these regions.
    fn take(&mut self, of: Range<usize>, findings: &[Finding]) {
        let both = self.regions[of.clone()].iter_mut().zip(&mut self.read_counts[of]);
        for ((region, read_counts), finding) in both.zip(findings) {
            if region.obstacle.is_none() {
                region.growth = finding.growth;
            }
            if self.clearing.method == ClearMethod::MadvCold && !region.huge {
                let cleared = read_counts.iter().any(|read_count| read_count.delay() > Nanos(0));
                blind(region, read_counts, cleared, &finding.mapped_often);
            }
        }
    }
}

/// What to find out about page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Growth,
    /// Also which are mapped more than once, in memory of any kind.
    GrowthAndMappings,
}

/// Notes what the entries tell of a region's growth, and gathers the frames that they leave in doubt.
///
/// Most need no query to the kernel, which takes 0.4 us each: a private page that the program can write to without a fault is mapped nowhere else,
/// and one that it wrote to is not lazily freed; shared memory is never copied.
pub(super) fn inquire(
    inquiry: &mut Inquiry<'_>,
    index: usize,
    region: &Region,
    mappings: &[Mapping],
    pages: &Entries<'_>,
    layout: Layout,
    asked: Asked,
) -> Result<(), ObserveError> {
    let (present, _) = pages.present_and_accessed();
    let zero = pages.special();
    let growth = &mut inquiry.finding(index).growth;
    growth.unpopulated = (PAGES_PER_REGION - present.len()) as u16;
    growth.zero = zero.len() as u16;
    let private =
        region.obstacle.is_none() && region.mapping_index().is_some_and(|mapping| mappings[mapping].shared.is_none());
    let plain = |entry: &Entry| if private { entry.writable && entry.dirty } else { asked == Asked::Growth };
    let unclear = pages.accessible(layout).filter(|entry| !plain(entry) && !zero.contains(entry.page));
    inquiry.add(unclear.map(|entry| Frame {
        number: entry.frame,
        region: index as u32,
        page: entry.page as u16,
        dirty: entry.dirty,
    }))
}

fn is_of_pool(region: &Region) -> bool {
    region.obstacle == Some(Obstacle::Hugetlb)
}

/// Excludes pages whose bits `MADV_COLD` does not clear, and which would therefore seem accessed forever: those mapped more than once, and all in
/// memory for which the kernel rejects the advice (locked by mlock).
///
/// Such a bit may still be cleared meanwhile, by reclaim or DAMON: early reads count only as far as the last one agrees.
fn blind(region: &mut Region, read_counts: &mut ReadCounts, cleared: bool, mapped_often: &PageSet) {
    let walked = region.walked.without(mapped_often);
    let hidden = (region.walked.len() - walked.len()) as u16;
    region.unobserved = if cleared { hidden } else { region.present.len() as u16 };
    for seen in read_counts {
        seen.walked = seen.walked.saturating_sub(region.unobserved.into()).min(walked.len() as u32);
    }
    region.walked = walked;
}

#[cfg(test)]
mod tests {
    use heat::rate::ReadCount;
    use heat::samples::region;

    use super::*;

    #[test]
    fn what_tells_nothing_counts_for_nothing() {
        let shared: PageSet = PageSet::first(500);
        let seen = |walked| ReadCount::new(Nanos(1), walked);
        let mut quiet = Region { walked: PageSet::first(499), ..region(0, 0.0, 0) };
        // The bit of a shared page was cleared after the first reads.
        let mut read_counts = [seen(500), seen(500), seen(499), seen(499), seen(499), seen(499)];
        blind(&mut quiet, &mut read_counts, true, &shared);
        assert_eq!((quiet.unobserved, quiet.walked), (499, PageSet::NONE));
        assert!(read_counts.iter().all(|seen| seen.walked == 0), "{read_counts:?}");

        let mut busy = Region { walked: PageSet::first(510), ..region(0, 0.0, 0) };
        let mut read_counts = [seen(501), seen(505), seen(506), seen(507), seen(508), seen(510)];
        blind(&mut busy, &mut read_counts, true, &shared);
        assert_eq!((busy.unobserved, busy.walked.len()), (500, 10));
        assert_eq!(read_counts.map(|seen| seen.walked), [1, 5, 6, 7, 8, 10]);
    }
}
