//! Observing a process repeatedly, as `heat --for`, `heat --live` and `record` do.
//!
//! Owns: when the next scan begins, and which is the last. Never touches: the use of the observations.

use std::time::{Duration, Instant};

use heat::units::{CpuShare, Nanos};
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::{ProcessStatus, own_cpu_time};
use kernel::target::Target;
use observe::{ObserveError, ObserveOptions, Tracker};

use crate::engine::Budget;
use recording::Moment;

/// How often the end of the process is checked.
const EXIT_POLL: Duration = Duration::from_millis(100);

/// When to scan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rhythm {
    /// The interval between scan starts; longer where that would take more of a CPU than `max_cpu`.
    pub at_least: Duration,
    /// The same, whatever the cost.
    pub every: Option<Duration>,
    /// How long to go on: as many scans as fit, and at least one; without end if None.
    pub length: Option<Duration>,
    /// The share of a CPU that scanning may take, of ours and of the program's each.
    pub max_cpu: CpuShare,
}

/// One scan after the other, as an iterator that rests between them.
///
/// It ends when time is up, the process ends or a signal comes; if either of the last two interrupts the first scan, that is an error. After any
/// error the caller may continue, which makes sense after an exec.
pub struct Series<'a> {
    tracker: &'a mut dyn Tracker,
    target: &'a Target,
    options: ObserveOptions,
    rhythm: Rhythm,
    budget: Budget,
    stop: &'a Stop,
    started: Instant,
    next: Instant,
    seen: bool,
}

impl<'a> Series<'a> {
    /// Observes the process with these options.
    pub fn new(
        tracker: &'a mut dyn Tracker,
        target: &'a Target,
        options: ObserveOptions,
        rhythm: Rhythm,
        stop: &'a Stop,
    ) -> Self {
        let now = Instant::now();
        let budget = Budget::new(rhythm.max_cpu, own_cpu_time(), now);
        Self { tracker, target, options, rhythm, budget, stop, started: now, next: now, seen: false }
    }

    /// Waits for the next scan; None if there is none, and immediately if the process ends meanwhile.
    fn rest(&mut self) -> Option<()> {
        let fits = |length| self.next + self.options.window.duration() <= self.started + length;
        (!self.seen || self.rhythm.length.is_none_or(fits)).then_some(())?;
        while !(self.seen && self.target.handle().has_exited()) {
            let now = Instant::now();
            self.stop.sleep_until(self.next.min(now + EXIT_POLL)).ok()?;
            if self.next <= now {
                return Some(());
            }
        }
        None
    }

    /// Whether the process has ended or a signal came.
    fn is_cut_short(&self) -> bool {
        self.stop.requested() || self.target.handle().has_exited()
    }
}

/// Memory in the target's page tables; 0 after it has ended.
fn page_tables(target: &Target) -> heat::units::Bytes {
    ProcessStatus::read(&Root::host(), target.pid()).map_or(heat::units::Bytes(0), |status| status.vm_pte)
}

impl Iterator for Series<'_> {
    type Item = Result<Moment, ObserveError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest()?;
        let began = Instant::now();
        let observed = self.tracker.observe(self.target, &self.options, self.stop);
        let (kernel, program) =
            observed.as_ref().map_or_else(|_| Default::default(), |heat| (heat.cost.kernel, heat.cost.program));
        self.budget.charge(own_cpu_time(), kernel, Instant::now());
        let affordable = (began + self.budget.rest_for(program)).max(self.budget.free_at());
        self.next = self.rhythm.every.map_or(affordable.max(began + self.rhythm.at_least), |every| began + every);
        match observed {
            Ok(heat) => {
                self.seen = true;
                let at = Nanos::from_duration(self.started.elapsed());
                Some(Ok(Moment { at, heat, page_tables: page_tables(self.target) }))
            }
            Err(_) if self.seen && self.is_cut_short() => None,
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use heat::samples::heat_of;
    use heat::{Cost, Heat, TrackerKind};

    use super::*;

    /// Answers immediately with the next of these.
    struct Scripted(Vec<Result<Cost, ObserveError>>);

    impl Tracker for Scripted {
        fn kind(&self) -> TrackerKind {
            TrackerKind::PageWalk
        }

        fn observe(&mut self, _: &Target, _: &ObserveOptions, _: &Stop) -> Result<Heat, ObserveError> {
            let answer = if self.0.is_empty() { Ok(Cost::default()) } else { self.0.remove(0) };
            answer.map(|cost| Heat { cost, ..heat_of(Vec::new()) })
        }

        fn survey(&mut self, _: &Target) -> Result<Heat, ObserveError> {
            unreachable!("a series only observes")
        }

        fn survey_growth(&mut self, _: &Target) -> Result<Heat, ObserveError> {
            unreachable!("a series only observes")
        }
    }

    const WINDOW: Duration = Duration::from_millis(1);

    /// The results of a series, at most `most`, for a child that ends after the first scan if `ends`.
    fn scans(answers: Vec<Result<Cost, ObserveError>>, rhythm: Rhythm, most: usize, ends: bool) -> Vec<bool> {
        let mut child: Child = Command::new("sleep").arg("60").spawn().unwrap();
        let target = Target::open(child.id()).unwrap();
        let (mut tracker, stop) = (Scripted(answers), Stop::default());
        let options = ObserveOptions { window: Nanos::from_duration(WINDOW), ..ObserveOptions::default() };
        let series = Series::new(&mut tracker, &target, options, rhythm, &stop);
        let mut scans = Vec::new();
        for moment in series.take(most) {
            scans.push(moment.is_ok());
            if ends {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
        _ = child.kill().and_then(|()| child.wait().map(drop));
        scans
    }

    #[test]
    fn as_many_scans_as_fit_and_one_at_least() {
        let length = |length| Rhythm { length: Some(length), ..Rhythm::default() };
        assert_eq!(scans(Vec::new(), length(Duration::ZERO), 9, false), [true]);
        // A cost of 10 ms is followed by a rest of a second.
        let costly = Cost { program: Nanos(10_000_000), ..Cost::default() };
        assert_eq!(scans(vec![Ok(costly)], length(Duration::from_millis(900)), 9, false), [true]);
        let every = Rhythm { every: Some(Duration::from_millis(200)), ..length(Duration::from_millis(500)) };
        assert_eq!(scans(vec![Ok(costly), Ok(costly)], every, 9, false), [true; 3]);
        let at_least = Rhythm { at_least: Duration::from_millis(400), ..length(Duration::from_millis(500)) };
        assert_eq!(scans(Vec::new(), at_least, 9, false), [true; 2]);
    }

    #[test]
    fn an_error_can_be_passed_over_and_one_at_the_end_is_an_end() {
        let exec = || Err(ObserveError::Exec { pid: 1 });
        assert_eq!(scans(vec![exec(), Ok(Cost::default()), exec()], Rhythm::default(), 3, false), [false, true, false]);
        let gone = || Err(ObserveError::Exited { pid: 1 });
        assert_eq!(scans(vec![Ok(Cost::default()), gone()], Rhythm::default(), 9, true), [true]);
        assert_eq!(scans(vec![gone()], Rhythm::default(), 1, false), [false]);
    }

    #[test]
    fn the_end_of_the_process_ends_the_rest() {
        let rhythm = Rhythm { every: Some(Duration::from_secs(60)), ..Rhythm::default() };
        assert_eq!(scans(Vec::new(), rhythm, 2, true), [true], "not another one after a minute");
    }

    #[test]
    fn a_request_to_stop_ends_the_rest() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let target = Target::open(child.id()).unwrap();
        let (mut tracker, stop) = (Scripted(Vec::new()), Stop::default());
        let options = ObserveOptions { window: Nanos::from_duration(WINDOW), ..ObserveOptions::default() };
        let rhythm = Rhythm { every: Some(Duration::from_secs(3600)), ..Rhythm::default() };
        let mut series = Series::new(&mut tracker, &target, options, rhythm, &stop);
        assert!(series.next().is_some_and(|moment| moment.is_ok()));
        stop.request();
        assert!(series.next().is_none());
        child.kill().and_then(|()| child.wait().map(drop)).unwrap();
    }
}
