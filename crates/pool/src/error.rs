//! Errors about pools; each says the next step.

use std::io;
use std::path::PathBuf;

use heat::units::Bytes;
use hugepilot_os::rights::remedy;
use kernel::KernelError;
use kernel::hugetlb::size_name;

use crate::is_giant;

/// What can go wrong with pools, mounts and files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message says it")]
pub enum PoolError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(
        "this kernel has no pools of huge pages (CONFIG_HUGETLBFS): boot one that has, such as a stock kernel of Debian's or Fedora's"
    )]
    NoPools,
    #[error("no pool of pages of {page_size} here: {why}. There are pools of {offered}")]
    NotOffered { page_size: Bytes, why: &'static str, offered: String },
    #[error("pages of {} are named twice: name each size once", size_name(*page_size))]
    Twice { page_size: Bytes },
    #[error("memory node {node} has no pages of {}: name one of {nodes}", size_name(*page_size))]
    NoNode { node: u32, page_size: Bytes, nodes: String },
    #[error(
        "pages of {page_size} cannot be taken on demand with this kernel, so nothing was changed: reserve them instead (`hugepilot pool \
         set {}=N`)",
        size_name(*page_size)
    )]
    NotOnDemand { page_size: Bytes },
    #[error("cannot write {value} to {}: {cause}{step}", path.display())]
    Write { path: PathBuf, value: String, cause: io::Error, step: String },
    #[error("cannot {doing} {}: {cause}{step}", path.display())]
    File { doing: &'static str, path: PathBuf, cause: io::Error, step: String },
    #[error("{} was not written by hugepilot, so it is left alone: move it away, or change it by hand", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{} reserves pages already, with words that hugepilot did not write ({words}): change them by hand, or take them away",
        path.display()
    )]
    ForeignWords { path: PathBuf, words: String },
    #[error("a limit of {limit} holds no page of {page_size}: give at least one page")]
    LimitBelowPage { limit: Bytes, page_size: Bytes },
    #[error("{point} is no hugetlbfs mount: `hugepilot pool` lists those there are")]
    NotMounted { point: String },
    #[error("{point} is a mount already: give another directory, or `hugepilot pool unmount {point}` first")]
    Mounted { point: String },
    #[error("no {kind} '{name}' in {}: give its number (`getent {database} {name}` finds it)", file.display())]
    NoAccount { kind: &'static str, name: String, file: PathBuf, database: &'static str },
}

/// What writing the kernel's settings and mounting take.
const WRITING: &str = "CAP_DAC_OVERRIDE and CAP_SYS_ADMIN";

impl PoolError {
    /// A refusal to write a number of pages of this size.
    pub(super) fn write(path: PathBuf, value: impl ToString, page_size: Bytes, cause: io::Error) -> Self {
        let value = value.to_string();
        let step = match cause.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => format!("; {}", remedy(WRITING)),
            Some(libc::EROFS) => "; what this container sees can only be read: run it on the host".to_owned(),
            Some(libc::EINVAL) if is_giant(page_size) => format!(
                "; this kernel cannot do that with pages of {page_size} while it runs: reserve them at boot, with hugepagesz={size} \
                 hugepages=N on the kernel's command line, which `hugepilot pool persist {size}=N` prepares",
                size = size_name(page_size)
            ),
            _ => String::new(),
        };
        Self::Write { path, value, cause, step }
    }

    /// A refusal to create or remove a file or a mount.
    pub(super) fn file(doing: &'static str, path: impl Into<PathBuf>, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        let step = match cause.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => format!("; {}", remedy(WRITING)),
            Some(libc::EROFS) => "; the file system can only be read".to_owned(),
            Some(libc::EBUSY) => "; somebody uses it (`fuser -m` on it says who): end that first".to_owned(),
            Some(libc::ENODEV) => "; this kernel has no hugetlbfs".to_owned(),
            Some(libc::ENOMEM) => {
                "; the pool has not enough free pages that are promised to nobody: `hugepilot pool` shows them"
                    .to_owned()
            }
            _ => String::new(),
        };
        Self::File { doing, path: path.into(), cause, step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_lead_on() {
        let write = |errno, size| {
            PoolError::write("/p".into(), 4, Bytes(size), io::Error::from_raw_os_error(errno)).to_string()
        };
        assert!(write(libc::EACCES, 2 << 20).ends_with(&format!("; {}", remedy(WRITING))));
        let giant = write(libc::EINVAL, 1 << 30);
        assert!(giant.contains("hugepagesz=1G hugepages=N") && giant.contains("pool persist 1G=N"), "{giant}");
        assert!(!write(libc::EINVAL, 2 << 20).contains("boot"));
        let busy = PoolError::file("unmount", "/h", io::Error::from_raw_os_error(libc::EBUSY)).to_string();
        assert!(busy.starts_with("cannot unmount /h: ") && busy.contains("fuser"), "{busy}");
    }
}
