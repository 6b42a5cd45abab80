//! The progress of a workload: short intervals of work, written by its load and read by the harness.
//!
//! Owns: the list that both share, and extracting windows from it. Never touches: the workload.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::search_work::SearchWork;

/// Work done in some time. A child reports each of its intervals as a line of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Operations in it.
    pub operations: u64,
    /// The time that they took.
    pub duration: Duration,
    /// Their latencies, if the workload has requests.
    pub latencies: Option<Box<Histogram>>,
    /// The longest wait to map or unmap memory, if the program does that.
    pub longest_wait: Option<Duration>,
    /// The cost and results of searching, if the program searches.
    pub search: Option<SearchWork>,
}

/// Work done in a short interval.
#[derive(Clone, Debug)]
pub struct WorkInterval {
    /// When it ended.
    pub end: Instant,
    /// The work.
    pub work: Work,
}

/// The shared list.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    intervals: Vec<WorkInterval>,
    failure: Option<String>,
}

/// Operations a second in a short time that ended at `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputPoint {
    /// Since the program was ready.
    pub seconds: f64,
    /// Operations a second.
    pub throughput: f64,
}

impl Progress {
    /// Adds work that ended at `end`.
    pub fn add(&self, end: Instant, work: Work) {
        self.state().intervals.push(WorkInterval { end, work });
    }

    /// Reports that the load cannot go on.
    pub fn fail(&self, error: &anyhow::Error) {
        self.state().failure.get_or_insert(format!("{error:#}"));
    }

    /// Errors: the load could not go on.
    pub fn check(&self) -> Result<()> {
        self.state().failure.clone().map_or(Ok(()), |failure| bail!(failure))
    }

    /// The number of intervals.
    pub fn count(&self) -> usize {
        self.state().intervals.len()
    }

    /// The sum of all intervals that lie entirely between two times.
    pub fn window(&self, start: Instant, end: Instant) -> Work {
        let mut window = Work::default();
        self.intervals(start, end).into_iter().for_each(|interval| window += interval.work);
        window
    }

    /// The intervals that lie entirely between two times.
    pub fn intervals(&self, start: Instant, end: Instant) -> Vec<WorkInterval> {
        let within = |interval: &&WorkInterval| {
            interval.end <= end && interval.end.duration_since(start) >= interval.work.duration
        };
        self.state().intervals.iter().filter(within).cloned().collect()
    }

    /// The intervals that overlap the time between these two, so that nothing in it is left out.
    pub fn overlapping(&self, start: Instant, end: Instant) -> Vec<WorkInterval> {
        let overlaps = |interval: &&WorkInterval| interval.end > start && interval.end < end + interval.work.duration;
        self.state().intervals.iter().filter(overlaps).cloned().collect()
    }

    /// The throughput of every interval; times count from `origin`.
    pub fn over_time(&self, origin: Instant) -> Vec<ThroughputPoint> {
        let point = |interval: &WorkInterval| ThroughputPoint {
            seconds: interval.end.duration_since(origin).as_secs_f64(),
            throughput: interval.work.throughput(),
        };
        self.state().intervals.iter().map(point).collect()
    }

    /// If a thread panicked while it added an interval, the list is still intact.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Operations a second.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 / self.duration.as_secs_f64().max(1e-9)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.duration += more.duration;
        self.longest_wait = self.longest_wait.max(more.longest_wait);
        if let Some(search) = more.search {
            *self.search.get_or_insert_default() += search;
        }
        if let Some(latencies) = more.latencies {
            self.latencies.get_or_insert_default().merge(&latencies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_whole_intervals_only() {
        let origin = Instant::now();
        let progress = Progress::default();
        for tenth in 1..=10 {
            let end = origin + Duration::from_millis(100 * tenth);
            let work = Work {
                duration: Duration::from_millis(100),
                operations: tenth,
                latencies: None,
                longest_wait: Some(Duration::from_millis(tenth)),
                search: Some(SearchWork { queries: tenth, ..SearchWork::default() }),
            };
            progress.add(end, work);
        }
        let at = |millis| origin + Duration::from_millis(millis);
        let window = progress.window(at(250), at(650));
        assert_eq!(window.operations, 4 + 5 + 6);
        assert_eq!(window.search.map(|search| search.queries), Some(4 + 5 + 6));
        assert_eq!(window.duration, Duration::from_millis(300));
        assert!((window.throughput() - 50.0).abs() < 1e-9);
        assert_eq!(progress.window(at(2000), at(3000)).operations, 0);
        let tenths = |millis, until| {
            progress.overlapping(at(millis), at(until)).iter().map(|each| each.work.operations).sum::<u64>()
        };
        assert_eq!((tenths(250, 650), tenths(300, 600), tenths(2000, 3000)), (3 + 4 + 5 + 6 + 7, 4 + 5 + 6, 0));
        assert_eq!(progress.over_time(origin).len(), 10);
    }

    #[test]
    fn the_first_failure_is_kept() {
        let progress = Progress::default();
        progress.fail(&anyhow::anyhow!("first"));
        progress.fail(&anyhow::anyhow!("second"));
        assert_eq!(progress.check().unwrap_err().to_string(), "first");
    }
}
