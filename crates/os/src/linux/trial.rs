//! System calls that only programs under test make, to look like the processes that hugepilot meets.
//!
//! Owns: children that share memory by fork, memory that is locked or forbidden, a memory policy of a whole thread, default signals, an empty virtual machine. Never touches:
//! anything that hugepilot itself uses.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::answer::{checked, made};
use crate::memory::AlignedMemory;
use crate::nodes::{MOST_NODES, mask_of};

/// `KVM_CREATE_VM`, from `linux/kvm.h`; part of the kernel's ABI.
const KVM_CREATE_VM: libc::Ioctl = 0xAE01;

/// Forks a child that sleeps until the thread that called this ends, and so shares this process's private memory for that
/// long. The child is never waited for: let the whole process end soon after.
///
/// Errors: `EAGAIN`, `ENOMEM`.
pub fn fork_sleeper() -> io::Result<u32> {
    // SAFETY: it takes nothing and touches no memory of ours.
    fork_child(|| _ = unsafe { libc::pause() })
}

/// The same with a child that reads a byte of each base page, again and again.
///
/// Errors: as [`fork_sleeper`].
pub fn fork_reader(memory: &AlignedMemory) -> io::Result<u32> {
    fork_child(|| read(memory))
}

/// Forks a child that reads a byte of each base page once and ends, and waits for that.
///
/// Errors: `EAGAIN`, `ENOMEM`.
pub fn fork_brief_reader(memory: &AlignedMemory) -> io::Result<()> {
    let child = fork_child(|| {
        read(memory);
        // SAFETY: it ends the child at once, and touches no memory of ours.
        unsafe { libc::_exit(0) }
    })?;
    // SAFETY: the kernel writes nothing where it is given no place for the status.
    checked(unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) }).map(drop)
}

fn read(memory: &AlignedMemory) {
    memory.bytes().iter().step_by(4096).for_each(|byte| _ = std::hint::black_box(*byte));
}

/// From now on pages that the calling thread, and threads that it starts, touch first come from these memory nodes in turn, as
/// `numactl --interleave` arranges it. Memory with a policy of its own keeps that.
///
/// Errors: `EINVAL` no such node, or it has no memory; `ENOSYS` the kernel was built without nodes.
pub fn interleave_thread(nodes: &[u32]) -> io::Result<()> {
    let mask = mask_of(nodes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let (call, most) = (libc::SYS_set_mempolicy, MOST_NODES + 1);
    // SAFETY: the kernel reads `MOST_NODES` bits of the mask, for which the number to pass is one more.
    checked(unsafe { libc::syscall(call, libc::MPOL_INTERLEAVE, mask.as_ptr(), most) }).map(drop)
}

/// Forks a child that does the same for ever, which must be no more than reading memory and calls that are async-signal-safe.
fn fork_child(work: impl Fn()) -> io::Result<u32> {
    // SAFETY: between fork and its end the child makes only calls that are async-signal-safe (man 7 signal-safety), and
    // never returns to Rust code whose locks another thread may have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it takes plain numbers and touches no memory of ours.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        loop {
            work();
        }
    }
    u32::try_from(child).map_err(|_| io::Error::last_os_error())
}

/// Obeys the signals that end a program, also where whoever started this process ignores them, as a shell does for what it runs
/// in the background. Programs started from now on obey them too.
pub fn obey_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action replaces whatever was there; no handler of ours can be lost, since programs under test call
        // this before they install any.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Keeps memory resident (`mlock`). Errors: `ENOMEM`, `EPERM` beyond the limit on locked memory.
pub fn lock(memory: &AlignedMemory) -> io::Result<()> {
    let bytes = memory.bytes();
    // SAFETY: the range is mapped for as long as `memory` lives; locking changes no contents.
    Ok(unsafe { rustix::mm::mlock(bytes.as_ptr().cast_mut().cast(), bytes.len()) }?)
}

/// Makes every access to memory fault (`PROT_NONE`). It stays mapped, and resident, until the process ends.
///
/// Errors: `ENOMEM`.
pub fn forbid(memory: AlignedMemory) -> io::Result<()> {
    let (start, len) = (memory.bytes().as_ptr().cast_mut().cast(), memory.bytes().len());
    std::mem::forget(memory);
    // SAFETY: the range is mapped for ever, because its owner is forgotten, and nobody can refer to it any more.
    Ok(unsafe { rustix::mm::mprotect(start, len, rustix::mm::MprotectFlags::empty()) }?)
}

/// An empty virtual machine, held open by the descriptor. Errors: no KVM here, or no right to use it.
pub fn create_virtual_machine() -> io::Result<OwnedFd> {
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    // SAFETY: this ioctl takes a number (the default kind of machine), and no memory of ours. What it makes nobody else has.
    unsafe { made(libc::ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0)) }
}
