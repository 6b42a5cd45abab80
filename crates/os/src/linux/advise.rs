//! Advice on memory by address: another process's memory with `process_madvise(2)`, or this process's own.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::PidFd;
use crate::answer::checked;

/// How long to wait before advising again after EAGAIN: writeback or another thread held pages for a moment.
const RETRIES: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];

/// The two kinds of remote advice that hugepilot gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Put the range on huge pages now (`MADV_COLLAPSE`, Linux 6.1).
    Collapse = libc::MADV_COLLAPSE,
    /// Clear accessed bits and deactivate (`MADV_COLD`). Inside a huge page it splits that huge page.
    Cold = libc::MADV_COLD,
}

/// Advises one range of the target's memory: `len` bytes from `start`, both multiples of 4 KiB.
///
/// A range call may fail after handling part of the range; callers that keep accounts therefore call it per region.
///
/// Errors: `EINVAL` the range does not qualify (too small a mapping, huge pages switched off), `EAGAIN` try again, `EBUSY` memory cgroup
/// full or pages held, `ENOMEM` no contiguous memory or a hole in the range, `ESRCH` the process has ended, `EPERM` CAP_SYS_NICE or ptrace
/// access is missing.
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
            advice as libc::c_int,
            0u32,
        )
    };
    match checked(advised)? {
        done if done as u64 == len => Ok(()),
        // A short count without an error: the rest of the range was not handled.
        _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
}

/// Advises, and again after 1, 4 and 16 ms as long as the kernel answers `EAGAIN` and no stop is requested.
///
/// Errors: any error of `advise` other than `EAGAIN`, at once; `EAGAIN` after the last attempt, or once a stop is requested.
pub fn advise_again(mut advise: impl FnMut() -> io::Result<()>, stop: impl Fn() -> bool) -> io::Result<()> {
    let mut result = advise();
    for wait in RETRIES {
        match &result {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && !stop() => {
                std::thread::sleep(wait);
                result = advise();
            }
            _ => break,
        }
    }
    result
}

/// Puts this process's own memory on huge pages now: `len` bytes from `start`, both multiples of 2 MiB, whichever component owns it. The
/// contents do not change. Errors: as [`advise`]; `EAGAIN` only after retries.
pub fn collapse_own(start: u64, len: u64) -> io::Result<()> {
    // SAFETY: the kernel checks that the range is mapped; if it is, contents and addresses stay the same.
    let collapse = || unsafe { libc::madvise(start as *mut libc::c_void, len as usize, libc::MADV_COLLAPSE) };
    advise_again(|| checked(collapse()).map(drop), || false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts these answers lead to, and with which result.
    fn advised(answers: &[i32], stop_after: usize) -> (usize, Result<(), Option<i32>>) {
        let tried = std::cell::Cell::new(0);
        let advise = || {
            tried.set(tried.get() + 1);
            match answers[tried.get() - 1] {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        };
        let result = advise_again(advise, || tried.get() >= stop_after);
        (tried.get(), result.map_err(|error| error.raw_os_error()))
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let again = libc::EAGAIN;
        assert_eq!(advised(&[again, again, 0], 9), (3, Ok(())));
        assert_eq!(advised(&[again; 5], 9), (4, Err(Some(again))), "not for ever");
        assert_eq!(advised(&[again, libc::EINVAL, 0], 9), (2, Err(Some(libc::EINVAL))));
        assert_eq!(advised(&[again, again, 0], 2), (2, Err(Some(again))), "somebody asked to stop");
    }
}
