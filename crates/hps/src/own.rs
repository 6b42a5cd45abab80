//! Without a daemon: which of its own pages a process writes (`PAGEMAP_SCAN`, Linux 6.7), no privilege needed.
//!
//! Owns: watching the ranges of interest. Never touches: memory that nobody named. Pages that are only read are not seen.

use std::time::{Duration, Instant};

use hugepilot_os::page_scan::WriteWatch;

use crate::TrackError;
use crate::judge::REGION;
use crate::list::List;
use crate::wire::{Page, Range, Track};

const BASE_PAGE: u64 = 4096;

/// Watches writes to some of this process's memory.
pub(crate) struct OwnWatch {
    watch: WriteWatch,
    ranges: Vec<Range>,
    threshold_pages: u64,
    interval: Duration,
    since: Instant,
}

impl OwnWatch {
    /// Watches from now on. Errors: the kernel is older than 6.7 or forbids it, or of a range nothing is mapped.
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

    /// When there may be a list next.
    pub(crate) fn next(&self) -> Instant {
        self.since + self.interval
    }

    /// What was written since the last time, if the time is over and it was enough.
    pub(crate) fn take(&mut self) -> Result<Option<List>, TrackError> {
        let elapsed = self.since.elapsed();
        if elapsed < self.interval {
            return Ok(None);
        }
        self.since = Instant::now();
        let refused = |cause| TrackError::System { doing: "read this process's own writes", cause };
        let mut runs = Vec::new();
        for range in &self.ranges {
            let taken = self.watch.take_written(range.start, range.end - range.start, |run| runs.push(run));
            taken.map_err(refused)?;
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

    /// Leaves a region alone from now on, because protected pages cannot be put on huge pages.
    pub(crate) fn let_go(&mut self, region: u64) {
        let end = region + REGION;
        let (mut kept, watch) = (Vec::new(), &self.watch);
        for range in &self.ranges {
            let inside = Range { start: range.start.max(region), end: range.end.min(end) };
            if inside.start < inside.end && watch.remove(inside.start, inside.end - inside.start).is_ok() {
                let around = [Range { end: inside.start, ..*range }, Range { start: inside.end, ..*range }];
                kept.extend(around.into_iter().filter(|range| range.start < range.end));
            } else {
                kept.push(*range);
            }
        }
        self.ranges = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Allowance, Judge, work_through};
    use hugepilot_os::memory::Mapping;
    use std::thread::sleep;

    #[test]
    fn what_is_written_is_listed_and_can_be_converted() {
        let mut memory = Mapping::anonymous(8 << 20).unwrap();
        memory.bytes_mut().fill(1);
        let range = Range { start: memory.address(), end: memory.address() + (8 << 20) };
        let track = Track { signal: 40, thread: None, threshold_pages: 100, interval_ms: 100, ranges: vec![range] };
        let mut watch = match OwnWatch::of(&track) {
            Err(TrackError::System { cause, .. }) => return eprintln!("skipped: this kernel cannot do it ({cause})"),
            result => result.unwrap(),
        };
        let mut written_after = |memory: &mut Mapping, pages: usize, region: usize| {
            for page in 0..pages {
                memory.bytes_mut()[(region << 21) + page * 4096] = 2;
            }
            sleep(watch.next().saturating_duration_since(Instant::now()));
            let list = watch.take().unwrap();
            if let Some(pages) = &list {
                let report = work_through(pages, &Judge, &Allowance::of(u64::MAX), |region| watch.let_go(region));
                assert_eq!((report.regions, report.converted), (1, 1), "{report:?}");
            }
            list.map(|pages| pages.iter().map(|page| page.address - range.start).collect::<Vec<_>>())
        };
        assert_eq!(written_after(&mut memory, 99, 0), None, "below the threshold");
        let listed = written_after(&mut memory, 200, 1).expect("it is enough");
        assert_eq!(listed, (512..712).map(|page| page * 4096).collect::<Vec<_>>());
        assert_eq!(written_after(&mut memory, 200, 1), None, "what is converted is left alone");
        assert!(written_after(&mut memory, 500, 3).is_some(), "the rest is watched still");
        assert!(memory.bytes().iter().all(|&byte| byte == 1 || byte == 2));
    }

    #[test]
    fn without_ranges_nothing_can_be_watched() {
        let track = Track { signal: 40, thread: None, threshold_pages: 1, interval_ms: 100, ranges: Vec::new() };
        assert!(matches!(OwnWatch::of(&track), Err(TrackError::NoRanges)));
    }
}
