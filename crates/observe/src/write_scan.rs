//! The tracker `write-scan`: which pages of its own memory a process writes, without root.
//!
//! Owns: turning written pages into heat. Never touches: other processes; the process itself sets up the protection, so no command offers this
//! tracker.
//!
//! *Bits*: writes; pages that are only read seem idle. *Bias*: a page counts once per window, however often it is written, so rates are lower bounds.
//! *Cost*: the first write to each page in a window takes a fault, and each result walks the page tables of the range twice.

use std::time::Instant;

use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, Nanos};
use heat::{Cost, Heat, Mapping, Meaning, PageSet, Region, TrackerKind};
use hugepilot_os::page_scan::{PageRun, WriteWatch, category, scan};
use hugepilot_os::stop::Stop;

use crate::ObserveError;

/// What a program loses for each page that it writes after protecting. Measured: 820 ns for the fault alone, and 2 us in all (2.5 % of a program that
/// writes to 128 MiB every 2.7 s), under a hypervisor (Intel Emerald Rapids).
const FIRST_WRITE: Nanos = Nanos(2_000);

/// Observes some of this process's own memory.
pub struct WriteScan {
    watch: WriteWatch,
    range: AddressRange,
}

impl WriteScan {
    /// Begins to observe. Errors: the kernel is older than 6.7, or forbids it, or nothing is mapped there.
    pub fn of(range: AddressRange) -> Result<Self, ObserveError> {
        let refused = |cause| ObserveError::WriteScan { cause };
        let watch = WriteWatch::new().map_err(refused)?;
        watch.add(range.start.0, range.len().0).map_err(refused)?;
        Ok(Self { watch, range })
    }

    /// What is written during one window, which begins now.
    ///
    /// Errors: a stop was requested, or something in the range is not observed, such as memory mapped there meanwhile.
    pub fn observe(&self, window: Nanos, stop: &Stop) -> Result<Heat, ObserveError> {
        let refused = |cause| ObserveError::WriteScan { cause };
        let mut cost = Cost::default();
        let clearing = Instant::now();
        self.take_written(|_| ()).map_err(refused)?;
        cost.clear = Nanos::since(clearing);
        let started = Instant::now();
        stop.sleep_until(started + window.duration())?;
        let elapsed = started.elapsed();
        let mut regions = self.present().map_err(refused)?;
        self.take_written(|run| mark(&mut regions, run, |region| &mut region.walked)).map_err(refused)?;
        for region in &mut regions {
            let written = region.walked.len() as f64;
            region.walked_in_window = written as u16;
            // A huge page counts as written as a whole.
            region.walks_per_second =
                if region.huge { 1.0 } else { written } / elapsed.as_secs_f64() * f64::from(u8::from(written > 0.0));
        }
        cost.read = Nanos::from_duration(started.elapsed() - elapsed);
        cost.reads = 1;
        let faults = |region: &Region| if region.huge { region.walked.len().min(1) } else { region.walked.len() };
        cost.program = Nanos(regions.iter().map(faults).sum::<usize>() as u64 * FIRST_WRITE.0);
        Ok(self.heat(regions, Nanos::from_duration(elapsed), cost))
    }

    fn take_written(&self, each: impl FnMut(PageRun)) -> std::io::Result<()> {
        self.watch.take_written(self.range.start.0, self.range.len().0, each)
    }

    /// The regions with a page present, none written.
    fn present(&self) -> std::io::Result<Vec<Region>> {
        let range = self.range;
        let starts = (range.start.region().0..range.end.0).step_by(HUGE_PAGE as usize);
        let mut regions: Vec<Region> = starts.map(|start| Region::blank(Address(start), Some(0))).collect();
        let categories = category::PRESENT | category::HUGE;
        scan(std::process::id(), range.start.0, range.end.0, categories, |run| {
            if run.categories & category::PRESENT != 0 {
                mark(&mut regions, run, |region| &mut region.present);
            }
            if run.categories & category::HUGE != 0 {
                overlapping(&mut regions, run).for_each(|region| region.huge = true);
            }
        })?;
        regions.retain(|region| !region.present.is_empty());
        for region in &mut regions {
            region.growth.unpopulated = 512 - region.present.len() as u16;
        }
        Ok(regions)
    }

    fn heat(&self, regions: Vec<Region>, window: Nanos, cost: Cost) -> Heat {
        let present: usize = regions.iter().map(|region| region.present.len()).sum();
        Heat {
            window,
            rss: Bytes(present as u64 * BASE_PAGE),
            mappings: vec![Mapping { range: self.range, ..Mapping::default() }],
            regions,
            cost,
            ..Heat::blank(std::process::id(), TrackerKind::WriteScan, Meaning::Written)
        }
    }
}

fn overlapping(regions: &mut [Region], run: PageRun) -> impl Iterator<Item = &mut Region> {
    let first = regions.partition_point(|region| region.range().end.0 <= run.start);
    regions[first..].iter_mut().take_while(move |region| region.start.0 < run.end)
}

/// Adds the pages of a run to the sets of their regions.
fn mark(regions: &mut [Region], run: PageRun, set: impl Fn(&mut Region) -> &mut PageSet) {
    for region in overlapping(regions, run) {
        let start = region.start.0;
        let (from, to) = (run.start.max(start) - start, run.end.min(start + HUGE_PAGE) - start);
        (from / BASE_PAGE..to / BASE_PAGE).for_each(|page| set(region).insert(page as usize));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn runs_are_split_at_regions() {
        let mut regions: Vec<Region> =
            (0..3).map(|number| Region::blank(Address(number * HUGE_PAGE), Some(0))).collect();
        let run = PageRun { start: 510 * BASE_PAGE, end: 1025 * BASE_PAGE, categories: 0 };
        mark(&mut regions, run, |region| &mut region.walked);
        assert_eq!(regions.iter().map(|region| region.walked.len()).collect::<Vec<_>>(), [2, 512, 1]);
        assert!(regions[0].walked.contains(511) && regions[2].walked.contains(0));
    }

    #[test]
    fn only_written_pages_are_hot() {
        let mut memory = hugepilot_os::memory::AlignedMemory::anonymous(2 * HUGE_PAGE as usize).unwrap();
        memory.advise(0, 2 * HUGE_PAGE as usize, hugepilot_os::memory::OwnAdvice::NoHugePage).unwrap();
        memory.words_mut().iter_mut().step_by(512).for_each(|word| *word = 1);
        let range = AddressRange::new(Address(memory.address()), Bytes(2 * HUGE_PAGE));
        let scan = match WriteScan::of(range) {
            Ok(scan) => scan,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        // Every third page of the first region is written all the time; the second region is only read.
        let words = memory.atomic_words();
        let done = AtomicBool::new(false);
        let heat = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for page in 0..1024 {
                        match page {
                            0..512 if page % 3 == 0 => words[page * 512].store(7, Ordering::Relaxed),
                            _ => _ = words[page * 512].load(Ordering::Relaxed),
                        }
                    }
                }
            });
            let heat = scan.observe(Nanos(100_000_000), &Stop::default());
            done.store(true, Ordering::Relaxed);
            heat.unwrap()
        });
        let first: Vec<usize> = heat.regions[0].walked.iter().collect();
        assert_eq!(first, (0..512).step_by(3).collect::<Vec<_>>());
        assert_eq!((heat.regions[1].walked.len(), heat.regions[1].present.len()), (0, 512));
        assert!(heat.regions[0].walks_per_second > 1000.0 && heat.regions[1].walks_per_second == 0.0);
        assert_eq!(heat.meaning, Meaning::Written);
        assert_eq!(heat.cost.program, Nanos(171 * FIRST_WRITE.0), "each of them took one fault");
    }
}
