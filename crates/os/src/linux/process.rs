//! Processes held by pidfd, so a recycled pid is never mistaken for the target; signals.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::answer::checked;

/// A handle to one process; it keeps referring to that process even when the pid is used again.
#[derive(Debug)]
pub struct PidFd {
    pid: u32,
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a process by its id in this process's pid namespace.
    ///
    /// Errors: `ESRCH` no such process here, `EINVAL` the id is a thread's and not a process's.
    pub fn open(pid: u32) -> io::Result<Self> {
        let id =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let fd = pidfd_open(id, PidfdFlags::empty())?;
        Ok(Self { pid, fd })
    }

    /// The id that the process was opened by.
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

/// The thread that calls.
const ITSELF: i32 = 0;

/// While it lives, the calling thread runs as soon as it wakes, before all ordinary threads (`SCHED_FIFO`); threads that it starts
/// do not inherit this. Without CAP_SYS_NICE nothing changes. For work that is short, or that others wait for.
#[derive(Debug)]
pub struct Punctual {
    /// The previous policy and priority; None if nothing changed.
    before: Option<(i32, libc::sched_param)>,
    // Must be dropped on the thread that created it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Punctual {
    /// Starts, with precedence over punctual threads of a lower `priority` (1 to 99).
    pub fn begin(priority: u8) -> Self {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: takes a number, and returns the policy.
        let policy = unsafe { libc::sched_getscheduler(ITSELF) };
        // SAFETY: the parameters are written to memory of their type.
        let told = unsafe { libc::sched_getparam(ITSELF, &raw mut parameters) } == 0 && policy >= 0;
        let wanted = libc::sched_param { sched_priority: priority.into() };
        let changed = told && set_policy(ITSELF, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, wanted).is_ok();
        Self { before: changed.then_some((policy, parameters)), _not_send: std::marker::PhantomData }
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        if let Some((policy, parameters)) = self.before {
            // A process that may not clear the reset-on-fork flag may still leave the real-time policy.
            let _ = set_policy(ITSELF, policy, parameters)
                .or_else(|_| set_policy(ITSELF, policy | libc::SCHED_RESET_ON_FORK, parameters));
        }
    }
}

/// Lets a thread of this process run only while no ordinary thread needs its processor (`SCHED_IDLE`), or makes it ordinary again.
///
/// Errors: `ESRCH` it has ended, `EPERM` back to ordinary without CAP_SYS_NICE.
pub fn make_yield(thread: Pid, yields: bool) -> io::Result<()> {
    let policy = if yields { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let parameters = libc::sched_param { sched_priority: 0 };
    set_policy(thread.as_raw_nonzero().get(), policy, parameters)
}

fn set_policy(thread: i32, policy: i32, parameters: libc::sched_param) -> io::Result<()> {
    // SAFETY: `parameters` lives through the call.
    checked(unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) }).map(drop)
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    fn policy() -> i32 {
        // SAFETY: 0 means the calling thread; the call returns its policy.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn a_thread_goes_back_to_what_it_was() {
        let is_punctual = {
            let _punctual = Punctual::begin(1);
            policy() == libc::SCHED_FIFO
        };
        assert_eq!(policy(), libc::SCHED_OTHER);
        make_yield(gettid(), true).unwrap();
        assert_eq!(policy(), libc::SCHED_IDLE);
        let back = make_yield(gettid(), false);
        assert!(!is_punctual || back.is_ok(), "{back:?}");
        assert_eq!(policy(), if back.is_ok() { libc::SCHED_OTHER } else { libc::SCHED_IDLE });
        assert_eq!(make_yield(Pid::from_raw(i32::MAX).unwrap(), true).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
