//! The share of a CPU that observing and deciding may take.
//!
//! Owns: the account of our CPU time, and when the next look can be afforded. Never touches: what the time is spent on.
//!
//! All CPU time of this process counts, as the kernel accounts for it: what a look forgets to count is counted here. Collapsing alone
//! is passed over, since it has a pace of its own.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::units::{CpuShare, Nanos};

/// An account of CPU time.
#[derive(Debug)]
pub struct Budget {
    share: CpuShare,
    /// Our CPU time up to the last entry, and when that was made.
    seen: Nanos,
    seen_at: Instant,
    free_at: Instant,
}

impl Budget {
    /// An account that begins now.
    pub fn new(share: CpuShare) -> Self {
        let now = Instant::now();
        Self { share, seen: own_cpu_time(), seen_at: now, free_at: now }
    }

    /// The share.
    pub fn share(&self) -> CpuShare {
        self.share
    }

    /// Enters our CPU time since the last entry, and that of kernel threads that worked for us.
    pub fn charge(&mut self, kernel: Nanos) {
        self.enter(own_cpu_time(), kernel, Instant::now());
    }

    fn enter(&mut self, own: Nanos, kernel: Nanos, now: Instant) {
        let spent = Nanos(own.0.saturating_sub(self.seen.0)) + kernel;
        // What was not spent before the last entry is not saved up.
        self.free_at = self.free_at.max(self.seen_at) + self.share.rest_after(spent);
        (self.seen, self.seen_at) = (own, now);
    }

    /// Leaves our CPU time since the last entry out.
    pub fn pass_over(&mut self) {
        (self.seen, self.seen_at) = (own_cpu_time(), Instant::now());
    }

    /// When the next look can be afforded.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// From the begin of one look to the next, so that a program loses no larger share of a CPU by them either.
    pub fn rest_for(&self, program: Nanos) -> Duration {
        self.share.rest_after(program)
    }
}

/// CPU time of all threads of this process so far.
pub fn own_cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_spent_is_waited_for_and_nothing_is_saved_up() {
        let mut budget = Budget::new(CpuShare(0.01));
        let (start, before) = (budget.seen_at, budget.seen);
        let own = |ms: u64| before + Nanos(ms * 1_000_000);
        budget.enter(own(10), Nanos(0), start + SECOND / 10);
        assert_eq!(budget.free_at(), start + SECOND);
        budget.enter(own(20), Nanos(20_000_000), start + SECOND);
        assert_eq!(budget.free_at(), start + 4 * SECOND, "a kernel thread works on our account");
        budget.enter(own(20), Nanos(0), start + 100 * SECOND);
        budget.enter(own(30), Nanos(0), start + 101 * SECOND);
        assert_eq!(budget.free_at(), start + 101 * SECOND);
        assert_eq!(budget.rest_for(Nanos(10_000_000)), SECOND);
    }

    #[test]
    fn our_work_is_charged_unless_it_is_passed_over() {
        let mut budget = Budget::new(CpuShare(0.01));
        let work = || {
            let until = own_cpu_time() + Nanos(20_000_000);
            while own_cpu_time() < until {}
        };
        let begin = budget.free_at();
        work();
        budget.charge(Nanos(0));
        assert!(budget.free_at() >= begin + 2 * SECOND);
        let charged = budget.free_at();
        work();
        budget.pass_over();
        budget.charge(Nanos(0));
        assert!(budget.free_at() < charged + SECOND, "other tests work too, but not for ten milliseconds");
    }
}
