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

/// A page frame, and what it belongs to in the caller's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) owner: u32,
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

    /// Tells the trait of each frame that has one. Sorts `frames`, because neighbours are read together.
    pub(super) fn inspect(&self, frames: &mut [Frame], mut tell: impl FnMut(u32, Trait)) -> Result<(), ObserveError> {
        frames.sort_unstable();
        let mut rest = &frames[..];
        while let Some(first) = rest.first() {
            let (run, after) = rest.split_at(run_length(rest));
            let span = run[run.len() - 1].number - first.number + 1;
            let flags = read(&self.flags, "kpageflags", first.number, span)?;
            let counts = read(&self.counts, "kpagecount", first.number, span)?;
            for frame in run {
                let at = (frame.number - first.number) as usize;
                if let Some(found) = classify(flags[at], counts[at]) {
                    tell(frame.owner, found);
                }
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

/// A page mapped once is shared with nobody, whatever its flags: many kernels (6.12 is one) mark every anonymous page as
/// merged, and a merged page that is mapped once is freed when it is promoted, so nothing grows.
fn classify(flags: u64, mapped: u64) -> Option<Trait> {
    match flags {
        flags if flags & ANON == 0 => None,
        flags if flags & SWAPBACKED == 0 => Some(Trait::LazilyFreed),
        _ if mapped <= 1 => None,
        flags if flags & MERGED != 0 => Some(Trait::Merged),
        _ => Some(Trait::SharedByFork),
    }
}

fn read(file: &File, name: &str, first: u64, count: u64) -> Result<Vec<u64>, ObserveError> {
    let mut bytes = vec![0; count as usize * 8];
    file.read_exact_at(&mut bytes, first * 8)
        .map_err(|source| ObserveError::FrameTable { path: format!("/proc/{name}").into(), source })?;
    Ok(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_apart() {
        assert_eq!(classify(ANON | SWAPBACKED, 1), None);
        assert_eq!(classify(ANON | SWAPBACKED, 2), Some(Trait::SharedByFork));
        assert_eq!(classify(ANON, 1), Some(Trait::LazilyFreed));
        assert_eq!(classify(ANON | MERGED | SWAPBACKED, 9), Some(Trait::Merged));
        assert_eq!(classify(SWAPBACKED, 9), None, "shared memory is not copied");
    }

    #[test]
    fn a_page_mapped_once_is_not_shared_even_where_the_kernel_marks_it_merged() {
        assert_eq!(classify(ANON | MERGED | SWAPBACKED, 1), None);
        assert_eq!(classify(ANON | MERGED, 1), Some(Trait::LazilyFreed));
    }

    #[test]
    fn neighbours_are_read_together() {
        let frames = |numbers: &[u64]| numbers.iter().map(|&number| Frame { number, owner: 0 }).collect::<Vec<_>>();
        assert_eq!(run_length(&frames(&[5])), 1);
        assert_eq!(run_length(&frames(&[5, 6, 6 + GAP, 7 + 2 * GAP])), 3);
        let dense: Vec<u64> = (0..20_000).collect();
        assert_eq!(run_length(&frames(&dense)), MOST_PER_READ as usize);
    }
}
