//! What can keep a tracker from observing, each with the next step.

use std::io;
use std::path::PathBuf;

use heat::TrackerKind;
use heat::units::Bytes;
use hugepilot_os::rights::remedy;
use hugepilot_os::stop::Stopped;
use kernel::KernelError;
use kernel::target::TargetError;

/// Why a process could not be observed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ObserveError {
    #[error(
        "the kernel refused the eBPF program that reads page tables: {cause}. It needs CAP_BPF and CAP_PERFMON, \
         BTF in /sys/kernel/btf/vmlinux, and a kernel not locked down for confidentiality; `hugepilot doctor` \
         shows which is missing"
    )]
    BpfRefused { cause: libbpf_rs::Error },
    #[error(
        "cannot attach the eBPF page-table reader to process {pid}: {cause}. It needs Linux 6.1 or later and a kernel \
         not locked down for confidentiality; `hugepilot doctor` shows what is missing"
    )]
    Attach { pid: u32, cause: io::Error },
    #[error(
        "reading the page tables of process {pid} failed: {cause}; try again, and run `hugepilot doctor` if it stays"
    )]
    Read { pid: u32, cause: io::Error },
    #[error("process {pid} exited while it was observed; nothing was changed")]
    Exited { pid: u32 },
    #[error("process {pid} replaced its program (exec) while it was observed; run the command again")]
    Exec { pid: u32 },
    #[error("cannot read /proc/self/pagemap, which proves where the kernel maps physical memory: {cause}")]
    Pagemap { cause: io::Error },
    #[error("page frame numbers are hidden from this process; {}", remedy("CAP_SYS_ADMIN"))]
    HiddenFrames,
    #[error(
        "the kernel's direct map of physical memory was not found, so page tables cannot be read; this kernel or \
         hypervisor lays memory out in a way that hugepilot does not know. Please report the output of `hugepilot doctor --json`"
    )]
    NoDirectMap,
    #[error(
        "cannot clear accessed bits through {path} of process {pid}: {cause}. It needs the same user or \
         CAP_DAC_OVERRIDE, and a kernel with CONFIG_PROC_PAGE_MONITOR", path = path.display()
    )]
    Clear { pid: u32, path: PathBuf, cause: io::Error },
    #[error(
        "cannot advise memory of process {pid}: {cause}. It needs CAP_SYS_NICE, and CAP_SYS_PTRACE for another user's process"
    )]
    Advise { pid: u32, cause: io::Error },
    #[error("cannot read {}: {cause}; {}", path.display(), remedy("CAP_DAC_OVERRIDE and CAP_SYS_ADMIN"))]
    FrameTable { path: PathBuf, cause: io::Error },
    #[error(
        "this kernel marks no idle pages (CONFIG_IDLE_PAGE_TRACKING, {path}); choose another tracker, such as page-walk",
        path = path.display()
    )]
    NoIdlePages { path: PathBuf },
    #[error("cannot {doing} {}: {cause}; {}", path.display(), remedy("CAP_DAC_OVERRIDE"))]
    IdlePages { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error(
        "process {pid} has memory scattered over {addresses} of addresses, more than the {most} that can be scanned \
         without eBPF; use --tracker page-walk"
    )]
    TooSparse { pid: u32, addresses: Bytes, most: Bytes },
    #[error(
        "process {pid} has memory in more than {most} regions of 2 MiB, which would take hugepilot more memory than is allowed \
         for one process; leave it out ([[never]] in hugepilot.toml), or let it map less, or map it fewer times"
    )]
    TooManyRegions { pid: u32, most: usize },
    #[error(
        "this process's own writes cannot be watched: {cause}. It needs Linux 6.7 or later, and userfaultfd not forbidden"
    )]
    WriteScan { cause: io::Error },
    #[error("{tracker} sees only the process that asks for it; it is there for programs that manage their own memory")]
    OnlyItself { tracker: TrackerKind },
    #[error(transparent)]
    Damon(#[from] crate::damon::DamonError),
    #[error(transparent)]
    Perf(#[from] crate::perf_mem::PerfError),
    #[error("stopped by a signal; nothing was changed")]
    Stopped(#[from] Stopped),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
