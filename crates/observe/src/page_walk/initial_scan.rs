//! The first scan of an observation: the mappings, and what is present.
//!
//! Owns: one read of the mappings and of all page tables. Never touches: accessed bits.

use std::time::Instant;

use heat::units::{Address, HUGE_PAGE, Nanos, Pages};
use heat::{Cost, Heat, Mapping, Meaning, Region, TrackerKind};
use kernel::target::Target;
use kernel::{Root, maps, process};

use crate::mapped::{self, RegionCollector};
use crate::node_policy;
use crate::page_walk::reader::{Entries, PageTableReader};
use crate::page_walk::{ObserveError, resident};

/// The most threads whose stacks are looked for, oldest first; each takes three system calls. Beyond them a stack is known by its flags only: those of
/// the main thread and, since Linux 6.7, of all. Before that, the stack of a younger thread counts as any other memory and may be promoted, which only
/// wastes what it never touches.
const MOST_STACKS: usize = 4096;

/// The state before anything is cleared.
pub(super) struct InitialScan {
    /// A different one at a later read means that the process has called exec.
    pub(super) address_space: Option<u64>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) regions: Vec<Region>,
    /// For each region, how many base pages have their bit set.
    pub(super) accessed: Vec<u32>,
}

impl InitialScan {
    /// Reads the mappings and at most `most_regions`; `cost` accounts for it. `each` gets every region with the mappings, the table that maps it, and
    /// its index among the regions of that table.
    pub(super) fn at(
        root: &Root,
        reader: &mut PageTableReader,
        target: &Target,
        most_regions: usize,
        cost: &mut Cost,
        mut each: impl FnMut(&mut Region, &[Mapping], &Entries<'_>, usize),
    ) -> Result<Self, ObserveError> {
        let (pid, thread) = (target.pid(), crate::living_thread(target)?);
        let lines = maps::read(root, pid)?;
        let stack_pointers = stack_pointers(root, reader, pid)?;
        let ipc_namespace = process::ipc_namespace(root, pid);
        let range = reader.layout.user_space();
        let mut reader = reader.attach(pid, thread)?;
        let mut mappings = mapped::mappings(lines, &reader.mapping_flags(range)?, &stack_pointers, ipc_namespace);
        let asking = Instant::now();
        node_policy::mark_spread(root, pid, &mut mappings)?;
        cost.inspect += Nanos::since(asking);
        let mut collector = RegionCollector::new(pid, most_regions, &mappings, &stack_pointers);
        let mut accessed_pages = Vec::new();
        let reading = Instant::now();
        reader.try_read(range, |table| {
            let (present, accessed) = table.pages.present_and_accessed();
            if present.is_empty() {
                return Ok(());
            }
            for number in 0..table.pages.regions() {
                collector.add(
                    Address(table.start.0 + number as u64 * HUGE_PAGE),
                    present.clone(),
                    table.pages.is_huge(),
                )?;
                accessed_pages.push(accessed.len() as u32);
                let region = collector.regions.last_mut().expect("just added");
                each(region, &mappings, &table.pages, number);
            }
            Ok(())
        })?;
        cost.read += Nanos::since(reading);
        cost.reads += 1;
        let regions = collector.regions;
        Ok(InitialScan { address_space: reader.address_space(), mappings, regions, accessed: accessed_pages })
    }

    /// All base pages.
    pub(super) fn base_pages(&self) -> Pages {
        Pages(self.base().map(|(region, _)| region.present.len() as u64).sum())
    }

    /// The base pages whose bits are set.
    pub(super) fn base_pages_accessed(&self) -> Pages {
        Pages(self.base().map(|(_, accessed)| u64::from(*accessed)).sum())
    }

    fn base(&self) -> impl Iterator<Item = (&Region, &u32)> {
        self.regions.iter().zip(&self.accessed).filter(|(region, _)| !region.huge)
    }

    /// The scan as a heat in which nothing was observed.
    pub(super) fn heat(self, root: &Root, target: &Target, cost: Cost) -> Result<Heat, ObserveError> {
        Ok(Heat {
            address_space: self.address_space,
            rss: resident(root, target.pid())?,
            mappings: self.mappings,
            regions: self.regions,
            cost,
            ..Heat::blank(target.pid(), TrackerKind::PageWalk, Meaning::Walked)
        })
    }
}

/// Ascending.
fn stack_pointers(root: &Root, reader: &mut PageTableReader, pid: u32) -> Result<Vec<Address>, ObserveError> {
    let mut pointers = Vec::new();
    for thread in process::first_threads(root, pid, MOST_STACKS)? {
        match reader.attach(pid, thread).and_then(|mut thread| thread.stack_pointer()) {
            Ok(pointer) => pointers.push(pointer),
            // A thread that has ended meanwhile has no stack any more.
            Err(ObserveError::Exited { .. }) => {}
            Err(ObserveError::Attach { cause, .. }) if cause.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    pointers.sort_unstable();
    Ok(pointers)
}
