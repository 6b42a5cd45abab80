//! Which huge pages a program uses, told by a look that flushes the TLB.
//!
//! Owns: the flush, and the reads after it. Never touches: rates of page walks, which were counted before.
//!
//! A huge page that stays in the TLB is never walked, so its bit stays clear however often it is used. Advising `MADV_COLD` flushes
//! what it clears, but only where a bit is set. For a huge page, and for base pages more than 33 apart, the kernel then flushes the whole
//! TLB for this process (`flush_tlb_mm_range`, arch/x86/mm/tlb.c), and the first access to each huge page is a walk. Where no bit is set
//! nothing is flushed; but a program that had no CPU time used nothing. *Cost*: one walk for each page that the program uses, and the
//! advised pages move to the inactive list.

use std::time::{Duration, Instant};

use hugepilot_os::{Advice, PidFd, advise::advise};

use super::{Cursor, ObserveError, Watch, timed_read};
use crate::observe::heat::Region;
use crate::observe::program_clock::now;
use crate::observe::wait_until;
use crate::stop::Stop;
use crate::target::Target;
use crate::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, Nanos};

/// Delays after the flush at which bits are read.
const DELAYS: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(3), Duration::from_millis(10), Duration::from_millis(30)];
/// A flush of more pages than this flushes everything (`tlb_single_page_flush_ceiling`, 33 unless someone changed it).
const FLUSHES_ALL: usize = 64;
/// How much one call covers: huge pages take next to no time.
const SLICE: Bytes = Bytes(1 << 30);
/// Regions tried for the flush: one of them may be locked, or shared.
const TRIES: usize = 8;

impl Watch<'_> {
    /// Finds out how soon each huge page is used, and by the end of the window whether at all.
    pub(super) fn tell_use_of_huge(&mut self, target: &Target, end: Instant, stop: &Stop) -> Result<(), ObserveError> {
        let spans = spans_of_huge(&self.regions);
        let (Some(first), Some(last)) = (spans.first().copied(), spans.last().copied()) else { return Ok(()) };
        let any_huge_walked = self.regions.iter().any(|region| region.huge && !region.walked.is_empty());
        for &span in &spans {
            // Where it is refused the bit stays, and the page counts as used.
            let _refused = advise(target.handle(), span.start.0, span.len().0, Advice::Cold);
        }
        let range = AddressRange { start: first.start, end: last.end };
        if !any_huge_walked && !flush(target.handle(), &self.regions) {
            return self.see_whether_it_rests(range, target, end, stop);
        }
        self.clock.tick();
        let (flushed, mut reads, mut first_seen) = (Instant::now(), vec![now()], vec![None; self.regions.len()]);
        for at in DELAYS.into_iter().map(|delay| flushed + delay).chain([end]) {
            wait_until(at, target, stop)?;
            self.see_use(range, reads.len(), &mut first_seen)?;
            self.clock.tick();
            reads.push(now());
        }
        self.bound_use(range, &reads, &first_seen);
        Ok(())
    }

    /// Notes which pages this read is the first to see used.
    fn see_use(
        &mut self,
        range: AddressRange,
        read: usize,
        first_seen: &mut [Option<usize>],
    ) -> Result<(), ObserveError> {
        let mut at = Cursor::new(&mut self.regions);
        timed_read(&mut self.reader, &mut self.cost, range, |table| {
            let Some((index, region)) = at.find(table.start) else { return };
            if region.huge && table.pages.is_huge() && !table.pages.present_and_accessed().1.is_empty() {
                first_seen[index].get_or_insert(read);
            }
        })
    }

    /// Bounds the accesses of each page by how long the program ran without using it: at random (Poisson), a page with two accesses in
    /// a time stays unused that long with the chance e^-2. What is never seen used is not; a program that hardly ran may have been
    /// kept from running, which is why several looks must agree.
    fn bound_use(&mut self, range: AddressRange, reads: &[Nanos], first_seen: &[Option<usize>]) {
        let flushed = reads[0];
        let ran = |until: Nanos| self.clock.ran(flushed, until).unwrap_or(Nanos(until.0 - flushed.0));
        let ran: Vec<Nanos> = reads.iter().map(|&read| ran(read)).collect();
        for (region, first_seen) in self.regions.iter_mut().zip(first_seen) {
            if region.huge && range.contains(region.start) {
                let at_most = first_seen.map_or(0.0, |read| 2.0 / ran[read - 1].seconds());
                region.at_most_accesses_per_second = Some(at_most);
            }
        }
    }

    /// Nothing could be flushed: only of a program that does not run it is known what it uses.
    fn see_whether_it_rests(
        &mut self,
        range: AddressRange,
        target: &Target,
        end: Instant,
        stop: &Stop,
    ) -> Result<(), ObserveError> {
        self.clock.tick();
        let since = now();
        wait_until(end, target, stop)?;
        self.clock.tick();
        if self.clock.rested_since(since) {
            let huge = self.regions.iter_mut().filter(|region| region.huge && range.contains(region.start));
            huge.for_each(|region| region.at_most_accesses_per_second = Some(0.0));
        }
        Ok(())
    }
}

/// Runs of huge pages of 2 MiB, each no longer than one call may cover.
fn spans_of_huge(regions: &[Region]) -> Vec<AddressRange> {
    let mut spans: Vec<AddressRange> = Vec::new();
    for region in regions.iter().filter(|region| region.huge && region.obstacle.is_none()) {
        match spans.last_mut().filter(|span| span.end == region.start && span.len() < SLICE) {
            Some(span) => span.end = region.range().end,
            None => spans.push(region.range()),
        }
    }
    spans
}

/// Flushes the TLB for the process; whether that could be done.
fn flush(target: &PidFd, regions: &[Region]) -> bool {
    let pieces = regions.iter().filter_map(walked_piece).take(TRIES);
    pieces.into_iter().any(|piece| advise(target, piece.start.0, piece.len().0, Advice::Cold).is_ok())
}

/// A piece of base pages of which some far enough apart were walked, and which cuts no huge page.
fn walked_piece(region: &Region) -> Option<AddressRange> {
    if region.huge || region.obstacle.is_some() || region.unobserved > 0 {
        return None;
    }
    let (first, last) = (region.walked.iter().next()?, region.walked.iter().last()?);
    let piece = AddressRange { start: region.page(first), end: Address(region.page(last).0 + BASE_PAGE) };
    (last - first >= FLUSHES_ALL && piece.len() <= Bytes(HUGE_PAGE)).then_some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::samples::{at, huge, region};
    use crate::observe::heat::{Obstacle, PageSet};

    fn walked(pages: &[usize]) -> Region {
        let mut walked = PageSet::NONE;
        pages.iter().for_each(|&page| walked.insert(page));
        Region { walked, ..region(0, 1.0, 0) }
    }

    #[test]
    fn a_piece_whose_flush_flushes_all_is_found() {
        let piece = walked_piece(&walked(&[3, 70, 100])).expect("far enough apart");
        assert_eq!((piece.start, piece.len()), (Address(at(0).0 + 3 * BASE_PAGE), Bytes(98 * BASE_PAGE)));
        assert_eq!(walked_piece(&walked(&[3, 66])), None, "few pages are flushed one by one");
        assert_eq!(walked_piece(&walked(&[])), None);
        assert_eq!(walked_piece(&Region { huge: true, ..walked(&[0, 511]) }), None, "it would be split");
        assert_eq!(walked_piece(&Region { obstacle: Some(Obstacle::Stack), ..walked(&[0, 511]) }), None);
        assert_eq!(walked_piece(&Region { unobserved: 1, ..walked(&[0, 511]) }), None);
    }

    #[test]
    fn huge_pages_are_advised_in_whole_runs() {
        let stack = Region { obstacle: Some(Obstacle::Stack), ..huge(4, 0.0) };
        let regions = [huge(0, 0.0), huge(1, 0.0), region(2, 1.0, 0), huge(3, 0.0), stack];
        let spans: Vec<_> = spans_of_huge(&regions).iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(spans, [(at(0), at(2)), (at(3), at(4))]);
        let many: Vec<Region> = (0..1025).map(|number| huge(number, 0.0)).collect();
        let lens: Vec<u64> = spans_of_huge(&many).iter().map(|span| span.len().0 / HUGE_PAGE).collect();
        assert_eq!(lens, [512, 512, 1]);
    }
}
