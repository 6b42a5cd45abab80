//! Adds samples up region by region, and turns them into heat.
//!
//! Owns: what a sample counts as. Never touches: the system.

use std::collections::HashMap;

use heat::units::{Address, BASE_PAGE, Nanos, PAGES_PER_REGION};
use heat::{PageSet, Region};

use crate::perf_mem::samples::{PerfRecord, PerfSample, records};

/// The kernel's own addresses begin here.
const KERNEL: Address = Address(1 << 63);

/// What was sampled of one process.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pid: u32,
    /// Each sample is a walk, without having to say so.
    only_walks: bool,
    /// By start address; at most those the process has had in the window.
    regions: HashMap<Address, Hits>,
    /// Samples of any process and kind.
    pub(super) samples: u64,
    /// Samples that found no room.
    lost: u64,
}

/// What was sampled of one region.
#[derive(Debug, Default)]
struct Hits {
    pages: PageSet,
    /// Walks represented by the samples.
    walks: f64,
}

impl Tally {
    pub(super) fn of(pid: u32, only_walks: bool) -> Self {
        Self { pid, only_walks, ..Self::default() }
    }

    /// Adds the samples among these records.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for record in records(bytes) {
            match record {
                PerfRecord::Lost(records) => self.lost = self.lost.saturating_add(records),
                PerfRecord::Sample(sample) => {
                    self.samples += 1;
                    if self.counts(&sample) {
                        self.count(&sample);
                    }
                }
            }
        }
    }

    fn counts(&self, sample: &PerfSample) -> bool {
        sample.pid == self.pid && sample.address < KERNEL && (self.only_walks || sample.source.walked())
    }

    fn count(&mut self, sample: &PerfSample) {
        let start = sample.address.region();
        let hits = self.regions.entry(start).or_default();
        hits.pages.insert(((sample.address.0 - start.0) / BASE_PAGE) as usize);
        hits.walks += sample.period as f64;
    }

    /// Whether anything was sampled in the region that starts here.
    pub(super) fn has_samples_of(&self, start: Address) -> bool {
        self.regions.contains_key(&start)
    }

    /// Adds the samples to the regions.
    pub(super) fn warm(&self, regions: &mut [Region], window: Nanos) {
        // Lost samples are assumed to resemble the others.
        let scale = (self.samples + self.lost) as f64 / self.samples.max(1) as f64;
        for region in regions {
            match self.regions.get(&region.start) {
                Some(hits) => hits.warm(region, scale, window),
                None => (region.walked, region.walked_in_window, region.walks_per_second) = (PageSet::NONE, 0, 0.0),
            }
        }
    }
}

impl Hits {
    fn warm(&self, region: &mut Region, scale: f64, window: Nanos) {
        let walks = self.walks * scale;
        region.walks_per_second = walks / window.seconds();
        let gone = self.pages.without(&region.present);
        region.walked = if region.huge { PageSet::ALL } else { self.pages.without(&gone) };
        region.walked_in_window = region.walked.len().max(reached(walks, region.present.len())) as u16;
    }
}

/// How many of the pages this many random walks reach (Poisson): samples alone reach fewer.
fn reached(walks: f64, pages: usize) -> usize {
    let pages = pages.min(PAGES_PER_REGION) as f64;
    (pages * (1.0 - (-walks / pages).exp())).round() as usize
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, huge, region};

    use super::*;
    use crate::perf_mem::samples::made::*;

    const SECOND: Nanos = Nanos(1_000_000_000);
    const PID: u32 = 42;

    /// An address in a page of a region.
    fn address(number: u64, page: u64) -> u64 {
        at(number).0 + page * BASE_PAGE + 64
    }

    fn tally_of(records: &[Vec<u8>]) -> Tally {
        let mut tally = Tally::of(PID, false);
        records.iter().for_each(|record| tally.add(record));
        tally
    }

    fn warmed(tally: &Tally, mut region: Region) -> Region {
        tally.warm(std::slice::from_mut(&mut region), SECOND);
        region
    }

    #[test]
    fn walks_are_scaled_by_their_period_and_time() {
        let walk = |page| sample(PID, address(3, page), 1000, INTEL_WALK);
        let tally = tally_of(&[walk(5), walk(5), walk(511), sample(PID, address(3, 9), 1000, INTEL_HIT)]);
        let mut one = region(3, 0.0, 0);
        tally.warm(std::slice::from_mut(&mut one), Nanos(2 * SECOND.0));
        assert_eq!(one.walks_per_second, 1500.0);
        assert_eq!(one.walked.iter().collect::<Vec<_>>(), [5, 511]);
        let cold = warmed(&tally, region(4, 9.0, 0));
        assert_eq!((cold.walks_per_second, cold.walked.len(), cold.walked_in_window), (0.0, 0, 0));
    }

    #[test]
    fn neighbours_are_reached_too_by_the_walks_a_sample_stands_for() {
        let tally = tally_of(&[sample(PID, address(0, 400), 100_000, INTEL_WALK)]);
        assert_eq!(warmed(&tally, region(0, 0.0, 0)).walked_in_window, 512);
        assert_eq!(warmed(&tally, region(0, 0.0, 256)).walked_in_window, 256);
        let few = tally_of(&[sample(PID, address(0, 400), 10, INTEL_WALK)]);
        assert_eq!(warmed(&few, region(0, 0.0, 0)).walked_in_window, 10);
        assert_eq!(warmed(&few, huge(0, 0.0)).walked.len(), 512, "a huge page is walked whole");
    }

    #[test]
    fn pages_that_are_gone_are_not_walked() {
        let tally = tally_of(&[sample(PID, address(0, 3), 1, INTEL_WALK), sample(PID, address(0, 500), 1, INTEL_WALK)]);
        assert_eq!(warmed(&tally, region(0, 0.0, 256)).walked.iter().collect::<Vec<_>>(), [500]);
    }

    #[test]
    fn others_and_the_kernel_do_not_count() {
        let tally = tally_of(&[
            sample(PID + 1, address(0, 0), 1, INTEL_WALK),
            sample(PID, 0xffff_8880_0000_0000, 1, INTEL_WALK),
        ]);
        assert!(tally.regions.is_empty() && tally.samples == 2);
    }

    #[test]
    fn what_was_lost_counts_like_the_rest() {
        let tally = tally_of(&[sample(PID, address(0, 0), 10, INTEL_WALK), lost(3)]);
        assert_eq!(warmed(&tally, region(0, 0.0, 0)).walks_per_second, 40.0);
        assert_eq!(warmed(&tally_of(&[lost(3)]), region(0, 0.0, 0)).walks_per_second, 0.0);
    }

    #[test]
    fn an_event_of_walks_only_need_not_tell() {
        let mut tally = Tally::of(PID, true);
        tally.add(&sample(PID, address(0, 0), 10, 0));
        assert_eq!(warmed(&tally, region(0, 0.0, 0)).walks_per_second, 10.0);
    }
}
