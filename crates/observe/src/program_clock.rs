//! The program's own clock: how much CPU time it had between two moments.
//!
//! Owns: its counters, and the moments at which they were read. Never touches: the program.
//!
//! The tracker takes processors from the program, on a small machine most of those that it had; while the program does not run it walks nothing. Page
//! walks are therefore counted against its CPU time.

use heat::units::Nanos;
use hugepilot_os::perf::{Counters, Event};
use kernel::{Root, process};

use crate::kernel_time::KernelTime;

/// `PERF_COUNT_SW_TASK_CLOCK` of `PERF_TYPE_SOFTWARE` (man 2 `perf_event_open`): every kernel counts it, without a device.
const TASK_CLOCK: Event = Event { kind: 1, config: 1, config1: 0, config2: 0 };
/// A read interrupts each processor on which a thread runs, for about 2 us; a program of more threads is hardly delayed as a whole.
const MOST_THREADS: usize = 32;

/// Over a shorter time, it is chance which program has a processor.
const SHORTEST: Nanos = Nanos(10_000_000);

/// CPU time of a program at some moments, ascending.
pub(super) struct ProgramClock {
    /// One set per thread; none where they are not available.
    counters: Vec<Counters>,
    /// CLOCK_MONOTONIC, and the CPU time of all threads.
    moments: Vec<(KernelTime, Nanos)>,
}

impl ProgramClock {
    /// Starts the clock; where nothing can be counted (`perf_event_open` refused, too many threads) it runs like any clock.
    pub(super) fn start(root: &Root, pid: u32) -> Self {
        let threads = process::threads(root, pid).unwrap_or_default();
        let counted = if threads.len() <= MOST_THREADS { &threads[..] } else { &[] };
        let counters = Counters::of_threads(&[TASK_CLOCK], counted);
        let counters = counters.unwrap_or_else(|error| {
            tracing::debug!("the program's CPU time cannot be counted: {error}");
            Vec::new()
        });
        Self { counters, moments: Vec::new() }
    }

    /// Reads the clock.
    pub(super) fn tick(&mut self) {
        let read = |counters: &mut Counters| counters.read().ok().and_then(|counts| counts.first().copied());
        let sum: Option<f64> = self.counters.iter_mut().map(read).sum();
        match sum {
            Some(cpu) if !self.counters.is_empty() => self.moments.push((KernelTime::now(), Nanos(cpu as u64))),
            _ => self.counters.clear(),
        }
    }

    /// The CPU time between two moments at or between which the clock was read.
    fn had(&self, from: KernelTime, to: KernelTime) -> f64 {
        (self.at(to) - self.at(from)).max(0.0)
    }

    /// The index of the clock read that ends the interval around a moment, or that is nearest to it.
    fn interval_of(&self, moment: KernelTime) -> usize {
        self.moments.partition_point(|&(at, _)| at < moment).clamp(1, self.moments.len() - 1)
    }

    /// The CPU time at a moment, interpolated linearly.
    fn at(&self, moment: KernelTime) -> f64 {
        let after = self.interval_of(moment);
        let ((before, had), (after, will_have)) = (self.moments[after - 1], self.moments[after]);
        let share = (moment.0 as f64 - before.0 as f64) / (after.0 - before.0).max(1) as f64;
        had.0 as f64 + share.clamp(0.0, 1.0) * (will_have.0 - had.0) as f64
    }

    /// How many CPUs it kept busy from a moment until the clock was last read; None if that was not counted, the time was too short, or it did not
    /// run.
    pub(super) fn busy_cpus_since(&self, from: KernelTime) -> Option<f64> {
        let &(to, _) = self.moments.last().filter(|&&(to, _)| to >= from + SHORTEST)?;
        let busy = (self.moments.len() >= 2).then(|| self.had(from, to) / (to.0 - from.0) as f64);
        busy.filter(|&cpus| cpus > 0.0)
    }

    /// CPU time between two moments; None where that is not counted.
    pub(super) fn ran(&self, from: KernelTime, to: KernelTime) -> Option<Nanos> {
        (self.moments.len() >= 2).then(|| Nanos(self.had(from, to) as u64))
    }

    /// Whether it certainly had no CPU time from a moment until the clock was last read.
    pub(super) fn rested_since(&self, from: KernelTime) -> bool {
        let last = self.moments.last().filter(|&&(to, _)| to > from && self.moments.len() >= 2);
        last.is_some_and(|&(to, _)| self.had(from, to) <= 0.0)
    }

    /// Additional CPU time that it would have had, from the first moment to this one, had it kept this many CPUs busy.
    pub(super) fn lost_before(&self, to: KernelTime, busy_cpus: f64) -> Nanos {
        let from = self.moments.first().map_or(to, |&(at, _)| at.min(to));
        let lost = (to.0 - from.0) as f64 * busy_cpus - self.had(from, to);
        Nanos(lost.max(0.0) as u64)
    }

    /// How long the program would have taken for its work between two moments, had it kept this many CPUs busy; at least 1 ns.
    ///
    /// It counts as having run between them rather than around them: the question is about page walks, which it made while it ran.
    pub(super) fn at_pace(&self, from: KernelTime, to: KernelTime, busy_cpus: f64) -> Nanos {
        Nanos(((self.most_had(from, to, busy_cpus.ceil()) / busy_cpus) as u64).max(1))
    }

    /// The most CPU time that it can have had between two moments, on at most `cpus` CPUs at a time: a program that runs briefly may have had all of
    /// an interval's CPU time in any part of the interval.
    fn most_had(&self, from: KernelTime, to: KernelTime, cpus: f64) -> f64 {
        let (first, last) = (self.interval_of(from), self.interval_of(to));
        if first == last {
            return self.most_had_within(first, from, to, cpus);
        }
        let between = self.moments[last - 1].1.0 as f64 - self.moments[first].1.0 as f64;
        self.most_had_within(first, from, to, cpus) + between + self.most_had_within(last, from, to, cpus)
    }

    /// The same, for the part between one moment and the previous one.
    fn most_had_within(&self, after: usize, from: KernelTime, to: KernelTime, cpus: f64) -> f64 {
        let ((begins, before), (ends, had)) = (self.moments[after - 1], self.moments[after]);
        let within = ends.0.min(to.0).saturating_sub(begins.0.max(from.0)) as f64;
        let all = (had.0 - before.0) as f64;
        (within * cpus).min(all).max(all * within / (ends.0 - begins.0).max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn clock(moments: &[(u64, u64)]) -> ProgramClock {
        let moments = moments.iter().map(|&(at, had)| (KernelTime(at * MS), Nanos(had * MS))).collect();
        ProgramClock { counters: Vec::new(), moments }
    }

    #[test]
    fn time_without_a_processor_does_not_count() {
        // One CPU, of which it had a fifth between 10 and 20 ms.
        let clock = clock(&[(0, 0), (10, 10), (20, 12), (30, 22)]);
        let ms =
            |from: u64, to: u64| clock.at_pace(KernelTime(from * MS), KernelTime(to * MS), 1.0).0 as f64 / MS as f64;
        assert_eq!((ms(0, 10), ms(10, 20), ms(15, 25), ms(5, 100)), (10.0, 2.0, 7.0, 17.0));
        assert_eq!(clock.busy_cpus_since(KernelTime(20 * MS)), Some(1.0));
        assert_eq!(clock.at_pace(KernelTime(0), KernelTime(10 * MS), 0.5), Nanos(20 * MS));
        assert_eq!(clock.at_pace(KernelTime(3), KernelTime(3), 1.0), Nanos(1), "never no time");
        assert_eq!(clock.lost_before(KernelTime(20 * MS), 1.0), Nanos(8 * MS));
        assert_eq!(clock.lost_before(KernelTime(20 * MS), 0.1), Nanos(0), "it had more than usual");
    }

    #[test]
    fn a_program_that_runs_for_moments_ran_while_it_was_asked_about() {
        // One millisecond somewhere between 0 and 10, and one between 20 and 30.
        let clock = clock(&[(0, 0), (10, 1), (20, 1), (30, 2)]);
        let at_pace = |from: u64, to: u64| clock.at_pace(KernelTime(from * MS), KernelTime(to * MS), 0.1);
        assert_eq!([at_pace(8, 10), at_pace(0, 30), at_pace(9, 21)], [10, 20, 20].map(|ms| Nanos(ms * MS)));
        assert_eq!(
            clock.at_pace(KernelTime(10 * MS - MS / 2), KernelTime(20 * MS), 0.1),
            Nanos(5 * MS),
            "no longer than there was time"
        );
    }

    #[test]
    fn a_program_that_rests_is_known_to() {
        let clock = clock(&[(0, 0), (10, 10), (20, 10), (30, 10)]);
        assert!(clock.rested_since(KernelTime(10 * MS)) && !clock.rested_since(KernelTime(5 * MS)));
        assert!(!clock.rested_since(KernelTime(30 * MS)), "nothing was read since");
        assert_eq!(clock.ran(KernelTime(5 * MS), KernelTime(30 * MS)), Some(Nanos(5 * MS)));
    }

    #[test]
    fn what_was_not_counted_is_not_known() {
        assert_eq!(clock(&[]).busy_cpus_since(KernelTime(0)), None);
        assert_eq!(clock(&[(0, 5), (10, 5)]).busy_cpus_since(KernelTime(0)), None, "it did not run");
    }

    #[test]
    fn our_own_clock_goes_on() {
        let mut clock = ProgramClock::start(&Root::host(), std::process::id());
        clock.tick();
        let Some(&(from, _)) = clock.moments.first() else { return eprintln!("skipped: no perf events here") };
        while KernelTime::now().0 - from.0 < 20 * MS {}
        clock.tick();
        let busy = clock.busy_cpus_since(from).expect("we ran");
        assert!((0.2..64.0).contains(&busy), "{busy}");
    }
}
