//! The `page-walk` tracker: clear accessed bits once, read them several times.
//!
//! Owns: the order of steps of one observation. Never touches: placement, nor contents, of the target's memory.
//!
//! After clearing without a TLB flush, the CPU sets a page's bit only when it walks the page table for it, and page walks
//! are what huge pages save. *Bits*: walks (or accesses, where memory is cleared in slices: [`clear`]). *Bias*: a huge
//! page that stays in the TLB looks idle; rates above one walk a page in the first millisecond are estimated. *Cost*:
//! reading ~0.3 ms/GiB of base pages with no lock taken; clearing ~13 ms/GiB.

mod clear;
mod direct_map;
mod frames;
mod rate;
mod reader;
mod survey;

use std::time::{Duration, Instant};

use self::clear::{Cleared, Method};
use self::frames::{Frame, FrameTables, Trait};
use self::rate::Sighting;
use self::reader::{AttachedReader, PageTable, PageTableReader};
use self::survey::RegionCollector;
pub use super::ObserveError;
use super::heat::{Cost, Growth, Heat, Mapping, Meaning, Region};
use super::{Options, Tracker};
use crate::kernel::{Root, maps, process};
use crate::stop::Stop;
use crate::target::Target;
use crate::units::{Address, AddressRange, Bytes, Nanos, PAGES_PER_REGION, Pages};

const NAME: &str = "page-walk";

/// Delays after clearing at which the page tables are read; rates rest on these.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
];
/// The end of the lower half of the address space with 5-level page tables.
const USER_SPACE: AddressRange = AddressRange { start: Address(0), end: Address(1 << 56) };
/// The same with 4 levels.
const USER_SPACE_FOUR_LEVELS: AddressRange = AddressRange { start: Address(0), end: Address(1 << 47) };
/// Frames gathered before the kernel is asked about them: 16 MiB of memory.
const FRAMES_AT_ONCE: usize = 1 << 20;

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

/// The tracker, ready to look at any process.
pub struct PageWalk {
    root: Root,
    reader: PageTableReader,
    frames: FrameTables,
}

impl PageWalk {
    /// Loads the eBPF programs and finds the kernel's direct map, proven on memory of our own.
    ///
    /// Errors: a capability or ability of the kernel is missing; the message names it.
    pub fn new() -> Result<Self, ObserveError> {
        let root = Root::host();
        let mut reader = PageTableReader::load()?;
        reader.layout = direct_map::find(&mut reader, &root)?;
        let frames = FrameTables::open(&root)?;
        Ok(Self { root, reader, frames })
    }

    fn stack_pointers(&mut self, pid: u32) -> Result<Vec<Address>, ObserveError> {
        let mut pointers = Vec::new();
        for thread in process::threads(&self.root, pid)? {
            match self.reader.attach(pid, thread).and_then(|mut thread| thread.stack_pointer()) {
                Ok(pointer) => pointers.push(pointer),
                // A thread that has ended meanwhile has no stack any more.
                Err(ObserveError::Exited { .. }) => {}
                Err(ObserveError::Attach { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pointers)
    }

    /// What is mapped where; `cost` takes the reading.
    fn look_once(&mut self, target: &Target, cost: &mut Cost) -> Result<FirstLook, ObserveError> {
        let (pid, thread) = (target.pid(), target.living_thread()?);
        let lines = maps::read(&self.root, pid)?;
        let stack_pointers = self.stack_pointers(pid)?;
        let range = self.reader.layout.user_space();
        let mut reader = self.reader.attach(pid, thread)?;
        let mappings = survey::mappings(lines, &reader.mapping_flags(range)?, &stack_pointers);
        let mut collector = RegionCollector::new(&mappings, &stack_pointers);
        timed_read(&mut reader, cost, range, |table| collector.add(&table))?;
        let regions = collector.regions;
        Ok(FirstLook { address_space: reader.address_space(), mappings, regions })
    }
}

/// What is there before anything is cleared.
struct FirstLook {
    /// Another one at a later read means that the process has called exec.
    address_space: Option<u64>,
    mappings: Vec<Mapping>,
    regions: Vec<Region>,
}

impl Tracker for PageWalk {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, target: &Target, options: &Options, stop: &Stop) -> Result<Heat, ObserveError> {
        let started = Instant::now();
        let pid = target.pid();
        let mut cost = Cost::default();
        let busy_before = process::cpu_time(&self.root, pid)?;
        let FirstLook { address_space, mappings, regions } = self.look_once(target, &mut cost)?;
        let base_pages = regions.iter().filter(|region| !region.huge).map(|region| region.present.len() as u64).sum();
        let method = Method::choose(Pages(base_pages), options.allow_stall);
        let thread = target.living_thread()?;
        let mut watch = Watch {
            layout: self.reader.layout,
            reader: self.reader.attach(pid, thread)?.expecting(address_space),
            sightings: vec![[Sighting::default(); DELAYS.len()]; regions.len()],
            regions,
            cost,
        };
        for batch in clear::batches(method, &survey::spans(&watch.regions, &mappings)) {
            let cleared = clear::clear(&self.root, target.handle(), method, &batch)?;
            watch.follow(&batch, &cleared, target, stop)?;
        }
        wait_until(started + options.window.duration(), target, stop)?;
        watch.read_end_of_window()?;
        watch.measure_growth(&self.frames)?;
        let elapsed = started.elapsed();
        let busy = process::cpu_time(&self.root, pid)?.0.saturating_sub(busy_before.0);
        Ok(Heat {
            pid,
            tracker: NAME,
            meaning: method.meaning(),
            window: Nanos::from_duration(elapsed),
            busy_cpus: Some(Nanos(busy).seconds() / elapsed.as_secs_f64()),
            rss: resident(&self.root, pid)?,
            regions: watch.rated(),
            cost: watch.cost,
            mappings,
        })
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        let mut cost = Cost::default();
        let FirstLook { mappings, regions, .. } = self.look_once(target, &mut cost)?;
        Ok(Heat {
            pid: target.pid(),
            tracker: NAME,
            meaning: Meaning::Walked,
            window: Nanos(0),
            busy_cpus: None,
            rss: resident(&self.root, target.pid())?,
            mappings,
            regions,
            cost,
        })
    }
}

/// Waits, unless stopping is requested or the target ends (noticed within a second).
fn wait_until(deadline: Instant, target: &Target, stop: &Stop) -> Result<(), ObserveError> {
    loop {
        stop.sleep_until(deadline.min(Instant::now() + Duration::from_secs(1)));
        if stop.requested() {
            return Err(ObserveError::Stopped);
        }
        if target.handle().has_exited() {
            return Err(ObserveError::Exited { pid: target.pid() });
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// Resident memory.
fn resident(root: &Root, pid: u32) -> Result<Bytes, ObserveError> {
    Ok(process::Status::read(root, pid)?.vm_rss)
}

/// Reads and accounts for the time.
fn timed_read(
    reader: &mut AttachedReader<'_>,
    cost: &mut Cost,
    range: AddressRange,
    visit: impl FnMut(PageTable<'_>),
) -> Result<(), ObserveError> {
    let started = Instant::now();
    reader.read(range, visit)?;
    cost.read = cost.read + Nanos::from_duration(started.elapsed());
    cost.reads += 1;
    Ok(())
}

/// One observation under way.
struct Watch<'a> {
    reader: AttachedReader<'a>,
    layout: Layout,
    regions: Vec<Region>,
    /// For each region, what was seen at each delay.
    sightings: Vec<[Sighting; DELAYS.len()]>,
    cost: Cost,
}

impl Watch<'_> {
    /// Reads one batch at growing delays after it was cleared.
    fn follow(
        &mut self,
        batch: &[AddressRange],
        cleared: &Cleared,
        target: &Target,
        stop: &Stop,
    ) -> Result<(), ObserveError> {
        self.cost.clear = self.cost.clear + cleared.took;
        self.cost.longest_stall = self.cost.longest_stall.max(cleared.longest_stall);
        let Some((first, last)) = batch.first().zip(batch.last()) else { return Ok(()) };
        let range = AddressRange { start: first.start.region(), end: last.end.region_up() };
        let since = Instant::now();
        for (number, delay) in DELAYS.into_iter().enumerate() {
            wait_until(since + delay, target, stop)?;
            let is_last = number + 1 == DELAYS.len();
            let sightings = &mut self.sightings;
            let mut at = Cursor::new(&mut self.regions);
            timed_read(&mut self.reader, &mut self.cost, range, |table| {
                let Some((index, region)) = at.find(table.start) else { return };
                let Some(cleared_at) = cleared.at(first_byte(region)) else { return };
                let (present, accessed) = table.pages.present_and_accessed();
                let walked = if region.huge { u32::from(!accessed.is_empty()) } else { accessed.len() as u32 };
                let delay = Nanos(table.read_at.0.saturating_sub(cleared_at.0));
                sightings[index][number] = Sighting { delay, walked };
                if is_last {
                    region.present = present;
                    region.walked = accessed;
                    // A giant page has one bit for 512 regions; the first one carries its walks.
                    for _ in 1..table.pages.regions() {
                        if let Some((_, region)) = at.next() {
                            region.walked = accessed;
                        }
                    }
                }
            })?;
        }
        Ok(())
    }

    /// What was walked by the end of the window.
    fn read_end_of_window(&mut self) -> Result<(), ObserveError> {
        let mut at = Cursor::new(&mut self.regions);
        timed_read(&mut self.reader, &mut self.cost, self.layout.user_space(), |table| {
            if let Some((_, region)) = at.find(table.start) {
                region.walked_in_window = table.pages.present_and_accessed().1.len() as u16;
            }
        })
    }

    /// Finds out what promoting each walked region would take.
    fn measure_growth(&mut self, frame_tables: &FrameTables) -> Result<(), ObserveError> {
        let started = Instant::now();
        let mut frames: Vec<Frame> = Vec::new();
        let mut growth = vec![Growth::default(); self.regions.len()];
        let mut failed = None;
        let mut at = Cursor::new(&mut self.regions);
        let layout = self.layout;
        self.reader.read(layout.user_space(), |table| {
            let Some((index, region)) = at.find(table.start) else { return };
            if failed.is_some() || region.huge || region.obstacle.is_some() || region.walked.is_empty() {
                return;
            }
            let (present, _) = table.pages.present_and_accessed();
            let zero = table.pages.special();
            growth[index].unpopulated = (PAGES_PER_REGION - present.len()) as u16;
            growth[index].zero = zero.len() as u16;
            let counted = table.pages.frames(layout).filter(|&(page, _)| !zero.contains(page));
            frames.extend(counted.map(|(_, number)| Frame { number, owner: index as u32 }));
            if frames.len() >= FRAMES_AT_ONCE {
                failed = add_traits(frame_tables, &mut frames, &mut growth).err();
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        add_traits(frame_tables, &mut frames, &mut growth)?;
        for (region, growth) in self.regions.iter_mut().zip(growth) {
            region.growth = growth;
        }
        self.cost.inspect = self.cost.inspect + Nanos::from_duration(started.elapsed());
        Ok(())
    }

    /// The regions with their walk rates.
    fn rated(&mut self) -> Vec<Region> {
        let mut regions = std::mem::take(&mut self.regions);
        for (region, sightings) in regions.iter_mut().zip(&self.sightings).filter(|(region, _)| !region.huge) {
            region.walks_per_second = rate::walks_per_second(region.present.len() as u32, sightings);
        }
        let mut huge: Vec<(&mut Region, &[Sighting])> =
            regions.iter_mut().zip(self.sightings.iter().map(|each| &each[..])).filter(|(r, _)| r.huge).collect();
        rate::share_among_huge(&mut huge);
        regions
    }
}

/// Asks about the frames gathered so far, counts their traits, and empties the list.
fn add_traits(tables: &FrameTables, frames: &mut Vec<Frame>, growth: &mut [Growth]) -> Result<(), ObserveError> {
    tables.inspect(frames, |owner, found| {
        let growth = &mut growth[owner as usize];
        match found {
            Trait::LazilyFreed => growth.lazily_freed += 1,
            Trait::SharedByFork => growth.shared_by_fork += 1,
            Trait::Merged => growth.merged += 1,
        }
    })?;
    frames.clear();
    Ok(())
}

/// The first address of a region at which something is present: clearing may have covered only a part of the region.
fn first_byte(region: &Region) -> Address {
    region.present.iter().next().map_or(region.start, |page| region.page(page))
}

/// Walks along the regions as page tables come by in ascending order.
struct Cursor<'a> {
    regions: &'a mut [Region],
    next: usize,
}

impl<'a> Cursor<'a> {
    fn new(regions: &'a mut [Region]) -> Self {
        Self { regions, next: 0 }
    }

    /// The region that starts here, if it was there at the first look.
    fn find(&mut self, start: Address) -> Option<(usize, &mut Region)> {
        self.next += self.regions[self.next..].iter().take_while(|region| region.start < start).count();
        let index = self.next;
        self.regions.get_mut(index).filter(|region| region.start == start).map(|region| (index, region))
    }

    /// The region after the one found last.
    fn next(&mut self) -> Option<(usize, &mut Region)> {
        self.next = (self.next + 1).min(self.regions.len());
        self.regions.get_mut(self.next).map(|region| (self.next, region))
    }
}
