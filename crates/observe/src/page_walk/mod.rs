//! The `page-walk` tracker: clear accessed bits once, read them several times.
//!
//! Owns: the order of steps of one observation. Never touches: the target's memory, neither its placement nor its contents.
//!
//! After clearing without a TLB flush, the CPU sets a page's bit only when it walks the page table for it, and page walks are what huge pages save.
//! *Bits*: walks (or accesses, where memory is cleared in slices: [`clear`]). *Bias*: a huge page that stays in the TLB seems idle; rates above one
//! walk per page in the first millisecond are estimated. *Cost*: reading takes about 0.5 ms/GiB of base pages and no lock, clearing about 12 ms/GiB;
//! and the program loses 35 to 125 ms for each GiB that it walks again, because the processor sets each bit anew ([`crate::first_walk`]).

mod call_sampler;
mod certainty;
mod clear;
mod direct_map;
mod huge_use;
mod initial_scan;
mod interim_read;
mod mmap_calls;
mod reach;
mod reader;
mod settle;

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_os::process::Punctual;

pub use crate::ObserveError;
use crate::first_walk;
use crate::frames::{FrameTables, Inquiry};
use crate::kernel_time::KernelTime;
use crate::page_walk::call_sampler::CallSampler;
use crate::page_walk::clear::Cleared;
use crate::page_walk::initial_scan::InitialScan;
use crate::page_walk::interim_read::{InterimReads, Seen};
use crate::page_walk::reach::Reach;
use crate::page_walk::reader::{AttachedReader, PageTable, PageTableReader};
use crate::page_walk::settle::{Asked, inquire};
use crate::program_clock::ProgramClock;
use crate::window::{self, Window};
use crate::{ObserveOptions, Tracker, reclaim, wait_until};
use heat::Coverage;
use heat::clearing::{ClearMethod, ClearPolicy, Clearing};
use heat::rate::{DELAYS, ReadCount, ReadCounts};
use heat::units::{Address, AddressRange, Bytes, HUGE_PAGE, Nanos, Pages, Slowdown};
use heat::walks::{EARLY, EarlyRead, EarlyReads};
use heat::{Cost, Heat, Mapping, PageSet, Region, TrackerKind, passes, rate};
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use kernel::{Root, pagemap, process};

/// The time from clearing one batch to clearing the next: the last read comes after 100 ms.
const BATCH_TIME: Nanos = Nanos(100_000_000);
/// The time between interim reads.
const BETWEEN_EARLY_READS: Duration = Duration::from_micros(200);
/// The end of the lower half of the address space with 5-level page tables.
const USER_SPACE: AddressRange = AddressRange { start: Address(0), end: Address(1 << 56) };
/// The same with 4 levels.
const USER_SPACE_FOUR_LEVELS: AddressRange = AddressRange { start: Address(0), end: Address(1 << 47) };

/// How page-table entries lead to page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Kernel address at which physical address 0 is mapped.
    direct_map: u64,
    /// Bits of an entry that hold a physical address.
    frame_mask: u64,
    /// Levels of page tables: 4 or 5.
    levels: u32,
}

impl Layout {
    const UNKNOWN: Layout = Layout { direct_map: 0, frame_mask: 0, levels: 4 };

    fn user_space(&self) -> AddressRange {
        if self.levels == 5 { USER_SPACE } else { USER_SPACE_FOUR_LEVELS }
    }
}

/// The tracker, ready to observe any process.
pub struct PageWalk {
    root: Root,
    reader: PageTableReader,
    frames: FrameTables,
    /// What the program loses for each page that it walks again; None until needed.
    price: Option<Nanos>,
    calls: CallSampler,
}

impl PageWalk {
    /// Loads the eBPF programs and finds the kernel's direct map, proven on our own memory.
    ///
    /// Errors: a capability or kernel feature is missing; the message names it.
    pub fn new() -> Result<Self, ObserveError> {
        let root = Root::host();
        let mut reader = PageTableReader::load()?;
        reader.layout = direct_map::find(&mut reader, &root)?;
        let frames = FrameTables::open(&root)?;
        Ok(Self { root, reader, frames, price: None, calls: CallSampler::default() })
    }

    /// Decides how this process is cleared, perhaps after watching its calls for a moment.
    fn choose_clearing(
        &mut self,
        target: &Target,
        scan: &InitialScan,
        options: &ObserveOptions,
        stop: &Stop,
    ) -> Result<Clearing, ObserveError> {
        let expected = Clearing::expected(scan.base_pages());
        let bits_set_again = Nanos(scan.base_pages_accessed().0 * self.price().0);
        let (policy, max_slowdown) = (options.clearing, options.max_slowdown);
        let reclaim = reclaim::of_machine(&self.root);
        let (reason, calls) = match Clearing::reason_without_sample(expected, policy, bits_set_again, max_slowdown) {
            Some(reason) => (reason, None),
            None => {
                let calls = self.calls.sample(&self.root, target, scan.address_space, expected, stop)?;
                (calls.reason(expected), Some(calls))
            }
        };
        Ok(Clearing { method: reason.method(), reason, expected, bits_set_again, calls, reclaim })
    }

    /// Scans everything, and decides how much of it to observe, and how.
    fn begin<'a>(
        &'a mut self,
        target: &'a Target,
        options: &ObserveOptions,
        stop: &'a Stop,
    ) -> Result<Watch<'a>, ObserveError> {
        let mut cost = Cost::default();
        let scan =
            InitialScan::at(&self.root, &mut self.reader, target, options.most_regions, &mut cost, |_, _, _, _| ())?;
        let price = self.price();
        let most_bits = options.max_slowdown.map(|max| bits_of_a_batch(max, price));
        let layout = self.reader.layout;
        let coverage = coverage(&scan, options, most_bits);
        let reach = Reach::of(coverage, &scan.regions, layout.user_space(), options.tell_use_of_huge);
        let policy = if reach.is_sample() { ClearPolicy::OnlySome } else { options.clearing };
        let clearing = self.choose_clearing(target, &scan, &ObserveOptions { clearing: policy, ..*options }, stop)?;
        let thread = crate::living_thread(target)?;
        Ok(Watch {
            root: &self.root,
            frames: &self.frames,
            target,
            stop,
            options: *options,
            price,
            most_bits,
            clearing,
            layout,
            reader: self.reader.attach(target.pid(), thread)?.expecting(scan.address_space),
            reach,
            read_counts: vec![ReadCounts::default(); scan.regions.len()],
            early: vec![EarlyReads::default(); scan.regions.len()],
            cleared: Vec::new(),
            settled: 0,
            settled_at: KernelTime::default(),
            pieces: Vec::new(),
            clock: ProgramClock::start(&self.root, target.pid()),
            cost,
            address_space: scan.address_space,
            mappings: scan.mappings,
            accessed: scan.accessed,
            regions: scan.regions,
        })
    }

    /// What the program loses for each page that it walks again; measured once.
    fn price(&mut self) -> Nanos {
        *self.price.get_or_insert_with(|| first_walk::price(&self.root))
    }

    /// Reads each table of base pages once.
    fn each_base_table(&mut self, target: &Target, mut each: impl FnMut(PageTable<'_>)) -> Result<(), ObserveError> {
        let (range, thread) = (self.reader.layout.user_space(), crate::living_thread(target)?);
        self.reader.attach(target.pid(), thread)?.read(range, |table| {
            if !table.pages.is_huge() {
                each(table);
            }
        })
    }

    /// As [`Tracker::survey`]. `each` gets every region, ascending, with its entries, and returns whether its growth is needed.
    pub(super) fn survey_pages(
        &mut self,
        target: &Target,
        most_regions: usize,
        mut each: impl FnMut(&mut Region, &[pagemap::Entry]) -> bool,
    ) -> Result<Heat, ObserveError> {
        let (mut cost, mut inquiry, mut failed) = (Cost::default(), Inquiry::new(&self.frames), None);
        let layout = self.reader.layout;
        let mut next = 0;
        let scan = InitialScan::at(
            &self.root,
            &mut self.reader,
            target,
            most_regions,
            &mut cost,
            |region, mappings, pages, number| {
                let wanted = each(region, &pages.as_pagemap(number, layout));
                if wanted && region.obstacle.is_none() && !region.huge && failed.is_none() {
                    failed = inquire(&mut inquiry, next, region, mappings, pages, layout, Asked::Growth).err();
                }
                next += 1;
            },
        )?;
        if let Some(error) = failed {
            return Err(error);
        }
        let asking = Instant::now();
        let findings = inquiry.finish(scan.regions.len())?;
        cost.inspect += Nanos::since(asking);
        let mut heat = scan.heat(&self.root, target, cost)?;
        heat.regions.iter_mut().zip(findings).for_each(|(region, finding)| region.growth = finding.growth);
        Ok(heat)
    }
}

impl Tracker for PageWalk {
    fn kind(&self) -> TrackerKind {
        TrackerKind::PageWalk
    }

    fn observe(&mut self, target: &Target, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let window = Window::begin(&self.root, target.pid())?;
        let mut watch = self.begin(target, options, stop)?;
        let batches = watch.batches();
        for (number, batch) in batches.iter().enumerate() {
            watch.clear(batch)?;
            watch.follow(batch)?;
            // A region may be in two batches; it is settled with the second.
            let next = batches.get(number + 1).map_or(watch.regions.len(), |next| watch.indices(next).start);
            watch.settle(next)?;
        }
        watch.see_out(window.started())?;
        let ended = window.end(watch.root)?;
        watch.heat(&batches, ended)
    }

    fn survey_growth(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey_pages(target, ObserveOptions::MOST_REGIONS, |_, _| true)
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        let mut cost = Cost::default();
        let scan = InitialScan::at(
            &self.root,
            &mut self.reader,
            target,
            ObserveOptions::MOST_REGIONS,
            &mut cost,
            |_, _, _, _| (),
        )?;
        scan.heat(&self.root, target, cost)
    }

    fn walked_pages(&mut self, target: &Target) -> Result<Option<Pages>, ObserveError> {
        let mut walked = 0;
        self.each_base_table(target, |table| walked += table.pages.accessed() as u64)?;
        Ok(Some(Pages(walked)))
    }

    fn walked(&mut self, target: &Target, each: &mut dyn FnMut(Address, &PageSet)) -> Result<bool, ObserveError> {
        self.each_base_table(target, |table| each(table.start, &table.pages.present_and_accessed().1))?;
        Ok(true)
    }
}

/// Resident memory.
fn resident(root: &Root, pid: u32) -> Result<Bytes, ObserveError> {
    Ok(process::ProcessStatus::read(root, pid)?.vm_rss)
}

/// How much of the memory is observed, in batches of at most this many bits.
fn coverage(scan: &InitialScan, options: &ObserveOptions, most_bits: Option<Pages>) -> Coverage {
    let takes = most_bits.map_or(Nanos(0), |most| time_for(scan.base_pages_accessed(), most));
    match options.clearing {
        ClearPolicy::OneOfMany => Coverage::Everything,
        _ => options.coverage.in_time(scan.base_pages().bytes(), takes),
    }
}

/// The most bits to clear together, given how much a program may be slowed down and the cost of setting each again.
fn bits_of_a_batch(max_slowdown: Slowdown, price: Nanos) -> Pages {
    Pages((BATCH_TIME.seconds() * max_slowdown.0 / price.seconds().max(1e-9)) as u64)
}

/// How long it takes to clear this many bits, batch by batch.
fn time_for(bits: Pages, of_a_batch: Pages) -> Nanos {
    Nanos(bits.0.div_ceil(of_a_batch.0.max(1)).saturating_mul(BATCH_TIME.0))
}

/// Reads ascending ranges once, and accounts for the time.
fn timed_read(
    reader: &mut AttachedReader<'_>,
    cost: &mut Cost,
    ranges: &[AddressRange],
    mut visit: impl FnMut(PageTable<'_>),
) -> Result<(), ObserveError> {
    let started = Instant::now();
    ranges.iter().try_for_each(|&range| reader.read(range, &mut visit))?;
    cost.read += Nanos::since(started);
    cost.reads += 1;
    Ok(())
}

/// One observation under way.
struct Watch<'a> {
    root: &'a Root,
    frames: &'a FrameTables,
    target: &'a Target,
    stop: &'a Stop,
    options: ObserveOptions,
    /// What the program loses for each page that it walks again.
    price: Nanos,
    /// The most bits that are cleared together, if that is limited.
    most_bits: Option<Pages>,
    reader: AttachedReader<'a>,
    /// How bits are cleared.
    clearing: Clearing,
    layout: Layout,
    reach: Reach,
    address_space: Option<u64>,
    mappings: Vec<Mapping>,
    regions: Vec<Region>,
    /// For each region, how many base pages had their bit set before anything was cleared.
    accessed: Vec<u32>,
    /// For each region, what was seen at each delay.
    read_counts: Vec<ReadCounts>,
    /// How the pages walked by the first of those reads are distributed.
    early: Vec<EarlyReads>,
    /// When each batch was cleared, with the regions of the batch.
    cleared: Vec<(Range<usize>, Cleared)>,
    /// How many of the regions are settled.
    settled: usize,
    /// When all were settled.
    settled_at: KernelTime,
    /// Pieces of base pages that can be used to flush the TLB.
    pieces: Vec<AddressRange>,
    clock: ProgramClock,
    cost: Cost,
}

impl Watch<'_> {
    fn wait_until(&self, deadline: Instant) -> Result<(), ObserveError> {
        wait_until(deadline, self.target, self.stop)
    }

    /// The ranges that are cleared together.
    fn batches(&self) -> Vec<Vec<AddressRange>> {
        let bits = |index: usize| if self.regions[index].huge { 1 } else { u64::from(self.accessed[index]) };
        let set_in = |slice: AddressRange| Pages(self.indices(&[slice]).map(bits).sum());
        let spans = self.reach.spans(&self.regions, &self.mappings);
        clear::batches(self.clearing.method, &spans, self.most_bits.map(|most| (most, &set_in as &clear::BitsSet<'_>)))
    }

    /// Waits for the end of the window, and reads what was walked by then.
    fn see_out(&mut self, started: Instant) -> Result<(), ObserveError> {
        self.reach.pass_over_huge(&mut self.regions);
        self.clock.tick();
        self.settled_at = KernelTime::now();
        // The window begins after the program's calls were counted.
        let sampled = self.clearing.calls.map_or(Nanos(0), |calls| calls.length);
        let mut end = started + sampled.duration() + self.options.window.duration();
        if self.options.tell_use_of_huge {
            end = end.max(Instant::now() + huge_use::LEAST);
            self.tell_use_of_huge(end)?;
        }
        self.wait_until(end)?;
        self.read_end_of_window()
    }

    /// The combined result of all reads in the window.
    fn heat(mut self, batches: &[Vec<AddressRange>], window: window::WindowUse) -> Result<Heat, ObserveError> {
        let busy_cpus = self.keep_pace().unwrap_or(window.busy_cpus);
        self.account_for_bits();
        // Of all batches together: one may be nothing but what a stream comes to.
        passes::find(&mut self.regions, &self.read_counts);
        rate::rate(&mut self.regions, &self.read_counts);
        let of_batches: Vec<Range<usize>> = batches.iter().map(|batch| self.indices(batch)).collect();
        let walks = self.bound_walks(&of_batches, busy_cpus);
        let pid = self.target.pid();
        Ok(window::WindowUse { busy_cpus, ..window }.add_to(Heat {
            address_space: self.address_space,
            clearing: Some(self.clearing),
            rss: resident(self.root, pid)?,
            sample: self.reach.sample(&self.regions),
            regions: self.regions,
            mappings: self.mappings,
            cost: self.cost,
            walks,
            ..Heat::blank(pid, TrackerKind::PageWalk, self.clearing.method.meaning())
        }))
    }

    /// The regions of a batch.
    fn indices(&self, batch: &[AddressRange]) -> Range<usize> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return 0..0 };
        let index_of = |address| self.regions.partition_point(|region| region.start < address);
        index_of(first.start.region())..index_of(last.end)
    }

    /// Clears one batch, and meanwhile reads what was cleared a moment ago.
    fn clear(&mut self, batch: &[AddressRange]) -> Result<(), ObserveError> {
        let of_batch = self.indices(batch);
        if of_batch.is_empty() {
            return Ok(());
        }
        let mut interim_reads = InterimReads::new(&self.accessed[of_batch.clone()]);
        let (root, target, how) = (self.root, self.target, self.clearing);
        self.clock.tick();
        let cleared = thread::scope(|scope| {
            let clearing = scope.spawn(move || clear::clear(root, target.handle(), &how, batch));
            // A late interim read is useless.
            let _punctual = Punctual::begin(clear::READING_EARLY);
            // The regions of a sample are apart, and cleared quickly.
            while !self.reach.is_sample() && !clearing.is_finished() && !interim_reads.window().is_empty() {
                self.interim_read(of_batch.start, &mut interim_reads)?;
                thread::sleep(BETWEEN_EARLY_READS);
            }
            clearing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let regions = &self.regions[of_batch.clone()];
        let cleared = match how.method {
            ClearMethod::ClearRefs => cleared.with_fronts(&interim_reads.fronts(regions)),
            ClearMethod::MadvCold => cleared,
        };
        for (index, region) in regions.iter().enumerate() {
            if let Some(at) = cleared.at(first_byte(region)).filter(|_| !region.huge) {
                self.read_counts[of_batch.start + index][0] = interim_reads.read_count(index, at);
                self.early[of_batch.start + index][0] = interim_reads.early_read(index, at);
            }
        }
        self.cost.clear += cleared.took;
        self.cost.longest_stall = self.cost.longest_stall.max(cleared.longest_stall);
        self.cleared.push((of_batch, cleared));
        self.clock.tick();
        Ok(())
    }

    /// Reads the regions around the front; `offset` is the batch's first region.
    fn interim_read(&mut self, offset: usize, interim_reads: &mut InterimReads) -> Result<(), ObserveError> {
        let started = Instant::now();
        let window = interim_reads.window();
        let (first, last) = (offset + window.start, offset + window.end - 1);
        let range = AddressRange { start: self.regions[first].start, end: self.regions[last].range().end };
        let mut at = Cursor::new(&mut self.regions[..=last]);
        let mut found = Vec::with_capacity(window.len());
        self.reader.read(range, |table| {
            let Some((index, region)) = at.find(table.start) else { return };
            if !region.huge {
                let (walked, lines) = (table.pages.accessed() as u32, table.pages.accessed_lines());
                found.push(Seen { index: index - offset, at: table.read_at, walked, lines });
            }
        })?;
        interim_reads.note(&found);
        self.clock.tick();
        self.cost.interim_read += Nanos::since(started);
        Ok(())
    }

    /// Reads the batch cleared last, at growing delays.
    fn follow(&mut self, batch: &[AddressRange]) -> Result<(), ObserveError> {
        let Some((_, cleared)) = self.cleared.last() else { return Ok(()) };
        let Some((first, last)) = batch.first().zip(batch.last()) else { return Ok(()) };
        let range = AddressRange { start: first.start.region(), end: last.end.region_up() };
        let (since, which_pages, ranges) = (Instant::now(), self.options.which_pages, self.reach.within(range));
        for (number, delay) in DELAYS.into_iter().enumerate() {
            wait_until(since + delay, self.target, self.stop)?;
            let is_last = number + 1 == DELAYS.len();
            let (read_counts, early) = (&mut self.read_counts, &mut self.early);
            let mut at = Cursor::new(&mut self.regions);
            timed_read(&mut self.reader, &mut self.cost, &ranges, |table| {
                let Some((index, region)) = at.find(table.start) else { return };
                let Some(cleared_at) = cleared.at(first_byte(region)) else { return };
                let accessed = table.pages.accessed() as u32;
                let delay = table.read_at.since(cleared_at);
                let walked = if region.huge { accessed.min(1) } else { accessed };
                read_counts[index][1 + number] = ReadCount::new(delay, walked);
                if number < EARLY {
                    early[index][1 + number] =
                        EarlyRead::new(delay, accessed as usize, table.pages.accessed_lines()).unwrap_or_default();
                }
                if is_last {
                    let (present, walked) = table.pages.present_and_accessed();
                    let walked = if which_pages { walked } else { PageSet::first(walked.len()) };
                    (region.present, region.walked) = (present, walked.clone());
                    // A giant page has one bit for 512 regions; the first one carries its walks.
                    let end = Address(table.start.0 + table.pages.regions() as u64 * HUGE_PAGE);
                    while let Some(region) = at.next_before(end) {
                        region.walked = walked.clone();
                    }
                }
            })?;
            self.clock.tick();
        }
        Ok(())
    }

    /// Converts delays to those of a program that always has the processors it has while nothing is being cleared. Returns how many those are, if
    /// that could be counted.
    fn keep_pace(&mut self) -> Option<f64> {
        let cleared = self.cleared.iter().rev().find_map(|(_, cleared)| cleared.end())?;
        // Queries about frames also take processors from the program, but little may be left of the window after them.
        let since = |from: KernelTime| Some((from, self.clock.busy_cpus_since(from)?));
        let (undisturbed, busy_cpus) = since(self.settled_at).or_else(|| since(cleared))?;
        self.cost.program = self.clock.lost_before(undisturbed, busy_cpus);
        for (of_batch, cleared) in &self.cleared {
            let both = self.regions[of_batch.clone()].iter().zip(&mut self.read_counts[of_batch.clone()]);
            for (region, read_counts) in both {
                let Some(cleared_at) = cleared.at(first_byte(region)) else { continue };
                rate::at_pace(read_counts, |delay| self.clock.at_pace(cleared_at, cleared_at + delay, busy_cpus));
            }
        }
        Some(busy_cpus)
    }

    /// Reads what was walked by the end of the window.
    fn read_end_of_window(&mut self) -> Result<(), ObserveError> {
        let mut at = Cursor::new(&mut self.regions);
        self.clock.tick();
        let ranges = self.reach.within(self.layout.user_space());
        timed_read(&mut self.reader, &mut self.cost, &ranges, |table| {
            if let Some((_, region)) = at.find(table.start) {
                region.walked_in_window = (table.pages.accessed() as u16).saturating_sub(region.unobserved);
            }
        })
    }

    /// Estimates what the program loses when its walks set the cleared bits again.
    fn account_for_bits(&mut self) {
        let bits = |region: &Region| match region.walked_in_window {
            _ if region.huge => u64::from(region.unobserved == 0),
            walked => walked.into(),
        };
        let set_again: u64 = self.regions.iter().map(bits).sum();
        self.cost.program += Nanos(set_again * self.price.0);
    }
}

/// The first address of a region at which something is present; only a part of the region may have been cleared.
fn first_byte(region: &Region) -> Address {
    region.present.iter().next().map_or(region.start, |page| region.page(page))
}

/// Follows the regions as page tables arrive in ascending order.
struct Cursor<'a> {
    regions: &'a mut [Region],
    next: usize,
}

impl<'a> Cursor<'a> {
    fn new(regions: &'a mut [Region]) -> Self {
        Self { regions, next: 0 }
    }

    /// The region that starts here, if it existed at the first scan.
    fn find(&mut self, start: Address) -> Option<(usize, &mut Region)> {
        self.next += self.regions[self.next..].iter().take_while(|region| region.start < start).count();
        let index = self.next;
        self.regions.get_mut(index).filter(|region| region.start == start).map(|region| (index, region))
    }

    /// The region after the last one found, if it starts before `end`.
    fn next_before(&mut self, end: Address) -> Option<&mut Region> {
        let next = self.regions.get(self.next + 1)?;
        self.next += usize::from(next.start < end);
        (next.start < end).then(|| &mut self.regions[self.next])
    }
}
