//! Promote: put regions on huge pages, one after the other.
//!
//! Owns: the collapse of single regions, and the pace. Never touches: the choice of regions.
//!
//! One call a region: a call for a range may fail after having collapsed most of it, and could not be stopped halfway.

use std::io;
use std::time::{Duration, Instant};

use hugepilot_os::advise::{advise, advise_again};
use hugepilot_os::{Advice, PidFd};
use rustix::io::Errno;

use super::{Outcome, Refusal, RefusalReason};
use crate::decide::{BackOff, Collapse, HeldBack};
use crate::stop::Stop;
use crate::units::{Address, HUGE_PAGE, Nanos};

/// How fast to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One region after the other, as fast as the kernel does it.
    Fast,
    /// Summed collapse time at most 0.05 % of the time of all processors together, and 0.1 to 0.5 % of wall time.
    Gentle,
}

impl Pace {
    /// Wall time that must pass for each unit of collapse time at the gentle pace. Whoever waits for the processor of a collapse waits
    /// for its end, so the fewer there are, the more waits.
    fn gentle_share() -> u32 {
        Self::gentle_share_of(std::thread::available_parallelism().map_or(1, |processors| processors.get() as u32))
    }

    fn gentle_share_of(processors: u32) -> u32 {
        (2000 / processors).clamp(200, 1000)
    }

    /// How long to rest after a collapse that took this long.
    fn rest(self, took: Duration) -> Duration {
        match self {
            Pace::Fast => Duration::ZERO,
            Pace::Gentle => took * (Self::gentle_share() - 1),
        }
    }

    /// Wall time that collapses of this summed time take at this pace.
    pub fn elapsed(self, busy: Nanos) -> Nanos {
        match self {
            Pace::Fast => busy,
            Pace::Gentle => Nanos(busy.0.saturating_mul(u64::from(Self::gentle_share()))),
        }
    }
}

/// Keeps a pace over any number of processes and runs of actions.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    next_step: Instant,
    /// None for whoever waits for one program only, and rather has it over with.
    back_off: Option<BackOff>,
    began: Instant,
}

impl Pacer {
    /// The first step may be taken at once.
    pub fn new(pace: Pace) -> Self {
        Self { pace, next_step: Instant::now(), back_off: None, began: Instant::now() }
    }

    /// Rests besides, ever longer, while collapses go badly.
    pub fn backing_off(pace: Pace) -> Self {
        Self { back_off: Some(BackOff::new(pace == Pace::Gentle)), ..Self::new(pace) }
    }

    /// Why no step is taken at present; None if one may be.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.back_off.as_ref()?.holds(Nanos::from_duration(self.began.elapsed()))
    }

    /// The pace kept.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// When the next step may be taken; now or later.
    pub fn next_step(&self) -> Instant {
        self.next_step.max(Instant::now())
    }

    fn stepped(&mut self, took: Duration, result: &io::Result<()>) {
        self.next_step = Instant::now() + self.pace.rest(took);
        if let Some(back_off) = &mut self.back_off {
            let collapse = match result.as_ref().map_err(RefusalReason::of) {
                Ok(()) => Collapse::Done(Nanos::from_duration(took)),
                Err(RefusalReason::NoContiguousMemory) => Collapse::NoContiguousMemory,
                Err(_) => Collapse::Refused,
            };
            back_off.note(collapse, Nanos::from_duration(self.began.elapsed()));
            self.next_step = self.next_step.max(self.began + back_off.until().duration());
        }
    }
}

/// When steps are taken, and when no more.
pub(super) struct Schedule<'a> {
    pub(super) pacer: &'a mut Pacer,
    /// No step is begun after this.
    pub(super) until: Option<Instant>,
    pub(super) stop: &'a Stop,
}

/// Promotes the regions in the order given, until all are done, time is up, the target ends, or stopping is requested.
/// Adds to the account, which `progress` is told after each region.
pub fn promote(
    target: &PidFd,
    regions: &[Address],
    pacer: &mut Pacer,
    until: Instant,
    stop: &Stop,
    outcome: &mut Outcome,
    mut progress: impl FnMut(&Outcome),
) {
    let schedule = Schedule { pacer, until: Some(until), stop };
    step_through(regions, schedule, outcome, &mut progress, |region| collapse(target, region, stop));
}

/// Takes one step a region and keeps the account.
pub(super) fn step_through(
    regions: &[Address],
    Schedule { pacer, until, stop }: Schedule<'_>,
    outcome: &mut Outcome,
    progress: &mut dyn FnMut(&Outcome),
    mut take: impl FnMut(Address) -> io::Result<()>,
) {
    let (started, elapsed) = (Instant::now(), outcome.elapsed);
    let mut rest = regions.iter();
    outcome.not_reached = regions.len() as u64;
    while outcome.not_reached > 0 && until.is_none_or(|until| pacer.next_step() < until) {
        let Some(&region) = rest.next().filter(|_| stop.sleep_until(pacer.next_step()).is_ok()) else { break };
        let before = Instant::now();
        let result = take(region);
        let took = before.elapsed();
        pacer.stepped(took, &result);
        outcome.add(region, result.as_ref().err(), Nanos::from_duration(took));
        outcome.not_reached -= 1;
        outcome.elapsed = elapsed + Nanos::from_duration(started.elapsed());
        progress(outcome);
        if outcome.target_exited() {
            break;
        }
    }
}

fn collapse(target: &PidFd, region: Address, stop: &Stop) -> io::Result<()> {
    advise_again(|| advise(target, region.0, HUGE_PAGE, Advice::Collapse), || stop.requested())
}

impl Outcome {
    /// Accounts for one region.
    fn add(&mut self, start: Address, error: Option<&io::Error>, took: Nanos) {
        self.tried += 1;
        self.busy = self.busy + took;
        self.longest = self.longest.max(took);
        match error {
            None => self.applied += 1,
            Some(error) => self.refused.push(Refusal {
                start,
                reason: RefusalReason::of(error),
                errno: error.raw_os_error().unwrap_or(0),
            }),
        }
    }

    /// Whether the last step found that the process has ended.
    pub fn target_exited(&self) -> bool {
        self.refused.last().is_some_and(|refusal| refusal.reason == RefusalReason::Exited)
    }

    /// Accounts for a region whose memory is not any more what the plan was made for, and which was left alone.
    pub fn leave_changed(&mut self, start: Address) {
        self.tried += 1;
        self.refused.push(Refusal { start, reason: RefusalReason::Changed, errno: 0 });
    }

    /// The account of this run of actions and a later one.
    pub fn and(mut self, later: Outcome) -> Outcome {
        self.tried += later.tried;
        self.applied += later.applied;
        self.refused.extend(later.refused);
        self.not_reached = later.not_reached;
        self.busy = self.busy + later.busy;
        self.longest = self.longest.max(later.longest);
        self.elapsed = self.elapsed + later.elapsed;
        self
    }
}

impl RefusalReason {
    /// What the kernel means by an errno of `process_madvise(2)`.
    fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::INVAL) => RefusalReason::NotEligible,
            Some(Errno::NOMEM) => RefusalReason::NoContiguousMemory,
            Some(Errno::BUSY) => RefusalReason::CgroupFullOrPinned,
            Some(Errno::AGAIN) => RefusalReason::Busy,
            Some(Errno::SRCH) => RefusalReason::Exited,
            Some(Errno::PERM) => RefusalReason::NotPermitted,
            _ => RefusalReason::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(count: u64) -> Vec<Address> {
        (0..count).map(|number| Address(number * HUGE_PAGE)).collect()
    }

    fn stepped(count: u64, stop: &Stop, step: impl FnMut(Address) -> io::Result<()>) -> Outcome {
        let (mut pacer, mut outcome) = (Pacer::new(Pace::Fast), Outcome::default());
        let schedule = Schedule { pacer: &mut pacer, until: None, stop };
        step_through(&regions(count), schedule, &mut outcome, &mut |_| (), step);
        outcome
    }

    #[test]
    fn every_region_is_accounted_for() {
        let errors = [None, Some(Errno::NOMEM), Some(Errno::BUSY), None];
        let mut answers = errors.into_iter();
        let outcome = stepped(4, &Stop::default(), |_| answers.next().unwrap().map_or(Ok(()), |e| Err(e.into())));
        assert_eq!((outcome.tried, outcome.applied, outcome.not_reached), (4, 2, 0));
        let reasons: Vec<_> = outcome.refused.iter().map(|refusal| (refusal.start.0, refusal.reason)).collect();
        let expected =
            [(HUGE_PAGE, RefusalReason::NoContiguousMemory), (2 * HUGE_PAGE, RefusalReason::CgroupFullOrPinned)];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn it_stops_between_regions_and_when_the_target_ends() {
        let stop = Stop::default();
        let mut left = 2;
        let outcome = stepped(5, &stop, |_| {
            left -= 1;
            if left == 0 {
                stop.request();
            }
            Ok(())
        });
        assert_eq!((outcome.tried, outcome.not_reached), (2, 3));
        let outcome = stepped(5, &Stop::default(), |_| Err(Errno::SRCH.into()));
        assert_eq!((outcome.tried, outcome.not_reached), (1, 4));
    }

    #[test]
    fn gentle_rests_long_enough() {
        let took = Duration::from_millis(2);
        let wall = took + Pace::Gentle.rest(took);
        assert!(took.as_secs_f64() / wall.as_secs_f64() <= 0.005);
        assert_eq!(Pace::Gentle.elapsed(Nanos(2_000_000)), Nanos::from_duration(wall));
        assert_eq!(Pace::Fast.rest(took), Duration::ZERO);
        assert_eq!([1, 2, 4, 10, 128].map(Pace::gentle_share_of), [1000, 1000, 500, 200, 200]);
    }

    #[test]
    fn no_step_is_begun_when_time_is_up_and_the_rest_is_owed_to_the_next_run() {
        let (mut pacer, mut outcome, stop) = (Pacer::new(Pace::Gentle), Outcome::default(), Stop::default());
        let step = |_| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        for not_reached in [2, 3] {
            let until = Some(Instant::now() + Duration::from_millis(50));
            let schedule = Schedule { pacer: &mut pacer, until, stop: &stop };
            step_through(&regions(3), schedule, &mut outcome, &mut |_| (), step);
            assert_eq!(
                (outcome.tried, outcome.not_reached),
                (1, not_reached),
                "one step of 1 ms, then 199 ms of rest or more"
            );
        }
        assert!(pacer.next_step() > Instant::now());
    }

    #[test]
    fn steps_rest_while_there_is_no_contiguous_memory() {
        let mut pacer = Pacer::backing_off(Pace::Fast);
        assert_eq!(pacer.held_back(), None);
        pacer.stepped(Duration::ZERO, &Err(Errno::NOMEM.into()));
        assert_eq!(pacer.held_back(), Some(HeldBack::NoContiguousMemory));
        assert!(pacer.next_step() > Instant::now() + Duration::from_millis(900));
        let mut impatient = Pacer::new(Pace::Fast);
        impatient.stepped(Duration::ZERO, &Err(Errno::NOMEM.into()));
        assert_eq!(impatient.held_back(), None);
    }

    #[test]
    fn what_has_changed_is_accounted_for_untried() {
        let mut outcome = stepped(1, &Stop::default(), |_| Ok(()));
        outcome.leave_changed(Address(HUGE_PAGE));
        assert_eq!((outcome.tried, outcome.applied), (2, 1));
        assert_eq!((outcome.refused[0].reason, outcome.target_exited()), (RefusalReason::Changed, false));
    }

    #[test]
    fn accounts_add_up() {
        let ok = stepped(2, &Stop::default(), |_| Ok(()));
        let bad = stepped(1, &Stop::default(), |_| Err(Errno::AGAIN.into()));
        let both = ok.and(bad);
        assert_eq!((both.tried, both.applied, both.refused.len()), (3, 2, 1));
        assert_eq!(both.refused[0].reason, RefusalReason::Busy);
    }
}
