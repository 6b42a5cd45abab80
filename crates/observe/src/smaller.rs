//! Which memory is on huge pages smaller than 2 MiB (folios, or mTHP), which page tables do not show.
//!
//! Owns: finding them by their frames, which are consecutive, and the kernel's flags for where each page begins. Never touches: the target. *Cost*: a
//! system call for each run of consecutive frames, up to 0.1 s/GiB.

use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, HUGE_PAGE, PAGES_PER_REGION, Pages};
use heat::{Heat, Mapping, PageSizes, Region};
use kernel::Root;
use kernel::page_use::flag::{COMPOUND_HEAD, COMPOUND_TAIL, THP};
use kernel::pagemap::{Entry, Pagemap};

use crate::ObserveError;
use crate::frames::{FrameFlags, FrameTables};

/// Regions of which the rest of a process is judged.
const SAMPLE: usize = 16;
/// Base pages in the largest of them: 1 MiB.
const MOST_PAGES: usize = 256;

/// For each of these regions of a process: its memory on huge pages of 8 KiB to 1 MiB that are each mapped completely and in one piece.
///
/// Errors: the process has ended, or its pagemap or the tables of page frames are missing or not readable (CAP_SYS_PTRACE, CAP_DAC_OVERRIDE,
/// CAP_SYS_ADMIN).
pub fn on_smaller_huge_pages(
    root: &Root,
    pid: u32,
    starts: impl IntoIterator<Item = Address>,
) -> Result<Vec<PageSizes>, ObserveError> {
    in_pieces(root, pid, starts.into_iter().map(|start| AddressRange::new(start, Bytes(HUGE_PAGE))))
}

/// The same for parts of regions.
fn in_pieces(
    root: &Root,
    pid: u32,
    pieces: impl IntoIterator<Item = AddressRange>,
) -> Result<Vec<PageSizes>, ObserveError> {
    let (pagemap, frames) = (Pagemap::open(root, pid)?, FrameTables::open(root)?);
    let mut room = [Entry::default(); PAGES_PER_REGION];
    let mut found = Vec::new();
    for piece in pieces {
        let mut sizes = PageSizes::default();
        let entries = &mut room[..(piece.len().0 / BASE_PAGE) as usize];
        pagemap.read(piece.start, entries)?;
        if entries.iter().any(|entry| entry.is_present()) && entries.iter().all(|entry| entry.frame().is_none()) {
            return Err(ObserveError::HiddenFrames);
        }
        for run in runs(entries) {
            // One more frame tells whether the last page extends beyond what is mapped.
            count_whole_pages(&frames.flags(run.first, run.len as u64 + 1)?, &mut sizes);
        }
        found.push(sizes);
    }
    Ok(found)
}

/// The same for each of its mappings, in its observed regions. Each huge page counts where it is: a region may hold several mappings.
///
/// Errors: as [`on_smaller_huge_pages`].
pub fn on_smaller_huge_pages_by_mapping(root: &Root, heat: &Heat) -> Result<Vec<PageSizes>, ObserveError> {
    let (owners, pieces): (Vec<usize>, Vec<AddressRange>) =
        regions_of_small_pages(heat).flat_map(|region| pieces(region.range(), &heat.mappings)).unzip();
    let mut found = vec![PageSizes::default(); heat.mappings.len()];
    for (owner, sizes) in owners.into_iter().zip(in_pieces(root, heat.pid, pieces)?) {
        found[owner] += &sizes;
    }
    Ok(found)
}

/// Its regions that may have any.
fn regions_of_small_pages(heat: &Heat) -> impl Iterator<Item = &Region> {
    heat.regions.iter().filter(|region| !region.huge && !region.present.is_empty())
}

/// The mappings that a region meets, as indices, and where.
fn pieces(region: AddressRange, mappings: &[Mapping]) -> impl Iterator<Item = (usize, AddressRange)> + '_ {
    let first = mappings.partition_point(|mapping| mapping.range.end <= region.start);
    let ranges = mappings.iter().map(|mapping| mapping.range).enumerate().skip(first);
    ranges.take_while(move |(_, range)| range.start < region.end).map(move |(owner, range)| {
        (owner, AddressRange { start: range.start.max(region.start), end: range.end.min(region.end) })
    })
}

/// Memory of a process on huge pages of 8 KiB to 1 MiB, judged by a few of its regions; some milliseconds for any size.
///
/// Errors: as [`on_smaller_huge_pages`].
pub fn about_on_smaller_huge_pages(root: &Root, heat: &Heat) -> Result<PageSizes, ObserveError> {
    let small: Vec<Address> = regions_of_small_pages(heat).map(|region| region.start).collect();
    let step = small.len().div_ceil(SAMPLE).max(1);
    // Memory that is used in a pattern must not meet the same part of it each time.
    let sample = small.iter().copied().skip(fastrand::usize(..step)).step_by(step);
    let mut found = PageSizes::default();
    let seen = on_smaller_huge_pages(root, heat.pid, sample)?;
    seen.iter().for_each(|sizes| found += sizes);
    Ok(found.times(small.len() as f64 / seen.len().max(1) as f64))
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

/// Adds the huge pages that are complete within all of `flags` but the last, none larger than 1 MiB.
fn count_whole_pages(flags: &[FrameFlags], sizes: &mut PageSizes) {
    let mut rest = flags;
    while let Some((first, after)) = rest.split_first() {
        let tails = after.iter().take_while(|flags| flags.has(COMPOUND_TAIL)).count();
        let is_whole = tails < after.len();
        if first.has(COMPOUND_HEAD) && first.has(THP) && is_whole && (1..MOST_PAGES).contains(&tails) {
            let page = Pages(1 + tails as u64).bytes();
            sizes.add(page, page);
        }
        rest = &after[tails..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINGLE: u64 = 1 << 5;
    const HEAD: u64 = 1 << 15 | 1 << 22;
    const TAIL: u64 = 1 << 16 | 1 << 22;

    fn pages(flags: &[(u64, usize)]) -> String {
        let flags = flags.iter().flat_map(|&(bits, count)| std::iter::repeat_n(FrameFlags::from_bits(bits), count));
        let mut sizes = PageSizes::default();
        count_whole_pages(&flags.collect::<Vec<_>>(), &mut sizes);
        sizes.to_string()
    }

    #[test]
    fn whole_ones_are_counted() {
        assert_eq!(
            pages(&[(SINGLE, 3), (HEAD, 1), (TAIL, 15), (HEAD, 1), (TAIL, 1), (SINGLE, 1)]),
            "64 KiB on pages of 64 KiB, 8 KiB on pages of 8 KiB"
        );
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 255), (HEAD, 1)]), "1 MiB on pages of 1 MiB");
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 511), (HEAD, 1)]), "", "2 MiB, mapped by base pages");
        assert_eq!(pages(&[(HEAD, 1), (TAIL, 3)]), "", "it goes on behind what is mapped");
        assert_eq!(pages(&[(TAIL, 7), (SINGLE, 1)]), "", "its first page is not mapped");
        assert_eq!(pages(&[(1 << 15, 1), (1 << 16, 3), (SINGLE, 1)]), "", "the kernel's own, or a driver's");
        assert_eq!(pages(&[(SINGLE, 9)]), "");
    }

    #[test]
    fn a_region_is_cut_where_mappings_meet() {
        let range = |start: u64, end: u64| AddressRange { start: Address(start << 12), end: Address(end << 12) };
        let mapping =
            |start, end| Mapping { range: range(start, end), ..heat::samples::heat_of(vec![]).mappings[0].clone() };
        let mappings = [mapping(0, 600), mapping(700, 800), mapping(800, 5000), mapping(6000, 7000)];
        let found: Vec<_> = pieces(range(512, 1024), &mappings).collect();
        assert_eq!(found, [(0, range(512, 600)), (1, range(700, 800)), (2, range(800, 1024))]);
        assert_eq!(pieces(range(5120, 5632), &mappings).count(), 0);
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
