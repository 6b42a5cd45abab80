//! Advice on memory by its address: another process's, `process_madvise(2)`, or this one's.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::PidFd;

/// The two kinds of remote advice that hugepilot gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Put the range on huge pages now (`MADV_COLLAPSE`, Linux 6.1).
    Collapse,
    /// Clear accessed bits and deactivate (`MADV_COLD`). Inside a huge page it splits that huge page.
    Cold,
}

impl Advice {
    fn number(self) -> libc::c_int {
        match self {
            Advice::Collapse => libc::MADV_COLLAPSE,
            Advice::Cold => libc::MADV_COLD,
        }
    }
}

/// Advises one range of the target's memory: `len` bytes from `start`, both multiples of 4 KiB.
///
/// A range call may fail after part of the range was handled, so callers that account call it per region.
///
/// Errors, as `process_madvise(2)` gives them: `EINVAL` the range does not qualify (too small a mapping, huge pages
/// switched off), `EAGAIN` try again, `EBUSY` memory cgroup full or pages held, `ENOMEM` no contiguous memory or a hole
/// in the range, `ESRCH` the process has ended, `EPERM` CAP_SYS_NICE or ptrace access is missing.
pub fn advise(target: &PidFd, start: u64, len: u64, advice: Advice) -> io::Result<()> {
    let range = libc::iovec {
        iov_base: start as *mut libc::c_void,
        iov_len: usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
    };
    // SAFETY: the kernel reads one iovec, which lives across the call; the addresses in it are the target's and are
    // never dereferenced here. Neither advice changes the contents of memory.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            target.as_fd().as_raw_fd(),
            &raw const range,
            1usize,
            advice.number(),
            0u32,
        )
    };
    match advised {
        -1 => Err(io::Error::last_os_error()),
        done if done as u64 == len => Ok(()),
        // A short count without an error: the rest of the range was not handled.
        _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
}

/// Puts this process's own memory on huge pages now: `len` bytes from `start`, both multiples of 2 MiB, whoever they belong to. Its
/// contents stay as they are. Errors: as [`advise`].
pub fn collapse_own(start: u64, len: u64) -> io::Result<()> {
    // SAFETY: the kernel checks that the range is mapped; where it is, its contents and their addresses stay what they are.
    match unsafe { libc::madvise(start as *mut libc::c_void, len as usize, libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
