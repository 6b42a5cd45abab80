//! Heat: what a tracker saw of one process during one window.
//!
//! Owns: the one format in which every tracker reports. Never touches: the system, or any judgement of what to do.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clearing::Clearing;
use crate::units::{Address, AddressRange, BASE_PAGE, Bytes, CpuShare, HUGE_PAGE, Nanos, PAGES_PER_REGION, Pages};
use crate::{PageSet, Sample, Walks};

/// What a tracker saw of one process.
#[derive(Clone, Debug)]
pub struct Heat {
    /// The process.
    pub pid: u32,
    /// Distinguishes the program in the process from the next one: a different value later means that it has called exec. None if the tracker cannot
    /// tell.
    pub address_space: Option<u64>,
    /// The tracker that made the observation.
    pub tracker: TrackerKind,
    /// What a set bit means in this observation.
    pub meaning: Meaning,
    /// How accessed bits were cleared, and the reason; None if the tracker cleared none.
    pub clearing: Option<Clearing>,
    /// How long the tracker observed.
    pub window: Nanos,
    /// CPUs that the process kept busy during the window: 0.5 is half of one CPU. None if it could not be told.
    pub busy_cpus: Option<f64>,
    /// The share of the time in which its threads were ready to run that they waited for a processor, 0 to 1: the first 64 threads, as far as they lived
    /// for all of the window. None if the kernel does not tell, or if they were never ready.
    pub waited_share: Option<f64>,
    /// Resident memory, hugetlb pages not counted (`VmRSS`).
    pub rss: Bytes,
    /// The process's mappings, ascending and disjoint.
    pub mappings: Vec<Mapping>,
    /// Every 2 MiB region in which at least one page is present, ascending.
    pub regions: Vec<Region>,
    /// What the observation cost.
    pub cost: Cost,
    /// What is known of the page walks of all observed base pages together.
    pub walks: Walks,
    /// Base pages of shared memory that other processes walked in their windows, each in its own page table: their TLB entries. 0 where only the
    /// process itself was observed.
    pub walked_by_others: u64,
    /// If only a sample was observed: its projection to the whole. Regions outside it are `unobserved`.
    pub sample: Option<Sample>,
}

/// The trackers, by their names for people and in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackerKind {
    /// Accessed bits in the page tables.
    PageWalk,
    /// DAMON on the process's virtual addresses.
    DamonVaddr,
    /// The kernel's marks of idle pages.
    IdlePage,
    /// DAMON on the machine's physical addresses.
    DamonPaddr,
    /// Writes to its own memory that a process observes.
    WriteScan,
    /// Memory accesses sampled by the processor.
    PerfMem,
}

impl fmt::Display for TrackerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What a set bit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    /// The CPU walked the page table for the page: the TLB did not hold it.
    Walked,
    /// The page was accessed; the TLB may have held it, so page walks are at most this.
    Accessed,
    /// The page was written; pages that are only read are not seen.
    Written,
    /// One page of many was sampled, and the others are assumed to be alike.
    Sampled,
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What the observation cost, summed over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Time spent clearing accessed bits.
    pub clear: Nanos,
    /// The longest time that page faults and mmap calls of the target had to wait for one clearing.
    pub longest_stall: Nanos,
    /// Time spent reading page tables.
    pub read: Nanos,
    /// Time spent reading page tables while bits were being cleared.
    #[serde(alias = "glimpse")]
    pub interim_read: Nanos,
    /// How often the page tables were read.
    pub reads: u32,
    /// Time spent querying the kernel about page frames, for growth, and about memory policies.
    pub inspect: Nanos,
    /// CPU time of a kernel thread that observed for us.
    pub kernel: Nanos,
    /// What the program itself loses, approximately: the time that its processors take to set cleared bits again, and the CPU time that it lost
    /// during the observation.
    pub program: Nanos,
}

impl Cost {
    /// Everything that it took of our own time.
    pub fn own(&self) -> Nanos {
        self.clear + self.read + self.interim_read + self.inspect + self.kernel
    }

    /// The rest after a scan with this cost before the next: observing then takes at most this share of a CPU, of ours and of the program's each.
    pub fn rest(&self, share: CpuShare) -> Duration {
        share.rest_after(self.own().max(self.program))
    }
}

/// An amount of memory, and what was seen of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SeenMemory {
    /// Base pages present, those of huge pages included.
    #[serde(rename = "pages_present")]
    pub present: Pages,
    /// Base pages walked at the 100 ms read; a walked huge page counts as 512.
    #[serde(rename = "pages_walked")]
    pub walked: Pages,
    /// Page walks a second.
    pub walks_per_second: f64,
    /// Memory on huge pages, hugetlb included.
    #[serde(rename = "huge_bytes")]
    pub huge: Bytes,
}

impl SeenMemory {
    pub(crate) fn of(walks_per_second: f64, present: &PageSet, walked: &PageSet, huge: Bytes) -> Self {
        let pages = |set: &PageSet| Pages(set.len() as u64);
        Self { walks_per_second, present: pages(present), walked: pages(walked), huge }
    }
}

impl AddAssign for SeenMemory {
    fn add_assign(&mut self, other: Self) {
        self.walks_per_second += other.walks_per_second;
        self.present += other.present;
        self.walked += other.walked;
        self.huge += other.huge;
    }
}

impl Sum for SeenMemory {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

/// One mapping of the process, a line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The addresses it covers.
    pub range: AddressRange,
    /// What backs it, for people: a path, `[heap]`, `[anon: name]`, or empty.
    pub name: String,
    /// Why no page of it may be promoted; None if promoting is possible.
    pub obstacle: Option<Obstacle>,
    /// The part of an object that it maps, if it is shared (MAP_SHARED); None for private memory.
    pub shared: Option<Shared>,
    /// Whether the program requested huge pages (`MADV_HUGEPAGE`).
    pub asked_for: bool,
    /// Whether its memory policy spreads its pages over several memory nodes, or may do so; a huge page would put them on one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread_over_nodes: bool,
    /// Whether programs may run there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// Whether a program serves its page faults or its writes (userfaultfd), as during a migration by postcopy or a snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub userfaultfd: bool,
    /// Whether no memory is reserved for it (`MAP_NORESERVE`), as for virtio-mem.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreserved: bool,
}

impl Mapping {
    /// Whether it can be promoted, or only its alignment prevents that.
    pub fn would_fit(&self) -> bool {
        matches!(self.obstacle, None | Some(Obstacle::Misaligned))
    }
}

/// The part of an object that a shared mapping covers: the object's bytes from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The object.
    pub object: Object,
    /// Bytes of the object before the mapping.
    pub offset: u64,
}

/// Memory or a file that several processes can map (shmem, memfd, SysV, a pool's huge pages), uniquely identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// Major and minor number of the device; each in-memory file system has its own.
    pub device: (u32, u32),
    /// Its inode there; for SysV memory the segment's id.
    pub inode: u64,
    /// For SysV memory the IPC namespace, because each assigns ids independently, alongside the inodes of the same device.
    pub ipc_namespace: Option<u64>,
}

/// Why a mapping, or one region of it, is never promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// A thread's or the process's stack.
    Stack,
    /// The program switched huge pages off for the mapping (`MADV_NOHUGEPAGE`).
    NoHugePage,
    /// Already on reserved pages of a hugetlb pool.
    Hugetlb,
    /// A device or a mapping made by the kernel (`vdso`, `vvar`, PFN maps).
    Special,
    /// Backed by a file that the program may write to.
    File,
    /// Backed by a file that is mapped only for reading, but that the program opened for writing, too.
    FileOpenForWriting,
    /// Backed by a file that is mapped where no huge page fits.
    FileMisaligned,
    /// Backed by a file that is mapped only for reading, where huge pages fit; they come from the page cache, before the program maps it.
    ReadOnlyFile,
    /// Shared memory whose offset in its file is not a multiple of 2 MiB where its address is.
    Misaligned,
    /// No single mapping covers the whole 2 MiB.
    Split,
}

impl Obstacle {
    /// Whether a file's mapping stays on base pages, whatever is done to the page cache.
    pub fn is_of_file(self) -> bool {
        matches!(self, Self::File | Self::FileOpenForWriting | Self::FileMisaligned)
    }
}

/// One aligned 2 MiB of virtual memory. Small, because there are half a million of them in a tebibyte.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Where it starts; a multiple of 2 MiB.
    pub start: Address,
    /// The mapping that holds its first present page, as an index into [`Heat::mappings`]. None if the mapping went away
    /// during the scan.
    pub mapping: Option<u32>,
    /// Why it is never promoted; None if promoting is possible.
    pub obstacle: Option<Obstacle>,
    /// Whether a huge page (of 2 MiB or 1 GiB) already maps it.
    pub huge: bool,
    /// Base pages present: those mapped, the zero page included; 512 where it is huge.
    pub present: PageSet,
    /// Base pages whose bit was set at the read 100 ms after clearing; 512 or none where it is huge. If the caller did not ask which they are
    /// ([`super::Options::which_pages`]), only their number is right, and the first pages represent them.
    pub walked: PageSet,
    /// Base pages whose bit was set at the end of the window; at least those of `walked`.
    pub walked_in_window: u16,
    /// Base pages whose use the tracker could not see; none of them is in `walked`.
    pub unobserved: u16,
    /// Page walks a second, from reads at most 100 ms after clearing.
    pub walks_per_second: f64,
    /// Whether the program was seen to pass along its addresses, walking each page once; such walks cost next to nothing. False where that cannot be
    /// told.
    pub in_order: bool,
    /// Page faults a second that a huge page would save, of all processes that map it; 0 where they were not counted.
    pub faults_per_second: f32,
    /// The memory that promoting would take.
    pub growth: Growth,
    /// Page tables for its base pages that a huge page would free, in all processes that map it: 4 KiB each. Private memory frees none: its page
    /// table is kept in reserve, in case the huge page is split.
    pub page_tables: u16,
    /// For a huge page, an upper bound of accesses a second, 0 if nothing used it; None if the tracker could not, or was not asked to, find out.
    pub at_most_accesses_per_second: Option<f32>,
}

/// The sources of a promotion's growth, in base pages of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Not present today, so not backed (swapped-out pages count here).
    pub unpopulated: u16,
    /// Mapped to the shared zero page.
    pub zero: u16,
    /// Lazily freed (`MADV_FREE`): memory that the program gave back and the kernel has not reclaimed yet.
    pub lazily_freed: u16,
    /// Private, and shared with another process by fork.
    pub shared_by_fork: u16,
    /// Merged by KSM and mapped more than once; on kernels that mark every page as merged, also pages shared by fork.
    pub merged: u16,
}

impl Growth {
    /// All base pages that promoting would take.
    pub fn pages(&self) -> Pages {
        let parts = [self.unpopulated, self.zero, self.lazily_freed, self.shared_by_fork, self.merged];
        Pages(parts.into_iter().map(u64::from).sum())
    }

    /// The memory that promoting would take.
    pub fn bytes(&self) -> Bytes {
        self.pages().bytes()
    }
}

impl Object {
    /// The device as `/proc/PID/maps` writes it: `00:01`.
    pub fn device_name(&self) -> String {
        format!("{:02x}:{:02x}", self.device.0, self.device.1)
    }
}

impl Region {
    /// A region of which only the address is known.
    pub fn blank(start: Address, mapping: Option<u32>) -> Self {
        Self { start, mapping, ..Self::default() }
    }

    /// Its mapping's index in [`Heat::mappings`].
    pub fn mapping_index(&self) -> Option<usize> {
        self.mapping.map(|index| index as usize)
    }

    /// The addresses it covers.
    pub fn range(&self) -> AddressRange {
        AddressRange::new(self.start, Bytes(HUGE_PAGE))
    }

    /// The part that other processes have populated and this one has not touched.
    pub fn populated_elsewhere(&self) -> Bytes {
        let untouched = PAGES_PER_REGION.saturating_sub(self.present.len());
        Pages(untouched as u64).bytes().saturating_sub(Pages(self.growth.unpopulated.into()).bytes())
    }

    /// All of it.
    pub fn amount(&self) -> SeenMemory {
        let huge = Bytes(if self.huge { HUGE_PAGE } else { 0 });
        SeenMemory::of(self.walks_per_second, &self.present, &self.walked, huge)
    }

    /// The address of one of its base pages.
    pub fn page(&self, page: usize) -> Address {
        Address(self.start.0 + page as u64 * BASE_PAGE)
    }
}

/// A heat without its regions.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of [`Heat`], or what its methods tell")]
pub struct Summary {
    pub pid: u32,
    pub tracker: TrackerKind,
    pub meaning: Meaning,
    pub clearing: Option<Clearing>,
    pub window: Nanos,
    pub busy_cpus: Option<f64>,
    pub waited_share: Option<f64>,
    pub rss: Bytes,
    pub amount: SeenMemory,
    pub unobserved: Pages,
    pub cost: Cost,
    pub walks_at_least_per_second: f64,
    pub scattered: Option<f64>,
    pub sample: Option<Sample>,
}

impl Heat {
    /// Where its regions start.
    pub fn starts(&self) -> impl Iterator<Item = Address> {
        self.regions.iter().map(|region| region.start)
    }

    /// The heat of a process of which nothing was seen.
    pub fn blank(pid: u32, tracker: TrackerKind, meaning: Meaning) -> Self {
        Self {
            pid,
            address_space: None,
            tracker,
            meaning,
            clearing: None,
            window: Nanos(0),
            busy_cpus: None,
            waited_share: None,
            rss: Bytes(0),
            mappings: Vec::new(),
            regions: Vec::new(),
            cost: Cost::default(),
            walks: Walks::default(),
            walked_by_others: 0,
            sample: None,
        }
    }

    /// Everything but the regions, which are added up.
    pub fn summary(&self) -> Summary {
        Summary {
            pid: self.pid,
            tracker: self.tracker,
            meaning: self.meaning,
            clearing: self.clearing,
            window: self.window,
            busy_cpus: self.busy_cpus,
            waited_share: self.waited_share,
            rss: self.rss,
            amount: self.amount(),
            unobserved: self.pages_unobserved(),
            cost: self.cost,
            walks_at_least_per_second: self.walks_at_least_per_second(),
            scattered: self.walks.scattered,
            sample: self.sample,
        }
    }

    /// The mapping that holds a region's first present page; None if it went away during the observation.
    pub fn mapping_of(&self, region: &Region) -> Option<&Mapping> {
        self.mappings.get(region.mapping_index()?)
    }

    /// The memory that is promoted through this process: its resident memory, with what only other processes have populated of shared memory, and
    /// without the objects that another process promotes. A server's first process has touched next to nothing of the buffers that all share.
    pub fn promotable_here(&self, left_to_others: &BTreeSet<Object>) -> Bytes {
        let of_regions = self.regions.iter().filter_map(|region| Some((region, self.mapping_of(region)?)));
        of_regions.fold(self.rss, |memory, (region, mapping)| match mapping.shared {
            Some(shared) if left_to_others.contains(&shared.object) => {
                memory.saturating_sub(Pages(region.present.len() as u64).bytes())
            }
            Some(_) if mapping.obstacle.is_none() => memory + region.populated_elsewhere(),
            _ => memory,
        })
    }

    /// The same program as if none of these obstacles were in the way, as after a restart with other settings; None if none is.
    pub fn as_if_without(&self, obstacles: &[Obstacle]) -> Option<Heat> {
        let is_one = |obstacle: &Option<Obstacle>| obstacle.is_some_and(|obstacle| obstacles.contains(&obstacle));
        let mut heat = self.regions.iter().any(|region| is_one(&region.obstacle)).then(|| self.clone())?;
        let of_regions = heat.regions.iter_mut().map(|region| &mut region.obstacle);
        let all = of_regions.chain(heat.mappings.iter_mut().map(|mapping| &mut mapping.obstacle));
        all.filter(|obstacle| is_one(obstacle)).for_each(|obstacle| *obstacle = None);
        Some(heat)
    }

    /// Page faults a second that huge pages would save.
    pub fn faults_per_second(&self) -> f64 {
        self.regions.iter().map(|region| f64::from(region.faults_per_second)).sum()
    }

    /// Whether a region that starts here is on a huge page.
    pub fn is_huge(&self, start: Address) -> bool {
        let found = self.regions.binary_search_by_key(&start, |region| region.start);
        found.is_ok_and(|index| self.regions[index].huge)
    }

    /// Whether a region that starts here is shared memory.
    pub fn is_shared(&self, start: Address) -> bool {
        let found = self.regions.binary_search_by_key(&start, |region| region.start).ok();
        let mapping = found.and_then(|index| self.mapping_of(&self.regions[index]));
        mapping.is_some_and(|mapping| mapping.shared.is_some())
    }

    /// Whether less than half of the private memory around its present pages is there: what huge pages would add exceeds what they would hold.
    pub fn is_sparse(&self) -> bool {
        let is_private = |region: &&Region| region.obstacle.is_none() && !region.present.is_empty();
        let private = self.regions.iter().filter(is_private).filter(|region| !self.is_shared(region.start));
        let (regions, present) =
            private.fold((0, 0), |(regions, present), region| (regions + 1, present + region.present.len()));
        2 * present < regions * PAGES_PER_REGION
    }

    /// All of it. Where only a sample was observed, it is extrapolated to all base pages.
    pub fn amount(&self) -> SeenMemory {
        let seen: SeenMemory = self.regions.iter().map(Region::amount).sum();
        self.sample.map_or(seen, |sample| SeenMemory {
            walks_per_second: sample.walks_per_second.value,
            walked: Pages(sample.pages_walked.value.round() as u64),
            ..seen
        })
    }

    /// Base pages present, those of huge pages included.
    pub fn pages_present(&self) -> Pages {
        self.amount().present
    }

    /// Base pages walked at the 100 ms read; a walked huge page counts as 512.
    pub fn pages_walked(&self) -> Pages {
        self.amount().walked
    }

    /// The memory covered by the page-table lines that these walked base pages use: caches hold entries eight at a time.
    pub fn footprint(&self) -> Bytes {
        let base = self.regions.iter().filter(|region| !region.huge);
        let seen: u64 = base.map(|region| 8 * region.walked.page_table_lines() as u64).sum();
        Pages((seen as f64 * self.times_observed()) as u64).bytes()
    }

    /// Base pages whose use the tracker could not see.
    pub fn pages_unobserved(&self) -> Pages {
        Pages(self.regions.iter().map(|region| u64::from(region.unobserved)).sum())
    }

    /// Page walks a second of the whole process.
    pub fn walks_per_second(&self) -> f64 {
        self.amount().walks_per_second
    }

    /// Page walks a second on base pages that huge pages could still save.
    pub fn walks_left_per_second(&self) -> f64 {
        let base = self.regions.iter().filter(|region| !region.huge && region.obstacle.is_none());
        base.map(|region| region.walks_per_second).sum::<f64>() * self.times_observed()
    }

    /// Page walks a second that are certain: all of them, where bits mean walks.
    pub fn walks_at_least_per_second(&self) -> f64 {
        match self.meaning {
            Meaning::Walked => self.walks_per_second(),
            // The two sums are rounded differently where all walks are certain.
            _ => (self.walks.at_least_per_second * self.times_observed()).min(self.walks_per_second()),
        }
    }

    /// The ratio of all base pages to those observed: 1 unless only a sample was.
    pub fn times_observed(&self) -> f64 {
        self.sample.map_or(1.0, |sample| sample.factor())
    }

    /// Memory on huge pages, hugetlb included.
    pub fn huge_bytes(&self) -> Bytes {
        self.amount().huge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{MEMFD, at, heat_of, region};

    #[test]
    fn costly_scans_are_rare_scans() {
        let cost = |clear, read, program| Cost { clear, read, program, ..Cost::default() };
        let (millis, share) = (Nanos(1_000_000), CpuShare::default());
        assert_eq!(cost(Nanos(4 * millis.0), Nanos(6 * millis.0), millis).rest(share), Duration::from_secs(1));
        assert_eq!(cost(millis, millis, Nanos(37 * millis.0)).rest(share), Duration::from_millis(3700));
    }

    #[test]
    fn growth_counts_every_part() {
        let growth = Growth { unpopulated: 1, zero: 2, lazily_freed: 4, shared_by_fork: 8, merged: 16 };
        assert_eq!(growth.pages(), Pages(31));
        assert_eq!(growth.bytes(), Bytes(31 * BASE_PAGE));
    }

    #[test]
    fn a_process_has_what_others_populated_of_shared_memory_unless_another_promotes_it() {
        let mut shared = heat_of(vec![region(0, 0.0, 0), region(1, 0.0, 500), Region::blank(at(2), Some(0))]);
        (shared.regions[1].growth.unpopulated, shared.regions[2].growth.unpopulated) = (100, 12);
        shared.rss = Bytes(1000 * BASE_PAGE);
        let own = shared.clone();
        shared.mappings[0].shared = Some(MEMFD);
        let pages = |heat: &Heat, left: &BTreeSet<Object>| heat.promotable_here(left).0 / BASE_PAGE;
        let nothing = BTreeSet::new();
        assert_eq!(pages(&shared, &nothing), 1000 + 400 + 500);
        assert_eq!(pages(&shared, &[MEMFD.object].into()), 1000 - 512 - 12);
        assert_eq!(pages(&own, &nothing), 1000, "private memory is nobody else's");
        shared.mappings[0].obstacle = Some(Obstacle::File);
        assert_eq!(pages(&shared, &nothing), 1000, "the page cache is not its memory");
    }
}
