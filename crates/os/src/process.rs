//! Processes held by file descriptor, so that a recycled pid is never mistaken for the target; signals.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A handle on one process; it stays on that process even when the pid is used again.
#[derive(Debug)]
pub struct PidFd {
    pid: u32,
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a process by the id that it has in this process's pid namespace.
    ///
    /// Errors: `ESRCH` no such process here, `EINVAL` the id is a thread's and not a process's.
    pub fn open(pid: u32) -> io::Result<Self> {
        let id =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let fd = pidfd_open(id, PidfdFlags::empty())?;
        Ok(Self { pid, fd })
    }

    /// The id the process was opened by.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has ended (a zombie counts as ended).
    pub fn has_exited(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(ready) if ready > 0)
    }

    /// Sends a signal. Errors: `ESRCH` the process has ended, `EPERM` it belongs to another user (CAP_KILL).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }
}

/// Whether this process ignores a signal; a program that it starts then ignores it too, unless that one decides otherwise.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action changes nothing, and the old one is written to memory of its type.
    let told = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all fields of a `sigaction` are integers, pointers and an optional function, for which zero is a value.
    let action = unsafe { action.assume_init() };
    told == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// While it lives, the calling thread runs as soon as it wakes, before all ordinary threads (`SCHED_FIFO`), and threads that it
/// starts do not. Without CAP_SYS_NICE nothing changes. For work of a few hundred microseconds at a time.
#[derive(Debug)]
pub struct Punctual {
    // Ends on the thread that it began on.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Punctual {
    /// From now on.
    pub fn begin() -> Self {
        set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Self { _not_send: std::marker::PhantomData }
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        set_policy(libc::SCHED_OTHER, 0);
    }
}

fn set_policy(policy: i32, priority: i32) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 means the calling thread, and `parameters` lives through the call.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
