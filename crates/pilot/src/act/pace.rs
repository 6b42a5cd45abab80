//! Pace: when the next collapse may begin.
//!
//! Owns: the time of the next step. Never touches: a target; how long to rest is decided by [`Throttle`] and [`BackOff`].

use std::io;
use std::time::{Duration, Instant};

use super::promote::refusal_reason;
use heat::units::{Nanos, Slowdown};
use heat::{HeldBack, RefusalReason};

use crate::decide::{BackOff, Collapse, Throttle};

/// Keeps a pace over any number of processes and runs of actions.
#[derive(Clone, Debug)]
pub struct Pacer {
    throttle: Throttle,
    next_step: Instant,
    /// None for whoever waits for one program only, and rather has it over with.
    back_off: Option<BackOff>,
    began: Instant,
}

impl Pacer {
    /// The first step may be taken at once.
    pub fn new(max: Slowdown) -> Self {
        Self { throttle: Throttle::new(max), next_step: Instant::now(), back_off: None, began: Instant::now() }
    }

    /// Rests besides, ever longer, while there is no contiguous memory.
    pub fn backing_off(max: Slowdown) -> Self {
        Self { back_off: Some(BackOff::new(max)), ..Self::new(max) }
    }

    /// Why no step is taken at present; None if one may be.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.back_off.as_ref()?.holds(Nanos::from_duration(self.began.elapsed()))
    }

    /// By how much a program may be slowed down.
    pub fn max_slowdown(&self) -> Slowdown {
        self.throttle.max()
    }

    /// When the next step may be taken; now or later.
    pub fn next_step(&self) -> Instant {
        self.next_step.max(Instant::now())
    }

    /// From one step to the next if each holds the program up for so long.
    pub fn time_for(&self, held_up: Nanos) -> Nanos {
        held_up + self.throttle.rest_after(held_up)
    }

    /// How many such steps fit in a time.
    pub fn steps_within(&self, time: Duration, held_up: Nanos) -> usize {
        (time.as_nanos() / u128::from(self.time_for(held_up).0.max(1))) as usize
    }

    /// Takes note of a step, which held the program up until now. Preparing the next one may begin so much earlier as it took for this.
    pub(super) fn stepped(&mut self, held_up: Nanos, preparing: Nanos, result: &io::Result<()>) {
        let rest = Nanos(self.throttle.rest_after(held_up).0.saturating_sub(preparing.0));
        self.next_step = Instant::now() + rest.duration();
        if let Some(back_off) = &mut self.back_off {
            let collapse = match result.as_ref().map_err(refusal_reason) {
                Ok(()) => Collapse::Done,
                Err(RefusalReason::NoContiguousMemory) => Collapse::NoContiguousMemory,
                Err(_) => Collapse::Refused,
            };
            back_off.note(collapse, Nanos::from_duration(self.began.elapsed()));
            self.next_step = self.next_step.max(self.began + back_off.until().duration());
        }
    }

    /// Adapts to how much longer the program waited lately than it does by itself, as a share of the time in which it wanted to run.
    pub(super) fn adapt(&mut self, waited: f64) {
        self.throttle.adapt(waited);
        tracing::debug!(
            "the program waited for {:.2} % more; share {:.3} %",
            waited * 100.0,
            self.throttle.share() * 100.0
        );
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_rest_includes_the_time_of_preparing() {
        let mut pacer = Pacer::new(Slowdown(0.02));
        let before = Instant::now();
        pacer.stepped(Nanos(MS), Nanos(9 * MS), &Ok(()));
        let rest = pacer.next_step() - before;
        assert!(rest >= Duration::from_millis(90), "{rest:?}");
        assert_eq!(pacer.steps_within(Duration::from_secs(10), Nanos(MS)), 100);
    }

    #[test]
    fn steps_rest_while_there_is_no_contiguous_memory() {
        let mut pacer = Pacer::backing_off(Slowdown::FAST);
        assert_eq!(pacer.held_back(), None);
        pacer.stepped(Nanos(0), Nanos(0), &Err(Errno::NOMEM.into()));
        assert_eq!(pacer.held_back(), Some(HeldBack::NoContiguousMemory));
        assert!(pacer.next_step() > Instant::now() + Duration::from_millis(900));
        let mut impatient = Pacer::new(Slowdown::FAST);
        impatient.stepped(Nanos(0), Nanos(0), &Err(Errno::NOMEM.into()));
        assert_eq!(impatient.held_back(), None);
    }
}
