//! Which memory is on huge pages smaller than 2 MiB (folios, or mTHP), which page tables do not show.
//!
//! Owns: finding them by their frames, which are consecutive, and the kernel's flags for where each page begins. Never touches: the target. *Cost*: a
//! system call for each run of consecutive frames, up to 0.1 s/GiB.

use heat::Heat;
use heat::units::{Bytes, PAGES_PER_REGION, Pages};
use kernel::Root;
use kernel::page_use::flag::{COMPOUND_HEAD, COMPOUND_TAIL, THP};
use kernel::pagemap::{Entry, Pagemap};

use crate::ObserveError;
use crate::frames::{FrameFlags, FrameTables};

/// Base pages in the largest of them: 1 MiB.
const MOST_PAGES: usize = 256;

/// For each region of a heat, the memory on huge pages of 8 KiB to 1 MiB that are each mapped completely and in one piece.
///
/// Errors: the process has ended, or its pagemap or the tables of page frames are missing or not readable (CAP_SYS_PTRACE, CAP_DAC_OVERRIDE,
/// CAP_SYS_ADMIN).
pub fn on_smaller_huge_pages(root: &Root, heat: &Heat) -> Result<Vec<Bytes>, ObserveError> {
    let (pagemap, frames) = (Pagemap::open(root, heat.pid)?, FrameTables::open(root)?);
    let mut entries = [Entry::default(); PAGES_PER_REGION];
    let mut found = Vec::with_capacity(heat.regions.len());
    for region in &heat.regions {
        let mut pages = Pages(0);
        if !region.huge {
            pagemap.read(region.start, &mut entries)?;
            for run in runs(&entries) {
                // One more frame tells whether the last page extends beyond what is mapped.
                pages.0 += whole_pages(&frames.flags(run.first, run.len as u64 + 1)?) as u64;
            }
        }
        found.push(pages.bytes());
    }
    Ok(found)
}

/// Consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    len: usize,
}

/// Runs of at least two neighbours on consecutive frames.
fn runs(entries: &[Entry]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last: Option<Run> = None;
    for frame in entries.iter().map(|entry| entry.frame()).chain([None]) {
        last = match (last, frame) {
            (Some(run), Some(frame)) if run.first + run.len as u64 == frame => Some(Run { len: run.len + 1, ..run }),
            (ended, frame) => {
                runs.extend(ended.filter(|run| run.len > 1));
                frame.map(|first| Run { first, len: 1 })
            }
        };
    }
    runs
}

/// Base pages of the huge pages that are complete within all of `flags` but the last, none larger than 1 MiB.
fn whole_pages(flags: &[FrameFlags]) -> usize {
    let mut pages = 0;
    let mut rest = flags;
    while let Some((first, after)) = rest.split_first() {
        let tails = after.iter().take_while(|flags| flags.has(COMPOUND_TAIL)).count();
        let is_whole = tails < after.len();
        if first.has(COMPOUND_HEAD) && first.has(THP) && is_whole && (1..MOST_PAGES).contains(&tails) {
            pages += 1 + tails;
        }
        rest = &after[tails..];
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: u64 = 1 << 5;
    const HEAD: u64 = 1 << 15 | 1 << 22;
    const TAIL: u64 = 1 << 16 | 1 << 22;

    fn pages(flags: &[(u64, usize)]) -> usize {
        let flags = flags.iter().flat_map(|&(bits, count)| std::iter::repeat_n(FrameFlags::from_bits(bits), count));
        whole_pages(&flags.collect::<Vec<_>>())
    }

    #[test]
    fn whole_ones_are_counted() {
        assert_eq!(pages(&[(SINGLE, 3), (HEAD, 1), (TAIL, 15), (HEAD, 1), (TAIL, 1), (SINGLE, 1)]), 18);
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 255), (HEAD, 1)]), 256);
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 511), (HEAD, 1)]), 0, "2 MiB, mapped by base pages");
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 3)]), 0, "it goes on behind what is mapped");
        assert_eq!(pages(&[(TAIL, 7), (SINGLE, 1)]), 0, "its first page is not mapped");
        assert_eq!(pages(&[(1 << 15, 1), (1 << 16, 3), (SINGLE, 1)]), 0, "the kernel's own, or a driver's");
        assert_eq!(pages(&[(SINGLE, 9)]), 0);
    }

    #[test]
    fn runs_are_neighbours_in_both_memories() {
        let frames = [5, 6, 7, 0, 8, 9, 20, 22, 23];
        let entries = frames.map(|frame| if frame == 0 { Entry(0) } else { Entry(1 << 63 | frame) });
        let found: Vec<_> = runs(&entries).iter().map(|run| (run.first, run.len)).collect();
        assert_eq!(found, [(5, 3), (8, 2), (22, 2)]);
        assert_eq!(runs(&[]), []);
    }
}
