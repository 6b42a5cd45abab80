//! What the kernel says of page frames (the zero page, lazily freed, merged, or shared by fork), and so a region's growth.
//!
//! Owns: `/proc/kpageflags` and `/proc/kpagecount` (Documentation/admin-guide/mm/pagemap.rst). Never touches: the
//! target.

use std::fs::File;

use heat::{Growth, PageSet};
use kernel::Root;
use kernel::page_use::flag::{ANON, KSM, SWAPBACKED, ZERO_PAGE};
use kernel::pagemap::words_at;

use crate::ObserveError;

/// Frames asked for in one read.
const MOST_PER_READ: u64 = 8192;
/// Reading through a gap of this many frames is cheaper than another system call.
const GAP: u64 = 256;
/// Frames gathered before the kernel is queried: 16 MiB of memory.
const AT_ONCE: usize = 1 << 20;

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
    /// What promoting would do to it, besides moving it.
    pub(super) found: Option<Trait>,
    /// Whether it is mapped more than once, by this process or others.
    pub(super) mapped_often: bool,
}

/// The kernel's flags of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameFlags(u64);

impl FrameFlags {
    #[cfg(test)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether any of these flags is set.
    pub(super) fn has(self, any_of: u64) -> bool {
        self.0 & any_of != 0
    }
}

/// What promoting would do to a page, besides moving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trait {
    Zero,
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
            File::open(&path).map_err(|cause| ObserveError::FrameTable { path, cause })
        };
        Ok(Self { flags: open("kpageflags")?, counts: open("kpagecount")? })
    }

    /// Reports the flags of each frame. Sorts `frames`, because neighbours are read together.
    pub(super) fn tell_flags(
        &self,
        frames: &mut [Frame],
        mut tell: impl FnMut(&mut Frame, FrameFlags),
    ) -> Result<(), ObserveError> {
        frames.sort_unstable();
        let mut rest = frames;
        while !rest.is_empty() {
            let (run, after) = rest.split_at_mut(run_length(rest));
            let first = run[0].number;
            let flags = self.flags(first, run[run.len() - 1].number - first + 1)?;
            run.iter_mut().for_each(|frame| tell(frame, flags[(frame.number - first) as usize]));
            rest = after;
        }
        Ok(())
    }

    /// The flags of `count` frames from `first`.
    pub(super) fn flags(&self, first: u64, count: u64) -> Result<Vec<FrameFlags>, ObserveError> {
        Ok(read(&self.flags, "kpageflags", first, count)?.into_iter().map(FrameFlags).collect())
    }

    /// The flag bits of `count` frames from `first`, and how often each is mapped.
    pub(super) fn bits_and_counts(&self, first: u64, count: u64) -> Result<(Vec<u64>, Vec<u64>), ObserveError> {
        Ok((read(&self.flags, "kpageflags", first, count)?, read(&self.counts, "kpagecount", first, count)?))
    }

    /// Reports what the kernel says of each frame. Sorts `frames`, because neighbours are read together.
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
            let (flags, counts) = self.bits_and_counts(first.number, span)?;
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

/// What the kernel says of the frames of one region.
#[derive(Clone, Debug, Default)]
pub(super) struct Finding {
    pub(super) growth: Growth,
    pub(super) mapped_often: PageSet,
}

/// Gathers frames of many regions, because neighbours are cheap to query together.
pub(super) struct Inquiry<'a> {
    tables: &'a FrameTables,
    frames: Vec<Frame>,
    findings: Vec<Finding>,
}

impl<'a> Inquiry<'a> {
    pub(super) fn new(tables: &'a FrameTables) -> Self {
        Self { tables, frames: Vec::new(), findings: Vec::new() }
    }

    /// What is known of a region so far.
    pub(super) fn finding(&mut self, region: usize) -> &mut Finding {
        self.findings.resize(self.findings.len().max(region + 1), Finding::default());
        &mut self.findings[region]
    }

    /// Gathers frames; queries them once there are many.
    pub(super) fn add(&mut self, frames: impl Iterator<Item = Frame>) -> Result<(), ObserveError> {
        self.frames.extend(frames);
        if self.frames.len() >= AT_ONCE { self.ask() } else { Ok(()) }
    }

    /// The findings for each of this many regions.
    pub(super) fn finish(mut self, regions: usize) -> Result<Vec<Finding>, ObserveError> {
        self.ask()?;
        self.findings.resize(regions, Finding::default());
        Ok(self.findings)
    }

    fn ask(&mut self) -> Result<(), ObserveError> {
        let Some(last) = self.frames.iter().map(|frame| frame.region as usize).max() else { return Ok(()) };
        self.finding(last);
        let findings = &mut self.findings;
        self.tables.inspect(&mut self.frames, |frame, Answer { found, mapped_often }| {
            let finding = &mut findings[frame.region as usize];
            match found {
                Some(Trait::Zero) => finding.growth.zero += 1,
                Some(Trait::LazilyFreed) => finding.growth.lazily_freed += 1,
                Some(Trait::SharedByFork) => finding.growth.shared_by_fork += 1,
                Some(Trait::Merged) => finding.growth.merged += 1,
                None => {}
            }
            if mapped_often {
                finding.mapped_often.insert(frame.page.into());
            }
        })?;
        self.frames.clear();
        Ok(())
    }
}

/// How many of the leading frames one read covers.
fn run_length(frames: &[Frame]) -> usize {
    let first = frames[0].number;
    let near = |pair: &[Frame]| pair[1].number - pair[0].number <= GAP && pair[1].number - first < MOST_PER_READ;
    1 + frames.windows(2).take_while(|pair| near(pair)).count()
}

/// A lazily freed page that was written again belongs to the program again; the kernel notices only when it would free it. A page mapped once is not
/// shared, whatever its flags: many kernels (6.12 is one) mark every anonymous page as merged, and promoting a merged page that is mapped once frees
/// it, so nothing grows.
fn classify(flags: u64, mapped: u64, dirty: bool) -> Option<Trait> {
    match flags {
        flags if flags & ZERO_PAGE != 0 => Some(Trait::Zero),
        flags if flags & ANON == 0 => None,
        flags if flags & SWAPBACKED == 0 && !dirty => Some(Trait::LazilyFreed),
        _ if mapped <= 1 => None,
        flags if flags & KSM != 0 => Some(Trait::Merged),
        _ => Some(Trait::SharedByFork),
    }
}

/// Returns 0 beyond the last frame: a page table freed while it was copied may name any frame.
fn read(file: &File, name: &str, first: u64, count: u64) -> Result<Vec<u64>, ObserveError> {
    words_at(file, first, count as usize)
        .map_err(|cause| ObserveError::FrameTable { path: format!("/proc/{name}").into(), cause })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_are_told_apart() {
        assert_eq!(classify(ANON | SWAPBACKED, 1, false), None);
        assert_eq!(classify(ANON | SWAPBACKED, 2, true), Some(Trait::SharedByFork));
        assert_eq!(classify(ANON | KSM | SWAPBACKED, 9, false), Some(Trait::Merged));
        assert_eq!(classify(SWAPBACKED, 9, false), None, "shared memory is not copied");
        assert_eq!(classify(ZERO_PAGE, 0, false), Some(Trait::Zero));
    }

    #[test]
    fn lazily_freed_memory_that_was_written_again_is_the_programs() {
        assert_eq!(classify(ANON, 1, false), Some(Trait::LazilyFreed));
        assert_eq!(classify(ANON, 1, true), None);
    }

    #[test]
    fn a_page_mapped_once_is_not_shared_even_where_the_kernel_marks_it_merged() {
        assert_eq!(classify(ANON | KSM | SWAPBACKED, 1, false), None);
        assert_eq!(classify(ANON | KSM, 1, false), Some(Trait::LazilyFreed));
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
