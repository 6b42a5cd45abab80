//! The share of a CPU that observing and deciding may take.
//!
//! Owns: the account of our CPU time, and when the next scan can be afforded. Never touches: what the time is spent on.
//!
//! A pilot has little to do most of the time, and much at once when a program changes. Unspent time is therefore saved up, for half a minute at most.
//!
//! All CPU time of this process counts, as the kernel accounts for it, so nothing is forgotten. Only collapsing is left out, since it has its own
//! pace.

use std::time::{Duration, Instant};

use heat::units::{CpuShare, Nanos, Slowdown};

/// The longest time whose share can be saved up: 0.3 s of CPU time at 1 %.
const SAVED_UP: Duration = Duration::from_secs(30);
/// The same for fast promotion, in the first minutes: PostgreSQL with 100 connections and 12 GiB took 2 s of CPU time until all was promoted.
const SAVED_UP_FAST: Duration = Duration::from_secs(300);
const FIRST_MINUTES: Duration = Duration::from_secs(180);
/// The longest time for which debts silence a pilot, unless a single scan takes longer to earn.
const MOST_DEBT: Duration = Duration::from_secs(60);

/// What was spent, as the time in which a share of a CPU earns it.
#[derive(Debug)]
pub(super) struct Account {
    /// The time whose share may be saved up.
    saves: Duration,
    entered_at: Instant,
    /// The share has been spent up to this moment; it is in the past if some is saved up.
    spent_until: Instant,
}

impl Account {
    /// An account that saves up this much, and begins full.
    fn full(saves: Duration, now: Instant) -> Self {
        Self { saves, entered_at: now, spent_until: now.checked_sub(saves).unwrap_or(now) }
    }

    /// An account that saves up the usual time, and begins full.
    pub(super) fn usual(now: Instant) -> Self {
        Self::full(SAVED_UP, now)
    }

    /// An account that saves nothing up.
    pub(super) fn unsaved(now: Instant) -> Self {
        Self::full(Duration::ZERO, now)
    }

    /// Enters what takes this long to earn.
    pub(super) fn enter(&mut self, to_earn: Duration, now: Instant) {
        // Time unspent long before the last entry is lost.
        let saved_from = self.entered_at.checked_sub(self.saves).unwrap_or(self.spent_until);
        let spent_until = self.spent_until.max(saved_from) + to_earn;
        self.spent_until = spent_until.min(now + to_earn.max(MOST_DEBT));
        self.entered_at = now;
    }

    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.spent_until <= now
    }

    /// Whether nothing can be added to what is saved up: the account is as a new one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        now.checked_sub(self.saves).is_some_and(|full| self.spent_until <= full)
    }
}

/// An account of CPU time.
#[derive(Debug)]
pub struct Budget {
    share: CpuShare,
    account: Account,
    /// From then on, only the usual time is saved up.
    hurries_until: Instant,
    /// Everything entered so far.
    charged: Nanos,
    /// Our CPU time up to the last entry.
    seen: Nanos,
}

impl Budget {
    /// An account that begins now, when this process has used this much CPU time, and saves nothing up.
    pub fn new(share: CpuShare, cpu_time: Nanos, now: Instant) -> Self {
        let account = Account::full(Duration::ZERO, now);
        Self { share, account, hurries_until: now, charged: Nanos(0), seen: cpu_time }
    }

    /// An account that saves up unspent time for a while, and begins full: a pilot has most to do at first.
    pub fn saving(share: CpuShare, max_slowdown: Slowdown, cpu_time: Nanos, now: Instant) -> Self {
        let saves = if max_slowdown.is_fast() { SAVED_UP_FAST } else { SAVED_UP };
        let account = Account::full(saves, now);
        Self { account, hurries_until: now + FIRST_MINUTES, ..Self::new(share, cpu_time, now) }
    }

    /// The share.
    pub fn share(&self) -> CpuShare {
        self.share
    }

    /// Goes on with another share. What is saved up or owed stays as much time, so that a changed configuration earns nothing.
    pub fn set_share(&mut self, share: CpuShare) {
        self.share = share;
    }

    /// Enters our CPU time since the last entry (`own` is the total so far), plus that of kernel threads that worked for us.
    pub fn charge(&mut self, own: Nanos, kernel: Nanos, now: Instant) {
        let spent = own.saturating_sub(self.seen) + kernel;
        self.charged += spent;
        if now >= self.hurries_until {
            self.account.saves = self.account.saves.min(SAVED_UP);
        }
        self.account.enter(self.share.rest_after(spent), now);
        self.seen = own;
        tracing::debug!("{spent} spent; free again in {:?}", self.free_at().saturating_duration_since(now));
    }

    /// Leaves out our CPU time since the last entry.
    pub fn pass_over(&mut self, own: Nanos, now: Instant) {
        (self.seen, self.account.entered_at) = (own, now);
    }

    /// Everything entered so far.
    pub fn charged(&self) -> Nanos {
        self.charged
    }

    /// When the next scan can be afforded.
    pub fn free_at(&self) -> Instant {
        self.account.spent_until
    }

    /// The rest between the starts of two scans at which they cost the program no larger share of a CPU either.
    pub fn rest_for(&self, program: Nanos) -> Duration {
        self.share.rest_after(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn another_share_neither_forgives_debts_nor_saves_anything_up() {
        let start = Instant::now();
        let mut budget = Budget::saving(CpuShare(0.01), Slowdown::UNASKED, Nanos(0), start);
        budget.charge(Nanos(500_000_000), Nanos(0), start);
        let owed = budget.free_at();
        assert!(owed > start, "half a second of CPU time is more than what was saved up");
        budget.set_share(CpuShare(0.02));
        assert_eq!((budget.free_at(), budget.share()), (owed, CpuShare(0.02)));
    }

    #[test]
    fn what_was_spent_is_waited_for_and_nothing_is_saved_up() {
        let (start, before) = (Instant::now(), Nanos(7));
        let mut budget = Budget::new(CpuShare(0.01), before, start);
        let own = |ms: u64| before + Nanos(ms * 1_000_000);
        budget.charge(own(10), Nanos(0), start + SECOND / 10);
        assert_eq!(budget.free_at(), start + SECOND);
        budget.charge(own(20), Nanos(20_000_000), start + SECOND);
        assert_eq!(budget.free_at(), start + 4 * SECOND, "a kernel thread works on our account");
        budget.charge(own(20), Nanos(0), start + 100 * SECOND);
        budget.charge(own(30), Nanos(0), start + 101 * SECOND);
        assert_eq!(budget.free_at(), start + 101 * SECOND);
        assert_eq!(budget.rest_for(Nanos(10_000_000)), SECOND);
    }

    #[test]
    fn a_quiet_time_pays_for_a_busy_one() {
        let (start, before) = (Instant::now(), Nanos(7));
        let mut budget = Budget::saving(CpuShare(0.01), Slowdown::UNASKED, before, start);
        let own = |ms: u64| before + Nanos(ms * 1_000_000);
        budget.charge(own(400), Nanos(0), start);
        assert_eq!(budget.free_at(), start + 10 * SECOND, "40 s are paid for, from 30 s before on");
        budget.charge(own(400), Nanos(0), start + 100 * SECOND);
        budget.charge(own(600), Nanos(0), start + 101 * SECOND);
        assert_eq!(budget.free_at(), start + 90 * SECOND);
        budget.charge(own(800), Nanos(0), start + 102 * SECOND);
        assert_eq!(budget.free_at(), start + 110 * SECOND);
    }

    #[test]
    fn whoever_wants_it_over_with_has_more_saved_up() {
        let (start, before) = (Instant::now(), Nanos(7));
        let mut budget = Budget::saving(CpuShare(0.01), Slowdown::FAST, before, start);
        budget.charge(before + Nanos(2_500_000_000), Nanos(0), start);
        assert!(budget.free_at() < start);
        budget.charge(before + Nanos(2_500_000_000), Nanos(0), start + FIRST_MINUTES);
        budget.charge(before + Nanos(2_800_000_000), Nanos(0), start + FIRST_MINUTES + SECOND);
        assert_eq!(budget.free_at(), start + FIRST_MINUTES, "after some minutes no more is saved up than usual");
    }

    #[test]
    fn many_debts_are_forgiven_and_one_is_earned() {
        let start = Instant::now();
        let mut budget = Budget::new(CpuShare(0.01), Nanos(0), start);
        for tenths in 1..=100 {
            budget.charge(Nanos(tenths * 100_000_000), Nanos(0), start);
        }
        assert_eq!(budget.free_at(), start + 60 * SECOND, "10 s were spent, which 1000 s would earn");
        budget.charge(Nanos(12_000_000_000), Nanos(0), start);
        assert_eq!(budget.free_at(), start + 200 * SECOND);
    }

    #[test]
    fn work_that_is_passed_over_is_not_charged() {
        let start = Instant::now();
        let mut budget = Budget::new(CpuShare(0.01), Nanos(0), start);
        budget.charge(Nanos(20_000_000), Nanos(0), start);
        assert_eq!(budget.free_at(), start + 2 * SECOND);
        budget.pass_over(Nanos(900_000_000), start);
        budget.charge(Nanos(900_000_000), Nanos(0), start);
        assert_eq!(budget.free_at(), start + 2 * SECOND);
    }
}
