//! Promote: put regions on huge pages, one after the other.
//!
//! Owns: the collapse of single regions, and the account of it. Never touches: the choice of regions, or how fast to go.
//!
//! One call a region: a call for a range may fail after having collapsed most of it, and could not be stopped halfway.

use std::io;
use std::time::Instant;

use heat::RefusalReason;
use heat::units::{Address, HUGE_PAGE, Nanos};
use hugepilot_os::advise::{advise, advise_again};
use hugepilot_os::process::Punctual;
use hugepilot_os::stop::Stop;
use hugepilot_os::{Advice, PidFd};
use kernel::nodes::Node;
use kernel::probe::CollapseTimes;
use kernel::process::thread_cpu_time;
use kernel::{Root, cpu};
use observe::Waited;
use rustix::io::Errno;

use crate::act::prepare::Preparation;
use crate::act::preparer::Urgency;
use crate::act::{Outcome, Pacer, Refusal};
use crate::decide::WhoWaits;

/// A collapse of private memory comes before ordinary threads: whoever is interrupted in it holds the lock that the target waits for.
const COLLAPSING: u8 = 1;

/// What taking a region's base pages out of the page tables of one process more takes: seen with a hundred of PostgreSQL's.
const UNMAPPING: Nanos = Nanos(100_000);

/// Promotes regions, at a pace, with prepared pages where those help.
#[derive(Debug)]
pub struct Promoter {
    /// When the next collapse may begin.
    pub pacer: Pacer,
    preparation: Preparation,
    busy: Nanos,
    /// That the machine has.
    processors: u64,
}

/// A region to promote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it starts.
    pub start: Address,
    /// Who waits for it meanwhile.
    pub who_waits: WhoWaits,
}

impl From<Candidate> for Address {
    fn from(candidate: Candidate) -> Self {
        candidate.start
    }
}

/// When steps are taken, and when no more.
pub(super) struct Schedule<'a> {
    /// None where steps follow one another.
    pub(super) pacer: Option<&'a mut Pacer>,
    /// No step is begun after this.
    pub(super) until: Option<Instant>,
    pub(super) stop: &'a Stop,
    /// As [`Promoter::promote`] is told it.
    pub(super) waited: &'a mut dyn FnMut() -> Option<f64>,
}

/// How one step went.
pub(super) struct Step {
    pub(super) result: io::Result<()>,
    /// How long it took, and so held up whoever waited for it.
    pub(super) took: Nanos,
    /// For how long that counts as holding the whole target up.
    pub(super) held_up: Nanos,
    /// What preparing it took, which held nobody up.
    pub(super) preparing: Nanos,
    /// The memory node of the prepared page, on a machine with several.
    pub(super) prepared_on: Option<Node>,
}

/// What bounds a turn of acting.
pub struct Turn {
    /// No step is begun later: the plan is too old then.
    pub until: Instant,
    /// Ends it early.
    pub stop: Stop,
}

impl Promoter {
    /// At this pace. Whether prepared pages help is found out before the first region.
    pub fn new(pacer: Pacer) -> Self {
        let processors = cpu::online(&Root::host()).map_or(1, |online| online.len() as u64);
        let preparation = Preparation::new(pacer.max_slowdown());
        Self { pacer, preparation, busy: Nanos(0), processors }
    }

    /// From one region to the next if so many processes have base pages of it in their page tables, and all else is as in collapses of our own.
    pub fn time_for(&self, who_waits: WhoWaits, page_tables: u64, times: &CollapseTimes) -> Nanos {
        let collapse = times.usual() + Nanos(UNMAPPING.0 * page_tables.saturating_sub(1));
        self.pacer.time_for(who_waits.counted(collapse, self.processors)).max(collapse + times.preparing)
    }

    /// How long a collapse of one region takes, tried once on 8 MiB of our own.
    ///
    /// Errors: no huge page could be had.
    pub fn collapse_times(&mut self) -> io::Result<CollapseTimes> {
        self.preparation.times()
    }

    /// For how long it prepared pages and collapsed so far, waiting for memory included.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// Promotes the regions in the order given, until all are done, time is up, the target ends, or stopping is requested.
    /// Adds to the account, which `progress` is told after each region.
    ///
    /// `waited` tells how much longer the target waited lately than it does by itself, as a share of the time in which it wanted to run, and
    /// None while that is not known.
    pub fn promote(
        &mut self,
        target: &PidFd,
        regions: &[Candidate],
        turn: &Turn,
        waited: &mut dyn FnMut() -> Option<f64>,
        outcome: &mut Outcome,
        mut progress: impl FnMut(&Outcome),
    ) {
        let Self { pacer, preparation, busy, processors } = self;
        let Turn { until, stop } = turn;
        let schedule = Schedule { pacer: Some(pacer), until: Some(*until), stop, waited };
        step_through(regions, schedule, outcome, &mut progress, |region| {
            let step = collapse(target, region, preparation, *processors, stop);
            *busy = *busy + step.preparing + step.took;
            step
        });
    }
}

/// Takes one step a region and keeps the account.
pub(super) fn step_through<Region: Copy + Into<Address>>(
    regions: &[Region],
    mut schedule: Schedule<'_>,
    outcome: &mut Outcome,
    progress: &mut dyn FnMut(&Outcome),
    mut take: impl FnMut(Region) -> Step,
) {
    let (started, elapsed) = (Instant::now(), outcome.elapsed);
    outcome.not_reached = regions.len() as u64;
    for &region in regions {
        if !schedule.wait_for_next_step() {
            break;
        }
        let step = take(region);
        schedule.stepped(&step);
        outcome.add(region.into(), &step);
        outcome.not_reached -= 1;
        outcome.elapsed = elapsed + Nanos::from_duration(started.elapsed());
        progress(outcome);
        if outcome.target_exited() {
            break;
        }
    }
}

impl Schedule<'_> {
    /// Sleeps until the next step may be taken; false if none is to be taken any more.
    fn wait_for_next_step(&self) -> bool {
        let next = self.pacer.as_ref().map_or_else(Instant::now, |pacer| pacer.next_step());
        self.until.is_none_or(|until| next < until) && self.stop.sleep_until(next).is_ok()
    }

    fn stepped(&mut self, step: &Step) {
        let Some(pacer) = &mut self.pacer else { return };
        if let Some(waited) = (self.waited)() {
            pacer.adapt(waited);
        }
        pacer.stepped(step.held_up, step.preparing, &step.result);
    }
}

fn collapse(target: &PidFd, region: Candidate, preparation: &mut Preparation, processors: u64, stop: &Stop) -> Step {
    let Candidate { start, who_waits } = region;
    let (prepared, _kept_on_its_processor) = preparation.prepare(target, start);
    let (started, cpu_before) = (Instant::now(), thread_cpu_time());
    let result = {
        let _punctual = comes_first(who_waits, preparation).then(|| Punctual::begin(COLLAPSING));
        advise_again(|| advise(target, start.0, HUGE_PAGE, Advice::Collapse), || stop.requested())
    };
    let took = Nanos::from_duration(started.elapsed());
    if result.is_ok() {
        preparation.note(prepared, took);
    }
    let held_up = match who_waits {
        WhoWaits::AnyThread => took,
        // It begins by waiting for other processors to empty their lists, which takes long where they are busy, and holds nobody up.
        WhoWaits::WhoTouchesIt => thread_cpu_time() - cpu_before,
    };
    Step {
        result,
        took,
        held_up: who_waits.counted(held_up, processors),
        preparing: prepared.took(),
        prepared_on: prepared.node(),
    }
}

/// Whether a collapse comes before ordinary threads. Of shared memory it takes up to 10 ms where a hundred processes map it, and nobody waits
/// for it who does not touch the region: whoever has work on that processor comes first, unless it is to be over with.
fn comes_first(who_waits: WhoWaits, preparation: &Preparation) -> bool {
    who_waits == WhoWaits::AnyThread || preparation.urgency() == Urgency::AtOnce
}

impl Outcome {
    /// Accounts for one region.
    fn add(&mut self, start: Address, step: &Step) {
        self.tried += 1;
        self.busy = self.busy + step.took;
        self.preparing = self.preparing + step.preparing;
        step.prepared_on.into_iter().for_each(|node| *self.prepared_on.entry(node).or_default() += 1);
        self.longest = self.longest.max(step.took);
        self.times.add(step.took);
        match &step.result {
            Ok(()) => self.applied += 1,
            Err(error) => self.refused.push(Refusal {
                start,
                reason: refusal_reason(error),
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
        self.preparing = self.preparing + later.preparing;
        later.prepared_on.into_iter().for_each(|(node, count)| *self.prepared_on.entry(node).or_default() += count);
        self.times.merge(&later.times);
        self.waited = self.waited.into_iter().chain(later.waited).reduce(Waited::and);
        self.longest = self.longest.max(later.longest);
        self.elapsed = self.elapsed + later.elapsed;
        self
    }
}

/// What the kernel means by an errno of `process_madvise(2)`.
pub(super) fn refusal_reason(error: &io::Error) -> RefusalReason {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heat::units::Slowdown;

    use super::*;

    const MS: Nanos = Nanos(1_000_000);

    #[test]
    fn what_more_processes_map_takes_longer() {
        let promoter = Promoter { processors: 2, ..Promoter::new(Pacer::new(Slowdown(0.1))) };
        let times = CollapseTimes { prepared: MS, unprepared: Nanos(9 * MS.0), preparing: Nanos(2 * MS.0) };
        let takes = |processes| promoter.time_for(WhoWaits::WhoTouchesIt, processes, &times).0 / 1000;
        // A twentieth of the time, and one of two processors.
        assert_eq!((takes(0), takes(1), takes(91)), (10_000, 10_000, 100_000));
        let fast = Promoter { processors: 2, ..Promoter::new(Pacer::new(Slowdown(0.5))) };
        assert_eq!(fast.time_for(WhoWaits::WhoTouchesIt, 1, &times), Nanos(3 * MS.0), "preparing alone takes longer");
    }

    fn regions(count: u64) -> Vec<Address> {
        (0..count).map(|number| Address(number * HUGE_PAGE)).collect()
    }

    fn step(result: io::Result<()>) -> Step {
        Step { result, took: MS, held_up: MS, preparing: Nanos(0), prepared_on: None }
    }

    fn stepped(count: u64, stop: &Stop, mut take: impl FnMut(Address) -> io::Result<()>) -> Outcome {
        let mut outcome = Outcome::default();
        let schedule = Schedule { pacer: None, until: None, stop, waited: &mut || None };
        step_through(&regions(count), schedule, &mut outcome, &mut |_| (), |region| step(take(region)));
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
        assert!(outcome.times.percentile(0.5).is_some_and(|took| took.0.abs_diff(MS.0) < MS.0 / 10));
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
    fn no_step_is_begun_when_time_is_up_and_the_rest_is_owed_to_the_next_run() {
        let (mut pacer, mut outcome, stop) = (Pacer::new(Slowdown(0.005)), Outcome::default(), Stop::default());
        for not_reached in [2, 3] {
            let until = Some(Instant::now() + Duration::from_millis(50));
            let schedule = Schedule { pacer: Some(&mut pacer), until, stop: &stop, waited: &mut || None };
            step_through(&regions(3), schedule, &mut outcome, &mut |_| (), |_| step(Ok(())));
            assert_eq!((outcome.tried, outcome.not_reached), (1, not_reached), "one step of 1 ms, then a rest of 399");
        }
        assert!(pacer.next_step() > Instant::now());
    }

    #[test]
    fn a_program_that_waits_is_given_longer_rests() {
        let rest_after = |waited: f64| {
            let (mut pacer, stop) = (Pacer::new(Slowdown(0.2)), Stop::default());
            let schedule = Schedule { pacer: Some(&mut pacer), until: None, stop: &stop, waited: &mut || Some(waited) };
            step_through(&regions(1), schedule, &mut Outcome::default(), &mut |_| (), |_| step(Ok(())));
            pacer.next_step() - Instant::now()
        };
        assert!(rest_after(0.5) > Duration::from_millis(15), "{:?}", rest_after(0.5));
        assert!(rest_after(0.0) <= Duration::from_millis(9));
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
        let waited = |total, longest| Some(Waited { total: Nanos(total), longest: Nanos(longest), ran: Nanos(90) });
        let ok = Outcome { waited: waited(10, 4), ..stepped(2, &Stop::default(), |_| Ok(())) };
        let bad = Outcome { waited: waited(30, 3), ..stepped(1, &Stop::default(), |_| Err(Errno::AGAIN.into())) };
        let both = ok.and(bad);
        assert_eq!((both.tried, both.applied, both.refused.len()), (3, 2, 1));
        assert_eq!(both.refused[0].reason, RefusalReason::Busy);
        let waited = both.waited.expect("both were told");
        assert_eq!((waited.total, waited.longest, waited.share()), (Nanos(40), Nanos(4), Some(40.0 / 220.0)));
    }
}
