//! How long promoting rests after each collapse, so as to slow the program down no more than allowed.
//!
//! Owns: the share of time for which collapses may hold a program up, and how it adapts. Never touches: the system; it is told how long collapses
//! took and the program waited.
//!
//! A collapse holds up every thread that touches its region until it is over, so the rest after a collapse follows from its duration: slow collapses
//! are rare. A program loses more than that, because a collapse and the preparation of a page also take a processor and leave its caches cold; so
//! collapses get half of what it may lose. Promoting also takes processors, memory and locks that a program may have to wait for elsewhere; the share
//! is halved whenever the program waited longer than it may be slowed down, and grows back while it does not.

use heat::units::{Nanos, Slowdown};

/// One in this many working threads touches the region while it is collapsed. In theory fewer do: 250,000 random reads a second of 4 GiB touch one of
/// 2,000 regions within 0.5 ms in one of sixteen collapses.
const TOUCHED_WITHIN: u64 = 6;
/// The share never falls below this part of what is allowed: waits caused by others must not end promoting for good.
const LEAST: f64 = 1.0 / 32.0;
/// From half the allowed share back to all of it takes three samples without waits.
const GROWTH: f64 = 1.26;

/// The part of the slowdown spent on collapses themselves. The cost of a collapse beyond its duration was not measured closely. At the default of 5
/// %, a twentieth of requests would meet a collapse, which doubled p99 of memcached; with a fortieth, p99 shows little.
const OF_COLLAPSES: f64 = 1.0 / 2.0;

/// Which threads wait for a collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoWaits {
    /// Threads that touch the region and, because it is copied with the lock of the program's memory held, threads that fault in a page or map
    /// memory.
    AnyThread,
    /// Threads that touch the region. The kernel copies shared memory without that lock.
    WhoTouchesIt,
}

impl WhoWaits {
    /// How long a collapse counts as holding the program up.
    ///
    /// It also occupies a processor, which may have been the program's.
    pub fn counted(self, took: Nanos, processors: u64) -> Nanos {
        match self {
            Self::AnyThread => took,
            Self::WhoTouchesIt => Nanos(took.0 / TOUCHED_WITHIN.min(processors.max(1))),
        }
    }
}

/// The pace of promoting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    max: Slowdown,
    /// Share of time for which a collapse may be under way at present.
    share: f64,
}

impl Throttle {
    /// Begins with all that is allowed.
    pub fn new(max: Slowdown) -> Self {
        Self { max, share: max.0 * OF_COLLAPSES }
    }

    /// What is allowed.
    pub fn max(&self) -> Slowdown {
        self.max
    }

    /// Share of time for which a collapse may be under way at present; at most half of what is allowed.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether programs waited, so that collapses take less than is allowed.
    pub fn is_reduced(&self) -> bool {
        self.share < self.max.0 * OF_COLLAPSES
    }

    /// The same for a program that may be slowed down by `own` at most.
    pub fn limited_to(self, own: Option<Slowdown>) -> Self {
        Self { share: own.map_or(self.share, |own| self.share.min(own.0 * OF_COLLAPSES)), ..self }
    }

    /// How long to rest after a step that held the program up this long.
    pub fn rest_after(&self, held_up: Nanos) -> Nanos {
        Nanos((held_up.0 as f64 * (1.0 / self.share - 1.0)) as u64)
    }

    /// Adapts to the extra waiting of the program lately, as a share of the time in which it wanted to run.
    pub fn adapt(&mut self, waited: f64) {
        let most = self.max.0 * OF_COLLAPSES;
        let adapted = if waited > self.max.0 { self.share / 2.0 } else { self.share * GROWTH };
        self.share = adapted.clamp(most * LEAST, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_rest_follows_from_what_the_collapse_took() {
        let throttle = Throttle::new(Slowdown(0.04));
        assert_eq!(throttle.rest_after(Nanos(MS)), Nanos(49 * MS));
        assert_eq!(throttle.rest_after(Nanos(10 * MS)), Nanos(490 * MS), "slow collapses are rare ones");
        assert_eq!(Throttle::new(Slowdown(0.5)).rest_after(Nanos(MS)), Nanos(3 * MS));
    }

    #[test]
    fn a_collapse_that_few_wait_for_counts_less() {
        assert_eq!(WhoWaits::AnyThread.counted(Nanos(600), 64), Nanos(600));
        assert_eq!(WhoWaits::WhoTouchesIt.counted(Nanos(600), 64), Nanos(100));
        assert_eq!(WhoWaits::WhoTouchesIt.counted(Nanos(600), 2), Nanos(300), "of two processors it takes one");
    }

    #[test]
    fn a_program_that_waits_is_given_time_and_loses_it_again() {
        let (mut throttle, most) = (Throttle::new(Slowdown(0.12)), 0.12 * OF_COLLAPSES);
        throttle.adapt(0.12);
        assert_eq!(throttle.share(), most, "as much as is allowed");
        assert!(!throttle.is_reduced());
        throttle.adapt(0.13);
        assert_eq!(throttle.share(), most / 2.0);
        assert!(throttle.is_reduced());
        (0..100).for_each(|_| throttle.adapt(1.0));
        assert_eq!(throttle.share(), most / 32.0, "it never ends for good");
        (0..15).for_each(|_| throttle.adapt(0.0));
        assert_eq!(throttle.share(), most);
        assert!(!throttle.is_reduced());
    }

    proptest! {
        #[test]
        fn collapses_never_take_more_than_their_share(
            max in 0.001..0.5f64,
            waits in prop::collection::vec(0.0..1.0f64, 0..40),
            took in 1..1_000_000_000u64,
        ) {
            let mut throttle = Throttle::new(Slowdown(max));
            waits.into_iter().for_each(|waited| throttle.adapt(waited));
            let rest = throttle.rest_after(Nanos(took)).0 as f64;
            prop_assert!(took as f64 / (took as f64 + rest + 1.0) <= max);
        }
    }
}
