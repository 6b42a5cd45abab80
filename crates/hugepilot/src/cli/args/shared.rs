//! Options that several commands share.

use std::path::PathBuf;

use clap::Args;
use heat::clearing::ClearPolicy;
use heat::units::{CpuShare, Nanos, SizeOrShare, Slowdown};
use observe::{ObserveOptions, TrackerChoice};
use picture::DrawError;
use pilot::decide::{Allowance, Limits};

/// Where a picture goes. Errors, before minutes of measuring: the name ends with neither `.svg` nor `.png`.
pub(super) fn parse_plot(text: &str) -> Result<PathBuf, DrawError> {
    let path = PathBuf::from(text);
    picture::check_name(&path).map(|()| path)
}

/// How a process is watched.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct WatchOptions {
    /// The tracker: auto takes the first of page-walk, damon-vaddr, idle-page, damon-paddr, perf-mem that works on this machine
    #[arg(long, value_name = "TRACKER", default_value_t)]
    pub tracker: TrackerChoice,
    /// How long to watch, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = ObserveOptions::parse_window)]
    pub window: Nanos,
    /// Clear accessed bits at once, for exact page walks, however long page faults and mmap calls of the program then wait
    #[arg(long)]
    pub allow_stall: bool,
}

/// What watching again and again may take.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct BudgetOptions {
    /// Share of one CPU that watching again and again may take, of hugepilot's and of the program's each
    #[arg(long, value_name = "SHARE", default_value_t)]
    pub max_cpu: CpuShare,
}

/// What a promotion may spend.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct SpendOptions {
    /// Memory growth allowed: a size, or a share of each process's memory, shared memory included (1%), or of the machine's (1%ram)
    #[arg(long, value_name = "SIZE", default_value_t = Limits::MAX_GROWTH)]
    pub max_growth: SizeOrShare,
    /// Most memory on huge pages, what is huge already included: a size, or a share as above (50%, 50%ram) [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub max_huge: Option<SizeOrShare>,
    /// Also promote memory that is shared by fork, merged by KSM or lazily freed; it grows memory
    #[arg(long)]
    pub include_shared: bool,
    /// Also promote memory that the program spreads over memory nodes by policy; each 2 MiB then comes to be on one node
    #[arg(long)]
    pub include_interleaved: bool,
}

/// How fast to act.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PaceOptions {
    /// By how much promoting may slow the program down while it lasts, 0.1% to 50%: 2 MiB copies get half of that, for they cost more than their time
    #[arg(long, value_name = "SHARE", default_value_t = Slowdown::ASKED_FOR)]
    pub max_slowdown: Slowdown,
    /// Promote within seconds, however the program feels it: --max-slowdown 40%
    #[arg(long, conflicts_with = "max_slowdown")]
    pub fast: bool,
}

/// How a gain is forecast.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ForecastOptions {
    /// Forecast from page walks and their cost alone, as if there had been no trial on this machine
    #[arg(long)]
    pub no_calibration: bool,
}

impl WatchOptions {
    /// These options for a tracker.
    pub fn options(&self) -> ObserveOptions {
        let clearing = ClearPolicy::allowing_stalls(self.allow_stall);
        ObserveOptions { window: self.window, clearing, ..ObserveOptions::default() }
    }
}

impl PaceOptions {
    /// The slowdown chosen.
    pub fn max_slowdown(&self) -> Slowdown {
        if self.fast { Slowdown::FAST } else { self.max_slowdown }
    }
}

impl SpendOptions {
    /// What these options allow.
    pub fn allowance(&self) -> Allowance {
        Allowance {
            max_growth: self.max_growth,
            max_huge: self.max_huge,
            include_shared: self.include_shared,
            include_interleaved: self.include_interleaved,
        }
    }
}
