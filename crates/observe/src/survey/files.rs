//! The survey without eBPF: `/proc/PID/smaps`, `pagemap`, and the kernel's tables of page frames.
//!
//! Owns: one pass over a process's pages, with growth. Never touches: accessed bits.
//!
//! *Bias*: a huge page is recognized by its frames, 512 consecutive ones of one huge page, in a mapping with huge pages according to the kernel; one
//! mapped by base pages beside it seems huge too. Before Linux 6.7 the stack of a thread that never leaves its processor looks like any memory.
//! *Cost*: 12 ms/GiB of base pages for the kernel's counting in `smaps`, about as much for `pagemap`, and 0.4 us for each page of private memory that
//! another process also maps.

use std::time::{Duration, Instant};

use heat::units::{Address, BASE_PAGE, Bytes, HUGE_PAGE, Nanos, PAGES_PER_REGION};
use heat::{Cost, Heat, Mapping, Meaning, PageSet, Region, TrackerKind};
use kernel::page_use::flag::{HUGE, THP, ZERO_PAGE};
use kernel::pagemap::{Entry, Pagemap};
use kernel::target::Target;
use kernel::{Root, process, smaps};

use crate::frames::{Frame, FrameTables, Inquiry};
use crate::mapped::{self, MappingFlags, RegionCollector};
use crate::{ObserveError, node_policy};

/// Where nothing counts as resident there may still be zero pages. They are searched only in mappings up to this size, since programs reserve far
/// larger ones that they never touch.
const LARGE_AND_EMPTY: Bytes = Bytes(1 << 30);
/// Addresses scanned in one pass: each region takes a system call, present or not. This many take about 10 s.
const MOST_ADDRESSES: Bytes = Bytes(32 << 40);
/// A running thread has no readable stack pointer, but most threads enter the kernel soon.
const STACK_TRIES: u32 = 5;
/// The most threads whose stacks are looked for, as in page-walk.
const MOST_STACKS: usize = 4096;
const STACK_PAUSE: Duration = Duration::from_millis(1);

/// Ready to scan any process.
pub(super) struct FileSurvey {
    root: Root,
    frames: FrameTables,
}

impl FileSurvey {
    /// Errors: the tables of page frames are missing, or CAP_DAC_OVERRIDE.
    pub(super) fn open(root: &Root) -> Result<Self, ObserveError> {
        Ok(Self { root: root.clone(), frames: FrameTables::open(root)? })
    }

    /// Scans once, for a tracker whose bits have this meaning. `each` gets every region with a page present, ascending, with its entries. Its changes
    /// to the region are kept, except for growth, and it returns whether growth is needed.
    pub(super) fn scan(
        &self,
        target: &Target,
        most_regions: usize,
        (tracker, meaning): (TrackerKind, Meaning),
        mut each: impl FnMut(&mut Region, &[Entry]) -> bool,
    ) -> Result<Heat, ObserveError> {
        let (started, pid) = (Instant::now(), target.pid());
        let pagemap = Pagemap::open(&self.root, pid)?;
        let address_space = process::address_space(&self.root, pid)?;
        let contents = smaps::read(&self.root, pid)?;
        let pointers = self.stack_pointers(pid)?;
        let mappings = self.mappings(pid, &contents, &pointers)?;
        let mut collector = RegionCollector::new(pid, most_regions, &mappings, &pointers);
        let mut inquiry = Inquiry::new(&self.frames);
        let mut entries = [Entry::default(); PAGES_PER_REGION];
        for start in regions_to_read(pid, &contents)? {
            pagemap.read(start, &mut entries)?;
            let Some(index) = self.add(start, &entries, &contents, &mut collector)? else { continue };
            let region = &mut collector.regions[index];
            if each(region, &entries) && region.obstacle.is_none() && !region.huge {
                let mapping = region.mapping_index().map(|mapping| &contents[mapping]);
                let lazily_freed = mapping.is_some_and(|mapping| mapping.lazily_freed > Bytes(0));
                inquiry.finding(index).growth.unpopulated = (PAGES_PER_REGION - region.present.len()) as u16;
                inquiry.add(unclear(index, &entries, lazily_freed))?;
            }
        }
        let mut regions = collector.regions;
        let (read, asking) = (Nanos::since(started), Instant::now());
        let findings = inquiry.finish(regions.len())?;
        regions.iter_mut().zip(findings).for_each(|(region, finding)| region.growth = finding.growth);
        if target.handle().has_exited() {
            return Err(ObserveError::Exited { pid });
        }
        Ok(Heat {
            address_space,
            rss: process::ProcessStatus::read(&self.root, pid)?.vm_rss,
            mappings,
            regions,
            cost: Cost { read, reads: 1, inspect: Nanos::since(asking), ..Cost::default() },
            ..Heat::blank(pid, tracker, meaning)
        })
    }

    fn mappings(
        &self,
        pid: u32,
        contents: &[smaps::SmapsMapping],
        pointers: &[Address],
    ) -> Result<Vec<Mapping>, ObserveError> {
        let lines = contents.iter().map(|each| each.line.clone()).collect();
        let flags = contents.iter().map(|each| MappingFlags { range: each.line.range, flags: each.flags });
        let flags: Vec<MappingFlags> = flags.collect();
        let mut mappings = mapped::mappings(lines, &flags, pointers, process::ipc_namespace(&self.root, pid));
        node_policy::mark_spread(&self.root, pid, &mut mappings)?;
        Ok(mappings)
    }

    /// Adds a region, if a page of it is present; returns its index.
    fn add(
        &self,
        start: Address,
        entries: &[Entry],
        contents: &[smaps::SmapsMapping],
        collector: &mut RegionCollector<'_>,
    ) -> Result<Option<usize>, ObserveError> {
        let mut present = PageSet::NONE;
        entries.iter().enumerate().filter(|(_, entry)| entry.is_present()).for_each(|(page, _)| present.insert(page));
        if entries.iter().any(|entry| entry.is_present() && entry.frame().is_none()) {
            return Err(ObserveError::HiddenFrames);
        }
        let holder = contents.partition_point(|each| each.line.range.end <= start);
        let huge = match huge_frame(entries) {
            Some(first) if contents.get(holder).is_some_and(|each| each.huge > Bytes(0)) => {
                self.frames.flags(first, 1)?[0].has(THP | HUGE | ZERO_PAGE)
            }
            _ => false,
        };
        let is_there = !present.is_empty();
        collector.add(start, present, huge)?;
        Ok(is_there.then(|| collector.regions.len() - 1))
    }

    /// Where the stacks of threads are, as far as the kernel says; ascending.
    fn stack_pointers(&self, pid: u32) -> Result<Vec<Address>, ObserveError> {
        let mut pointers = Vec::new();
        let mut running = process::first_threads(&self.root, pid, MOST_STACKS)?;
        for round in 0..STACK_TRIES {
            running.retain(|&thread| match process::stack_pointer(&self.root, pid, thread) {
                Ok(Some(pointer)) => {
                    pointers.push(pointer);
                    false
                }
                Ok(None) => true,
                // It has ended, or this kernel does not tell.
                Err(_) => false,
            });
            if running.is_empty() || round + 1 == STACK_TRIES {
                break;
            }
            std::thread::sleep(STACK_PAUSE);
        }
        pointers.sort_unstable();
        Ok(pointers)
    }
}

/// The starts of regions that may hold a page, each once, ascending.
fn regions_to_read(pid: u32, contents: &[smaps::SmapsMapping]) -> Result<impl Iterator<Item = Address>, ObserveError> {
    let is_worthwhile = |each: &&smaps::SmapsMapping| {
        each.resident > Bytes(0) || each.huge > Bytes(0) || each.line.range.len() <= LARGE_AND_EMPTY
    };
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for range in contents.iter().filter(is_worthwhile).map(|each| each.line.range) {
        let from = range.start.region().0.max(spans.last().map_or(0, |&(_, end)| end));
        spans.push((from, range.end.region_up().0.max(from)));
    }
    let addresses = spans.iter().map(|(from, to)| Bytes(to - from)).sum::<Bytes>();
    if addresses > MOST_ADDRESSES {
        return Err(ObserveError::TooSparse { pid, addresses, most: MOST_ADDRESSES });
    }
    Ok(spans.into_iter().flat_map(|(from, to)| (from..to).step_by(HUGE_PAGE as usize)).map(Address))
}

/// The first of 512 consecutive frames, aligned like those of a huge page.
fn huge_frame(entries: &[Entry]) -> Option<u64> {
    let first = entries.first()?.frame()?;
    let in_a_row = entries.iter().zip(first..).all(|(entry, frame)| entry.frame() == Some(frame));
    (first.is_multiple_of(HUGE_PAGE / BASE_PAGE) && in_a_row).then_some(first)
}

/// The frames of a region about which the kernel must be asked. Promoting never copies file pages or shared memory; of the others, these are the ones
/// that something else may map and, in a mapping with lazily freed memory, all. Whether a page was written to is not visible, but matters only where
/// something is lazily freed.
fn unclear(region: usize, entries: &[Entry], lazily_freed: bool) -> impl Iterator<Item = Frame> {
    let frame = move |(page, entry): (usize, &Entry)| {
        let number = entry.frame().filter(|_| !entry.is_of_file() && (lazily_freed || !entry.is_exclusive()))?;
        Some(Frame { number, region: region as u32, page: page as u16, dirty: !lazily_freed })
    };
    entries.iter().enumerate().filter_map(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_may_grow_are_asked_about() {
        // Documentation/admin-guide/mm/pagemap.rst
        let (exclusive, of_file) = (1 << 56, 1 << 61);
        let page = |bits: u64| Entry(Entry::present(Some(7)).0 | bits);
        let entries = [page(exclusive), page(0), page(of_file), page(of_file | exclusive), Entry::default()];
        let asked = |lazily_freed| unclear(0, &entries, lazily_freed).map(|frame| frame.page).collect::<Vec<_>>();
        assert_eq!(asked(false), [1], "what others map, too, and what is nobody's file");
        assert_eq!(asked(true), [0, 1]);
    }
}
