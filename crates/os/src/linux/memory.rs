//! Memory of this process: private mappings, and read-only views of what the kernel shares.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::answer::checked;

const HUGE_PAGE: usize = 2 << 20;
const GIANT_PAGE: usize = 1 << 30;

/// Advice on this process's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OwnAdvice {
    /// Huge pages are allowed here (`MADV_HUGEPAGE`).
    HugePage = libc::MADV_HUGEPAGE,
    /// No huge pages here (`MADV_NOHUGEPAGE`).
    NoHugePage = libc::MADV_NOHUGEPAGE,
    /// Free the pages; they read as zero afterwards (`MADV_DONTNEED`).
    DontNeed = libc::MADV_DONTNEED,
    /// The kernel may take the pages whenever it likes (`MADV_FREE`).
    Free = libc::MADV_FREE,
    /// Pages with equal contents may be merged (`MADV_MERGEABLE`, KSM).
    Mergeable = libc::MADV_MERGEABLE,
    /// Populate every page now, or fail (`MADV_POPULATE_WRITE`, Linux 5.14).
    Populate = libc::MADV_POPULATE_WRITE,
    /// Children do not inherit it (`MADV_DONTFORK`).
    NotForChildren = libc::MADV_DONTFORK,
}

/// From now on memory that this program frees is returned to the system if it was allocated in pieces of 128 KiB or more, and such a
/// piece grows without being copied. By default glibc's malloc retains ever larger pieces (mallopt(3), `M_MMAP_THRESHOLD`); other C
/// libraries do not.
pub fn return_what_is_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any value may be passed; the call sets a number in the allocator, which takes its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// From now on all threads of this process allocate from one arena: each more would take some 130 KiB. Call it before there are threads.
pub fn allocate_from_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any values may be passed; the call sets a number in the allocator, which takes its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Bytes that can be allocated without running into the OOM killer (`MemAvailable`); None if the kernel does not say. A control group
/// may allow less.
///
/// Errors: `/proc/meminfo` cannot be read.
pub fn available_bytes() -> io::Result<Option<u64>> {
    Ok(available_in(&std::fs::read_to_string("/proc/meminfo")?))
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Anonymous memory of this process, zeroed, aligned to 2 MiB, freed on drop.
#[derive(Debug)]
pub struct AlignedMemory {
    /// The whole mapping, including padding for alignment.
    whole: (NonNull<c_void>, usize),
    start: NonNull<u8>,
    len: usize,
    /// None of its pages is shared.
    private: bool,
}

impl AlignedMemory {
    /// Maps `len` bytes, rounded up to base pages. Errors: `ENOMEM`, `EINVAL` for 0 bytes.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        // Much of it may never be touched, so the kernel need not reserve memory for it.
        let mut mapping = Self::of_kind(len, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        mapping.private = true;
        Ok(mapping)
    }

    /// The same, but shared with children (shmem). Children must leave it alone: the borrow checker only knows about this process.
    ///
    /// Errors: `ENOMEM`, `EINVAL` for 0 bytes.
    pub fn shared(len: usize) -> io::Result<Self> {
        Self::of_kind(len, MapFlags::SHARED)
    }

    /// The same, on reserved huge pages from the machine's pool; `len` is rounded up to 2 MiB.
    ///
    /// Errors: `ENOMEM` the pool has too few, `EINVAL` the kernel has no pool of that size.
    pub fn pooled(len: usize) -> io::Result<Self> {
        Self::of_kind(len, MapFlags::SHARED | MapFlags::HUGETLB | MapFlags::HUGE_2MB)
    }

    /// The same, on reserved pages of 1 GiB; `len` is rounded up to that.
    ///
    /// Errors: as [`AlignedMemory::pooled`].
    pub fn giant(len: usize) -> io::Result<Self> {
        Self::of_kind(len, MapFlags::SHARED | MapFlags::HUGETLB | MapFlags::HUGE_1GB)
    }

    /// The first `len` bytes of a file, shared with everyone else who maps it. The file must be, and stay, that long.
    ///
    /// Other processes' writes appear here behind the borrow checker's back: nobody may write while somebody reads.
    ///
    /// Errors: `EINVAL` for 0 bytes, `EACCES` the file is not open for reading and writing, `ENODEV` it cannot be mapped, `ENOMEM`.
    pub fn of_file(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::placeholder(len)?.filled(file, len)
    }

    /// A new segment of System V shared memory, shared with children as with [`AlignedMemory::shared`]. It is destroyed with its last
    /// mapping.
    ///
    /// Errors: `EINVAL`, `ENOSPC`, `ENOMEM` beyond the limits on such segments.
    pub fn segment(len: usize) -> io::Result<Self> {
        let memory = Self::placeholder(len)?;
        // SAFETY: it takes numbers, and touches no memory of ours.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, 0o600) };
        checked(id)?;
        // SAFETY: this replaces part of a placeholder that nobody refers to yet.
        let attached = unsafe { libc::shmat(id, memory.start.as_ptr().cast(), libc::SHM_REMAP) };
        let attached = checked(attached as i64).map(|_| memory);
        // SAFETY: this only marks the segment for removal with its last mapping; the kernel frees no memory now.
        unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
        attached
    }

    /// The same `len` bytes of new shared memory, mapped `times` times in a row, with every page present in each mapping: page tables of
    /// any size without memory of that size. `len` must be a multiple of 2 MiB.
    ///
    /// A write through one mapping appears in all others behind the borrow checker's back: only read, or write through one mapping only.
    ///
    /// Errors: `ENOMEM`, `EINVAL` for 0 bytes.
    pub fn aliased(len: usize, times: usize) -> io::Result<Self> {
        let memory = memfd_create("hugepilot-aliases", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, len as u64)?;
        Self::aliased_file(memory, len, times)
    }

    /// The same of the first `len` bytes of a file, a multiple of 4096.
    ///
    /// Errors: `ENOMEM`, `EINVAL` for 0 bytes.
    pub fn aliased_file(file: impl AsFd, len: usize, times: usize) -> io::Result<Self> {
        let total = len.checked_mul(times).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Self::placeholder(total)?.filled(file, len)
    }

    /// Reserves addresses only: private memory would count towards the commit limit.
    fn placeholder(len: usize) -> io::Result<Self> {
        Self::of_kind(len, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// Maps the first `len` bytes of a file repeatedly over a placeholder.
    fn filled(self, file: impl AsFd, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        for place in (0..self.len).step_by(len) {
            // SAFETY: this replaces part of a placeholder that nobody refers to yet.
            unsafe {
                let start = self.start.as_ptr().add(place).cast();
                mmap(start, len, ProtFlags::READ | ProtFlags::WRITE, flags, &file, 0)?
            };
        }
        Ok(self)
    }

    fn of_kind(len: usize, kind: MapFlags) -> io::Result<Self> {
        if len == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let pooled = kind.contains(MapFlags::HUGETLB);
        // The kernel aligns pool memory itself; padding for alignment would cost one more huge page.
        let page = if kind.contains(MapFlags::HUGE_1GB) { GIANT_PAGE } else { HUGE_PAGE };
        let len = if pooled { len.next_multiple_of(page) } else { len };
        let room = if pooled { 0 } else { HUGE_PAGE };
        let whole_len = len.checked_add(room).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let whole = unsafe { mmap_anonymous(ptr::null_mut(), whole_len, ProtFlags::READ | ProtFlags::WRITE, kind)? };
        let start = (whole as usize).next_multiple_of(HUGE_PAGE);
        if kind == MapFlags::SHARED {
            // The kernel puts shared memory on huge pages only where its offset is aligned like its address.
            // SAFETY: this replaces part of the mapping just made, which nobody refers to yet.
            unsafe {
                mmap_anonymous(start as *mut c_void, len, ProtFlags::READ | ProtFlags::WRITE, kind | MapFlags::FIXED)?
            };
        }
        let pointers = NonNull::new(whole).zip(NonNull::new(start as *mut u8));
        let (whole, start) = pointers.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { whole: (whole, whole_len), start, len, private: false })
    }

    /// The address of the first byte, a multiple of 2 MiB.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether all of it is private memory, so a page that leaves it exists nowhere else.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped readable until drop, and zero where nobody wrote.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The contents, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the exclusive borrow keeps every other reference away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The contents as 8-byte words, mutable, without the bytes after the last whole word.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `bytes_mut`; `start` is aligned to 2 MiB, and every bit pattern is a valid u64.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / 8) }
    }

    /// The contents as 8-byte words that several threads may read and write.
    pub fn atomic_words(&mut self) -> &[AtomicU64] {
        // SAFETY: as in `words_mut`; the exclusive borrow keeps every other reference away while this one lives, and an atomic has
        // the shape of its number.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / 8) }
    }

    /// Advises `len` bytes from `offset`. Errors: `EINVAL` beyond the end, unaligned, or not supported by this kernel.
    pub fn advise(&mut self, offset: usize, len: usize, advice: OwnAdvice) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len.next_multiple_of(4096)) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the range is inside this mapping, which is private and exclusively borrowed; dropped contents read as zero, a valid
        // value for bytes. This calls the kernel directly because the preload library intercepts libc's function.
        let advised =
            unsafe { libc::syscall(libc::SYS_madvise, self.start.as_ptr().add(offset), len, advice as libc::c_int) };
        checked(advised).map(drop)
    }
}

impl AlignedMemory {
    /// Makes the next access to each page a page walk: pages that briefly lose a right are flushed from the TLB.
    ///
    /// Errors: `ENOMEM` the process has too many mappings, or the kernel no memory, to split one.
    pub fn flush_translations(&mut self) -> io::Result<()> {
        let start = self.start.as_ptr().cast();
        for flags in [MprotectFlags::READ, MprotectFlags::READ | MprotectFlags::WRITE] {
            // SAFETY: the range is this mapping's own and exclusively borrowed, so that nobody writes while it is read-only.
            unsafe { mprotect(start, self.len, flags) }?;
        }
        Ok(())
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no borrow of it outlives the value.
        let _ = unsafe { munmap(self.whole.0.as_ptr(), self.whole.1) };
    }
}

// SAFETY: the mapping belongs to this value alone, like a Vec's buffer; it is tied to no thread.
unsafe impl Send for AlignedMemory {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedMemory {}

/// The beginning of a file that others may write to; unmapped on drop.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    pub(crate) start: NonNull<c_void>,
    len: usize,
}

impl SharedMapping {
    /// Maps the first `len` bytes, which must not exceed the file's length: bytes beyond it raise SIGBUS when touched.
    ///
    /// Errors: as `mmap(2)`.
    pub(crate) fn of(file: impl AsFd, len: usize, rights: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, len })
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no borrow of it outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

// SAFETY: the mapping belongs to this value alone and is tied to no thread.
unsafe impl Send for SharedMapping {}

/// Memory that the kernel writes to and this process reads, such as a mapped BPF array.
#[derive(Debug)]
pub struct SharedView(SharedMapping);

impl SharedView {
    /// Maps the first `len` bytes of `fd` for reading. `len` must not exceed the file's length: bytes beyond it raise SIGBUS when read.
    /// Errors: as `mmap(2)`.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        SharedMapping::of(fd, len, ProtFlags::READ).map(Self)
    }

    /// The contents. Code that may let the kernel write (run the BPF program) must not do so while the slice lives, hence the exclusive
    /// borrow; only the view's owner runs the program.
    pub fn bytes(&mut self) -> &[u8] {
        // SAFETY: `len` bytes are mapped readable until drop; the kernel writes only during runs that the owner starts,
        // and the owner is borrowed exclusively here.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().cast(), self.0.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_told_in_bytes() {
        assert_eq!(available_in("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available_in("MemTotal: 9 kB\n"), None);
        assert!(available_bytes().unwrap().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_mapping_is_aligned_zeroed_and_writable() {
        let mut mapping = AlignedMemory::anonymous(3 << 20).unwrap();
        assert_eq!(mapping.address() % HUGE_PAGE as u64, 0);
        assert!(mapping.bytes().iter().all(|&byte| byte == 0));
        mapping.bytes_mut()[(3 << 20) - 1] = 7;
        assert_eq!(mapping.words_mut().len(), 3 << 17);
        mapping.advise(0, 3 << 20, OwnAdvice::DontNeed).unwrap();
        assert_eq!(mapping.bytes()[(3 << 20) - 1], 0);
    }

    #[test]
    fn a_segment_is_aligned_zeroed_and_writable() {
        let mut segment = AlignedMemory::segment(5 << 20).unwrap();
        assert_eq!(segment.address() % HUGE_PAGE as u64, 0);
        assert!(segment.bytes().iter().all(|&byte| byte == 0));
        segment.bytes_mut()[(5 << 20) - 1] = 7;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", segment.address()))).unwrap();
        assert!(line.contains("/SYSV00000000"), "{line}");
        assert!(AlignedMemory::segment(0).is_err());
    }

    #[test]
    fn advice_beyond_the_end_is_refused() {
        let mut mapping = AlignedMemory::anonymous(4096).unwrap();
        assert!(mapping.advise(4096, 4096, OwnAdvice::DontNeed).is_err());
        assert!(mapping.advise(usize::MAX, 2, OwnAdvice::DontNeed).is_err());
        assert!(AlignedMemory::anonymous(0).is_err());
    }
}
