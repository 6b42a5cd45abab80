//! Interim reads: what was walked a millisecond after it was cleared, read while the rest is still being cleared.
//!
//! Owns: following the front up to which bits are cleared, from counts alone. Never touches: page tables; the reader of the tables reports here.
//!
//! Clearing proceeds upwards through the address space at 12 ms/GiB. By its end a busy program has walked everything cleared first again, so a read
//! shows "at least once" for every page and rates come out too low. When a region's count of accessed pages drops, the front has just passed it.

use std::ops::Range;

use heat::Region;
use heat::rate::ReadCount;
use heat::units::{Address, Nanos};
use heat::walks::EarlyRead;

use crate::kernel_time::KernelTime;

/// How long after the front passed a region it may still be read.
const AGE: Nanos = Nanos(1_500_000);
/// A read sooner than this tells little: the position of the front is known only to within one interim read.
const TOO_SOON: Nanos = Nanos(300_000);
/// Regions read ahead of the front: what is cleared in 4 ms.
const AHEAD: usize = 160;

/// The interim reads of one region.
#[derive(Clone, Copy, Debug, Default)]
struct InterimRead {
    /// When the front was seen to have passed.
    passed_at: Option<KernelTime>,
    /// The last read within [`AGE`].
    read_at: KernelTime,
    walked: u32,
    lines: usize,
}

/// What an interim read found in one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Its index in the batch.
    pub(super) index: usize,
    /// When it was read.
    pub(super) at: KernelTime,
    /// Its accessed pages.
    pub(super) walked: u32,
    /// Cache lines of its page table with an accessed page.
    pub(super) lines: usize,
}

/// The interim reads of one clearing.
pub(super) struct InterimReads {
    /// Pages of each region with a bit set before clearing.
    before: Vec<u32>,
    regions: Vec<InterimRead>,
    /// The first region that may still need reading.
    trail: usize,
    /// The first region that the front was not seen to pass.
    front: usize,
    /// The positions of the front, as regions, and when it was seen there.
    fronts: Vec<(usize, KernelTime)>,
}

impl InterimReads {
    /// Before anything is cleared: `before` is the number of pages of each region with their bit set.
    pub(super) fn new(before: &[u32]) -> Self {
        Self {
            before: before.to_vec(),
            regions: vec![InterimRead::default(); before.len()],
            trail: 0,
            front: 0,
            fronts: Vec::new(),
        }
    }

    /// The regions worth reading now; empty after all have been passed and read.
    pub(super) fn window(&self) -> Range<usize> {
        self.trail..(self.front + AHEAD).min(self.regions.len())
    }

    /// Records what one read of a window found, ascending.
    pub(super) fn note(&mut self, found: &[Seen]) {
        let dropped = |seen: &&Seen| seen.walked * 4 < self.before[seen.index] * 3;
        if let Some(seen) = found.iter().rev().find(dropped).filter(|seen| seen.index >= self.front) {
            self.front = seen.index + 1;
            self.fronts.push((seen.index, seen.at));
        }
        for &Seen { index, at: read_at, walked, lines } in found.iter().filter(|seen| seen.index < self.front) {
            let region = &mut self.regions[index];
            let passed_at = *region.passed_at.get_or_insert(read_at);
            if read_at.since(passed_at) <= AGE {
                (region.read_at, region.walked, region.lines) = (read_at, walked, lines);
            } else {
                self.trail = self.trail.max(index + 1);
            }
        }
    }

    /// The positions of the front over time.
    pub(super) fn fronts(&self, regions: &[Region]) -> Vec<(Address, KernelTime)> {
        self.fronts.iter().map(|&(index, at)| (regions[index].range().end, at)).collect()
    }

    /// What was seen of a region cleared at that time; nothing (no delay) if it was not read early, or read too soon.
    pub(super) fn read_count(&self, index: usize, cleared_at: KernelTime) -> ReadCount {
        let walked = self.regions[index].walked;
        self.delay(index, cleared_at).map_or(ReadCount::default(), |delay| ReadCount::new(delay, walked))
    }

    /// The same with the cache lines in which it was.
    pub(super) fn early_read(&self, index: usize, cleared_at: KernelTime) -> EarlyRead {
        let InterimRead { walked, lines, .. } = self.regions[index];
        let delay = self.delay(index, cleared_at);
        delay.and_then(|delay| EarlyRead::new(delay, walked as usize, lines)).unwrap_or_default()
    }

    fn delay(&self, index: usize, cleared_at: KernelTime) -> Option<Nanos> {
        Some(self.regions[index].read_at.since(cleared_at)).filter(|&delay| delay >= TOO_SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// A program whose pages are all walked within `rewalk`; it is cleared from 1 ms on, one region in 20 us, and read every 200 us.
    fn watched(regions: usize, rewalk: u64) -> InterimReads {
        let mut interim_reads = InterimReads::new(&[512; 2000][..regions]);
        for now in (1000 * US..1000 * US + regions as u64 * 20 * US).step_by(200_000) {
            let walked = |index: usize| match now.checked_sub(cleared_at(index).0) {
                Some(since) => (512 * since / rewalk).min(512) as u32,
                None => 512,
            };
            let found: Vec<_> = interim_reads
                .window()
                .map(|index| Seen { index, at: KernelTime(now), walked: walked(index), lines: 0 })
                .collect();
            interim_reads.note(&found);
        }
        interim_reads
    }

    fn cleared_at(index: usize) -> KernelTime {
        KernelTime(1000 * US + index as u64 * 20 * US)
    }

    #[test]
    fn every_region_is_seen_about_a_millisecond_after_it_was_cleared() {
        let interim_reads = watched(2000, 7_000_000);
        for index in 0..1900 {
            let seen = interim_reads.read_count(index, cleared_at(index));
            assert!((1_200_000..2_000_000).contains(&seen.delay().0), "{index}: {seen:?}");
            let rate = f64::from(seen.walked) / seen.delay().seconds();
            assert!((rate / (512.0 / 0.007) - 1.0).abs() < 0.05, "{index}: {rate}");
        }
    }

    #[test]
    fn only_a_few_regions_are_read_at_a_time() {
        let mut interim_reads = watched(2000, 7_000_000);
        assert!(interim_reads.window().len() < 400, "{:?}", interim_reads.window());
        assert!(interim_reads.fronts.is_sorted(), "{:?}", interim_reads.fronts);
        let end = interim_reads.window().end;
        interim_reads.note(&[Seen { index: end - 1, at: KernelTime(1 << 40), walked: 0, lines: 0 }]);
        assert_eq!(interim_reads.front, end);
    }

    #[test]
    fn what_was_idle_before_passes_unseen_and_what_was_not_read_has_no_early_read() {
        let mut interim_reads = InterimReads::new(&[512, 0, 512]);
        let seen = |index, walked| Seen { index, at: KernelTime(10_000_000), walked, lines: walked as usize / 2 };
        interim_reads.note(&[seen(0, 512), seen(1, 0), seen(2, 512)]);
        assert_eq!((interim_reads.front, interim_reads.read_count(0, KernelTime(1))), (0, ReadCount::default()));
        interim_reads.note(&[seen(0, 3), seen(1, 0), seen(2, 512)]);
        assert_eq!((interim_reads.front, interim_reads.window()), (1, 0..3));
        interim_reads.note(&[seen(0, 9), seen(1, 0), seen(2, 2)]);
        let cleared_at = KernelTime(10_000_000 - TOO_SOON.0);
        assert_eq!(interim_reads.read_count(0, cleared_at), ReadCount::new(TOO_SOON, 9));
        assert_eq!(interim_reads.read_count(1, cleared_at), ReadCount::new(TOO_SOON, 0));
        assert_eq!(Some(interim_reads.early_read(0, cleared_at)), EarlyRead::new(TOO_SOON, 9, 4));
        let too_soon = KernelTime(cleared_at.0 + 1);
        assert_eq!(interim_reads.read_count(1, too_soon), ReadCount::default());
        assert_eq!(interim_reads.early_read(0, too_soon), EarlyRead::default());
    }
}
