//! Observe: which memory does a process walk page tables for?
//!
//! Owns: the [`Tracker`] trait, the trackers (one folder or file each), [`heat`], and heats joined ([`group`]). Never touches: memory placement; a
//! tracker leaves the target's memory where it is.

pub mod choice;
pub mod damon;
mod error;
mod first_walk;
mod frames;
pub mod group;
pub mod heat;
mod idle_page;
mod mapped;
pub mod page_walk;
mod parts;
pub mod perf_mem;
mod program_clock;
mod rate;
mod smaller;
mod survey;
pub mod write_scan;

use std::time::{Duration, Instant};

use crate::stop::Stop;
use crate::target::Target;
use crate::units::Nanos;

pub use choice::{Choice, open};
pub use damon::Damon;
pub use error::ObserveError;
pub use group::Group;
pub use heat::Heat;
pub use idle_page::IdlePage;
pub use page_walk::PageWalk;
pub use parts::by_mapping;
pub use perf_mem::PerfMem;
pub use smaller::on_smaller_huge_pages;
pub use survey::Survey;

/// Waits, unless stopping is requested or the target ends (noticed within a second).
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

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to watch. The reads that count for rates are made in the first 100 ms.
    pub window: Nanos,
    /// Clear all accessed bits at once even if the target's page faults stall for more than 50 ms.
    pub allow_stall: bool,
}

/// One way of finding out which pages a process uses. All answer with [`Heat`].
pub trait Tracker {
    /// Watches the target for one window.
    fn observe(&mut self, target: &Target, options: &Options, stop: &Stop) -> Result<Heat, ObserveError>;

    /// Looks once at what is present and what is huge, without watching: no page is walked in the answer.
    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError>;
}
