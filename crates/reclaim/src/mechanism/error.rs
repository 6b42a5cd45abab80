//! What prevents reclaim; each error says the next step.

use std::io;
use std::path::PathBuf;

use damon::DamonError;
use hugepilot_os::rights::remedy;
use kernel::KernelError;

/// Why memory is not reclaimed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ReclaimError {
    #[error(transparent)]
    Damon(#[from] DamonError),
    #[error("where memory lies is hidden from this process (/proc/iomem); {}", remedy("CAP_SYS_ADMIN"))]
    HiddenMemory,
    #[error(
        "no version 2 of control groups is mounted, whose memory.reclaim takes memory back (version 1 has none); boot with \
         systemd.unified_cgroup_hierarchy=1, or name directories whose files may leave memory (--drop-behind)"
    )]
    NoCgroups,
    #[error(
        "no control group has a file memory.reclaim (Linux 5.19, and the memory controller switched on for it); name directories whose \
         files may leave memory (--drop-behind)"
    )]
    NoMemoryReclaim,
    #[error("cannot write {value} to {}: {cause}; {}", path.display(), remedy("CAP_DAC_OVERRIDE"))]
    MemoryReclaim { path: PathBuf, value: String, cause: io::Error },
    #[error("cannot open {}: {cause}; name a directory, or a file, that you may read", path.display())]
    Open { path: PathBuf, cause: io::Error },
    #[error("{} is neither a directory nor a file with contents in memory; name one that is", path.display())]
    NoDirectory { path: PathBuf },
    #[error("cannot tell what of a file is in memory (cachestat): {cause}{}", cache_step(cause))]
    CacheState { cause: io::Error },
    #[error(
        "nothing reclaims memory here. {why}. Name directories whose files may leave memory: `hugepilot reclaim --drop-behind /var/backups`"
    )]
    NoMechanism { why: String },
    #[error(
        "another hugepilot reclaims memory already (process {pid}), and two would undo each other's work; `hugepilot reclaim --status` shows \
         what it does"
    )]
    Another { pid: String },
    #[error("cannot {doing} {}: {cause}", path.display())]
    State { doing: &'static str, path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

fn cache_step(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::ENOSYS) => {
            "; it takes Linux 6.5 (cachestat), without which dirty files could not be told from clean ones"
        }
        _ => "",
    }
}
