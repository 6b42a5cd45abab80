//! What the kernel says about ranges of memory: `PAGEMAP_SCAN` (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst), and writes tracked
//! by asynchronous write protection (userfaultfd, Documentation/admin-guide/mm/userfaultfd.rst).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};

use crate::answer::checked;
use crate::faults;

/// Page category bits (`include/uapi/linux/fs.h`).
pub mod category {
    /// Written since the page was write-protected.
    pub const WRITTEN: u64 = 1 << 1;
    /// Backed by a file.
    pub const FILE: u64 = 1 << 2;
    /// Present in memory.
    pub const PRESENT: u64 = 1 << 3;
    /// The shared zero page.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by one entry of 2 MiB or more.
    pub const HUGE: u64 = 1 << 6;
}

/// Adjacent pages that are alike: start, end (exclusive), and which of the requested categories they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PageRun {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Bits of [`category`].
    pub categories: u64,
}

/// `struct pm_scan_arg`
#[derive(Default)]
#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;
const SCAN_PROTECT_MATCHING: u64 = 1;
const SCAN_CHECK_PROTECTED: u64 = 2;
const REGISTER_MODE_WP: u64 = 1 << 1;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;

/// Runs returned by one call.
const RUNS: usize = 1024;

/// Passes on, in ascending order, the runs of pages of a process from `start` to `end` that have any of the categories.
///
/// Errors: `ENOTTY` the kernel is older than 6.7, `EACCES` the process belongs to another user, `ESRCH` it has ended.
pub fn scan(pid: u32, start: u64, end: u64, any_of: u64, each: impl FnMut(PageRun)) -> io::Result<()> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let argument = ScanArgument { start, end, category_anyof_mask: any_of, return_mask: any_of, ..Default::default() };
    scan_with(&pagemap, argument, &mut vec![PageRun::default(); RUNS], each)
}

/// Whether any page of this process from `start` to `end` is mapped by an entry of 2 MiB or more. Allocates nothing.
///
/// Errors: as [`scan`].
pub fn any_huge_here(start: u64, end: u64) -> io::Result<bool> {
    let pagemap = open(c"/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (any_of, mut any) = (category::HUGE, false);
    let argument = ScanArgument { start, end, category_anyof_mask: any_of, return_mask: any_of, ..Default::default() };
    scan_with(&pagemap, argument, &mut [PageRun::default()], |_| any = true)?;
    Ok(any)
}

/// Whether any page of a process from `start` to `end` is mapped by an entry of 2 MiB or more.
///
/// Errors: as [`scan`].
pub fn any_huge(pid: u32, start: u64, end: u64) -> io::Result<bool> {
    let mut any = false;
    scan(pid, start, end, category::HUGE, |_| any = true)?;
    Ok(any)
}

fn scan_with(
    pagemap: &impl AsFd,
    mut argument: ScanArgument,
    runs: &mut [PageRun],
    mut each: impl FnMut(PageRun),
) -> io::Result<()> {
    argument.size = size_of::<ScanArgument>() as u64;
    argument.vec = runs.as_mut_ptr() as u64;
    argument.vec_len = runs.len() as u64;
    while argument.start < argument.end {
        // SAFETY: the argument has the size and layout that the kernel expects, and `vec` has room for `vec_len` runs, for which any bit
        // pattern is a value.
        let found = checked(unsafe { libc::ioctl(pagemap.as_fd().as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) })?;
        let found = (found as usize).min(runs.len());
        runs[..found].iter().for_each(|&run| each(run));
        // The kernel's own `walk_end` is stale if it had to flush its buffer of 512 runs on the way (seen on 6.18): continuing from there
        // yields runs twice. If there was room for more runs, the whole range was walked.
        argument.start = if found < runs.len() { argument.end } else { runs[found - 1].end };
    }
    Ok(())
}

/// Tracks which pages of this process's own memory are written, without any privilege, and without a fault that user space handles.
#[derive(Debug)]
pub struct WriteWatch {
    /// Write protection ends when it is closed.
    faults: OwnedFd,
    pagemap: File,
}

impl WriteWatch {
    /// Prepares to track. Errors: `ENOSYS`, `EINVAL` the kernel is older than 6.7, `EPERM` forbidden (seccomp).
    pub fn new() -> io::Result<Self> {
        let faults = faults::open(FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | FEATURE_WP_HUGETLBFS_SHMEM)?;
        Ok(Self { faults, pagemap: File::open("/proc/self/pagemap")? })
    }

    /// Tracks memory of this process until it is unmapped or this value is dropped; all of it counts as not written. Memory that is
    /// tracked already may be added again.
    ///
    /// Errors: `EINVAL` nothing is mapped there, or it is of a kind that cannot be protected; `EBUSY` another userfaultfd has it.
    pub fn add(&self, start: u64, len: u64) -> io::Result<()> {
        // Asynchronous protection changes no contents, and a write to protected memory simply proceeds.
        faults::register(&self.faults, start, len, REGISTER_MODE_WP)?;
        self.take_written(start, len, |_| ())
    }

    /// Stops tracking this part, so the kernel may put it on huge pages. Errors: `EINVAL` not all of it is tracked.
    pub fn remove(&self, start: u64, len: u64) -> io::Result<()> {
        faults::unregister(&self.faults, start, len)
    }

    /// Passes on, in ascending order, the runs of pages written since the last call, and protects them again.
    ///
    /// Errors: `EPERM` something there is not tracked, such as a mapping made meanwhile; the record of writes may be lost.
    pub fn take_written(&self, start: u64, len: u64, each: impl FnMut(PageRun)) -> io::Result<()> {
        let argument = ScanArgument {
            flags: SCAN_PROTECT_MATCHING | SCAN_CHECK_PROTECTED,
            start,
            end: start + len,
            category_mask: category::WRITTEN,
            return_mask: category::WRITTEN,
            ..Default::default()
        };
        scan_with(&self.pagemap, argument, &mut vec![PageRun::default(); RUNS], each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::AlignedMemory;

    const PAGE: usize = 4096;

    fn pages(memory: &AlignedMemory, run: PageRun) -> std::ops::Range<usize> {
        let page = |address: u64| (address - memory.address()) as usize / PAGE;
        page(run.start)..page(run.end)
    }

    /// None where the kernel is too old.
    fn supported<T>(result: io::Result<T>) -> Option<T> {
        match result {
            Err(error) if [libc::ENOTTY, libc::EINVAL, libc::ENOSYS].contains(&error.raw_os_error().unwrap_or(0)) => {
                eprintln!("skipped: this kernel has no PAGEMAP_SCAN ({error})");
                None
            }
            result => Some(result.expect("it is offered")),
        }
    }

    #[test]
    fn present_pages_are_found() {
        let mut memory = AlignedMemory::anonymous(64 * PAGE).unwrap();
        for page in [0, 1, 2, 10] {
            memory.bytes_mut()[page * PAGE] = 1;
        }
        let mut found = Vec::new();
        let end = memory.address() + 64 * PAGE as u64;
        let scanned = scan(std::process::id(), memory.address(), end, category::PRESENT, |run| found.push(run));
        if supported(scanned).is_some() {
            let found: Vec<_> = found.into_iter().map(|run| pages(&memory, run)).collect();
            assert_eq!(found, [0..3, 10..11]);
        }
    }

    #[test]
    fn however_many_runs_there_are_each_is_seen_once() {
        for count in [511, 512, 513, 1023, 1024, 1025, 1536, 2100] {
            let mut memory = AlignedMemory::anonymous(2 * count * PAGE).unwrap();
            (0..count).for_each(|run| memory.bytes_mut()[2 * run * PAGE] = 1);
            let (mut found, end) = (Vec::new(), memory.address() + memory.len() as u64);
            let scanned =
                scan(std::process::id(), memory.address(), end, category::PRESENT, |run| found.push(run.start));
            let Some(()) = supported(scanned) else { return };
            let expected: Vec<u64> = (0..count).map(|run| memory.address() + (2 * run * PAGE) as u64).collect();
            assert_eq!(found, expected, "{count} runs");
        }
    }

    #[test]
    fn just_what_was_written_is_seen_and_only_once() {
        let mut memory = AlignedMemory::anonymous(64 * PAGE).unwrap();
        memory.bytes_mut()[5 * PAGE] = 1;
        let Some(watch) = supported(WriteWatch::new()) else { return };
        watch.add(memory.address(), 64 * PAGE as u64).unwrap();
        let written = |memory: &AlignedMemory| {
            let mut found = Vec::new();
            watch.take_written(memory.address(), 64 * PAGE as u64, |run| found.push(pages(memory, run))).unwrap();
            found
        };
        assert_eq!(written(&memory), []);
        memory.bytes_mut()[5 * PAGE] = 2;
        memory.bytes_mut()[20 * PAGE] = 2;
        std::hint::black_box(memory.bytes()[6 * PAGE]);
        assert_eq!(written(&memory), [5..6, 20..21]);
        assert_eq!(written(&memory), []);
        assert_eq!((memory.bytes()[5 * PAGE], memory.bytes()[20 * PAGE]), (2, 2));
    }

    #[test]
    fn what_is_mapped_anew_must_be_added_again() {
        let mut memory = AlignedMemory::anonymous(64 * PAGE).unwrap();
        let Some(watch) = supported(WriteWatch::new()) else { return };
        let (start, len) = (memory.address(), 64 * PAGE as u64);
        watch.add(start, len).unwrap();
        let place = (start as usize + 8 * PAGE) as *mut libc::c_void;
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: it replaces pages of our own mapping, which nobody refers to now, with empty ones of the same kind.
        assert_eq!(unsafe { libc::mmap(place, 8 * PAGE, rights, kind, -1, 0) }, place);
        let error = watch.take_written(start, len, |_| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        memory.bytes_mut()[9 * PAGE] = 1;
        watch.add(start, len).unwrap();
        memory.bytes_mut()[10 * PAGE] = 1;
        memory.bytes_mut()[20 * PAGE] = 1;
        let mut found = Vec::new();
        watch.take_written(start, len, |run| found.push(pages(&memory, run))).unwrap();
        assert_eq!(found, [10..11, 20..21]);
    }
}
