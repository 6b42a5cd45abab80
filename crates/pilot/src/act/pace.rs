//! Pace: when the next collapse may begin.
//!
//! Owns: the time of the next step. Never touches: a target; [`Throttle`] and [`BackOff`] decide how long to rest.

use std::io;
use std::time::{Duration, Instant};

use heat::units::{Nanos, Slowdown};
use heat::{HeldBack, RefusalReason};

use crate::act::result::refusal_reason;
use crate::decide::{BackOff, Collapse, Throttle};

/// Keeps a pace over any number of processes and runs of actions.
#[derive(Clone, Debug)]
pub struct Pacer {
    throttle: Throttle,
    /// How much the program at hand may be slowed down, where that is less than others may.
    own: Option<Slowdown>,
    next_step: Instant,
    /// None for callers that want one program done soon.
    back_off: Option<BackOff>,
}

impl Pacer {
    /// The first step may be taken at once.
    pub fn new(max: Slowdown, now: Instant) -> Self {
        Self { throttle: Throttle::new(max), own: None, next_step: now, back_off: None }
    }

    /// Also rests, ever longer, while there is no contiguous memory.
    pub fn backing_off(max: Slowdown, now: Instant) -> Self {
        Self { back_off: Some(BackOff::new(max)), ..Self::new(max, now) }
    }

    /// Why no step may be taken at present; None if one may.
    pub fn held_back(&self, now: Instant) -> Option<HeldBack> {
        self.back_off.as_ref()?.holds(now)
    }

    /// Whether programs waited, so that steps are further apart than they may have to be.
    pub fn is_reduced(&self) -> bool {
        self.throttle.is_reduced()
    }

    /// How much a program may be slowed down.
    pub fn max_slowdown(&self) -> Slowdown {
        self.throttle.max()
    }

    /// From now on a program is worked on that may be slowed down by `own` at most.
    pub fn limit(&mut self, own: Option<Slowdown>) {
        self.own = own;
    }

    fn rest_after(&self, held_up: Nanos) -> Nanos {
        self.throttle.limited_to(self.own).rest_after(held_up)
    }

    /// When the next step may be taken; in the past if at once.
    pub fn next_step(&self) -> Instant {
        self.next_step
    }

    /// The time from one step to the next if each holds the program up this long.
    pub fn time_for(&self, held_up: Nanos) -> Nanos {
        held_up + self.rest_after(held_up)
    }

    /// The number of such steps that fit in a time.
    pub fn steps_within(&self, time: Duration, held_up: Nanos) -> usize {
        (time.as_nanos() / u128::from(self.time_for(held_up).0.max(1))) as usize
    }

    /// Records a step, which held the program up and ends now. Preparing the next one may begin earlier, by the time that this preparation took.
    pub(super) fn stepped(&mut self, held_up: Nanos, preparing: Nanos, result: &io::Result<()>, now: Instant) {
        let rest = Nanos(self.rest_after(held_up).0.saturating_sub(preparing.0));
        self.next_step = now + rest.duration();
        if let Some(back_off) = &mut self.back_off {
            let collapse = match result.as_ref().map_err(refusal_reason) {
                Ok(()) => Collapse::Done,
                Err(RefusalReason::NoContiguousMemory) => Collapse::NoContiguousMemory,
                Err(_) => Collapse::Refused,
            };
            back_off.note(collapse, now);
            self.next_step = back_off.until().map_or(self.next_step, |until| self.next_step.max(until));
        }
    }

    /// Adapts to the extra waiting of the program lately, as a share of the time in which it wanted to run.
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
        let now = Instant::now();
        let mut pacer = Pacer::new(Slowdown(0.02), now);
        pacer.stepped(Nanos(MS), Nanos(9 * MS), &Ok(()), now);
        assert_eq!(pacer.next_step() - now, Duration::from_millis(90));
        assert_eq!(pacer.steps_within(Duration::from_secs(10), Nanos(MS)), 100);
    }

    #[test]
    fn a_program_of_its_own_slowdown_is_promoted_more_slowly_and_never_faster() {
        let mut pacer = Pacer::new(Slowdown(0.02), Instant::now());
        let mut time_at = |own| {
            pacer.limit(own);
            pacer.time_for(Nanos(MS)).0 / MS
        };
        assert_eq!([time_at(None), time_at(Some(Slowdown(0.01))), time_at(Some(Slowdown(0.5)))], [100, 200, 100]);
    }

    #[test]
    fn steps_rest_while_there_is_no_contiguous_memory() {
        let now = Instant::now();
        let mut pacer = Pacer::backing_off(Slowdown::FAST, now);
        assert_eq!(pacer.held_back(now), None);
        pacer.stepped(Nanos(0), Nanos(0), &Err(Errno::NOMEM.into()), now);
        assert_eq!(pacer.held_back(now), Some(HeldBack::NoContiguousMemory));
        assert_eq!(pacer.next_step() - now, Duration::from_secs(1));
        let mut impatient = Pacer::new(Slowdown::FAST, now);
        impatient.stepped(Nanos(0), Nanos(0), &Err(Errno::NOMEM.into()), now);
        assert_eq!(impatient.held_back(now), None);
    }
}
