//! Reclaim of named directories: files that were read or written there are dropped from memory, one by one, once they are on disk.
//!
//! Owns: which of these files are dropped, and when. Never touches: files' contents; dirty pages, except to start their writeback; or
//! mapped pages, which the kernel keeps regardless.
//!
//! It needs no right beyond reading, and on newer kernels owning, the files. If a file comes back, it is in use: when dropped data is in
//! memory again without having been written, the file cools down for a minute, and each time for twice as long.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heat::memory_use::{MemoryUse, Uses};
use heat::units::{BASE_PAGE, Bytes, Nanos, TimeError};
use hugepilot_os::file_cache::{CacheState, begin_writeback, cache_state, drop_clean};
use hugepilot_os::stop::Stop;
use kernel::process::thread_cpu_time;
use kernel::{Root, maps};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::mechanism::walk::{Round, Tree};
use crate::mechanism::{Effect, Mechanism, MechanismKind, ReclaimError};
use crate::policy::Batch;

/// The interval between steps: a fast disk fills gigabytes in a second.
const PACE: Duration = Duration::from_millis(250);
/// The maximum duration of a step, unless a single file takes longer, and its maximum CPU time.
const LONGEST_STEP: Duration = Duration::from_millis(200);
const MOST_CPU: Nanos = Nanos(100_000_000);
/// After a step that dropped little, wait this many times its duration: scanning may use a tenth of one CPU. What a step does drop saves
/// the kernel reclaiming it, which takes as long.
const WAITS: u32 = 9;
/// A step that takes longer than this per page drops little.
const WORTH_A_PAGE: Duration = Duration::from_micros(4);
/// A range with dirty pages is halved down to this size, so that the rest can be dropped.
const SMALLEST_RANGE: u64 = 256 << 10;
/// Data written this recently may be followed by more. Its end stays: the next write would have to read it again, or wait for its
/// writeback.
const WRITTEN_LATELY: Duration = Duration::from_secs(1);
const END: u64 = 64 << 10;
/// A file is dropped in ranges of this size, between which a stop is possible.
const RANGE: u64 = 16 << 20;
/// A file larger than this is scanned in parts, because usually few of them are in memory.
const PART: u64 = 1 << 30;
/// The first and the longest cool-down of a file that came back.
const FIRST_COOL_DOWN: Duration = Duration::from_secs(60);
const LONGEST_COOL_DOWN: Duration = Duration::from_secs(3600);
/// Files that are remembered, in a table of 34 MB, or 68 MB after many have come and gone. At most half of them may have nothing in memory,
/// so that there is room for the others.
const MOST_REMEMBERED: usize = 200_000;

/// Options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropBehindOptions {
    /// Directories, or files.
    pub paths: Vec<PathBuf>,
    /// Of these, directories or files that are left alone.
    pub except: Vec<PathBuf>,
    /// A file is dropped once it was unchanged for this long.
    pub idle: Duration,
    /// Files that a process maps in part stay whole.
    pub spare_mapped: bool,
    /// Writeback of dirty files starts after this time; None leaves that to the kernel.
    pub write_behind: Option<Duration>,
}

impl DropBehindOptions {
    /// Parses how long to wait for a file.
    ///
    /// Errors: `text` is not a time with a unit, or is more than 24 h.
    pub fn parse_wait(text: &str) -> Result<Nanos, TimeError> {
        Nanos::parse_within(text, Nanos(0)..=Nanos(86_400_000_000_000), "from 0s to 24h")
    }
}

/// Drop-behind for the named directories.
#[derive(Debug)]
pub struct DropBehind {
    root: Root,
    options: DropBehindOptions,
    trees: Vec<Tree>,
    at: Option<Position>,
    /// What it found so far in this round, and in the last whole one.
    this_round: Met,
    last_round: Option<Met>,
    /// By device and inode number.
    remembered: HashMap<(u64, u64), Remembered>,
    round_number: u64,
    /// It scans nothing until then.
    waits_until: Instant,
    counts: Counts,
}

/// What a step may still do.
struct Budget<'a> {
    pages: u64,
    ends: Instant,
    cpu_ends: Nanos,
    stop: &'a Stop,
}

impl Budget<'_> {
    fn is_spent(&self) -> bool {
        self.pages == 0 || Instant::now() >= self.ends || thread_cpu_time() >= self.cpu_ends || self.stop.requested()
    }
}

/// The position in a round over all trees.
#[derive(Debug)]
struct Position {
    tree: usize,
    round: Round,
    /// Inode numbers of mapped files, regardless of device: on some file systems mappings name another device than files do.
    mapped: HashSet<u64>,
}

/// What is known about a file from previous rounds.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    scan: Scan,
    /// Since when it has been unchanged.
    since: Instant,
    /// When a write to it was last noticed; None if never.
    written: Option<Instant>,
    /// Since when it has dirty pages.
    dirty_since: Option<Instant>,
    /// When a part of it was last dropped, if it is unchanged since.
    dropped: Option<Instant>,
    /// The offset where dropping stopped for lack of time.
    offset: u64,
    comebacks: u32,
    cools_until: Option<Instant>,
    round_number: u64,
}

impl Remembered {
    /// Whether it must be remembered although nothing of it is in memory.
    fn is_lately(&self, now: Instant) -> bool {
        let cools = self.cools_until.is_some_and(|until| now < until);
        cools || self.dropped.is_some_and(|dropped| now - dropped < LONGEST_COOL_DOWN)
    }
}

/// The observable state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scan {
    size: u64,
    modified: (i64, i64),
    cached: u64,
}

impl Scan {
    /// Whether the existing contents were used. Appending does not count, however long that goes on, nor does reclaim by the kernel.
    fn shows_use_since(self, before: Self) -> bool {
        let longer = self.size.saturating_sub(before.size).div_ceil(BASE_PAGE);
        let rewritten = self.modified != before.modified && longer == 0;
        rewritten || self.size < before.size || self.cached > before.cached + longer
    }
}

/// Totals since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    rounds: u64,
    dropped_files: u64,
    dropped_pages: u64,
    written_back_files: u64,
    comebacks: u64,
}

/// What a round found.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    files: u64,
    dirty_pages: u64,
    mapped_files: u64,
    young_files: u64,
    recently_evicted_pages: u64,
    refused_files: u64,
    missing_paths: u64,
}

impl DropBehind {
    /// Errors: a path cannot be opened, or the kernel does not tell what is in memory (`cachestat`).
    pub fn open(root: &Root, options: DropBehindOptions) -> Result<Self, ReclaimError> {
        let trees = options.paths.iter().map(|path| Tree::open(path, &options.except)).collect::<Result<_, _>>()?;
        probe()?;
        Ok(Self {
            root: root.clone(),
            options,
            trees,
            at: None,
            this_round: Met::default(),
            last_round: None,
            remembered: HashMap::new(),
            round_number: 0,
            waits_until: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// Drops this much, or as much as time allows; returns the pages dropped.
    fn drop_up_to(&mut self, wanted: Bytes, stop: &Stop) -> u64 {
        let begun = Instant::now();
        if begun < self.waits_until {
            return 0;
        }
        let cpu_before = thread_cpu_time();
        let (ends, cpu_ends) = (begun + LONGEST_STEP, cpu_before + MOST_CPU);
        let mut budget = Budget { pages: wanted.0 / BASE_PAGE, ends, cpu_ends, stop };
        let before = self.counts.dropped_pages;
        while !budget.is_spent() {
            let Some((file, is_mapped)) = self.next_file() else { break };
            let considered = self.consider(&file, is_mapped, &mut budget);
            self.this_round.refused_files += u64::from(considered.is_err());
        }
        if let Some(position) = &mut self.at {
            position.round.close();
        }
        // CPU time excludes waiting for a disk.
        let (dropped, took) =
            (self.counts.dropped_pages - before, (thread_cpu_time().saturating_sub(cpu_before)).duration());
        if took.as_nanos() > u128::from(dropped) * WORTH_A_PAGE.as_nanos() {
            self.waits_until = begun + WAITS * took;
        }
        dropped
    }

    /// The next file, and whether a process maps it; None at the end of a round over all trees.
    fn next_file(&mut self) -> Option<(File, bool)> {
        loop {
            if self.at.is_none() {
                self.at = Some(self.begin_round());
            }
            let position = self.at.as_mut()?;
            let Some(tree) = self.trees.get(position.tree) else {
                self.end_round();
                return None;
            };
            match tree.next(&mut position.round) {
                Some(file) => {
                    self.this_round.files += 1;
                    let is_mapped = file.metadata().is_ok_and(|file| position.mapped.contains(&file.ino()));
                    return Some((file, is_mapped));
                }
                None => {
                    let over = std::mem::take(&mut position.round);
                    self.this_round.refused_files += over.passed_over;
                    self.this_round.missing_paths += u64::from(over.is_missing);
                    position.tree += 1;
                }
            }
        }
    }

    fn begin_round(&mut self) -> Position {
        self.round_number += 1;
        let mapped = if self.options.spare_mapped { mapped_files(&self.root) } else { HashSet::new() };
        Position { tree: 0, round: Round::default(), mapped }
    }

    fn end_round(&mut self) {
        self.at = None;
        self.last_round = Some(std::mem::take(&mut self.this_round));
        self.counts.rounds += 1;
        let current = self.round_number;
        self.remembered.retain(|_, file| file.round_number == current);
    }

    /// Drops a file or a part of it, if it is time for that.
    fn consider(&mut self, file: &File, is_mapped: bool, budget: &mut Budget<'_>) -> io::Result<()> {
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Ok(());
        }
        let state = cache_state(file, 0, 0)?;
        self.this_round.recently_evicted_pages += state.recently_evicted;
        let now = Instant::now();
        let mut known = self.recall(&metadata, state, now);
        if self.may_go(&known, state, is_mapped, now) {
            let len = length_to_drop(metadata.len(), known.written, now);
            let dropped = drop_from(file, &mut known.offset, len, budget)?;
            self.counts.dropped_files += u64::from(dropped > 0);
            self.counts.dropped_pages += dropped;
            known.scan.cached = state.cached.saturating_sub(dropped);
            known.dropped = if dropped > 0 { Some(now) } else { known.dropped };
        }
        if state.dirty > 0 {
            self.this_round.dirty_pages += state.dirty;
            self.write_behind(file, &mut known, now)?;
        }
        self.remember((metadata.dev(), metadata.ino()), known, now);
        Ok(())
    }

    /// A file for which there is no room will count as new next time.
    fn remember(&mut self, number: (u64, u64), known: Remembered, now: Instant) {
        let many = self.remembered.len();
        if known.scan.cached == 0 && (many > MOST_REMEMBERED / 2 || !known.is_lately(now)) {
            self.remembered.remove(&number);
        } else if many < MOST_REMEMBERED || self.remembered.contains_key(&number) {
            self.remembered.insert(number, known);
        }
    }

    /// What is known about a file, updated with its current state.
    fn recall(&mut self, metadata: &Metadata, state: CacheState, now: Instant) -> Remembered {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let scan = Scan { size: metadata.len(), modified, cached: state.cached };
        let fresh = Remembered {
            scan,
            since: now,
            written: None,
            dirty_since: None,
            dropped: None,
            offset: 0,
            comebacks: 0,
            cools_until: None,
            round_number: self.round_number,
        };
        let mut known = self.remembered.get(&(metadata.dev(), metadata.ino())).copied().unwrap_or(fresh);
        if known.dropped.is_some() && scan.modified == known.scan.modified && scan.cached > known.scan.cached {
            self.counts.comebacks += 1;
            known.cools_until =
                Some(now + (FIRST_COOL_DOWN * 2u32.pow(known.comebacks.min(10))).min(LONGEST_COOL_DOWN));
            known.comebacks += 1;
            known.dropped = None;
        }
        if scan.modified != known.scan.modified {
            known.written = Some(now);
        }
        if scan.shows_use_since(known.scan) {
            known.since = now;
        }
        known.scan = scan;
        known.dirty_since = if state.dirty == 0 { None } else { known.dirty_since.or(Some(now)) };
        known.round_number = self.round_number;
        known
    }

    fn may_go(&mut self, known: &Remembered, state: CacheState, is_mapped: bool, now: Instant) -> bool {
        if state.cached == 0 || state.cached == state.dirty + state.writeback {
            return false;
        }
        if is_mapped {
            self.this_round.mapped_files += 1;
            return false;
        }
        let is_young = known.cools_until.is_some_and(|until| now < until) || now - known.since < self.options.idle;
        self.this_round.young_files += u64::from(is_young);
        !is_young
    }

    fn write_behind(&mut self, file: &File, known: &mut Remembered, now: Instant) -> io::Result<()> {
        let since = known.dirty_since.map(|since| now - since);
        let is_due = since.zip(self.options.write_behind).is_some_and(|(since, after)| since >= after);
        if is_due {
            begin_writeback(file, 0, 0)?;
            known.dirty_since = None;
            self.counts.written_back_files += 1;
        }
        Ok(())
    }
}

/// How much of a file may be dropped, from its beginning: all of it, unless it is being written.
fn length_to_drop(len: u64, written: Option<Instant>, now: Instant) -> u64 {
    let is_being_written = written.is_some_and(|at| now - at < WRITTEN_LATELY);
    if is_being_written { len.saturating_sub(END) / BASE_PAGE * BASE_PAGE } else { len }
}

/// Drops the clean pages of a file from an offset up to this length, within the budget; returns the pages dropped. The offset becomes the
/// next starting point, so that undroppable pages at a file's beginning do not block the rest.
fn drop_from(file: &File, offset: &mut u64, len: u64, budget: &mut Budget<'_>) -> io::Result<u64> {
    let (mut dropped, mut part) = (0, PART);
    while *offset < len && !budget.is_spent() {
        let end = len.min(offset.saturating_add(part));
        let is_empty = len > PART && cache_state(file, *offset, end - *offset)?.cached == 0;
        match (is_empty, part) {
            // Double the part each time: a sparse file may be larger than any disk and have hardly any pages in memory.
            (true, _) => (*offset, part) = (end, part.saturating_mul(2)),
            (false, PART) => dropped += drop_part(file, offset, end, budget)?,
            (false, _) => part /= 2,
        }
    }
    if *offset >= len {
        *offset = 0;
    }
    Ok(dropped)
}

/// The same for a part of the file.
fn drop_part(file: &File, offset: &mut u64, end: u64, budget: &mut Budget<'_>) -> io::Result<u64> {
    let mut dropped = 0;
    while *offset < end && !budget.is_spent() {
        let len = RANGE.min(end - *offset).min(budget.pages.saturating_mul(BASE_PAGE));
        dropped += drop_range(file, *offset, len, budget)?;
        *offset += len;
    }
    Ok(dropped)
}

/// The same for a range, which is halved if something is dirty: advice on dirty pages would start their writeback.
fn drop_range(file: &File, start: u64, len: u64, budget: &mut Budget<'_>) -> io::Result<u64> {
    let before = cache_state(file, start, len)?;
    match before {
        CacheState { cached: 0, .. } => Ok(0),
        state if state.is_clean() => {
            // Up to the end of the last page, which a file rarely fills; otherwise that page would stay.
            drop_clean(file, start, len.next_multiple_of(BASE_PAGE))?;
            let dropped = before.cached.saturating_sub(cache_state(file, start, len)?.cached);
            budget.pages = budget.pages.saturating_sub(dropped);
            Ok(dropped)
        }
        _ if len <= SMALLEST_RANGE => Ok(0),
        _ => {
            let half = (len / 2).next_multiple_of(SMALLEST_RANGE);
            Ok(drop_range(file, start, half, budget)? + drop_range(file, start + half, len - half, budget)?)
        }
    }
}

/// Inode numbers of all files mapped by processes that this one may read.
fn mapped_files(root: &Root) -> HashSet<u64> {
    let pids = root.numbered_entries("proc").unwrap_or_default();
    let lines = pids.into_iter().flat_map(|pid| maps::read(root, pid).unwrap_or_default());
    lines.map(|line| line.inode).filter(|&inode| inode != 0).collect()
}

/// Checks on a memfd whether the kernel tells what is in memory.
///
/// Errors: the kernel has no `cachestat` (before Linux 6.5) or forbids it, or the file cannot be created.
pub fn probe() -> Result<(), ReclaimError> {
    let told = memfd_create("hugepilot", MemfdFlags::CLOEXEC).map_err(io::Error::from);
    told.and_then(|file| cache_state(&file, 0, 0)).map_err(|cause| ReclaimError::CacheState { cause })?;
    Ok(())
}

impl Mechanism for DropBehind {
    fn kind(&self) -> MechanismKind {
        MechanismKind::DropBehind
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn reach(&self) -> Vec<Uses> {
        vec![[MemoryUse::UnmappedCache].into_iter().collect()]
    }

    fn step(&mut self, batches: &[Batch], stop: &Stop) -> Result<Vec<Effect>, ReclaimError> {
        let effects = batches.iter().map(|batch| {
            let dropped = Bytes(self.drop_up_to(batch.bytes, stop) * BASE_PAGE);
            Effect { uses: batch.uses, applied: dropped, reclaimed: dropped }
        });
        Ok(effects.collect())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = &self.counts;
        // Every round finds the same files, so only one round counts.
        let met = self.last_round.as_ref().unwrap_or(&self.this_round);
        BTreeMap::from([
            ("rounds", counts.rounds),
            ("files", met.files),
            ("dropped_files", counts.dropped_files),
            ("dropped_bytes", counts.dropped_pages * BASE_PAGE),
            ("dirty_left_bytes", met.dirty_pages * BASE_PAGE),
            ("written_back_files", counts.written_back_files),
            ("mapped_left_files", met.mapped_files),
            ("young_left_files", met.young_files),
            ("came_back_files", counts.comebacks),
            ("recently_evicted_bytes", met.recently_evicted_pages * BASE_PAGE),
            ("refused_files", met.refused_files),
            ("missing_paths", met.missing_paths),
        ])
    }
}

#[cfg(test)]
mod tests;
