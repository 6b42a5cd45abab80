//! Memory nodes (NUMA) and processors: which node pages are on, where this process's own pages go, where a thread runs.
//!
//! Owns: `move_pages(2)` as a query, `mbind(2)` on our own memory, the processors that a thread may run on. Never touches: the pages or
//! policies of another process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_ulong};
use std::ptr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::PidFd;
use crate::answer::checked;
use crate::memory::AlignedMemory;

/// The most that Linux can be built for (`CONFIG_NODES_SHIFT` of 10).
pub(crate) const MOST_NODES: usize = 1024;
const WORD: usize = c_ulong::BITS as usize;

/// The node of each of these pages of a process, in the same order. None for a page that is not present, is the zero page, or is
/// unmapped. Nothing is moved.
///
/// Errors: `ESRCH` the process has ended, `EPERM` CAP_SYS_PTRACE is missing, `ENOSYS` the kernel was built without nodes.
pub fn nodes_of_pages(target: &PidFd, pages: &[u64]) -> io::Result<Vec<Option<u32>>> {
    let pid = c_int::try_from(target.pid()).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut nodes: Vec<c_int> = vec![-libc::ENOENT; pages.len()];
    // SAFETY: the kernel reads one address and writes one status per page, and both slices have that many. An address is as wide
    // as a u64 on the 64-bit systems that this builds for, and none is dereferenced. Without a list of nodes nothing is moved.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr().cast::<*const c_void>(),
            ptr::null::<c_int>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    checked(asked)?;
    // The call takes a pid, which is certain to be the target's only while the target has not exited.
    if target.has_exited() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(nodes.into_iter().map(|node| u32::try_from(node).ok()).collect())
}

/// Which nodes the kernel takes pages for some memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NodePolicy {
    /// These nodes and no other: if they have no free memory, the OOM killer runs.
    Bind = libc::MPOL_BIND,
    /// This node, or others if it has no free memory.
    Prefer = libc::MPOL_PREFERRED,
    /// These nodes in turn.
    Interleave = libc::MPOL_INTERLEAVE,
}

impl AlignedMemory {
    /// From now on new pages of this memory come from these nodes; existing pages stay where they are.
    ///
    /// Errors: `EINVAL` no such node, or it has no memory; `ENOSYS` the kernel was built without nodes.
    pub fn set_node_policy(&mut self, policy: NodePolicy, nodes: &[u32]) -> io::Result<()> {
        let mask = mask_of(nodes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the range is this mapping's own; a policy changes neither contents nor addresses. The kernel reads `MOST_NODES` bits of
        // the mask; the number to pass is one more.
        let set = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.address(),
                self.len(),
                policy as c_int,
                mask.as_ptr(),
                MOST_NODES + 1,
                0,
            )
        };
        checked(set).map(drop)
    }
}

/// None for a node that cannot exist.
pub(crate) fn mask_of(nodes: &[u32]) -> Option<[c_ulong; MOST_NODES / WORD]> {
    let mut mask = [0; MOST_NODES / WORD];
    for &node in nodes {
        *mask.get_mut(node as usize / WORD)? |= 1 << (node as usize % WORD);
    }
    Some(mask)
}

/// The processor that the calling thread runs on. It may change at any time unless the thread is pinned.
pub fn current_cpu() -> u32 {
    sched_getcpu() as u32
}

/// The processors that the calling thread may run on, ascending.
///
/// Errors: `EINVAL` the machine has more than 1024 processors.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// Moves the calling thread to any of these processors for good; threads that it starts later inherit this.
///
/// Errors: `EINVAL` none of them is online, or a control group forbids them all, or the machine has more than 1024.
pub fn stay_on(cpus: &[u32]) -> io::Result<()> {
    let mut only = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        only.set(cpu as usize);
    }
    Ok(sched_setaffinity(None, &only)?)
}

/// While it lives, the calling thread runs on these processors only; threads started meanwhile stay there for good.
#[derive(Debug)]
pub struct PinnedTo {
    before: CpuSet,
    // Must be dropped on the thread that created it.
    _not_send: PhantomData<*const ()>,
}

impl PinnedTo {
    /// Moves the calling thread to this processor. Errors: as [`PinnedTo::cpus`].
    pub fn cpu(cpu: u32) -> io::Result<Self> {
        Self::cpus(&[cpu])
    }

    /// Moves the calling thread to any of these processors. Errors: as [`stay_on`].
    pub fn cpus(cpus: &[u32]) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        stay_on(cpus)?;
        Ok(Self { before, _not_send: PhantomData })
    }
}

impl Drop for PinnedTo {
    fn drop(&mut self) {
        // If all of those processors have been taken away meanwhile, the kernel has already chosen others.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn own() -> PidFd {
        PidFd::open(std::process::id()).unwrap()
    }

    /// Whether the kernel was built without nodes; prints that.
    fn is_without_nodes() -> bool {
        let without = !std::path::Path::new("/proc/self/numa_maps").exists();
        if without {
            eprintln!("skipped: this kernel knows no memory nodes");
        }
        without
    }

    #[test]
    fn only_present_pages_are_on_a_node() {
        if is_without_nodes() {
            return;
        }
        let mut memory = AlignedMemory::anonymous(3 * PAGE).unwrap();
        memory.bytes_mut()[PAGE] = 1;
        let pages = [0, 1, 2].map(|page| memory.address() + (page * PAGE) as u64);
        let nodes = nodes_of_pages(&own(), &[pages[0], pages[1], 0x1000]).unwrap();
        assert!(matches!(nodes[..], [None, Some(_), None]), "{nodes:?}");
        assert_eq!(nodes_of_pages(&own(), &[]).unwrap(), []);
    }

    #[test]
    fn memory_bound_to_a_node_comes_from_it() {
        if is_without_nodes() {
            return;
        }
        let mut memory = AlignedMemory::anonymous(PAGE).unwrap();
        memory.bytes_mut()[0] = 1;
        let here = nodes_of_pages(&own(), &[memory.address()]).unwrap()[0].expect("it was written");
        let mut bound = AlignedMemory::anonymous(PAGE).unwrap();
        bound.set_node_policy(NodePolicy::Bind, &[here]).unwrap();
        bound.bytes_mut()[0] = 1;
        assert_eq!(nodes_of_pages(&own(), &[bound.address()]).unwrap(), [Some(here)]);
        let of_kernel = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
        assert!(of_kernel.contains(&format!("bind:{here} ")), "{of_kernel}");
        for none in [1023, 1024, u32::MAX] {
            assert_eq!(
                bound.set_node_policy(NodePolicy::Bind, &[none]).unwrap_err().raw_os_error(),
                Some(libc::EINVAL),
                "{none}"
            );
        }
    }

    #[test]
    fn a_process_that_has_ended_has_no_pages() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let handle = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        assert!(nodes_of_pages(&handle, &[0x1000]).is_err());
    }

    #[test]
    fn a_thread_is_pinned_until_the_guard_is_dropped() {
        let before = sched_getaffinity(None).unwrap();
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)) {
            let pinned = PinnedTo::cpu(cpu as u32).unwrap();
            assert_eq!(current_cpu(), cpu as u32);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            drop(pinned);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
        for none in [1023, 1024, u32::MAX] {
            assert!(before.count() == 1024 || PinnedTo::cpu(none).is_err(), "{none}");
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
