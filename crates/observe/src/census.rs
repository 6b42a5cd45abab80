//! What the machine's memory is used for, and how recently.
//!
//! Owns: the sample of page frames, and the share of programs' own files in what is mapped. Never touches: any memory.
//!
//! Frames are sampled in blocks of 2 MiB, evenly spread over memory, because it also matters what shares a block: where only unmapped cache is in the
//! way, a huge page costs no more than reading files again.

use std::ops::Range;

use heat::memory_use::{ByUse, MemoryUse};
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE, PAGES_PER_REGION};
use kernel::memory::Meminfo;
use kernel::page_use::{Age, FrameUse, classify, is_clean, spread_heads};
use kernel::smaps::{self, SmapsMapping};
use kernel::{KernelError, Root, iomem};
use serde::{Deserialize, Serialize};

use crate::ObserveError;
use crate::frames::FrameTables;

/// The number of blocks of 2 MiB to sample, or all if there are fewer: 4 GiB of memory, in a fifth of a second.
const MOST_BLOCKS: u64 = 2048;
/// The number of processes whose mappings are read, or all if there are fewer.
const MOST_PROCESSES: usize = 256;

/// What memory is used for. Sizes are projected from a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// The machine's memory, as the kernel counts it.
    pub total: Bytes,
    /// Share of memory that was sampled, 0 to 1.
    pub sampled: f64,
    /// What each use holds, by how recently it was used: one size for each of [`Age::ALL`].
    pub held: ByUse<[Bytes; 4]>,
    /// What cannot be reclaimed at all.
    pub fixed: Fixed,
    /// Free memory.
    pub free: Bytes,
    /// Free memory and clean unmapped cache, by what shares its blocks of 2 MiB.
    pub spare: Spare,
}

/// Free memory and clean unmapped cache, by the most stubborn of what lies in the same blocks of 2 MiB: how much of it huge pages can have, and what
/// keeps them from the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    /// In free blocks: huge pages can have it at once.
    #[serde(rename = "free_blocks_bytes", alias = "free_blocks")]
    pub free_blocks: Bytes,
    /// In blocks that only clean unmapped cache keeps from being free.
    #[serde(rename = "behind_cache_bytes", alias = "behind_cache")]
    pub behind_cache: Bytes,
    /// Beside memory of programs, or cache that must be written first: the kernel has to move or write that.
    #[serde(rename = "beside_movable_bytes", alias = "beside_movable")]
    pub beside_movable: Bytes,
    /// Beside memory that is locked, or not reclaimable for other reasons.
    #[serde(rename = "beside_unevictable_bytes", alias = "beside_unevictable")]
    pub beside_unevictable: Bytes,
    /// Beside memory of the kernel, which cannot be moved: slab, page tables and the rest. Free pages in per-CPU lists
    /// ([`kernel::zones::free_in_cpu_lists`]) cannot be told from it, and count as it.
    #[serde(rename = "beside_kernel_bytes", alias = "beside_kernel")]
    pub beside_kernel: Bytes,
}

impl Spare {
    /// All of it.
    pub fn all(&self) -> Bytes {
        self.free_blocks + self.behind_cache + self.beside_movable + self.beside_unevictable + self.beside_kernel
    }
}

/// Memory that reclaim does not reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Locked by programs, or in ramfs.
    pub unevictable: Bytes,
    /// In pools of huge pages.
    pub hugetlb: Bytes,
    /// The kernel's small objects; some of these it gives up under pressure.
    pub slab: Bytes,
    /// Page tables.
    pub page_tables: Bytes,
    /// The rest: memory of the kernel and its drivers.
    pub kernel: Bytes,
}

impl Census {
    /// Scans a sample. Errors: the kernel lacks the tables of page frames, or hides them (CAP_SYS_ADMIN, CAP_DAC_OVERRIDE).
    pub fn take(root: &Root) -> Result<Self, ObserveError> {
        let (memory, tables) = (Meminfo::read(root)?, FrameTables::open(root)?);
        let blocks = blocks(&iomem::whole_pages(root)?);
        if blocks.is_empty() {
            return Err(ObserveError::HiddenFrames);
        }
        let mut tally = Tally::default();
        for number in spread(blocks.len() as u64) {
            let (mut flags, counts) = tables.bits_and_counts(blocks[number as usize], PAGES_PER_REGION as u64)?;
            spread_heads(&mut flags);
            tally.add(&flags, &counts);
        }
        let sampled = spread(blocks.len() as u64).count() as f64 / blocks.len() as f64;
        Ok(tally.census(memory.total, sampled, ProgramFiles::read(root)?))
    }

    /// What a use holds, regardless of age.
    pub fn held(&self, class: MemoryUse) -> Bytes {
        self.held[class].iter().copied().sum()
    }
}

/// The first frame of every whole block of 2 MiB.
fn blocks(memory: &[Range<u64>]) -> Vec<u64> {
    let of_range = |range: &Range<u64>| {
        (range.start.next_multiple_of(HUGE_PAGE)..range.end / HUGE_PAGE * HUGE_PAGE).step_by(HUGE_PAGE as usize)
    };
    memory.iter().flat_map(of_range).map(|start| start / BASE_PAGE).collect()
}

/// Numbers from 0 to `count`, at most [`MOST_BLOCKS`], evenly spaced.
fn spread(count: u64) -> impl Iterator<Item = u64> {
    let taken = count.min(MOST_BLOCKS);
    (0..taken).map(move |number| number * count / taken)
}

/// Frames counted so far.
#[derive(Default)]
struct Tally {
    held: ByUse<[u64; 4]>,
    free: u64,
    unevictable: u64,
    hugetlb: u64,
    slab: u64,
    page_tables: u64,
    kernel: u64,
    spare: [u64; Beside::COUNT],
}

/// What else is in a block, least stubborn first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Beside {
    Nothing,
    CleanCache,
    Movable,
    Unevictable,
    Kernel,
}

impl Beside {
    const COUNT: usize = Self::Kernel as usize + 1;

    fn of(used: FrameUse, flags: u64) -> Self {
        match used {
            FrameUse::Free => Self::Nothing,
            FrameUse::Of(MemoryUse::UnmappedCache, _) if is_clean(flags) => Self::CleanCache,
            FrameUse::Of(..) => Self::Movable,
            FrameUse::Unevictable => Self::Unevictable,
            FrameUse::Hugetlb | FrameUse::Slab | FrameUse::PageTables | FrameUse::Kernel | FrameUse::Absent => {
                Self::Kernel
            }
        }
    }
}

impl Tally {
    /// Adds a block of 2 MiB.
    fn add(&mut self, flags: &[u64], counts: &[u64]) {
        let (mut spare, mut worst) = (0, Beside::Nothing);
        for (&flags, &mapped) in flags.iter().zip(counts) {
            let used = classify(flags, mapped);
            match used {
                FrameUse::Free => self.free += 1,
                FrameUse::Of(class, age) => self.held[class][age as usize] += 1,
                FrameUse::Unevictable => self.unevictable += 1,
                FrameUse::Hugetlb => self.hugetlb += 1,
                FrameUse::Slab => self.slab += 1,
                FrameUse::PageTables => self.page_tables += 1,
                FrameUse::Kernel | FrameUse::Absent => self.kernel += 1,
            }
            let beside = Beside::of(used, flags);
            spare += u64::from(beside <= Beside::CleanCache);
            worst = worst.max(beside);
        }
        self.spare[worst as usize] += spare;
    }

    fn census(&self, total: Bytes, sampled: f64, files: ProgramFiles) -> Census {
        let all = |frames: u64| Bytes((frames as f64 * BASE_PAGE as f64 / sampled) as u64);
        let mut held = ByUse::of(|class| self.held[class].map(all));
        let mapped = held[MemoryUse::MappedFiles];
        held[MemoryUse::Code] = mapped.map(|bytes| bytes.share(files.code));
        held[MemoryUse::ReadOnlyData] = mapped.map(|bytes| bytes.share(files.read_only));
        for age in Age::ALL.map(|age| age as usize) {
            let of_programs = held[MemoryUse::Code][age] + held[MemoryUse::ReadOnlyData][age];
            held[MemoryUse::MappedFiles][age] = mapped[age].saturating_sub(of_programs);
        }
        let fixed = Fixed {
            unevictable: all(self.unevictable),
            hugetlb: all(self.hugetlb),
            slab: all(self.slab),
            page_tables: all(self.page_tables),
            kernel: all(self.kernel),
        };
        let [free_blocks, behind_cache, beside_movable, beside_unevictable, beside_kernel] = self.spare.map(all);
        let spare = Spare { free_blocks, behind_cache, beside_movable, beside_unevictable, beside_kernel };
        Census { total, sampled, held, fixed, free: all(self.free), spare }
    }
}

/// The share of code and of read-only data in the files that processes map, and of shared memory in everything mapped that is not anonymous; 0 to 1
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramFiles {
    /// Mapped to be executed.
    pub code: f64,
    /// Mapped privately, only to be read.
    pub read_only: f64,
    /// System V and POSIX shared memory, memfd.
    pub shared: f64,
}

impl ProgramFiles {
    /// From the mappings of all processes, or of an evenly spaced selection. Skips processes that this one may not read.
    ///
    /// Errors: `/proc` cannot be listed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let pids = root.numbered_entries("proc")?;
        let step = pids.len().div_ceil(MOST_PROCESSES).max(1);
        let mut sizes = [Bytes(0); 4];
        for pid in pids.into_iter().step_by(step) {
            // It may have ended meanwhile, or belong to another user.
            for mapping in smaps::read(root, pid).unwrap_or_default() {
                if let Some(kind) = kind(&mapping) {
                    sizes[kind] += mapping.proportional;
                }
            }
        }
        let [code, read_only, others, shared] = sizes;
        let files = code + read_only + others;
        let part = |size: Bytes, of: Bytes| if of == Bytes(0) { 0.0 } else { size.0 as f64 / of.0 as f64 };
        Ok(Self { code: part(code, files), read_only: part(read_only, files), shared: part(shared, files + shared) })
    }
}

/// Code, read-only data, another file or shared memory; None for anything else, and where a process may have its own copies.
fn kind(mapping: &SmapsMapping) -> Option<usize> {
    let line = &mapping.line;
    let is_memory = ["/dev/shm/", "/SYSV", "/memfd:", "/dev/zero"].iter().any(|start| line.name.starts_with(start));
    match () {
        () if line.inode == 0 || line.writable && !line.shared => None,
        () if is_memory => Some(3),
        () if line.executable => Some(0),
        () if !line.writable && !line.shared => Some(1),
        () => Some(2),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kernel::page_use::flag;
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = PAGES_PER_REGION;

    /// A machine with these blocks, each with one kind of page, in frames from 1024 on.
    fn machine(blocks: &[(u64, u64)]) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let table = |value: &dyn Fn(&(u64, u64)) -> u64| -> Vec<u8> {
            let frames = blocks.iter().flat_map(|block| std::iter::repeat_n(value(block), BLOCK));
            let unused = std::iter::repeat_n(0, 1024);
            unused.chain(frames).flat_map(u64::to_ne_bytes).collect()
        };
        let end = 0x40_0000 + blocks.len() as u64 * HUGE_PAGE - 1;
        write("proc/iomem", format!("00400000-{end:08x} : System RAM\n").as_bytes());
        write("proc/meminfo", b"MemTotal: 10240 kB\n");
        write("proc/kpageflags", &table(&|block| block.0));
        write("proc/kpagecount", &table(&|block| block.1));
        let smaps = "1000-2000 r-xp 0 8:1 7 /bin/a\nPss: 30 kB\n2000-3000 r--p 0 8:1 7 /bin/a\nPss: 10 kB\n\
                     3000-4000 rw-p 0 8:1 7 /bin/a\nPss: 99 kB\n4000-5000 r--s 0 8:1 8 /data\nPss: 60 kB\n\
                     5000-6000 rw-s 0 0:1 9 /SYSV00000000 (deleted)\nPss: 300 kB\n";
        write("proc/7/smaps", smaps.as_bytes());
        let root = Root::at(tree.path());
        (tree, root)
    }

    #[test]
    fn what_blocks_hold_is_counted() {
        let lru = flag::LRU;
        let (_tree, root) = machine(&[
            (lru | flag::ACTIVE, 0),
            (lru | flag::DIRTY, 0),
            (lru, 2),
            (flag::BUDDY, 0),
            (lru | flag::ANON | flag::REFERENCED | flag::SWAPBACKED, 1),
        ]);
        let census = Census::take(&root).unwrap();
        assert_eq!((census.total, census.sampled), (Bytes(10 << 20), 1.0));
        assert_eq!(census.held[MemoryUse::UnmappedCache], [HUGE_PAGE, 0, HUGE_PAGE, 0].map(Bytes));
        assert_eq!(census.held[MemoryUse::Anonymous], [0, HUGE_PAGE, 0, 0].map(Bytes));
        let files = [MemoryUse::Code, MemoryUse::ReadOnlyData, MemoryUse::MappedFiles].map(|class| census.held(class));
        assert_eq!(files[..2], [0.3, 0.1].map(|part| Bytes(HUGE_PAGE).share(part)));
        assert_eq!(files.into_iter().sum::<Bytes>(), Bytes(HUGE_PAGE));
        let spare = Spare { free_blocks: Bytes(HUGE_PAGE), behind_cache: Bytes(HUGE_PAGE), ..Spare::default() };
        assert_eq!((census.free, census.spare), (Bytes(HUGE_PAGE), spare), "dirty cache stays");
        let parts = ProgramFiles { code: 0.3, read_only: 0.1, shared: 0.75 };
        assert_eq!(ProgramFiles::read(&root).unwrap(), parts, "300 of 400 KiB");
    }

    #[test]
    fn the_most_stubborn_page_of_a_block_decides() {
        let spare = |first: u64, rest: u64| {
            let mut flags = [rest; BLOCK];
            flags[0] = first;
            let mut tally = Tally::default();
            tally.add(&flags, &[0; BLOCK]);
            tally.spare
        };
        let (cache, free, all) = (flag::LRU, flag::BUDDY, BLOCK as u64);
        assert_eq!(spare(free, free), [all, 0, 0, 0, 0]);
        assert_eq!([spare(cache, cache), spare(cache, free), spare(free, cache)], [[0, all, 0, 0, 0]; 3]);
        let (anonymous, locked) = (cache | flag::ANON | flag::SWAPBACKED, cache | flag::UNEVICTABLE);
        assert_eq!([spare(anonymous, free), spare(cache | flag::DIRTY, cache)], [[0, 0, all - 1, 0, 0]; 2]);
        assert_eq!(spare(locked, free), [0, 0, 0, all - 1, 0]);
        assert_eq!([spare(flag::SLAB, cache), spare(0, free)], [[0, 0, 0, 0, all - 1]; 2]);
        assert_eq!(spare(free, flag::SLAB), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn who_may_not_read_is_told() {
        let (tree, root) = machine(&[(flag::BUDDY, 0)]);
        fs::write(tree.path().join("proc/iomem"), "00000000-00000000 : System RAM\n").unwrap();
        assert!(matches!(Census::take(&root), Err(ObserveError::HiddenFrames)));
        fs::remove_file(tree.path().join("proc/kpageflags")).unwrap();
        assert!(matches!(Census::take(&root), Err(ObserveError::FrameTable { .. })));
    }

    #[test]
    fn a_large_machine_is_sampled_evenly() {
        let taken: Vec<u64> = spread(1_000_000).collect();
        assert_eq!((taken.len() as u64, taken[0]), (MOST_BLOCKS, 0));
        assert!(taken.windows(2).all(|pair| (488..=489).contains(&(pair[1] - pair[0]))));
        assert_eq!(spread(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spread(0).count(), 0);
    }

    #[test]
    fn only_whole_blocks_are_read() {
        assert_eq!(blocks(&[0x1000..0x9f000, 0x100000..0x600000]), [0x200, 0x400]);
    }

    proptest! {
        #[test]
        fn no_frame_is_lost(flags in prop::collection::vec(0..1u64 << 34, 1..64)) {
            let mut tally = Tally::default();
            tally.add(&flags, &vec![0; flags.len()]);
            let census = tally.census(Bytes(0), 1.0, ProgramFiles { code: 0.3, read_only: 0.3, shared: 0.3 });
            let Fixed { unevictable, hugetlb, slab, page_tables, kernel } = census.fixed;
            let fixed: Bytes = [unevictable, hugetlb, slab, page_tables, kernel].into_iter().sum();
            let held: Bytes = MemoryUse::ALL.iter().map(|&class| census.held(class)).sum();
            prop_assert_eq!(fixed + held + census.free, Bytes(flags.len() as u64 * BASE_PAGE));
        }
    }
}
