//! A process under the pilot: held by file descriptor, and checked for whether hugepilot can help it.
//!
//! Owns: opening a process and rejecting those that cannot be helped, with the reason. Never touches: its memory.

use std::io;

use hugepilot_os::PidFd;
use serde::{Deserialize, Serialize};

use crate::process::{self, ProcessStatus};
use crate::{KernelError, Root};

/// A process, distinguished by its start time from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Clock ticks after boot at which it started.
    pub start_ticks: u64,
}

impl Process {
    /// The process that has this id now, if there is one.
    pub fn of(root: &Root, pid: u32) -> Option<Self> {
        process::start_time(root, pid).ok().map(|start_ticks| Self { pid, start_ticks })
    }

    /// Whether it is still running; a zombie is not.
    pub fn lives(&self) -> bool {
        let root = Root::host();
        Self::of(&root, self.pid) == Some(*self)
            && ProcessStatus::read(&root, self.pid).is_ok_and(|status| !status.is_zombie())
    }
}

/// How the names of programs that run virtual machines begin, cut to 15 characters as the kernel does.
const MONITORS: [&str; 5] = ["qemu-system-", "qemu-kvm", "cloud-hyperviso", "firecracker", "crosvm"];

/// A process that can be observed, or at least acted on.
#[derive(Debug)]
pub struct Target {
    handle: PidFd,
    root: Root,
    holds_kvm: bool,
    /// The process's name, at most 15 characters.
    pub name: String,
    /// Clock ticks after boot at which it started; with the pid it identifies the process for good.
    pub start_time: u64,
    /// Whether it may have huge pages: false after `prctl(PR_SET_THP_DISABLE)`; None where the kernel does not say.
    pub huge_pages_enabled: Option<bool>,
}

/// Why a process cannot be a target.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TargetError {
    #[error(
        "no process {pid} here: it has ended, or it runs in another pid namespace (inside a container, use the id that the \
         host gives it: `ps -e` on the host)"
    )]
    NoSuchProcess { pid: u32 },
    #[error("{tid} is a thread of process {pid}, not a process; use {pid}")]
    Thread { tid: u32, pid: u32 },
    #[error("process {pid} ({name}) is a kernel thread: it has no memory of its own to put on huge pages")]
    KernelThread { pid: u32, name: String },
    #[error("process {pid} is hugepilot itself; give the id of the program to be observed")]
    Itself { pid: u32 },
    #[error("process {pid} ({name}) has ended and only waits for its parent to take note (a zombie)")]
    Zombie { pid: u32, name: String },
    #[error(
        "process {pid} ({name}) is a 32-bit program; hugepilot works on 64-bit programs only, because a 32-bit address space \
         is too small to gain"
    )]
    ThirtyTwoBit { pid: u32, name: String },
    #[error(
        "process {pid} ({name}) runs a virtual machine (KVM): its page walks happen in the guest's own tables, which the \
         host's page tables do not show. Run hugepilot inside the guest or, from here, `hugepilot promote --guest {pid}`, \
         which takes what is populated (in hugepilot.toml, `guest = true`)"
    )]
    VirtualMachine { pid: u32, name: String },
    #[error(
        "process {pid} ({name}) has huge pages switched off: it, or a parent of it, called prctl(PR_SET_THP_DISABLE). {}",
        to_switch_on(name)
    )]
    HugePagesOff { pid: u32, name: String },
    #[error("cannot open process {pid}: {cause}")]
    Open { pid: u32, cause: io::Error },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// What to do about a program that has huge pages switched off.
fn to_switch_on(name: &str) -> &'static str {
    match name {
        "redis-server" | "valkey-server" => {
            "Redis does so where transparent_hugepage/enabled is `always`: set `disable-thp no` in redis.conf, or that setting to \
             `madvise`, and restart it"
        }
        "mariadbd" | "mysqld" => {
            "MariaDB does so at its start: give it `--large-pages` and a pool (`hugepilot run --pages 2M`) in place of transparent ones"
        }
        _ => "Restart it without that; where systemd started it, look for `MemoryTHP=` in its unit",
    }
}

impl Target {
    /// Opens a process and checks that it can be observed.
    ///
    /// Errors: there is no such process; it is a thread, a kernel thread, a zombie, a 32-bit program, a virtual machine or hugepilot
    /// itself; or the kernel refuses to open or read it.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let target = Self::open_to_act(pid)?;
        target.ensure_walks_are_seen()?;
        Ok(target)
    }

    /// Opens a process for acting, which a virtual machine allows, too.
    ///
    /// Errors: as [`Target::open`], except for virtual machines.
    pub fn open_to_act(pid: u32) -> Result<Self, TargetError> {
        let root = Root::host();
        if pid == std::process::id() {
            return Err(TargetError::Itself { pid });
        }
        let handle = PidFd::open(pid).map_err(|cause| not_opened(&root, pid, cause))?;
        let status = ProcessStatus::read(&root, pid).map_err(|error| gone(pid, error))?;
        let name = status.name.clone();
        if status.is_zombie() {
            return Err(TargetError::Zombie { pid, name });
        }
        if status.kernel_thread {
            return Err(TargetError::KernelThread { pid, name });
        }
        if process::is_32_bit(&root, pid) == Some(true) {
            return Err(TargetError::ThirtyTwoBit { pid, name });
        }
        let holds_kvm = process::holds_kvm(&root, pid).map_err(|error| gone(pid, error))?;
        let start_time = process::start_time(&root, pid).map_err(|error| gone(pid, error))?;
        Ok(Self { handle, root, holds_kvm, name, start_time, huge_pages_enabled: status.thp_enabled })
    }

    /// The process id, in this pid namespace.
    pub fn pid(&self) -> u32 {
        self.handle.pid()
    }

    /// The process's identity.
    pub fn process(&self) -> Process {
        Process { pid: self.pid(), start_ticks: self.start_time }
    }

    /// The process, held by file descriptor.
    pub fn handle(&self) -> &PidFd {
        &self.handle
    }

    /// Checks that page walks go through the process's own tables, so that it can be observed.
    ///
    /// Errors: it runs a virtual machine (KVM).
    pub fn ensure_walks_are_seen(&self) -> Result<(), TargetError> {
        match self.holds_kvm {
            true => Err(TargetError::VirtualMachine { pid: self.pid(), name: self.name.clone() }),
            false => Ok(()),
        }
    }

    /// Whether it seems to run a virtual machine: by KVM, or by its name.
    pub fn seems_virtual_machine(&self) -> bool {
        self.holds_kvm || MONITORS.iter().any(|name| self.name.starts_with(name))
    }

    /// Checks that the process may have huge pages.
    ///
    /// Errors: the process, or a parent of it, has switched them off (`prctl(PR_SET_THP_DISABLE)`).
    pub fn ensure_huge_pages_enabled(&self) -> Result<(), TargetError> {
        match self.huge_pages_enabled {
            Some(false) => Err(TargetError::HugePagesOff { pid: self.pid(), name: self.name.clone() }),
            Some(true) | None => Ok(()),
        }
    }

    /// A thread that is still running, None if there is none: the main thread may have ended before the others.
    ///
    /// Errors: the process has ended (`is_gone`).
    pub fn living_thread(&self) -> Result<Option<u32>, KernelError> {
        let threads = process::threads(&self.root, self.pid())?;
        let lives = |thread: &&u32| ProcessStatus::read(&self.root, **thread).is_ok_and(|status| !status.is_zombie());
        Ok(threads.iter().find(lives).copied())
    }
}

fn not_opened(root: &Root, pid: u32, cause: io::Error) -> TargetError {
    match ProcessStatus::read(root, pid) {
        Ok(status) if status.tgid != pid => TargetError::Thread { tid: pid, pid: status.tgid },
        Ok(_) => TargetError::Open { pid, cause },
        Err(_) => TargetError::NoSuchProcess { pid },
    }
}

fn gone(pid: u32, error: KernelError) -> TargetError {
    if error.is_gone() { TargetError::NoSuchProcess { pid } } else { TargetError::Kernel(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_the_next_one_with_its_id() {
        let own = Process::of(&Root::host(), std::process::id()).expect("it runs");
        assert!(own.lives());
        assert!(!Process { start_ticks: own.start_ticks + 1, ..own }.lives());
    }

    #[test]
    fn who_has_huge_pages_switched_off_is_told_what_is_true_of_his_program() {
        let told = |name: &str| TargetError::HugePagesOff { pid: 7, name: name.to_owned() }.to_string();
        assert!(told("redis-server").contains("disable-thp no") && !told("redis-server").contains("MariaDB"));
        assert!(told("mariadbd").contains("--large-pages") && !told("mariadbd").contains("Redis"));
        assert!(told("search").ends_with("in its unit"), "{}", told("search"));
    }
}
