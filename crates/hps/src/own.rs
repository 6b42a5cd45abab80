//! Without a daemon: tracks which of its own pages a process writes (`PAGEMAP_SCAN`, Linux 6.7), without any privilege.
//!
//! Owns: tracking the ranges of interest, and converting tracked regions. Never touches: memory outside those ranges. Pages that are only
//! read go unnoticed.

use std::io;
use std::time::{Duration, Instant};

use hugepilot_os::advise::collapse_own;
use hugepilot_os::page_scan::{PageRun, WriteWatch};

use crate::TrackError;
use crate::judge::REGION;
use crate::list::List;
use crate::wire::{Page, Range, Track};

const BASE_PAGE: u64 = 4096;

/// Tracks writes to parts of this process's memory.
pub(crate) struct OwnWatch {
    watch: WriteWatch,
    ranges: Vec<Range>,
    threshold_pages: u64,
    interval: Duration,
    since: Instant,
}

impl OwnWatch {
    /// Starts tracking. Errors: the kernel is older than 6.7 or forbids it, or nothing is mapped in a range.
    pub(crate) fn of(track: &Track) -> Result<Self, TrackError> {
        let refused = |cause| TrackError::System { doing: "watch this process's own writes", cause };
        if track.ranges.is_empty() {
            return Err(TrackError::NoRanges);
        }
        let watch = WriteWatch::new().map_err(refused)?;
        for range in &track.ranges {
            watch.add(range.start, range.end - range.start).map_err(refused)?;
        }
        let interval = Duration::from_millis(track.interval_ms.into());
        let (ranges, threshold_pages) = (track.ranges.clone(), track.threshold_pages);
        Ok(Self { watch, ranges, threshold_pages, interval, since: Instant::now() })
    }

    /// The earliest time of the next list.
    pub(crate) fn next(&self) -> Instant {
        self.since + self.interval
    }

    /// The pages written since the last list, if the interval has passed and there are enough.
    pub(crate) fn take(&mut self) -> Result<Option<List>, TrackError> {
        let elapsed = self.since.elapsed();
        if elapsed < self.interval {
            return Ok(None);
        }
        self.since = Instant::now();
        let refused = |cause| TrackError::System { doing: "read this process's own writes", cause };
        let mut runs = Vec::new();
        for range in &self.ranges {
            self.take_from(range, &mut runs).map_err(refused)?;
        }
        runs.sort_unstable_by_key(|run| run.start);
        let pages: u64 = runs.iter().map(|run| (run.end - run.start) / BASE_PAGE).sum();
        if pages < self.threshold_pages {
            return Ok(None);
        }
        let addresses = runs.iter().flat_map(|run| (run.start..run.end).step_by(BASE_PAGE as usize));
        let written = addresses.map(|address| Page { address, walks_per_second: 1.0 / elapsed.as_secs_f64() });
        List::of(pages as usize, written).map(Some).map_err(refused)
    }

    /// The pages written in a range. Memory mapped there meanwhile is tracked from now on; until that succeeds, nothing in the range is
    /// listed.
    fn take_from(&self, range: &Range, runs: &mut Vec<PageRun>) -> io::Result<()> {
        let len = range.end - range.start;
        match self.watch.take_written(range.start, len, |run| runs.push(run)) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                // It may just have been unmapped, or be of a kind that cannot be tracked: the next scan retries.
                let _ = self.watch.add(range.start, len);
                Ok(())
            }
            taken => taken,
        }
    }

    /// Puts a region on a huge page. Protected pages prevent that, so tracking of the region ends, or resumes if the kernel refuses.
    /// Errors: the kernel's.
    pub(crate) fn convert(&mut self, region: u64) -> io::Result<()> {
        let end = region + REGION;
        let inside: Vec<Range> = self.ranges.iter().filter_map(|range| between(range, region, end)).collect();
        for part in &inside {
            // If it is no longer mapped, the kernel refuses to convert it, too.
            let _ = self.watch.remove(part.start, part.end - part.start);
        }
        let converted = collapse_own(region, REGION);
        if converted.is_ok() {
            let around = |range: &Range| [between(range, 0, region), between(range, end, u64::MAX)];
            self.ranges = self.ranges.iter().flat_map(around).flatten().collect();
        } else {
            for part in &inside {
                // If this fails, the next scan notices and retries.
                let _ = self.watch.add(part.start, part.end - part.start);
            }
        }
        converted
    }
}

/// The part of a range between two addresses. None if there is none.
fn between(range: &Range, start: u64, end: u64) -> Option<Range> {
    let part = Range { start: range.start.max(start), end: range.end.min(end) };
    (part.start < part.end).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
    use std::thread::sleep;

    const NOTHING: [u64; 0] = [];

    /// 8 MiB that are tracked. None if the kernel does not support it.
    fn watched() -> Option<(AlignedMemory, OwnWatch)> {
        let mut memory = AlignedMemory::anonymous(8 << 20).unwrap();
        // Starts on base pages even where huge pages are the default.
        memory.advise(0, 8 << 20, OwnAdvice::NoHugePage).unwrap();
        memory.bytes_mut().fill(1);
        memory.advise(0, 8 << 20, OwnAdvice::HugePage).unwrap();
        let range = Range { start: memory.address(), end: memory.address() + (8 << 20) };
        let track = Track { signal: 40, thread: None, threshold_pages: 100, interval_ms: 100, ranges: vec![range] };
        match OwnWatch::of(&track) {
            Err(TrackError::System { cause, .. }) => {
                eprintln!("skipped: this kernel cannot do it ({cause})");
                None
            }
            watch => Some((memory, watch.unwrap())),
        }
    }

    /// The list after writing this many pages of a region; pages are counted from the start of the memory.
    fn listed_after(memory: &mut AlignedMemory, watch: &mut OwnWatch, pages: usize, region: usize) -> Vec<u64> {
        for page in 0..pages {
            memory.bytes_mut()[(region << 21) + page * 4096] = 2;
        }
        sleep(watch.next().saturating_duration_since(Instant::now()));
        let list = watch.take().unwrap();
        list.iter().flat_map(|list| list.iter()).map(|page| (page.address - memory.address()) / 4096).collect()
    }

    #[test]
    fn what_is_written_is_listed_and_can_be_converted() {
        let Some((mut memory, mut watch)) = watched() else { return };
        let second = memory.address() + REGION;
        assert_eq!(listed_after(&mut memory, &mut watch, 99, 0), NOTHING, "below the threshold");
        assert_eq!(listed_after(&mut memory, &mut watch, 200, 1), (512..712).collect::<Vec<_>>());
        watch.convert(second).unwrap();
        assert_eq!(listed_after(&mut memory, &mut watch, 200, 1), NOTHING, "what is converted is left alone");
        assert_eq!(listed_after(&mut memory, &mut watch, 500, 2).len(), 500, "the rest is watched still");
        assert!(memory.bytes().iter().all(|&byte| byte == 1 || byte == 2));
    }

    #[test]
    fn what_cannot_be_converted_is_watched_still() {
        let Some((mut memory, mut watch)) = watched() else { return };
        let second = memory.address() + REGION;
        memory.advise(REGION as usize, REGION as usize, OwnAdvice::NoHugePage).unwrap();
        assert!(watch.convert(second).is_err());
        assert_eq!(listed_after(&mut memory, &mut watch, 200, 1), (512..712).collect::<Vec<_>>());
        memory.advise(REGION as usize, REGION as usize, OwnAdvice::HugePage).unwrap();
        watch.convert(second).unwrap();
    }

    #[test]
    fn what_is_mapped_anew_is_watched_from_then_on() {
        let Some((mut memory, mut watch)) = watched() else { return };
        // This has the same effect as unmapping and mapping it again.
        watch.watch.remove(memory.address() + REGION, REGION).unwrap();
        assert_eq!(listed_after(&mut memory, &mut watch, 200, 1), NOTHING, "nobody has watched it");
        assert_eq!(listed_after(&mut memory, &mut watch, 150, 1), (512..662).collect::<Vec<_>>());
        assert_eq!(listed_after(&mut memory, &mut watch, 150, 3), (1536..1686).collect::<Vec<_>>());
    }

    #[test]
    fn without_ranges_nothing_can_be_watched() {
        let track = Track { signal: 40, thread: None, threshold_pages: 1, interval_ms: 100, ranges: Vec::new() };
        assert!(matches!(OwnWatch::of(&track), Err(TrackError::NoRanges)));
    }
}
