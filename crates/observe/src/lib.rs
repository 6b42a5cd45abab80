//! Observe: for which memory does a process walk page tables?
//!
//! Owns: the [`Tracker`] trait, the trackers (one folder or file each), [`heat`], and heats of several processes joined ([`group`]). Never touches:
//! memory placement; a tracker leaves the target's memory where it is.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod census;
pub mod choice;
mod contents;
pub mod damon;
mod error;
pub mod faults;
mod first_walk;
mod frames;
mod idle_page;
mod kernel_time;
mod mapped;
mod named;
mod node_policy;
mod object;
pub mod page_walk;
pub mod perf_mem;
pub mod populated;
mod processors;
mod program_clock;
pub mod reclaim;
mod smaller;
mod survey;
pub mod system_calls;
mod waits;
pub mod walk_cycles;
mod window;
pub mod write_scan;

use std::time::{Duration, Instant};

use heat::clearing::ClearPolicy;
use heat::units::{Address, Nanos, Pages, Slowdown, TimeError};
use heat::{Coverage, Heat, PageSet, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::target::Target;

pub use census::{Census, Spare};
pub use choice::{TrackerChoice, open};
pub use contents::Contents;
pub use damon::DamonTracker;
pub use error::ObserveError;
pub use faults::{FaultRates, Faults, Whose};
pub use idle_page::IdlePage;
pub use page_walk::PageWalk;
pub use perf_mem::PerfMem;
pub use processors::{Processors, keep_away_from};
pub use smaller::{about_on_smaller_huge_pages, on_smaller_huge_pages, on_smaller_huge_pages_by_mapping};
pub use survey::Survey;
pub use waits::{Waited, Waits};

/// A thread that still runs. Errors: there is none.
fn living_thread(target: &Target) -> Result<u32, ObserveError> {
    target.living_thread()?.ok_or(ObserveError::Exited { pid: target.pid() })
}

/// Waits until the deadline, a stop request, or the end of the target (noticed within a second).
fn wait_until(deadline: Instant, target: &Target, stop: &Stop) -> Result<(), ObserveError> {
    loop {
        stop.sleep_until(deadline.min(Instant::now() + Duration::from_secs(1)))?;
        if target.handle().has_exited() {
            return Err(ObserveError::Exited { pid: target.pid() });
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// How to observe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObserveOptions {
    /// How long to observe. The reads used for rates are made in the first 100 ms.
    pub window: Nanos,
    /// How accessed bits are cleared.
    pub clearing: ClearPolicy,
    /// How much observing may slow the program down at any moment; None if there is no limit.
    pub max_slowdown: Option<Slowdown>,
    /// Also find out which huge pages are used. This flushes the target's TLB once; otherwise a huge page that stays in it seems idle.
    pub tell_use_of_huge: bool,
    /// Find out which base pages are walked; otherwise only how many per region, which takes less memory.
    pub which_pages: bool,
    /// How much of the memory is observed. A tracker that cannot take a sample observes everything.
    pub coverage: Coverage,
    /// The most regions of 2 MiB with a page present that the program may have; each takes some 300 bytes while it is observed.
    pub most_regions: usize,
}

impl ObserveOptions {
    /// The usual most: those of 16 TiB, far more than honest programs have (1 TiB has 524,288). It stops a program that maps the same memory over and
    /// over; whoever may not be trusted as far as that gets fewer.
    pub const MOST_REGIONS: usize = 8 << 20;
    /// The shortest window: page walks are counted 100 ms after clearing.
    pub const SHORTEST_WINDOW: Nanos = Nanos(100_000_000);
    /// The longest window: nothing new is seen after the first reads, so a longer one is a typing mistake.
    pub const LONGEST_WINDOW: Nanos = Nanos(3_600_000_000_000);

    /// Parses a window.
    ///
    /// Errors: `text` is not a time with a unit, or is not from 100 ms to 1 h.
    pub fn parse_window(text: &str) -> Result<Nanos, TimeError> {
        Nanos::parse_within(text, Self::SHORTEST_WINDOW..=Self::LONGEST_WINDOW, "from 100ms to 1h")
    }
}

impl Default for ObserveOptions {
    fn default() -> Self {
        Self {
            window: Nanos(1_000_000_000),
            clearing: ClearPolicy::default(),
            max_slowdown: None,
            tell_use_of_huge: false,
            which_pages: true,
            coverage: Coverage::Everything,
            most_regions: Self::MOST_REGIONS,
        }
    }
}

/// A way of finding out which pages a process uses. All trackers return [`Heat`].
pub trait Tracker {
    /// The kind of this tracker.
    fn kind(&self) -> TrackerKind;

    /// Observes the target for one window.
    ///
    /// Errors: a stop was requested, the process exits or calls exec, or the kernel refuses what the tracker needs.
    fn observe(&mut self, target: &Target, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError>;

    /// Scans once for what is present and what is huge, without observing: the result has no walked pages.
    ///
    /// Errors: the process exits or calls exec, or its page tables, mappings or page frames cannot be read.
    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError>;

    /// The same, with what promoting each region would take. It costs more where pages are shared, merged or lazily freed.
    ///
    /// Errors: as [`Tracker::survey`].
    fn survey_growth(&mut self, target: &Target) -> Result<Heat, ObserveError>;

    /// Base pages walked since they were last cleared, at next to no cost; None where the tracker cannot tell.
    ///
    /// Errors: no thread of the process is running any more, or its page tables cannot be read.
    fn walked_pages(&mut self, target: &Target) -> Result<Option<Pages>, ObserveError> {
        let _ = target;
        Ok(None)
    }

    /// Passes on, region by region, which base pages were walked since they were last cleared, at next to no cost. Returns false, and passes on none,
    /// where the tracker cannot tell.
    ///
    /// Errors: as [`Tracker::walked_pages`].
    fn walked(&mut self, target: &Target, each: &mut dyn FnMut(Address, &PageSet)) -> Result<bool, ObserveError> {
        let _ = (target, each);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_and_bounded() {
        let parse = ObserveOptions::parse_window;
        for (text, nanos) in [("100ms", 100_000_000), ("1.5s", 1_500_000_000), ("1h", 3_600_000_000_000)] {
            assert_eq!(parse(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["99ms", "61m", "0s", "99999999999999999999h"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' is out of range")), "{error}");
        }
    }
}
