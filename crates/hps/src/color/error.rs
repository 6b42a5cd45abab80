//! Why there is no colored memory, as a message and as the errno that C gets.

use std::io;

use hugepilot_os::rights::remedy;

/// Why there is no colored memory.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ColorError {
    #[error("an arena of 0 bytes has no pages; ask for some")]
    Empty,
    #[error("a cache has 1 to {most} colors, not {count}; `hugepilot color probe` tells how many")]
    Count { count: u32, most: u32 },
    #[error("there is no color {color} among {count}: they are counted from 0")]
    NoSuchColor { color: u32, count: u32 },
    #[error("more colors are named than there are")]
    TooMany,
    #[error("no color is left: name at least one that may be used")]
    NoColor,
    #[error(
        "the kernel hides page frames from this process, as from all in a user namespace; {}",
        remedy("CAP_SYS_ADMIN")
    )]
    FramesHidden,
    #[error(
        "the kernel closes page frames (/proc/self/pagemap) to this process, as to one that has its rights by setcap: give it ambient \
         capabilities instead (AmbientCapabilities=), or have it call prctl(PR_SET_DUMPABLE, 1) first"
    )]
    FramesClosed,
    #[error(
        "this process has locked all memory to come, and no page can be moved to a place that has one already: make colored memory \
         before mlockall with MCL_FUTURE"
    )]
    Locked,
    #[error(
        "{needed} bytes of memory are needed for a while to choose from, and {available} are available: ask for less, or allow more \
         colors"
    )]
    Memory { needed: u64, available: u64 },
    #[error(
        "too few pages of the wanted colors came: {found} of {wanted}; allow more colors, or try again when more memory is free"
    )]
    TooFew { found: u64, wanted: u64 },
    #[error(
        "each of {pages} pages would be a mapping of its own, and a process has at most {most}: raise vm.max_map_count, or use Linux \
         6.8, which moves pages without"
    )]
    TooManyMappings { pages: u64, most: u64 },
    #[error("cannot {doing}: {cause}")]
    System { doing: &'static str, cause: io::Error },
}

impl ColorError {
    /// Why page frames could not be read.
    pub(super) fn of_frames(cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::EACCES) => Self::FramesClosed,
            _ => Self::System { doing: "read page frames", cause },
        }
    }

    /// The errno for C, positive.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Empty
            | Self::Count { .. }
            | Self::NoSuchColor { .. }
            | Self::TooMany
            | Self::NoColor
            | Self::Locked => libc::EINVAL,
            Self::FramesHidden => libc::EPERM,
            Self::FramesClosed => libc::EACCES,
            Self::Memory { .. } | Self::TooFew { .. } | Self::TooManyMappings { .. } => libc::ENOMEM,
            Self::System { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_are_closed_to_a_program_have_a_way_out() {
        let of_errno = |errno| ColorError::of_frames(io::Error::from_raw_os_error(errno));
        let closed = of_errno(libc::EACCES);
        assert!(closed.errno() == libc::EACCES && closed.to_string().contains("PR_SET_DUMPABLE"), "{closed}");
        let other = of_errno(libc::EMFILE);
        assert!(other.errno() == libc::EMFILE && other.to_string().contains("read page frames"), "{other}");
    }
}
