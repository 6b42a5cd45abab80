//! The tracker `damon-vaddr`: the kernel samples a page in each of its regions, whose borders it moves to
//! where accesses differ.
//!
//! Owns: turning what DAMON says of its regions into heat. Never touches: DAMON's files ([`interface`]), nor a DAMON in use.
//!
//! *Bits*: sampled walks; DAMON clears accessed bits without flushing the TLB. *Bias*: all pages of a DAMON region are taken to be
//! alike, of which there are at most 1,000, so a scattered hot set looks like an even, lukewarm one; a page walked more often than
//! it is sampled looks walked once a sample. *Cost*: the same whatever the size, paid by a kernel thread.

mod interface;

use std::time::{Duration, Instant};

pub use interface::DamonError;
use interface::{Intervals, Seen, Session};

use super::heat::{Heat, Meaning, PageSet, Region, TrackerKind};
use super::{ObserveError, Options, PageWalk, Tracker};
use crate::kernel::Root;
use crate::stop::Stop;
use crate::target::Target;
use crate::units::{AddressRange, Bytes, HUGE_PAGE, Nanos};

const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };
/// Samples in an aggregation.
const SAMPLES: f64 = 20.0;
/// DAMON needs some aggregations to find out where to draw borders: below this it has seen next to nothing.
const SHORTEST: Nanos = Nanos(1_000_000_000);

/// `damon-vaddr`.
pub struct DamonVaddr {
    root: Root,
    /// What is present and what is huge DAMON does not tell.
    pages: PageWalk,
}

impl DamonVaddr {
    /// Ready to look at any process. Errors: page tables cannot be read.
    pub fn new() -> Result<Self, ObserveError> {
        Ok(Self { root: Root::host(), pages: PageWalk::new()? })
    }
}

impl Tracker for DamonVaddr {
    fn observe(&mut self, target: &Target, options: &Options, stop: &Stop) -> Result<Heat, ObserveError> {
        let started = Instant::now();
        let busy_before = crate::kernel::process::cpu_time(&self.root, target.pid())?;
        let session = Session::start(&self.root, target.pid(), INTERVALS)?;
        let end = started + options.window.max(SHORTEST).duration();
        while Instant::now() < end && !target.handle().has_exited() {
            stop.sleep_until(end.min(Instant::now() + Duration::from_millis(200)))?;
        }
        let mut heat = self.pages.survey(target)?;
        let seen = session.read()?;
        drop(session);
        let elapsed = started.elapsed();
        let busy = crate::kernel::process::cpu_time(&self.root, target.pid())?.0.saturating_sub(busy_before.0);
        heat.regions.iter_mut().for_each(|region| warm(region, &seen));
        Ok(Heat {
            tracker: TrackerKind::DamonVaddr,
            meaning: Meaning::Sampled,
            window: Nanos::from_duration(elapsed),
            busy_cpus: Some(Nanos(busy).seconds() / elapsed.as_secs_f64()),
            ..heat
        })
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.pages.survey(target)
    }
}

/// Gives a region the walks of DAMON's regions, each by the share that it covers.
fn warm(region: &mut Region, seen: &[Seen]) {
    let range = region.range();
    let first = seen.partition_point(|seen| seen.range.end <= range.start);
    let mut walks_per_page = 0.0;
    for seen in seen[first..].iter().take_while(|seen| seen.range.start < range.end) {
        let covered = overlap(seen.range, range).0 as f64 / HUGE_PAGE as f64;
        walks_per_page += covered * walks_per_second(seen.accesses);
    }
    if walks_per_page > 0.0 {
        let units = if region.huge { 1.0 } else { region.present.len() as f64 };
        region.walks_per_second = walks_per_page * units;
        region.walked = region.present;
        region.walked_in_window = region.present.len() as u16;
    } else {
        (region.walks_per_second, region.walked) = (0.0, PageSet::NONE);
    }
}

fn overlap(one: AddressRange, other: AddressRange) -> Bytes {
    AddressRange { start: one.start.max(other.start), end: one.end.min(other.end) }.len()
}

/// Page walks a second of each page, from the samples in which the one looked at had been accessed. As if walks came at random
/// (Poisson): in a sample nothing is seen with the chance e^-rt. When all samples saw an access, half of one may have missed it.
fn walks_per_second(accesses: u64) -> f64 {
    let share = (accesses as f64 / SAMPLES).min(1.0 - 0.5 / SAMPLES);
    -(1.0 - share).ln() / INTERVALS.sample.seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::samples::{at, huge, region};
    use crate::units::Address;

    fn seen(from: u64, to: u64, accesses: u64) -> Seen {
        Seen { range: AddressRange { start: at(from), end: at(to) }, accesses }
    }

    #[test]
    fn rates_follow_from_the_share_of_samples() {
        assert_eq!(walks_per_second(0), 0.0);
        assert!((walks_per_second(10) - 2.0f64.ln() / 0.005).abs() < 1e-9);
        assert!(walks_per_second(20) > walks_per_second(19) && walks_per_second(99) == walks_per_second(20));
    }

    #[test]
    fn a_region_gets_what_its_pages_share_of() {
        let seen = [seen(0, 2, 20), seen(2, 3, 0), seen(3, 5, 10)];
        let warmed = |mut region: Region| {
            warm(&mut region, &seen);
            (region.walks_per_second, region.walked.len())
        };
        assert_eq!(warmed(region(0, 0.0, 0)), (512.0 * walks_per_second(20), 512));
        assert_eq!(warmed(region(2, 9.0, 0)), (0.0, 0), "DAMON saw nothing there");
        assert_eq!(warmed(region(3, 0.0, 256)), (256.0 * walks_per_second(10), 256));
        assert_eq!(warmed(huge(4, 0.0)).0, walks_per_second(10));
        assert_eq!(warmed(region(7, 0.0, 0)), (0.0, 0), "beyond what DAMON watches");
    }

    #[test]
    fn borders_within_a_region_are_shared_out() {
        let middle = Address(at(0).0 + HUGE_PAGE / 2);
        let halves = [
            Seen { range: AddressRange { start: at(0), end: middle }, accesses: 10 },
            Seen { range: AddressRange { start: middle, end: at(1) }, accesses: 0 },
        ];
        let mut region = region(0, 0.0, 0);
        warm(&mut region, &halves);
        assert!((region.walks_per_second - 256.0 * walks_per_second(10)).abs() < 1e-6);
    }
}
