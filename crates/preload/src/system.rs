//! System calls as the kernel offers them, on memory that is the program's: the hooks stand where the C library's functions
//! would, and cannot call those.
//!
//! Owns: the calls, their arguments and errors; errno stays as it was. Never touches: any decision. Nothing here allocates,
//! takes a lock or calls what a hook replaces, so that it may run in a signal handler, and in a child between fork and exec.
//!
//! Callers hold the program's word for each range that they change: a call of its own for that range, or its having been mapped
//! here.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_long};
use std::mem::MaybeUninit;

/// What the kernel answers: a number, or one of errno's.
pub type Answer = Result<usize, c_int>;

/// The right to read and write memory.
pub const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn call(number: c_long, arguments: [usize; 6]) -> Answer {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the address is this thread's own for its whole life. What the call does to memory, the callers answer for (see
    // above).
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
pub struct Request {
    /// Where, or 0.
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// `PROT_*`
    pub rights: c_int,
    /// `MAP_*`
    pub flags: c_int,
    /// The file, or -1.
    pub fd: c_int,
    /// Where in the file.
    pub offset: i64,
}

impl Request {
    /// Private memory to read and write.
    pub fn anonymous(address: usize, length: usize, more: c_int) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
        Self { address, length, rights: READ_WRITE, flags, fd: -1, offset: 0 }
    }

    /// Where it was mapped.
    pub fn make(&self) -> Answer {
        let Self { address, length, rights, flags, fd, offset } = *self;
        call(libc::SYS_mmap, [address, length, rights as usize, flags as usize, fd as usize, offset as usize])
    }
}

pub fn munmap(start: usize, length: usize) -> Answer {
    call(libc::SYS_munmap, [start, length, 0, 0, 0, 0])
}

pub fn mprotect(start: usize, length: usize, rights: c_int) -> Answer {
    call(libc::SYS_mprotect, [start, length, rights as usize, 0, 0, 0])
}

pub fn madvise(start: usize, length: usize, advice: c_int) -> Answer {
    call(libc::SYS_madvise, [start, length, advice as usize, 0, 0, 0])
}

pub fn mremap(old: usize, old_length: usize, new_length: usize, flags: c_int, new: usize) -> Answer {
    call(libc::SYS_mremap, [old, old_length, new_length, flags as usize, new, 0])
}

/// Puts one mapping in the place of another, with all that it holds and in one step, so that nobody ever finds nothing there.
pub fn replace(old: usize, new: usize, length: usize) -> Answer {
    mremap(new, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, old)
}

/// Whether there is memory behind a page. Where the kernel does not say, there is.
pub fn is_present(page: usize) -> bool {
    let mut present = 1u8;
    let _ = call(libc::SYS_mincore, [page, 4096, &raw mut present as usize, 0, 0, 0]);
    present & 1 == 1
}

/// Sets bytes to zero, which must be mapped to be written.
pub fn zero(start: usize, length: usize) {
    // SAFETY: the caller has looked that they are mapped so, and the program has given their contents up.
    unsafe { std::ptr::write_bytes(start as *mut u8, 0, length) };
}

/// Copies bytes, which must be mapped, to memory that was just mapped here.
pub fn copy(from: usize, to: usize, length: usize) {
    // SAFETY: the caller has looked that they are mapped, nobody else knows of `to`, and the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) };
}

pub fn shmget(key: c_int, size: usize, flags: c_int) -> Answer {
    call(libc::SYS_shmget, [key as usize, size, flags as usize, 0, 0, 0])
}

pub fn shmat(id: c_int, address: usize, flags: c_int) -> Answer {
    call(libc::SYS_shmat, [id as usize, address, flags as usize, 0, 0, 0])
}

pub fn shmdt(address: usize) -> Answer {
    call(libc::SYS_shmdt, [address, 0, 0, 0, 0, 0])
}

/// Has a segment go with its last attachment.
pub fn remove_segment(id: c_int) {
    let _ = call(libc::SYS_shmctl, [id as usize, libc::IPC_RMID as usize, 0, 0, 0, 0]);
}

/// What the kernel says of a segment.
pub fn segment(id: c_int) -> Option<libc::shmid_ds> {
    let mut about = MaybeUninit::<libc::shmid_ds>::zeroed();
    call(libc::SYS_shmctl, [id as usize, libc::IPC_STAT as usize, about.as_mut_ptr() as usize, 0, 0, 0]).ok()?;
    // SAFETY: it holds integers only, for which zero is a value where the kernel wrote nothing.
    Some(unsafe { about.assume_init() })
}

/// A file that is being read.
pub struct Reader(usize);

impl Reader {
    pub fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
            .ok()
            .map(Self)
    }

    /// How many bytes came; 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Answer {
        loop {
            match call(libc::SYS_read, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) {
                Err(libc::EINTR) => {}
                answer => return answer.map(|read| read.min(buffer.len())),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]);
    }
}

/// Whether this is the only thread of the process. Where the kernel does not say, it is not.
pub fn is_only_thread() -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr() as usize;
    let told = call(libc::SYS_newfstatat, [libc::AT_FDCWD as usize, path, about.as_mut_ptr() as usize, 0, 0, 0]);
    // SAFETY: it holds integers only, for which zero is a value.
    let links = unsafe { about.assume_init() }.st_nlink;
    // A folder has two links, and one more for each folder in it: those of the threads.
    told.is_ok() && links == 3
}

/// Whether this is the process's first thread.
pub fn is_first_thread() -> bool {
    call(libc::SYS_gettid, [0; 6]) == call(libc::SYS_getpid, [0; 6])
}

/// This process.
pub fn process() -> c_int {
    call(libc::SYS_getpid, [0; 6]).map_or(0, |process| process as c_int)
}

/// Lets others run.
pub fn give_way() {
    let _ = call(libc::SYS_sched_yield, [0; 6]);
}

/// Signals that a thread holds back, a bit each, as the kernel has them.
pub type SignalMask = u64;

/// Holds back all signals but those that cannot be, and says what was held back before.
pub fn hold_signals() -> SignalMask {
    let mut before: SignalMask = 0;
    set_signals(SignalMask::MAX, &mut before);
    before
}

/// Goes back to what was held back before.
pub fn release_signals(before: SignalMask) {
    let mut unused = 0;
    set_signals(before, &mut unused);
}

fn set_signals(mask: SignalMask, before: &mut SignalMask) {
    let (mask, before) = (&raw const mask as usize, &raw mut *before as usize);
    let _ = call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask, before, size_of::<SignalMask>(), 0, 0]);
}

/// Bytes of memory that the machine has. Where the kernel does not say, no address reaches beyond them.
pub fn memory_bytes() -> usize {
    let mut about = MaybeUninit::<libc::sysinfo>::zeroed();
    if call(libc::SYS_sysinfo, [about.as_mut_ptr() as usize, 0, 0, 0, 0, 0]).is_err() {
        return usize::MAX;
    }
    // SAFETY: it holds integers only, for which zero is a value.
    let about = unsafe { about.assume_init() };
    (about.totalram as usize).saturating_mul(about.mem_unit as usize)
}

/// Has functions called whenever this process is forked by the C library's fork: `before` it in reverse order of registration,
/// then in parent and child in that order.
pub fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    unsafe extern "C" {
        fn pthread_atfork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> c_int;
    }
    // SAFETY: the functions are there as long as this library, which is never unloaded.
    let _ = unsafe { pthread_atfork(before, in_parent, in_child) };
}

/// Where the kernel has put what it tells a new process: on the stack, at random.
pub fn stack_address() -> usize {
    // SAFETY: it takes a number, and reads what the kernel wrote before the program began.
    unsafe { libc::getauxval(libc::AT_RANDOM) as usize }
}
