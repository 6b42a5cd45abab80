//! System calls made only by programs under test, which imitate the processes that hugepilot meets.
//!
//! Owns: children that share memory by fork, memory that is locked or inaccessible, or whose faults a userfaultfd serves, a thread's memory
//! policy, default signals, an empty virtual machine. Never touches: anything that hugepilot itself uses.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::answer::{checked, made};
use crate::faults;
use crate::memory::AlignedMemory;
use crate::nodes::{MOST_NODES, mask_of};

/// `KVM_CREATE_VM`, from `linux/kvm.h`; part of the kernel's ABI.
const KVM_CREATE_VM: libc::Ioctl = 0xAE01;

/// Forks a child that sleeps until the calling thread ends, sharing this process's private memory until then. Nobody waits for the child:
/// let the whole process end soon after.
///
/// Errors: `EAGAIN`, `ENOMEM`.
pub fn fork_sleeper() -> io::Result<u32> {
    // SAFETY: it takes no argument and touches no memory of ours.
    fork_child(|| _ = unsafe { libc::pause() })
}

/// The same with a child that reads a byte of each base page repeatedly.
///
/// Errors: as [`fork_sleeper`].
pub fn fork_reader(memory: &AlignedMemory) -> io::Result<u32> {
    fork_child(|| read(memory))
}

/// Forks a child that reads a byte of each base page once, and waits for it to end.
///
/// Errors: `EAGAIN`, `ENOMEM`.
pub fn fork_brief_reader(memory: &AlignedMemory) -> io::Result<()> {
    let child = fork_child(|| {
        read(memory);
        // SAFETY: it ends the child at once, and touches no memory of ours.
        unsafe { libc::_exit(0) }
    })?;
    // SAFETY: with a null pointer for the status the kernel writes nothing.
    checked(unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) }).map(drop)
}

fn read(memory: &AlignedMemory) {
    memory.bytes().iter().step_by(4096).for_each(|byte| _ = std::hint::black_box(*byte));
}

/// From now on pages first touched by the calling thread, or threads that it starts, come from these memory nodes in turn, like with
/// `numactl --interleave`. Memory with a policy of its own keeps it.
///
/// Errors: `EINVAL` no such node, or it has no memory; `ENOSYS` the kernel was built without nodes.
pub fn interleave_thread(nodes: &[u32]) -> io::Result<()> {
    let mask = mask_of(nodes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let (call, most) = (libc::SYS_set_mempolicy, MOST_NODES + 1);
    // SAFETY: the kernel reads `MOST_NODES` bits of the mask; the number to pass is one more.
    checked(unsafe { libc::syscall(call, libc::MPOL_INTERLEAVE, mask.as_ptr(), most) }).map(drop)
}

/// Forks a child that repeats `work` forever. `work` may only read memory and make async-signal-safe calls.
fn fork_child(work: impl Fn()) -> io::Result<u32> {
    // SAFETY: between fork and its end the child makes only async-signal-safe calls (man 7 signal-safety), and never returns to Rust code
    // whose locks another thread may have held.
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

/// Restores the default action of the signals that end a program, even if the parent ignores them, as a shell does for background jobs.
/// Programs started from now on inherit this.
pub fn obey_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action replaces whatever was there; no handler of ours is lost, since programs under test call this before
        // they install any.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Keeps memory resident (`mlock`). Errors: `ENOMEM`, `EPERM` beyond the limit on locked memory.
pub fn lock(memory: &AlignedMemory) -> io::Result<()> {
    let bytes = memory.bytes();
    // SAFETY: the range is mapped for as long as `memory` lives; locking changes no contents.
    Ok(unsafe { rustix::mm::mlock(bytes.as_ptr().cast_mut().cast(), bytes.len()) }?)
}

/// Makes every access to this memory fault (`PROT_NONE`). It stays mapped and resident until the process ends.
///
/// Errors: `ENOMEM`.
pub fn forbid(memory: AlignedMemory) -> io::Result<()> {
    let (start, len) = (memory.bytes().as_ptr().cast_mut().cast(), memory.bytes().len());
    std::mem::forget(memory);
    // SAFETY: the range stays mapped forever because its owner is forgotten, and nobody can refer to it any more.
    Ok(unsafe { rustix::mm::mprotect(start, len, rustix::mm::MprotectFlags::empty()) }?)
}

/// A userfaultfd to which this memory's missing pages are left, kept alive by the descriptor. What is present is accessed as before; whoever
/// touches a missing page waits forever.
///
/// Errors: `ENOSYS` the kernel has no userfaultfd; `EPERM` forbidden (seccomp).
pub fn serve_missing_pages(memory: &AlignedMemory) -> io::Result<OwnedFd> {
    let faults = faults::open(0)?;
    faults::register(&faults, memory.address(), memory.len() as u64, faults::REGISTER_MODE_MISSING)?;
    Ok(faults)
}

/// An empty virtual machine, kept alive by the descriptor. Errors: no KVM here, or no permission to use it.
pub fn create_virtual_machine() -> io::Result<OwnedFd> {
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    // SAFETY: this ioctl takes a number (the default kind of machine) and no memory of ours. Nobody else has the descriptor that it
    // returns.
    unsafe { made(libc::ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0)) }
}
