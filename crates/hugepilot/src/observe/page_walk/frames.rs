//! What the kernel says of page frames: lazily freed, merged, or shared by fork.
//!
//! Owns: `/proc/kpageflags` and `/proc/kpagecount` (Documentation/admin-guide/mm/pagemap.rst). Never touches: the
//! target.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::ObserveError;
use crate::kernel::Root;

// include/uapi/linux/kernel-page-flags.h
const ANON: u64 = 1 << 12;
const SWAPBACKED: u64 = 1 << 14;
const MERGED: u64 = 1 << 21;

/// Frames asked for in one read.
const MOST_PER_READ: u64 = 8192;
/// Reading over a gap of this many frames is cheaper than another system call.
const GAP: u64 = 256;

/// A page frame, and the entry that maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Frame {
    pub(super) number: u64,
    /// The region, in the caller's numbering.
    pub(super) region: u32,
    /// The base page in the region, 0 to 511.
    pub(super) page: u16,
    /// Whether the entry says that the program wrote to it.
    pub(super) dirty: bool,
}

/// What the kernel says of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What promoting would do to it, other than move it.
    pub(super) found: Option<Trait>,
    /// Whether it is mapped more than once, by this process or others.
    pub(super) mapped_often: bool,
}

/// What promoting would do to a page, other than move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trait {
    LazilyFreed,
    SharedByFork,
    Merged,
}

/// Open files of the kernel's page-frame tables.
pub(super) struct FrameTables {
    flags: File,
    counts: File,
}

impl FrameTables {
    /// Errors: the kernel lacks the files, or CAP_DAC_OVERRIDE (to open) or CAP_SYS_ADMIN is missing.
    pub(super) fn open(root: &Root) -> Result<Self, ObserveError> {
        let open = |name: &str| {
            let path = root.path(&format!("proc/{name}"));
            File::open(&path).map_err(|source| ObserveError::FrameTable { path, source })
        };
        Ok(Self { flags: open("kpageflags")?, counts: open("kpagecount")? })
    }

    /// Tells what the kernel says of each frame. Sorts `frames`, because neighbours are read together.
    pub(super) fn inspect(
        &self,
        frames: &mut [Frame],
        mut tell: impl FnMut(&Frame, Answer),
    ) -> Result<(), ObserveError> {
        frames.sort_unstable();
        let mut rest = &frames[..];
        while let Some(first) = rest.first() {
            let (run, after) = rest.split_at(run_length(rest));
            let span = run[run.len() - 1].number - first.number + 1;
            let flags = read(&self.flags, "kpageflags", first.number, span)?;
            let counts = read(&self.counts, "kpagecount", first.number, span)?;
            for frame in run {
                let at = (frame.number - first.number) as usize;
                let found = classify(flags[at], counts[at], frame.dirty);
                tell(frame, Answer { found, mapped_often: counts[at] > 1 });
            }
            rest = after;
        }
        Ok(())
    }
}

/// How many of the leading frames one read serves.
fn run_length(frames: &[Frame]) -> usize {
    let first = frames[0].number;
    let near = |pair: &[Frame]| pair[1].number - pair[0].number <= GAP && pair[1].number - first < MOST_PER_READ;
    1 + frames.windows(2).take_while(|pair| near(pair)).count()
}

/// A lazily freed page that was written again is the program's again, which the kernel notes only when it would free it.
/// A page mapped once is shared with nobody, whatever its flags: many kernels (6.12 is one) mark every anonymous page as
/// merged, and a merged page that is mapped once is freed when it is promoted, so nothing grows.
fn classify(flags: u64, mapped: u64, dirty: bool) -> Option<Trait> {
    match flags {
        flags if flags & ANON == 0 => None,
        flags if flags & SWAPBACKED == 0 && !dirty => Some(Trait::LazilyFreed),
        _ if mapped <= 1 => None,
        flags if flags & MERGED != 0 => Some(Trait::Merged),
        _ => Some(Trait::SharedByFork),
    }
}

/// Beyond the last frame there is nothing, and 0 says so: a page table that was freed while it was copied may name any frame.
fn read(file: &File, name: &str, first: u64, count: u64) -> Result<Vec<u64>, ObserveError> {
    let mut bytes = vec![0; count as usize * 8];
    let mut filled = 0;
    while filled < bytes.len() {
        let read = file.read_at(&mut bytes[filled..], first * 8 + filled as u64);
        match read.map_err(|source| ObserveError::FrameTable { path: format!("/proc/{name}").into(), source })? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_apart() {
        assert_eq!(classify(ANON | SWAPBACKED, 1, false), None);
        assert_eq!(classify(ANON | SWAPBACKED, 2, true), Some(Trait::SharedByFork));
        assert_eq!(classify(ANON | MERGED | SWAPBACKED, 9, false), Some(Trait::Merged));
        assert_eq!(classify(SWAPBACKED, 9, false), None, "shared memory is not copied");
    }

    #[test]
    fn lazily_freed_memory_that_was_written_again_is_the_programs() {
        assert_eq!(classify(ANON, 1, false), Some(Trait::LazilyFreed));
        assert_eq!(classify(ANON, 1, true), None);
    }

    #[test]
    fn a_page_mapped_once_is_not_shared_even_where_the_kernel_marks_it_merged() {
        assert_eq!(classify(ANON | MERGED | SWAPBACKED, 1, false), None);
        assert_eq!(classify(ANON | MERGED, 1, false), Some(Trait::LazilyFreed));
    }

    #[test]
    fn a_frame_beyond_the_last_has_no_trait() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&7u64.to_ne_bytes(), 16).unwrap();
        assert_eq!(read(&file, "kpageflags", 1, 3).unwrap(), [0, 7, 0]);
        assert_eq!(read(&file, "kpageflags", 1 << 40, 2).unwrap(), [0, 0]);
    }

    #[test]
    fn neighbours_are_read_together() {
        let frames = |numbers: &[u64]| {
            numbers.iter().map(|&number| Frame { number, region: 0, page: 0, dirty: false }).collect::<Vec<_>>()
        };
        assert_eq!(run_length(&frames(&[5])), 1);
        assert_eq!(run_length(&frames(&[5, 6, 6 + GAP, 7 + 2 * GAP])), 3);
        let dense: Vec<u64> = (0..20_000).collect();
        assert_eq!(run_length(&frames(&dense)), MOST_PER_READ as usize);
    }
}
