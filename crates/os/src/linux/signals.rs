//! Signals that carry a number from one process to another, and waiting for them together with descriptors.
//!
//! A real-time signal kills a process that does not handle it. So a sender first checks for a handler (`SigCgt` in `/proc/PID/status`),
//! and a receiver installs one first.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::process::{Signal, getuid};

use crate::PidFd;
use crate::answer::{checked, made};

/// What this process does on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The kernel's default action.
    Default,
    /// Nothing.
    Ignored,
    /// It calls a function.
    Handled,
}

/// What this process does on a signal. Errors: `EINVAL` there is no such signal.
pub fn disposition(signal: i32) -> io::Result<Disposition> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action changes nothing, and the old one is written to memory of its type.
    checked(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: all fields of a `sigaction` are integers, pointers and an optional function, for which zero is a value.
    Ok(match unsafe { action.assume_init() }.sa_sigaction {
        libc::SIG_DFL => Disposition::Default,
        libc::SIG_IGN => Disposition::Ignored,
        _ => Disposition::Handled,
    })
}

/// Whether this process ignores a signal; programs that it starts inherit that unless they decide otherwise.
pub fn is_ignored(signal: Signal) -> bool {
    disposition(signal.as_raw()).is_ok_and(|disposition| disposition == Disposition::Ignored)
}

/// From now on the calling thread, and threads that it starts, receive no signal but this one and those raised by their own
/// instructions.
pub fn take_only(signal: i32) {
    // SAFETY: both sets are initialised by the calls for that purpose, and live through them.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for kept in [signal, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut all, kept);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Waits until one of the descriptors is readable or hung up, or the time limit expires; meanwhile the thread receives this signal even
/// if it is blocked. Says for each descriptor whether something happened; a signal ends the wait with none.
///
/// Errors: `ENOMEM`, `EINVAL` more descriptors than a process may have.
pub fn wait_open_to(signal: i32, waits_for: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        waits_for.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the sets are initialised by the calls for that purpose; `polled` has as many entries as it says; all live through the
    // calls.
    let found = unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask);
        libc::sigdelset(&raw mut mask, signal);
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit, &raw const mask)
    };
    let error = io::Error::last_os_error();
    match found {
        -1 if error.kind() == io::ErrorKind::Interrupted => Ok(vec![false; polled.len()]),
        -1 => Err(error),
        _ => Ok(polled.iter().map(|polled| polled.revents != 0).collect()),
    }
}

/// The recipient of a signal.
#[derive(Debug)]
pub struct Addressee {
    fd: OwnedFd,
}

impl Addressee {
    /// One thread of a process, so no other is interrupted. Errors: `EINVAL` the kernel is older than 6.9, `ESRCH` no such thread.
    pub fn thread(thread: u32) -> io::Result<Self> {
        // SAFETY: takes numbers and gives a new descriptor, which nobody else has, or an error.
        let fd = unsafe { made(libc::syscall(libc::SYS_pidfd_open, thread, libc::PIDFD_THREAD)) }?;
        Ok(Self { fd })
    }

    /// Any thread of the process. Errors: no descriptors are left.
    pub fn process(process: &PidFd) -> io::Result<Self> {
        Ok(Self { fd: process.as_fd().try_clone_to_owned()? })
    }

    /// Sends a real-time signal with a number, as if by `sigqueue(3)`.
    ///
    /// Errors: `EAGAIN` the user has too many pending signals, `ESRCH` the process has ended, `EPERM` it belongs to another user
    /// (CAP_KILL).
    pub fn send(&self, signal: i32, number: u64) -> io::Result<()> {
        let information = Information {
            signal,
            error: 0,
            code: libc::SI_QUEUE,
            padding: 0,
            pid: std::process::id(),
            uid: getuid().as_raw(),
            number,
            rest: [0; 96],
        };
        // SAFETY: the kernel reads a `siginfo_t`; `Information` has its size and layout, with every byte written.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), signal, &raw const information, 0)
        };
        checked(sent).map(drop)
    }
}

/// `siginfo_t` on 64-bit Linux, in its form for `SI_QUEUE`.
#[repr(C)]
struct Information {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    pid: u32,
    uid: u32,
    number: u64,
    rest: [u8; 96],
}

const _: () = assert!(size_of::<Information>() == size_of::<libc::siginfo_t>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    static NUMBER: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_number_arrives_at_the_thread_it_is_for_while_it_waits() {
        let signal = libc::SIGRTMIN() + 9;
        assert_eq!(disposition(signal).unwrap(), Disposition::Default);
        let note = |information: &libc::siginfo_t| {
            // SAFETY: the signal was queued, so it carries a value.
            NUMBER.store(unsafe { information.si_value() }.sival_ptr as u64, Ordering::SeqCst);
        };
        // SAFETY: the handler stores a number, which is async-signal-safe.
        unsafe { signal_hook_registry::register_sigaction(signal, note) }.unwrap();
        assert_eq!(disposition(signal).unwrap(), Disposition::Handled);
        // SAFETY: it takes nothing and cannot fail.
        let to = match Addressee::thread(unsafe { libc::gettid() } as u32) {
            // A process-directed signal would go to another of the test's threads.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return eprintln!("skipped: this kernel sends signals to whole processes only (before 6.9)");
            }
            to => to.unwrap(),
        };
        take_only(libc::SIGUSR1);
        to.send(signal, u64::MAX - 5).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(NUMBER.load(Ordering::SeqCst), 0, "it is blocked");
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let long = Some(Duration::from_secs(20));
        assert_eq!(wait_open_to(signal, &[one.as_fd()], long).unwrap(), [false]);
        assert_eq!(NUMBER.load(Ordering::SeqCst), u64::MAX - 5);
        let began = Instant::now();
        let short = Some(Duration::from_millis(30));
        assert_eq!(wait_open_to(signal, &[one.as_fd()], short).unwrap(), [false]);
        assert!(began.elapsed() >= Duration::from_millis(30));
        other.write_all(b"x").unwrap();
        assert_eq!(wait_open_to(signal, &[one.as_fd()], long).unwrap(), [true]);
        one.read_exact(&mut [0]).unwrap();
        drop(other);
        assert_eq!(wait_open_to(signal, &[one.as_fd()], long).unwrap(), [true], "it hung up");
    }

    #[test]
    fn who_has_ended_is_sent_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let held = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        let error = Addressee::process(&held).unwrap().send(libc::SIGRTMIN(), 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
