//! Raw system calls on the program's memory: the hooks replace the C library's functions, so they cannot call those.
//!
//! Owns: the calls, their arguments and errors; errno is unchanged. Never touches: any decision. Nothing here allocates, takes
//! a lock or calls what a hook replaces, so it may run in a signal handler, and in a child between fork and exec.
//!
//! Callers must be entitled to change a range: the program made a call for it, or it was mapped here.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::MaybeUninit;

/// The kernel's result: a number, or an errno.
pub type SyscallResult = Result<usize, c_int>;

/// The right to read and write memory.
pub const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn call(number: c_long, arguments: [usize; 6]) -> SyscallResult {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the address belongs to this thread for its whole life. Callers are responsible for what the call does to memory
    // (see above).
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        match libc::syscall(number, a, b, c, d, e, f) {
            -1 => Err(std::mem::replace(&mut *errno, before)),
            answer => Ok(answer as usize),
        }
    }
}

/// The arguments of mmap.
#[derive(Clone, Copy, Debug)]
pub struct MmapRequest {
    /// The address, or 0.
    pub address: usize,
    /// Length in bytes.
    pub length: usize,
    /// `PROT_*`
    pub rights: c_int,
    /// `MAP_*`
    pub flags: c_int,
    /// The file, or -1.
    pub fd: c_int,
    /// Offset in the file.
    pub offset: i64,
}

impl MmapRequest {
    /// Private, readable and writable memory.
    pub fn anonymous(address: usize, length: usize, more: c_int) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
        Self { address, length, rights: READ_WRITE, flags, fd: -1, offset: 0 }
    }

    /// Makes the call; returns the address.
    pub fn make(&self) -> SyscallResult {
        let Self { address, length, rights, flags, fd, offset } = *self;
        call(libc::SYS_mmap, [address, length, rights as usize, flags as usize, fd as usize, offset as usize])
    }
}

pub fn munmap(start: usize, length: usize) -> SyscallResult {
    call(libc::SYS_munmap, [start, length, 0, 0, 0, 0])
}

pub fn mprotect(start: usize, length: usize, rights: c_int) -> SyscallResult {
    call(libc::SYS_mprotect, [start, length, rights as usize, 0, 0, 0])
}

pub fn madvise(start: usize, length: usize, advice: c_int) -> SyscallResult {
    call(libc::SYS_madvise, [start, length, advice as usize, 0, 0, 0])
}

pub fn mremap(old: usize, old_length: usize, new_length: usize, flags: c_int, new: usize) -> SyscallResult {
    call(libc::SYS_mremap, [old, old_length, new_length, flags as usize, new, 0])
}

/// Moves a mapping with its contents over another one in a single step, so there is no moment without a mapping.
pub fn replace(old: usize, new: usize, length: usize) -> SyscallResult {
    mremap(new, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, old)
}

/// The result of mincore for a page.
fn residency(page: usize) -> Result<bool, c_int> {
    let mut present = 0u8;
    call(libc::SYS_mincore, [page, 4096, &raw mut present as usize, 0, 0, 0]).map(|_| present & 1 == 1)
}

/// Whether a page is present. True if the kernel does not say.
pub fn is_present(page: usize) -> bool {
    residency(page).unwrap_or(true)
}

/// Whether a page is mapped. True if the kernel does not say.
pub fn is_mapped(page: usize) -> bool {
    residency(page) != Err(libc::ENOMEM)
}

/// Zeroes bytes, which must be mapped writable.
pub fn zero(start: usize, length: usize) {
    // SAFETY: the caller has checked that they are mapped writable, and the program has given up their contents.
    unsafe { std::ptr::write_bytes(start as *mut u8, 0, length) };
}

/// Copies bytes to memory that was just mapped here, whatever the rights of the source. Returns whether all were copied:
/// another thread may unmap them meanwhile, which must not kill this one.
pub fn copy(from: usize, to: usize, length: usize) -> bool {
    let mut copied = 0;
    while copied < length {
        match copy_some(from + copied, to + copied, length - copied) {
            Ok(some) if some > 0 => copied += some,
            _ => return false,
        }
    }
    true
}

fn copy_some(from: usize, to: usize, length: usize) -> SyscallResult {
    let [from_there, to_here] = [from, to].map(|start| libc::iovec { iov_base: start as *mut c_void, iov_len: length });
    let [from_there, to_here] = [&raw const from_there, &raw const to_here].map(|range| range as usize);
    call(libc::SYS_process_vm_readv, [process() as usize, to_here, 1, from_there, 1, 0]).or_else(|error| {
        // Slower, and not permitted to every process, but it can read memory without read permission.
        FileReader::open(c"/proc/self/mem").ok_or(error)?.read_at(from, to, length)
    })
}

/// Whether this thread depends on that memory: its stack or its thread-locals are there.
pub fn stands_on(start: usize, length: usize) -> bool {
    let on_stack = 0u8;
    // SAFETY: it takes no argument, and the address belongs to this thread for its whole life.
    let own = unsafe { libc::__errno_location() };
    [&raw const on_stack as usize, own as usize].into_iter().any(|address| address.wrapping_sub(start) < length)
}

pub fn shmget(key: c_int, size: usize, flags: c_int) -> SyscallResult {
    call(libc::SYS_shmget, [key as usize, size, flags as usize, 0, 0, 0])
}

pub fn shmat(id: c_int, address: usize, flags: c_int) -> SyscallResult {
    call(libc::SYS_shmat, [id as usize, address, flags as usize, 0, 0, 0])
}

pub fn shmdt(address: usize) -> SyscallResult {
    call(libc::SYS_shmdt, [address, 0, 0, 0, 0, 0])
}

/// Marks a segment for removal with its last attachment.
pub fn remove_segment(id: c_int) {
    let _ = call(libc::SYS_shmctl, [id as usize, libc::IPC_RMID as usize, 0, 0, 0, 0]);
}

/// The kernel's record of a segment.
pub fn segment(id: c_int) -> Option<libc::shmid_ds> {
    let mut about = MaybeUninit::<libc::shmid_ds>::zeroed();
    call(libc::SYS_shmctl, [id as usize, libc::IPC_STAT as usize, about.as_mut_ptr() as usize, 0, 0, 0]).ok()?;
    // SAFETY: it holds integers only, and zero is valid where the kernel wrote nothing.
    Some(unsafe { about.assume_init() })
}

/// Whether a file is in memory: on tmpfs, as made by `memfd_create` and `shm_open`, but not a device, and not on hugetlbfs.
pub fn is_memory_file(fd: c_int) -> bool {
    let mut file = MaybeUninit::<libc::stat>::zeroed();
    let mut system = MaybeUninit::<libc::statfs>::zeroed();
    let told = call(libc::SYS_fstat, [fd as usize, file.as_mut_ptr() as usize, 0, 0, 0, 0])
        .and_then(|_| call(libc::SYS_fstatfs, [fd as usize, system.as_mut_ptr() as usize, 0, 0, 0, 0]));
    // SAFETY: both hold integers only, and zero is valid where the kernel wrote nothing.
    let (file, system) = unsafe { (file.assume_init(), system.assume_init()) };
    told.is_ok() && file.st_mode & libc::S_IFMT == libc::S_IFREG && system.f_type == libc::TMPFS_MAGIC
}

/// A file open for reading.
pub struct FileReader(usize);

impl FileReader {
    pub fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
            .ok()
            .map(Self)
    }

    /// Returns the number of bytes read; 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> SyscallResult {
        loop {
            match call(libc::SYS_read, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) {
                Err(libc::EINTR) => {}
                answer => return answer.map(|read| read.min(buffer.len())),
            }
        }
    }

    /// Reads from an offset into the caller's memory; returns the number of bytes.
    fn read_at(&self, place: usize, to: usize, length: usize) -> SyscallResult {
        call(libc::SYS_pread64, [self.0, to, length, place, 0, 0])
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        let _ = call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]);
    }
}

/// Ownership of pages (`/proc/PID/pagemap`).
pub struct PageMap(FileReader);

impl PageMap {
    pub fn open() -> Option<Self> {
        FileReader::open(c"/proc/self/pagemap").map(Self)
    }

    /// Whether a page is present and mapped by no other process. False if the kernel does not say.
    pub fn is_own(&self, page: usize) -> bool {
        const PRESENT_AND_EXCLUSIVE: u64 = 1 << 63 | 1 << 56;
        let mut entry = 0u64;
        let read = self.0.read_at(page / 4096 * size_of::<u64>(), &raw mut entry as usize, size_of::<u64>());
        read == Ok(size_of::<u64>()) && entry & PRESENT_AND_EXCLUSIVE == PRESENT_AND_EXCLUSIVE
    }
}

/// Whether this is the only thread of the process. False if the kernel does not say.
pub fn is_only_thread() -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr() as usize;
    let told = call(libc::SYS_newfstatat, [libc::AT_FDCWD as usize, path, about.as_mut_ptr() as usize, 0, 0, 0]);
    // SAFETY: it holds integers only, for which zero is a value.
    let links = unsafe { about.assume_init() }.st_nlink;
    // A directory has two links, and one more for each subdirectory: those of the threads.
    told.is_ok() && links == 3
}

/// Whether this is the process's first thread.
pub fn is_first_thread() -> bool {
    call(libc::SYS_gettid, [0; 6]) == call(libc::SYS_getpid, [0; 6])
}

/// This process's id; if the kernel does not say, an id that no process has.
pub fn process() -> c_int {
    call(libc::SYS_getpid, [0; 6]).map_or(-1, |process| process as c_int)
}

/// Yields to other threads, including those of a lower priority.
pub fn give_way() {
    let little = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    let _ = call(libc::SYS_nanosleep, [&raw const little as usize, 0, 0, 0, 0, 0]);
}

/// Blocked signals, one bit each, in the kernel's format.
pub type SignalMask = u64;

/// Blocks all signals that can be blocked, and returns the previous mask.
pub fn hold_signals() -> SignalMask {
    let mut before: SignalMask = 0;
    set_signals(SignalMask::MAX, &mut before);
    before
}

/// Restores the previous mask.
pub fn release_signals(before: SignalMask) {
    let mut unused = 0;
    set_signals(before, &mut unused);
}

fn set_signals(mask: SignalMask, before: &mut SignalMask) {
    let (mask, before) = (&raw const mask as usize, &raw mut *before as usize);
    let _ = call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask, before, size_of::<SignalMask>(), 0, 0]);
}

/// The machine's memory in bytes. If the kernel does not say, a length that no mapping exceeds.
pub fn memory_bytes() -> usize {
    let mut about = MaybeUninit::<libc::sysinfo>::zeroed();
    if call(libc::SYS_sysinfo, [about.as_mut_ptr() as usize, 0, 0, 0, 0, 0]).is_err() {
        return usize::MAX;
    }
    // SAFETY: it holds integers only, for which zero is a value.
    let about = unsafe { about.assume_init() };
    (about.totalram as usize).saturating_mul(about.mem_unit as usize)
}

/// Registers functions for every fork by the C library: `before` runs before it, in reverse order of registration; the others
/// run in parent and child, in order of registration.
pub fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    unsafe extern "C" {
        fn pthread_atfork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> c_int;
    }
    // SAFETY: the functions exist as long as this library, which is never unloaded.
    let _ = unsafe { pthread_atfork(before, in_parent, in_child) };
}

/// The address of the kernel's random bytes for a new process: on the stack, at a random place.
pub fn stack_address() -> usize {
    // SAFETY: it takes a number, and reads what the kernel wrote before the program began.
    unsafe { libc::getauxval(libc::AT_RANDOM) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 4 * 4096;

    fn mapped() -> usize {
        MmapRequest::anonymous(0, LENGTH, 0).make().unwrap()
    }

    #[test]
    fn memory_without_rights_is_copied_and_what_is_not_there_is_no_crash() {
        let (from, to) = (mapped(), mapped());
        zero(to, LENGTH);
        // SAFETY: it was just mapped.
        unsafe { (from as *mut u8).add(LENGTH - 1).write(7) };
        mprotect(from, LENGTH, libc::PROT_NONE).unwrap();
        assert!(copy(from, to, LENGTH));
        // SAFETY: it is mapped, and nobody writes to it.
        assert_eq!(unsafe { (to as *const u8).add(LENGTH - 1).read() }, 7);
        munmap(from + 4096, 4096).unwrap();
        assert!(!copy(from, to, LENGTH) && copy(from, to, 4096) && !copy(from + 4096, to, 1));
        assert!(is_mapped(from) && !is_mapped(from + 4096));
        munmap(from, LENGTH).unwrap();
        munmap(to, LENGTH).unwrap();
    }

    #[test]
    fn a_thread_stands_on_its_stack_and_its_variables() {
        let local = 0u8;
        let elsewhere = mapped();
        assert!(stands_on((&raw const local as usize) - 4096, 8192));
        // SAFETY: as above.
        let variable = unsafe { libc::__errno_location() } as usize;
        assert!(stands_on(variable, 1) && !stands_on(variable + 1, 1));
        assert!(!stands_on(elsewhere, LENGTH) && stands_on(0, usize::MAX));
        munmap(elsewhere, LENGTH).unwrap();
    }
}
