//! When promoting must wait: the machine is short of memory, or collapses go badly.
//!
//! Owns: the reason to hold back, for how long, and when it ends; our own part of the memory pressure. Never touches: the system; readings are given
//! to it.
//!
//! In short: nothing is promoted while programs wait for memory or little of it is left; a collapse that finds no contiguous memory is followed by a
//! rest, twice as long each time until a collapse succeeds.

use std::time::{Duration, Instant};

use heat::HeldBack;
use heat::units::{Nanos, Slowdown};

/// Our own part of the memory pressure.
///
/// Where files fill memory, a request for a huge page waits for the kernel to make room, and that counts as pressure (PSI) though no program waits.
/// So the time spent preparing pages and collapsing is averaged as the kernel averages pressure: a mean in which older time weighs less and less.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPressure {
    share: f64,
    busy: Nanos,
    seen_at: Option<Instant>,
}

impl OwnPressure {
    /// `avg10` of Documentation/accounting/psi.rst.
    const MEAN_OVER: Duration = Duration::from_secs(10);

    /// Records how long we have prepared pages and collapsed up to now.
    pub fn note(&mut self, busy: Nanos, now: Instant) {
        let passed = self.seen_at.map_or(0.0, |seen_at| (now - seen_at).as_secs_f64());
        if passed > 0.0 {
            let lately = ((busy.seconds() - self.busy.seconds()) / passed).min(1.0);
            let kept = (-passed / Self::MEAN_OVER.as_secs_f64()).exp();
            self.share = self.share * kept + lately * (1.0 - kept);
        }
        (self.busy, self.seen_at) = (busy, Some(now));
    }

    /// The machine's pressure without ours.
    pub fn leave_out(&self, pressure: f64) -> f64 {
        (pressure - self.share).max(0.0)
    }
}

/// The result of a collapse, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapse {
    /// It took effect.
    Done,
    /// There was no contiguous memory.
    NoContiguousMemory,
    /// It was refused because of its region or its process.
    Refused,
}

/// Rests after failed collapses.
#[derive(Clone, Debug)]
pub struct BackOff {
    longest_rest: Duration,
    /// Successive collapses that found no contiguous memory.
    in_a_row: u32,
    until: Option<Instant>,
}

impl BackOff {
    const FIRST_REST: Duration = Duration::from_secs(1);
    const LONGEST_REST: Duration = Duration::from_secs(60);
    /// Where files fill memory, the kernel makes room with each try.
    const LONGEST_REST_FAST: Duration = Duration::from_secs(1);

    /// Rests that fit what the program may lose.
    pub fn new(max_slowdown: Slowdown) -> Self {
        let longest_rest = if max_slowdown.is_fast() { Self::LONGEST_REST_FAST } else { Self::LONGEST_REST };
        Self { longest_rest, in_a_row: 0, until: None }
    }

    /// Records a collapse that ended now.
    pub fn note(&mut self, collapse: Collapse, now: Instant) {
        match collapse {
            Collapse::Done => self.in_a_row = 0,
            Collapse::Refused => {}
            Collapse::NoContiguousMemory => {
                let rest = Self::FIRST_REST * (1 << self.in_a_row.min(6));
                self.until = Some(now + rest.min(self.longest_rest));
                self.in_a_row += 1;
            }
        }
    }

    /// Why nothing may be promoted at this time; None if something may.
    pub fn holds(&self, now: Instant) -> Option<HeldBack> {
        (self.in_a_row > 0 && Some(now) < self.until).then_some(HeldBack::NoContiguousMemory)
    }

    /// When the latest rest is over; None before the first.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn our_own_waits_are_no_pressure() {
        let mut own = OwnPressure::default();
        let start = Instant::now();
        own.note(Nanos(0), start);
        assert_eq!(own.leave_out(0.3), 0.3);
        // Busy half of the time, for half a minute.
        (1..=30).for_each(|second| own.note(Nanos(u64::from(second) * 500_000_000), start + second * SECOND));
        assert!((0.20..0.25).contains(&own.leave_out(0.7)), "{own:?}");
        assert_eq!(own.leave_out(0.4), 0.0);
        own.note(Nanos(15_000_000_000), start + 60 * SECOND);
        assert!(own.leave_out(0.4) > 0.35, "that is over: {own:?}");
    }

    #[test]
    fn rests_double_until_a_collapse_goes_well() {
        let mut back_off = BackOff::new(Slowdown::UNASKED);
        let mut now = Instant::now();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            back_off.note(Collapse::NoContiguousMemory, now);
            back_off.note(Collapse::Refused, now);
            assert_eq!(
                back_off.holds(now + seconds * SECOND - Duration::from_nanos(1)),
                Some(HeldBack::NoContiguousMemory)
            );
            now += seconds * SECOND;
            assert_eq!(back_off.holds(now), None, "another try after {seconds} s");
        }
        back_off.note(Collapse::Done, now);
        assert_eq!(back_off.holds(now), None);
        back_off.note(Collapse::NoContiguousMemory, now);
        assert_eq!(back_off.until(), Some(now + SECOND), "the first in a row again");
    }

    #[test]
    fn whoever_wants_it_over_with_rests_for_a_second() {
        let mut back_off = BackOff::new(Slowdown::FAST);
        let now = Instant::now();
        (0..5).for_each(|_| back_off.note(Collapse::NoContiguousMemory, now));
        assert_eq!(back_off.until(), Some(now + SECOND));
    }
}
