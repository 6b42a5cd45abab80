//! Which huge pages a program uses, determined by a scan that flushes the TLB.
//!
//! Owns: the flush, and the reads after it. Never touches: rates of page walks, which were counted before.
//!
//! A huge page that stays in the TLB is never walked, so its bit stays clear however often it is used. Advising `MADV_COLD` flushes what it clears,
//! but only where a bit is set. For a huge page, and for base pages more than 33 apart, the kernel flushes the whole TLB for this process
//! (`flush_tlb_mm_range`, arch/x86/mm/tlb.c); the first access to each huge page is then a walk. Where no bit is set nothing is flushed; but a
//! program that had no CPU time used nothing. *Cost*: one walk for each page that the program uses, and the advised pages move to the inactive list.

use std::ops::Range;
use std::time::{Duration, Instant};

use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, Nanos};
use heat::{Mapping, Region};
use hugepilot_os::Advice;
use hugepilot_os::advise::advise;
use kernel::pagemap::{Entry, Pagemap};

use crate::kernel_time::KernelTime;
use crate::page_walk::{Cursor, ObserveError, Watch, timed_read};

/// Delays between the flush and the reads.
const DELAYS: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(3), Duration::from_millis(10), Duration::from_millis(30)];
/// A flush of more pages than this flushes everything (`tlb_single_page_flush_ceiling`, 33 by default).
const FLUSHES_ALL: u64 = 64;
/// Memory covered by one call: huge pages take next to no time.
const SLICE: Bytes = Bytes(1 << 30);
/// Huge pages, and then pieces, tried for the flush: some may be shared or locked.
const TRIES: usize = 8;
/// Pieces examined to find unshared ones.
const MOST_PIECES: usize = 4096;
/// The shortest time for which a huge page counts as unused.
pub(super) const LEAST: Duration = Duration::from_millis(500);

impl Watch<'_> {
    /// Finds out how soon each huge page is used, and whether it is used at all by the end of the window.
    pub(super) fn tell_use_of_huge(&mut self, end: Instant) -> Result<(), ObserveError> {
        let spans = spans_of_huge(&self.regions);
        let (Some(first), Some(last)) = (spans.first().copied(), spans.last().copied()) else { return Ok(()) };
        // Where the advice is rejected the bits stay, and the pages count as used.
        let cleared: Vec<AddressRange> = spans.into_iter().filter(|span| self.is_made_cold(span)).collect();
        let range = AddressRange { start: first.start, end: last.end };
        if !self.flush(&cleared) {
            return self.see_whether_it_rests(range, end);
        }
        self.clock.tick();
        let (flushed, mut reads, mut first_seen) =
            (Instant::now(), vec![KernelTime::now()], vec![None; self.regions.len()]);
        for at in DELAYS.into_iter().map(|delay| flushed + delay).chain([end]) {
            self.wait_until(at)?;
            self.see_use(range, reads.len() as u8, &mut first_seen)?;
            self.clock.tick();
            reads.push(KernelTime::now());
        }
        self.bound_use(range, &reads, &first_seen);
        Ok(())
    }

    /// Keeps some pieces of base pages in these regions for the flush.
    pub(super) fn keep_pieces(&mut self, regions: Range<usize>) {
        let Ok(pagemap) = Pagemap::open(self.root, self.target.pid()) else { return };
        let pieces = walked_pieces(&self.mappings, &self.regions[regions]).take(MOST_PIECES);
        let own = pieces.filter(|piece| is_own(&pagemap, piece.start) && is_own(&pagemap, last_page(piece)));
        self.pieces.extend(own.take(TRIES - self.pieces.len()));
    }

    fn is_made_cold(&self, range: &AddressRange) -> bool {
        advise(self.target.handle(), range.start.0, range.len().0, Advice::Cold).is_ok()
    }

    /// Flushes the process's TLB by clearing a walked huge page or, failing that, a piece of base pages. Returns whether that worked.
    fn flush(&self, cleared: &[AddressRange]) -> bool {
        let Ok(pagemap) = Pagemap::open(self.root, self.target.pid()) else { return false };
        let was_cleared = |region: &&Region| cleared.iter().any(|span| span.contains(region.start));
        let huge = self.regions.iter().filter(|region| region.huge && !region.walked.is_empty()).filter(was_cleared);
        huge.take(TRIES).any(|region| is_own(&pagemap, region.start))
            || self.pieces.iter().any(|piece| self.is_made_cold(piece))
    }

    /// Notes which pages this read is the first to see used.
    fn see_use(&mut self, range: AddressRange, read: u8, first_seen: &mut [Option<u8>]) -> Result<(), ObserveError> {
        let mut at = Cursor::new(&mut self.regions);
        timed_read(&mut self.reader, &mut self.cost, &[range], |table| {
            let Some((index, region)) = at.find(table.start) else { return };
            if region.huge && table.pages.is_huge() && table.pages.accessed() > 0 {
                first_seen[index].get_or_insert(read);
            }
        })
    }

    /// Bounds the accesses to each page by how long the program ran without using it: with random accesses (Poisson), a page with two accesses in
    /// some time stays unused that long with probability e^-2. A page never seen in use has none; a program that hardly ran may have been kept from
    /// running, which is why several reads must agree.
    fn bound_use(&mut self, range: AddressRange, reads: &[KernelTime], first_seen: &[Option<u8>]) {
        let flushed = reads[0];
        let ran = |until: KernelTime| {
            let passed = until.since(flushed);
            // Many threads together may have more CPU time than wall time, but their accesses are counted by wall time.
            self.clock.ran(flushed, until).map_or(passed, |ran| ran.min(passed))
        };
        let ran: Vec<Nanos> = reads.iter().map(|&read| ran(read)).collect();
        for (region, first_seen) in self.regions.iter_mut().zip(first_seen) {
            if region.huge && range.contains(region.start) {
                let at_most = first_seen.map_or(0.0, |read| 2.0 / ran[usize::from(read) - 1].seconds());
                region.at_most_accesses_per_second = Some(at_most as f32);
            }
        }
    }

    /// Nothing could be flushed: use is known only if the program does not run.
    fn see_whether_it_rests(&mut self, range: AddressRange, end: Instant) -> Result<(), ObserveError> {
        self.clock.tick();
        let since = KernelTime::now();
        self.wait_until(end)?;
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

/// Whether no other process maps this page: shared pages' bits are left alone, so nothing is flushed.
fn is_own(pagemap: &Pagemap, page: Address) -> bool {
    let mut entry = [Entry::default()];
    pagemap.read(page, &mut entry).is_ok() && entry[0].is_exclusive()
}

fn last_page(piece: &AddressRange) -> Address {
    Address(piece.end.0 - BASE_PAGE)
}

/// Pieces from one walked base page to another far enough away. Each lies in one mapping, because each mapping is flushed separately, and cuts
/// through no huge page, which would split it.
fn walked_pieces(mappings: &[Mapping], regions: &[Region]) -> impl Iterator<Item = AddressRange> {
    let may_be_flushed = |region: &&Region| !region.huge && region.obstacle.is_none() && region.unobserved == 0;
    let mut begun: Option<(Address, AddressRange)> = None;
    let walked = regions.iter().filter(may_be_flushed).flat_map(|region| {
        let mapping = region.mapping_index().map(|index| mappings[index].range);
        region.walked.iter().filter_map(move |page| Some((region.page(page), mapping?)))
    });
    walked.filter(|(page, mapping)| mapping.contains(*page)).filter_map(move |(page, mapping)| {
        let piece = begun
            .filter(|(_, of)| *of == mapping)
            .map(|(start, _)| AddressRange { start, end: Address(page.0 + BASE_PAGE) });
        match piece {
            Some(piece) if piece.len().0 <= FLUSHES_ALL * BASE_PAGE => None,
            Some(piece) if piece.len() <= SLICE => {
                begun = None;
                Some(piece)
            }
            _ => {
                begun = Some((page, mapping));
                None
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, huge, region};
    use heat::units::HUGE_PAGE;
    use heat::{Obstacle, PageSet};

    use super::*;

    fn mapping(range: AddressRange) -> Mapping {
        Mapping { range, ..Mapping::default() }
    }

    fn walked(number: u64, pages: &[usize]) -> Region {
        let mut walked = PageSet::NONE;
        pages.iter().for_each(|&page| walked.insert(page));
        Region { walked, mapping: Some(0), ..region(number, 1.0, 0) }
    }

    /// In a mapping of 4,000 regions: the start and length of each piece, in base pages.
    fn pieces(regions: &[Region]) -> Vec<(u64, u64)> {
        let mappings = [mapping(AddressRange { start: at(0), end: at(4000) })];
        let in_pages = |piece: AddressRange| ((piece.start.0 - at(0).0) / BASE_PAGE, piece.len().0 / BASE_PAGE);
        walked_pieces(&mappings, regions).map(in_pages).collect()
    }

    #[test]
    fn a_piece_whose_flush_flushes_all_is_found() {
        assert_eq!(pieces(&[walked(0, &[3, 9, 70, 100])]), [(3, 68)]);
        assert_eq!(pieces(&[walked(0, &[3, 66])]), [], "few pages are flushed one by one");
        assert_eq!(pieces(&[walked(0, &[])]), []);
        assert_eq!(
            pieces(&[walked(0, &[7]), huge(1, 0.0), walked(2, &[1])]),
            [(7, 1019)],
            "huge pages between are whole"
        );
        assert_eq!(pieces(&[walked(0, &[7]), walked(3000, &[1, 90])]), [(3000 * 512 + 1, 90)], "not too long");
        assert_eq!(pieces(&[Region { huge: true, ..walked(0, &[0, 511]) }]), [], "it would be split");
        assert_eq!(pieces(&[Region { obstacle: Some(Obstacle::Stack), ..walked(0, &[0, 511]) }]), []);
        assert_eq!(pieces(&[Region { unobserved: 1, ..walked(0, &[0, 511]) }]), []);
    }

    #[test]
    fn a_piece_is_of_one_mapping() {
        let middle = Address(at(0).0 + 200 * BASE_PAGE);
        let mappings =
            [AddressRange { start: at(0), end: middle }, AddressRange { start: middle, end: at(2) }].map(mapping);
        let in_second = Region { mapping: Some(1), ..walked(1, &[0, 100]) };
        let found: Vec<u64> =
            walked_pieces(&mappings, &[walked(0, &[150, 300]), in_second]).map(|piece| piece.start.0).collect();
        assert_eq!(found, [at(1).0]);
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
