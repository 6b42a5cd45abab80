//! The two BPF calls that libbpf-rs does not offer: an iterator limited to one process.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::answer::made;

/// Commands and types of `bpf(2)`, from `linux/bpf.h`; they are part of the kernel's ABI.
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// `union bpf_attr` as `BPF_LINK_CREATE` reads it for an iterator.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    zero: u32,
}

/// A BPF iterator program attached to one thread; each [`TaskIterator::open`] is one run.
#[derive(Debug)]
pub struct TaskIterator {
    link: OwnedFd,
}

impl TaskIterator {
    /// Attaches a loaded `iter/task` or `iter/task_vma` program, limited to the thread `tid`, an id in this pid
    /// namespace; a process's main thread has the process's id.
    ///
    /// Errors: `EINVAL` the kernel cannot limit the iterator (before 6.1) or refuses BPF reads (lockdown),
    /// `EPERM` CAP_BPF or CAP_PERFMON is missing, `ESRCH` no such thread.
    pub fn attach(program: impl AsFd, tid: u32) -> io::Result<Self> {
        // `union bpf_iter_link_info` (Linux 6.1): the thread, no process, no pidfd, and zeros up to 16 bytes.
        let limit = [tid, 0, 0, 0];
        let attributes = LinkCreate {
            prog_fd: program.as_fd().as_raw_fd() as u32,
            target_fd: 0,
            attach_type: BPF_TRACE_ITER,
            flags: 0,
            iter_info: limit.as_ptr() as u64,
            iter_info_len: size_of_val(&limit) as u32,
            zero: 0,
        };
        Ok(Self { link: bpf(BPF_LINK_CREATE, &attributes)? })
    }

    /// Starts a run: one read of the returned file runs the program for everything it visits, provided it writes
    /// nothing to that file.
    ///
    /// Errors: `ENOMEM`, `EPERM`.
    pub fn open(&self) -> io::Result<File> {
        // The link, and no flags.
        bpf(BPF_ITER_CREATE, &[self.link.as_raw_fd() as u32, 0]).map(File::from)
    }
}

/// One `bpf(2)` call that returns a new file descriptor.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes from `attributes`, a prefix of `union bpf_attr` with every byte
    // initialised; what it points to lives across the call. The descriptor that both commands create is ours alone.
    unsafe { made(libc::syscall(libc::SYS_bpf, command, attributes as *const T, size_of::<T>())) }
}
