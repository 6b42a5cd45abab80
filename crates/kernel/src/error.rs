//! What can go wrong when reading kernel text: always with the path, and with a next step where there is one.
//!
//! Owns: the error types of the parsers. Never touches: the system.

use std::io;
use std::path::{Component, Path, PathBuf};

use heat::units::Bytes;
use hugepilot_os::rights::remedy;

/// A kernel file that could not be read or parsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel refused to open or read it.
    #[error("cannot read {}: {cause}{}", path.display(), next_step(path, cause))]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// It is longer than any known kernel prints it.
    #[error("{} is longer than {limit}; reading stopped there", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The bound that was passed.
        limit: Bytes,
    },
    /// It lists more mappings than there is memory to keep.
    #[error(
        "{} lists more than {most} mappings, the most that hugepilot reads of a process; lower vm.max_map_count to keep programs \
         within that", path.display()
    )]
    TooManyMappings {
        /// The file.
        path: PathBuf,
        /// The bound that was passed.
        most: usize,
    },
    /// It was read, but is not in the kernel's format.
    #[error("{}, {cause}; please report this with the output of 'uname -r'", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in the file, and what is wrong.
        cause: Malformed,
    },
}

/// A line that is not in the kernel's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found '{found}'")]
pub struct Malformed {
    /// Counted from 1.
    pub line: usize,
    /// What the parser expected.
    pub expected: &'static str,
    /// The text found there, truncated to [`Malformed::SHOWN`] characters.
    pub found: String,
}

impl Malformed {
    /// Characters of the offending line that an error repeats.
    pub const SHOWN: usize = 120;

    pub(crate) fn new(line: usize, expected: &'static str, found: &str) -> Self {
        Self { line, expected, found: found.chars().take(Self::SHOWN).collect() }
    }

    pub(crate) fn missing(text: &str, expected: &'static str) -> Self {
        Self::new(text.lines().count() + 1, expected, "the end of the file")
    }
}

impl KernelError {
    /// The file that the error is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. }
            | Self::TooLong { path, .. }
            | Self::TooManyMappings { path, .. }
            | Self::Malformed { path, .. } => path,
        }
    }

    /// The kernel's error number, if there was one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Read { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }

    /// The file does not exist (ENOENT, or ENOTDIR above it): the kernel lacks the feature, or the process has ended.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENOTDIR))
    }

    /// The process that the file belongs to has ended (ESRCH while reading, ENOENT when opening).
    pub fn is_gone(&self) -> bool {
        concerns_a_process(self.path()) && (self.is_absent() || self.errno() == Some(libc::ESRCH))
    }

    /// The file is longer, or lists more, than is read.
    pub fn is_too_much(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::TooManyMappings { .. })
    }

    /// The reader lacks a capability (EACCES, EPERM).
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EACCES | libc::EPERM))
    }
}

fn next_step(path: &Path, cause: &io::Error) -> String {
    match (cause.raw_os_error(), concerns_a_process(path)) {
        (Some(libc::ENOENT | libc::ESRCH), true) => {
            "; the process has ended, or runs where this one cannot see it (another container's pid namespace)"
                .to_owned()
        }
        (Some(libc::EACCES | libc::EPERM), true) => format!("; {}", remedy("CAP_SYS_PTRACE and CAP_DAC_OVERRIDE")),
        (Some(libc::EACCES | libc::EPERM), false) => format!("; {}", remedy("CAP_DAC_OVERRIDE and CAP_SYS_ADMIN")),
        _ => String::new(),
    }
}

/// Whether a component `proc` is followed by a process id.
fn concerns_a_process(path: &Path) -> bool {
    let names: Vec<Component> = path.components().collect();
    names.windows(2).any(|pair| {
        pair[0].as_os_str() == "proc" && pair[1].as_os_str().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, errno: i32) -> KernelError {
        KernelError::Read { path: path.into(), cause: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn an_ended_process_is_told_from_a_missing_feature() {
        assert!(read("/proc/12/maps", libc::ENOENT).is_gone());
        assert!(read("/proc/12/maps", libc::ESRCH).is_gone());
        assert!(!read("/proc/kallsyms", libc::ENOENT).is_gone());
        assert!(read("/proc/kallsyms", libc::ENOENT).is_absent());
        assert!(!read("/proc/12/maps", libc::EACCES).is_gone());
        assert!(read("/proc/12/maps", libc::EACCES).is_denied());
    }

    #[test]
    fn messages_name_the_path_and_the_next_step() {
        let ended = read("/proc/12/maps", libc::ESRCH).to_string();
        assert!(ended.contains("/proc/12/maps") && ended.contains("has ended"), "{ended}");
        let denied = read("/proc/kpageflags", libc::EACCES).to_string();
        assert!(denied.ends_with(&format!("; {}", remedy("CAP_DAC_OVERRIDE and CAP_SYS_ADMIN"))), "{denied}");
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(Malformed::new(1, "a number", &"é".repeat(1000)).found.chars().count(), Malformed::SHOWN);
    }
}
