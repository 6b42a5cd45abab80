//! What the preload library has done with a program's memory, in counters that the program's processes share with the launcher.
//!
//! Owns: the layout of the counters and the file that holds them. Never touches: what the counts are used for.
//!
//! The launcher creates the file ([`CountsFile::create`]) and names it in `HUGEPILOT_COUNTS`; each process that loads the library maps
//! it ([`PlacementCounts::attach`]) and adds to it. Counters only rise, so a process's counts remain after it has ended.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, memfd_create, open};
use rustix::mm::ProtFlags;

use crate::memory::SharedMapping;

/// The first eight bytes of the file.
const MAGIC: [u8; 8] = *b"hugecnts";
/// Incremented with each change of the layout.
const VERSION: u32 = 3;
/// Ranges that the file has room for.
const MOST_RANGES: usize = 1024;
/// Bits of a recorded range for its length in pages; the others are for its first page. No address has more than 47 bits.
const LENGTH_BITS: u32 = 29;
const PAGE: u64 = 4096;

macro_rules! counters {
    ($($(#[$says:meta])* $name:ident,)*) => {
        /// The file's contents: a header, an 8-byte counter for each name in native byte order, and ranges.
        #[derive(Debug)]
        #[repr(C)]
        pub struct PlacementCounts {
            magic: [u8; 8],
            version: u32,
            /// Size of the whole, in bytes.
            size: u32,
            $($(#[$says])* pub $name: AtomicU64,)*
            /// How many ranges were recorded, those that had no room included.
            ranges_recorded: AtomicU64,
            /// Memory for which transparent huge pages were requested, as it was mapped.
            ranges: [AtomicU64; MOST_RANGES],
        }

        /// The counters' values at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$says])* pub $name: u64,)*
        }

        impl PlacementCounts {
            /// The current values.
            pub fn tally(&self) -> Tally {
                Tally { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Tally {
            /// Each counter with its name, in the order of the file.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Processes that loaded the library, not counting children that were forked without exec.
    processes,
    /// Calls of mmap for 2 MiB or more of private memory, which the library could place.
    mmap_eligible_calls,
    /// Bytes that these calls requested: the sum of the three that follow.
    mmap_eligible_bytes,
    /// On reserved huge pages.
    mmap_hugetlb_bytes,
    /// With transparent huge pages requested; smaps tells whether they materialised.
    mmap_thp_bytes,
    /// Left as the program requested.
    mmap_ordinary_bytes,
    /// Why not from the pool: it had too few free pages, or a group's limit was reached.
    pool_empty_bytes,
    /// Why not from the pool: too small, or the remainder beyond whole huge pages.
    pool_too_small_bytes,
    /// Why not at all: no room in the address space (RLIMIT_AS, strict overcommit, too many mappings).
    address_space_limit_bytes,
    /// Why not from the pool, or not at all: the kernel refused (seccomp, no huge pages in this kernel, no such page size).
    refused_bytes,
    /// Why not at all: a small mapping for a thread other than the first, which most likely uses little of it.
    thread_small_bytes,
    /// Copied for forked children, because memory from the pool cannot be shared with them safely.
    fork_copied_bytes,
    /// Not copied for forked children, for lack of memory or because threads use it meanwhile: they share it with their parent, and need
    /// pool pages to write to it.
    fork_shared_bytes,
    /// Unmapped by the program, but kept because the rest of the huge page is in use.
    kept_bytes,
    /// Memory that keeps access rights that the program removed, because the rest of the huge page has them.
    widened_bytes,
    /// Segments of System V shared memory of 2 MiB and more that were created.
    shm_eligible_bytes,
    /// Of these, on reserved huge pages.
    shm_hugetlb_bytes,
    /// Of these, with transparent huge pages requested when they were attached.
    shm_thp_bytes,
    /// Program text in whole, aligned 2 MiB.
    text_eligible_bytes,
    /// Of that, on huge pages of the file.
    text_of_file_bytes,
    /// Of that, replaced by a copy on huge pages.
    text_copied_bytes,
}

impl PlacementCounts {
    /// Records that transparent huge pages were requested for this memory. Beyond the room in the file it only counts.
    pub fn record(&self, start: usize, length: usize) {
        let index = self.ranges_recorded.fetch_add(1, Ordering::Relaxed);
        if let Some(range) = usize::try_from(index).ok().and_then(|index| self.ranges.get(index)) {
            let (first, pages) = (start as u64 / PAGE, (length as u64).div_ceil(PAGE));
            range.store(first << LENGTH_BITS | pages.min((1 << LENGTH_BITS) - 1), Ordering::Relaxed);
        }
    }

    /// The recorded ranges of addresses, of all processes; None if there was no room for all.
    fn recorded(&self) -> Option<Vec<Range<u64>>> {
        let count = usize::try_from(self.ranges_recorded.load(Ordering::Relaxed)).ok()?;
        let words = self.ranges.get(..count)?.iter().map(|range| range.load(Ordering::Relaxed));
        let range = |word: u64| {
            let (first, pages) = (word >> LENGTH_BITS, word & ((1 << LENGTH_BITS) - 1));
            first * PAGE..(first + pages) * PAGE
        };
        Some(words.map(range).collect())
    }

    /// Maps a file of counters for the lifetime of this process. None if the file does not exist, cannot be mapped, or is of another
    /// version. Allocates nothing.
    pub fn attach(path: &CStr) -> Option<&'static Self> {
        // Do not wait for the other end, in case it is a pipe.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(path, flags, Mode::empty()).ok()?;
        let about = fstat(&file).ok()?;
        let whole = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile
            && u64::try_from(about.st_size).ok()? == size_of::<Self>() as u64;
        let mapped = whole.then(|| map(&file).ok())??;
        // SAFETY: a valid file stays mapped until the process ends, and an invalid one is not read any more; all fields are integers,
        // for which any bytes are a value, and those that others change are atomic.
        let counts: &'static Self = unsafe { mapped.start.cast().as_ref() };
        let known = counts.magic == MAGIC && counts.version == VERSION && counts.size as usize == size_of::<Self>();
        known.then(|| {
            std::mem::forget(mapped);
            counts
        })
    }
}

/// The launcher's file of counters, in memory. It lasts as long as this value and any process's mapping of it.
#[derive(Debug)]
pub struct CountsFile {
    file: OwnedFd,
    counts: SharedMapping,
}

impl CountsFile {
    /// A new file, all counters zero. It is sealed against shrinking, which would kill every process that has it mapped (SIGBUS).
    ///
    /// Errors: no descriptors or no memory are left.
    pub fn create() -> io::Result<Self> {
        let file = memfd_create("hugepilot-counts", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut contents = [0; size_of::<PlacementCounts>()];
        contents[..8].copy_from_slice(&MAGIC);
        contents[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        contents[12..16].copy_from_slice(&(size_of::<PlacementCounts>() as u32).to_ne_bytes());
        File::from(file.try_clone()?).write_all(&contents)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let counts = map(&file)?;
        Ok(Self { file, counts })
    }

    /// The path for `HUGEPILOT_COUNTS`, valid for this user's processes as long as this process lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The counts up to now.
    pub fn tally(&self) -> Tally {
        self.contents().tally()
    }

    /// Ranges of addresses for which transparent huge pages were requested, of all processes, also of those that have ended or unmapped them; None
    /// if there was no room for all.
    pub fn recorded(&self) -> Option<Vec<Range<u64>>> {
        self.contents().recorded()
    }

    fn contents(&self) -> &PlacementCounts {
        // SAFETY: mapped until drop; as in `PlacementCounts::attach`.
        unsafe { self.counts.start.cast().as_ref() }
    }
}

// SAFETY: what others change in it is atomic.
unsafe impl Sync for CountsFile {}

/// The file must be as long as [`PlacementCounts`].
fn map(file: impl AsFd) -> io::Result<SharedMapping> {
    SharedMapping::of(file, size_of::<PlacementCounts>(), ProtFlags::READ | ProtFlags::WRITE)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn attach(path: &std::path::Path) -> Option<&'static PlacementCounts> {
        PlacementCounts::attach(&CString::new(path.as_os_str().as_bytes()).unwrap())
    }

    #[test]
    fn what_is_counted_there_shows_here() {
        let file = CountsFile::create().unwrap();
        assert_eq!(file.tally(), Tally::default());
        let counts = attach(&file.path()).unwrap();
        counts.mmap_thp_bytes.fetch_add(5, Ordering::Relaxed);
        attach(&file.path()).unwrap().mmap_thp_bytes.fetch_add(6, Ordering::Relaxed);
        counts.text_copied_bytes.fetch_add(1, Ordering::Relaxed);
        let tally = file.tally();
        assert_eq!((tally.mmap_thp_bytes, tally.text_copied_bytes, tally.pool_empty_bytes), (11, 1, 0));
        let named: Vec<_> = tally.named().filter(|(_, value)| *value > 0).collect();
        assert_eq!(named, [("mmap_thp_bytes", 11), ("text_copied_bytes", 1)]);
        assert_eq!(size_of::<PlacementCounts>(), 16 + 8 * (tally.named().count() + 1 + MOST_RANGES));
    }

    #[test]
    fn ranges_are_recorded_as_long_as_there_is_room() {
        let file = CountsFile::create().unwrap();
        assert_eq!(file.recorded(), Some(Vec::new()));
        let counts = attach(&file.path()).unwrap();
        counts.record(0x7fff_ffff_f000, 4096);
        counts.record(2 << 20, (1 << 40) + 1);
        let highest = 0x7fff_ffff_f000..0x8000_0000_0000;
        assert_eq!(file.recorded(), Some(vec![highest, 2 << 20..(2 << 20) + (1 << 40) + 4096]));
        (2..MOST_RANGES).for_each(|_| counts.record(0, 1));
        assert_eq!(file.recorded().map(|ranges| ranges.len()), Some(MOST_RANGES));
        counts.record(0, 1);
        assert_eq!(file.recorded(), None);
    }

    #[test]
    fn nobody_can_cut_it_short() {
        let file = CountsFile::create().unwrap();
        let opened = File::options().write(true).open(file.path()).unwrap();
        assert!(opened.set_len(0).is_err());
    }

    #[test]
    fn what_is_no_such_file_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("hugepilot-counts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("counts");
        assert!(attach(&path).is_none() && attach(&folder).is_none());
        let right = std::fs::read(CountsFile::create().unwrap().path()).unwrap();
        let mut other_version = right.clone();
        other_version[8] += 1;
        let other_version = &other_version[..];
        for (contents, known) in
            [(&right[..], true), (&right[1..], false), (other_version, false), (&right[..0], false)]
        {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(attach(&path).is_some(), known, "{} bytes", contents.len());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
