//! The trackers `damon-vaddr` and `damon-paddr`: the kernel samples one page in each of its regions, and moves their borders to where accesses
//! differ.
//!
//! Owns: turning DAMON's view of its regions into heat. Never touches: DAMON's files ([`interface`]), or a DAMON in use.
//!
//! *Bits*: sampled walks; DAMON clears accessed bits without flushing the TLB. *Bias*: all pages of a DAMON region are assumed to be alike, and there
//! are at most 1,000 regions, so a scattered hot set seems evenly lukewarm; a page walked more often than it is sampled seems walked once per sample.
//! With physical addresses the regions are spread over the whole machine, neighbors may belong to different programs, and other programs' accesses to
//! shared frames count, too. *Cost*: a kernel thread's, independent of size; and a survey ([`crate::survey`]), which is not.

mod interface;

use std::ops::Range;

pub use interface::{DamonError, Space};
use interface::{Intervals, Seen, Session, Watched};

use crate::survey::Survey;
use crate::window::Window;
use crate::{ObserveError, ObserveOptions, Tracker, wait_until};
use heat::units::{Address, AddressRange, BASE_PAGE, Nanos};
use heat::{Cost, Heat, Meaning, PageSet, Region, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::pagemap::Entry;
use kernel::target::Target;
use kernel::{Root, iomem};

const INTERVALS: Intervals = Intervals { sample: Nanos(5_000_000), aggregation: Nanos(100_000_000) };
/// Samples in an aggregation.
const SAMPLES: f64 = 20.0;
/// DAMON needs some aggregations to place its borders: in less time it has seen next to nothing.
const SHORTEST: Nanos = Nanos(1_000_000_000);
/// A single aggregation may have met the program asleep, and borders differ between aggregations: this many are read, over the second half of the
/// window, when borders have been found.
const READS: u32 = 5;

/// `damon-vaddr` or `damon-paddr`.
pub struct DamonTracker {
    root: Root,
    space: Space,
    /// Where there is memory; empty where that does not matter.
    memory: Vec<Range<u64>>,
    /// DAMON does not tell what is present and what is huge.
    survey: Survey,
}

impl DamonTracker {
    /// Errors: DAMON is missing or in use, the kernel has no operations for such addresses, or physical addresses are hidden (CAP_SYS_ADMIN).
    pub fn new(space: Space) -> Result<Self, ObserveError> {
        let root = Root::host();
        interface::ensure_usable(&root, space)?;
        let memory = match space {
            Space::Virtual => Vec::new(),
            Space::Physical => iomem::whole_pages(&root)?,
        };
        if space == Space::Physical && memory.is_empty() {
            return Err(ObserveError::HiddenFrames);
        }
        Ok(Self { survey: Survey::new(&root, space.tracker(), Meaning::Sampled)?, root, space, memory })
    }
}

impl Tracker for DamonTracker {
    fn kind(&self) -> TrackerKind {
        self.space.tracker()
    }

    fn observe(&mut self, target: &Target, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let watching = Window::begin(&self.root, target.pid())?;
        let watched = match self.space {
            Space::Virtual => Watched::Process(target.pid()),
            Space::Physical => Watched::Physical(&self.memory),
        };
        let session = Session::start(&self.root, watched, INTERVALS)?;
        let window = options.window.max(SHORTEST).duration();
        let mut scans = Vec::new();
        for scan in 1..=READS {
            wait_until(watching.started() + window / 2 + window * scan / (2 * READS), target, stop)?;
            scans.push(session.read()?);
        }
        let stretches = over_all(&scans);
        let kernel = session.cpu_time();
        drop(session);
        let ended = watching.end(&self.root)?;
        let space = self.space;
        let heat = self.survey.scan(target, options.most_regions, |region, entries| {
            warm(region, entries, space, &stretches);
            !region.walked.is_empty()
        })?;
        let cost = Cost { kernel, ..heat.cost };
        Ok(ended.add_to(Heat { cost, ..heat }))
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| false)
    }

    fn survey_growth(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| true)
    }
}

/// Addresses that DAMON treated alike in each scan.
struct Stretch {
    range: AddressRange,
    /// The share of samples, over all scans, in which the sampled page had been accessed: 0 to 1.
    accessed: f64,
}

/// The combination of all scans, ascending: cut wherever one of them has a border. Addresses left out of a scan had no access in it.
fn over_all(scans: &[Vec<Seen>]) -> Vec<Stretch> {
    let mut borders: Vec<Address> =
        scans.iter().flatten().flat_map(|seen| [seen.range.start, seen.range.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let samples = SAMPLES * scans.len() as f64;
    let stretch = |start: Address, end: Address| {
        let accesses: u64 = scans.iter().filter_map(|scan| find(scan, start)).map(|seen| seen.accesses).sum();
        Stretch { range: AddressRange { start, end }, accessed: accesses as f64 / samples }
    };
    borders.windows(2).map(|ends| stretch(ends[0], ends[1])).collect()
}

fn find(seen: &[Seen], address: Address) -> Option<&Seen> {
    let at = seen.partition_point(|seen| seen.range.end <= address);
    seen.get(at).filter(|seen| seen.range.contains(address))
}

/// Gives each page of a region the walks of the stretch that holds it; a huge page gets the mean of its base pages.
fn warm(region: &mut Region, entries: &[Entry], space: Space, stretches: &[Stretch]) {
    let address = |page: usize| match space {
        Space::Virtual => Some(region.page(page)),
        Space::Physical => entries[page].frame().map(|frame| Address(frame * BASE_PAGE)),
    };
    let (mut walked, mut walks) = (PageSet::NONE, 0.0);
    let mut holder: Option<(&Stretch, f64)> = None;
    for page in region.present.iter() {
        let Some(address) = address(page) else { continue };
        // Neighbours mostly share a stretch, and a logarithm for each page would take longer than reading its entry.
        holder = holder.filter(|(stretch, _)| stretch.range.contains(address)).or_else(|| {
            let at = stretches.partition_point(|stretch| stretch.range.end <= address);
            let holding = stretches.get(at).filter(|stretch| stretch.range.contains(address));
            holding.map(|stretch| (stretch, walks_per_second(stretch.accessed)))
        });
        if let Some((_, rate)) = holder.filter(|&(_, rate)| rate > 0.0) {
            walked.insert(page);
            walks += rate;
        }
    }
    if region.huge && !walked.is_empty() {
        (walked, walks) = (PageSet::ALL, walks / PageSet::ALL.len() as f64);
    }
    region.walks_per_second = walks;
    region.walked_in_window = walked.len() as u16;
    region.walked = walked;
}

/// Page walks a second of each page, from the share of samples in which the sampled one had been accessed. Assumes random walks (Poisson): a sample
/// sees nothing with probability e^-rt. If all samples saw an access, half of one is assumed to have missed it.
fn walks_per_second(accessed: f64) -> f64 {
    -(1.0 - accessed.min(1.0 - 0.5 / SAMPLES)).ln() / INTERVALS.sample.seconds()
}

#[cfg(test)]
mod tests {
    use heat::samples::{at, huge, region};
    use heat::units::HUGE_PAGE;

    use super::*;

    const PRESENT: u64 = 1 << 63;

    fn seen(from: Address, to: Address, accesses: u64) -> Seen {
        Seen { range: AddressRange { start: from, end: to }, accesses }
    }

    fn warmed(mut region: Region, seen: &[Seen]) -> (f64, usize) {
        warm(&mut region, &[], Space::Virtual, &over_all(&[seen.to_vec()]));
        ((region.walks_per_second / walks_per_second(0.5) * 1e6).round() / 1e6, region.walked.len())
    }

    #[test]
    fn rates_follow_from_the_share_of_samples() {
        assert_eq!(walks_per_second(0.0), 0.0);
        assert!((walks_per_second(0.5) - 2.0f64.ln() / 0.005).abs() < 1e-9);
        assert!(walks_per_second(1.0) > walks_per_second(0.95) && walks_per_second(5.0) == walks_per_second(1.0));
    }

    #[test]
    fn reads_are_taken_together_whatever_their_borders() {
        let first = vec![seen(at(0), at(2), 20), seen(at(2), at(4), 0)];
        let second = vec![seen(at(1), at(2), 10)];
        let together: Vec<_> =
            over_all(&[first, second]).iter().map(|each| (each.range.start, each.accessed)).collect();
        assert_eq!(together, [(at(0), 0.5), (at(1), 0.75), (at(2), 0.0)]);
        assert!(over_all(&[]).is_empty());
    }

    #[test]
    fn pages_get_the_walks_of_where_they_are() {
        let seen = [seen(at(0), at(2), 10), seen(at(2), at(3), 0), seen(at(3), at(5), 10)];
        assert_eq!(warmed(region(0, 0.0, 0), &seen), (512.0, 512));
        assert_eq!(warmed(region(2, 9.0, 0), &seen), (0.0, 0), "DAMON saw nothing there");
        assert_eq!(warmed(region(3, 0.0, 256), &seen), (256.0, 256), "half of it is there");
        assert_eq!(warmed(huge(4, 0.0), &seen), (1.0, 512));
        assert_eq!(warmed(region(7, 0.0, 0), &seen), (0.0, 0), "beyond what DAMON watches");
    }

    #[test]
    fn borders_within_a_region_divide_it() {
        let middle = Address(at(0).0 + HUGE_PAGE / 2);
        let halves = [seen(at(0), middle, 10), seen(middle, at(1), 0)];
        assert_eq!(warmed(region(0, 0.0, 0), &halves), (256.0, 256));
        assert_eq!(warmed(huge(0, 0.0), &halves), (0.5, 512), "a huge page is walked whole");
    }

    #[test]
    fn physical_addresses_are_those_of_the_frames() {
        let frame = |number: u64| Address(number * BASE_PAGE);
        let seen = [seen(frame(100), frame(200), 10), seen(frame(300), frame(301), 20)];
        let mut entries = vec![Entry::default(); 512];
        for (page, number) in [(3, 300), (4, 199), (5, 200), (6, 100)] {
            entries[page] = Entry(PRESENT | number);
        }
        let mut region = region(0, 0.0, 0);
        warm(&mut region, &entries, Space::Physical, &over_all(&[seen.to_vec()]));
        assert_eq!(region.walked.iter().collect::<Vec<_>>(), [3, 4, 6]);
        assert_eq!(region.walks_per_second, walks_per_second(1.0) + 2.0 * walks_per_second(0.5));
    }
}
