//! Waits: how long a program's threads wait for the lock of its memory, for a processor, or for memory, beyond what they wait by themselves.
//!
//! Owns: the readings for that, and which part may be our doing. Never touches: the program.
//!
//! Waits for the lock come from the kernel's tracepoints ([`lock`]), time on run queues from `schedstat`, and waits for memory from the pressure of
//! the program's control group. What a program waits for anyway is measured before anything is done to it, and subtracted.

mod lock;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heat::units::Nanos;
use kernel::Root;
use kernel::pressure::Pressure;
use kernel::process::{ThreadTime, own_cpu_time, thread_times};
use kernel::target::{Process, Target};

use crate::processors::shares_with;
use crate::waits::lock::LockWaits;

/// The time between samples: several collapses, and short enough to go mostly unnoticed.
const PERIOD: Duration = Duration::from_millis(250);

/// Measures how long programs wait, one at a time.
#[derive(Debug)]
pub struct Waits {
    root: Root,
    /// None where the kernel has no such tracepoints, or refuses eBPF.
    lock: Option<LockWaits>,
    watched: Option<Watched>,
}

/// How long a target's threads waited for the lock of its memory (`mmap_lock`), no matter which thread held it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// All waits of all threads.
    pub total: Nanos,
    /// The longest wait of a thread.
    pub longest: Nanos,
    /// CPU time of the threads meanwhile.
    pub ran: Nanos,
}

impl Waited {
    /// The share of the time in which threads wanted to run that they spent waiting; None if none wanted to.
    pub fn share(&self) -> Option<f64> {
        let wanted = (self.ran + self.total).seconds();
        (wanted > 0.0).then(|| self.total.seconds() / wanted)
    }

    /// The sum of these waits and others.
    pub fn and(self, other: Waited) -> Waited {
        Waited { total: self.total + other.total, longest: self.longest.max(other.longest), ran: self.ran + other.ran }
    }
}

/// The program being watched.
#[derive(Debug)]
struct Watched {
    process: Process,
    /// The last sample.
    last: Reading,
    /// What it waits for by itself.
    by_itself: Shares,
    /// While promoting: the reading at the start.
    began: Option<Reading>,
    /// Whether our work may run on processors that it uses.
    shares_processors: bool,
}

/// The readings at one moment; all sums only grow.
#[derive(Clone, Debug)]
struct Reading {
    at: Instant,
    threads: BTreeMap<u32, ThreadTime>,
    memory: Nanos,
    lock: Nanos,
    own_cpu: Nanos,
}

/// Waits as shares of the time in which a program wanted to run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    lock: f64,
    run_queue: f64,
    memory: f64,
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    elapsed: Nanos,
    ran: Nanos,
    run_queue: Nanos,
    memory: Nanos,
    lock: Nanos,
    /// Our CPU time, where it may have kept the program from a processor.
    own_cpu: Nanos,
}

impl Waits {
    /// Loads what is available.
    pub fn new() -> Self {
        let lock = LockWaits::load().inspect_err(|error| tracing::debug!("waits for mmap_lock are not seen: {error}"));
        Self { root: Root::host(), lock: lock.ok(), watched: None }
    }

    /// Measures how long this program waits by itself, from now until [`Waits::begin`].
    pub fn watch(&mut self, target: &Target) {
        let process = target.process();
        if let Some(lock) = &mut self.lock
            && let Err(error) = lock.choose(target)
        {
            tracing::debug!(pid = process.pid, "its waits for mmap_lock are not seen: {error}");
            self.lock = None;
        }
        self.watched = self.read(process.pid).map(|last| Watched {
            process,
            last,
            by_itself: Shares::default(),
            began: None,
            shares_processors: true,
        });
    }

    /// From now on, waits beyond those that the program had while watched count as caused by us.
    pub fn begin(&mut self, target: &Target) {
        if self.watched.as_ref().is_none_or(|watched| watched.process.pid != target.pid()) {
            self.watch(target);
        }
        let Some(now) = self.read(target.pid()) else { return self.watched = None };
        if let Some(lock) = &mut self.lock {
            lock.forget_longest();
        }
        if let Some(watched) = &mut self.watched {
            let before = watched.last.until(&now);
            if before.elapsed.duration() >= PERIOD {
                watched.by_itself = before.shares();
            }
            (watched.last, watched.began) = (now.clone(), Some(now));
            watched.shares_processors = shares_with(target.pid());
        }
    }

    /// The extra waiting of the program since the last sample, as a share of the time in which it wanted to run; None if the last sample was a moment
    /// ago, or that cannot be told.
    pub fn sample(&mut self) -> Option<f64> {
        let watched = self.watched.as_ref().filter(|watched| watched.last.at.elapsed() >= PERIOD)?;
        let now = self.read(watched.process.pid)?;
        let watched = self.watched.as_mut()?;
        let mut since = watched.last.until(&now);
        watched.last = now;
        if !watched.shares_processors {
            since.own_cpu = Nanos(0);
        }
        Some(since.caused_by_us(&watched.by_itself))
    }

    /// Promoting is over: how long the program waited for its lock since it began; None where that cannot be told.
    pub fn end(&mut self) -> Option<Waited> {
        let watched = self.watched.take()?;
        let longest = self.lock.as_ref()?.longest();
        let since = watched.began?.until(&self.read(watched.process.pid)?);
        Some(Waited { total: since.lock, longest, ran: since.ran })
    }

    /// None if the process has ended, or the kernel does not tell.
    fn read(&self, pid: u32) -> Option<Reading> {
        let pressure = Pressure::of_process(&self.root, pid).ok()?;
        Some(Reading {
            at: Instant::now(),
            threads: thread_times(&self.root, pid).ok()?,
            memory: pressure.unwrap_or_default().waited,
            lock: self.lock.as_ref().map_or(Nanos(0), LockWaits::total),
            own_cpu: own_cpu_time(),
        })
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

impl Reading {
    fn until(&self, later: &Reading) -> Difference {
        let mut threads = Difference::default();
        for (thread, now) in &later.threads {
            // What a thread had before it was first read is not counted.
            let before = self.threads.get(thread).unwrap_or(now);
            threads.ran += now.ran.saturating_sub(before.ran);
            threads.run_queue += now.waited.saturating_sub(before.waited);
        }
        Difference {
            elapsed: Nanos::from_duration(later.at - self.at),
            memory: later.memory.saturating_sub(self.memory),
            lock: later.lock.saturating_sub(self.lock),
            own_cpu: later.own_cpu.saturating_sub(self.own_cpu),
            ..threads
        }
    }
}

impl Difference {
    fn shares(&self) -> Shares {
        let wanted = (self.ran + self.run_queue + self.lock).seconds();
        let of_wanted = |waited: Nanos| if wanted > 0.0 { waited.seconds() / wanted } else { 0.0 };
        Shares {
            lock: of_wanted(self.lock),
            run_queue: of_wanted(self.run_queue),
            memory: self.memory.seconds() / self.elapsed.seconds().max(f64::MIN_POSITIVE),
        }
    }

    /// Waits beyond those that the program has by itself. Waits for a processor that we caused are no longer than we ran.
    fn caused_by_us(&self, by_itself: &Shares) -> f64 {
        let now = self.shares();
        let beyond = |share: fn(&Shares) -> f64| (share(&now) - share(by_itself)).max(0.0);
        let own_share = self.own_cpu.seconds() / self.elapsed.seconds().max(f64::MIN_POSITIVE);
        beyond(|shares| shares.lock) + beyond(|shares| shares.run_queue).min(own_share) + beyond(|shares| shares.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn difference(ran: u64, run_queue: u64, lock: u64, own_cpu: u64) -> Difference {
        let ms = |ms: u64| Nanos(ms * MS);
        let (elapsed, memory) = (ms(1000), ms(0));
        Difference { elapsed, ran: ms(ran), run_queue: ms(run_queue), memory, lock: ms(lock), own_cpu: ms(own_cpu) }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn waits_are_shares_of_the_time_in_which_the_program_wanted_to_run() {
        let nobody = Shares::default();
        near(difference(900, 0, 100, 500).caused_by_us(&nobody), 0.1);
        near(difference(3600, 0, 400, 500).caused_by_us(&nobody), 0.1);
        near(difference(0, 0, 0, 500).caused_by_us(&nobody), 0.0);
    }

    #[test]
    fn what_the_program_waits_for_by_itself_is_not_ours() {
        let by_itself = difference(800, 200, 0, 10).shares();
        near(difference(700, 300, 0, 500).caused_by_us(&by_itself), 0.1);
        near(difference(900, 100, 0, 500).caused_by_us(&by_itself), 0.0);
    }

    #[test]
    fn nobody_waits_for_a_processor_longer_than_we_ran() {
        near(difference(500, 500, 0, 20).caused_by_us(&Shares::default()), 0.02);
    }

    #[test]
    fn waits_for_memory_count_by_the_clock() {
        let difference = Difference { memory: Nanos(30 * MS), ..difference(100, 0, 0, 0) };
        near(difference.caused_by_us(&Shares::default()), 0.03);
    }

    #[test]
    fn threads_that_come_or_go_are_not_counted_whole() {
        let reading = |threads: &[(u32, u64)]| Reading {
            at: Instant::now(),
            threads: threads.iter().map(|&(id, ran)| (id, ThreadTime { ran: Nanos(ran), waited: Nanos(0) })).collect(),
            memory: Nanos(0),
            lock: Nanos(0),
            own_cpu: Nanos(0),
        };
        let ran = reading(&[(1, 100), (2, 900)]).until(&reading(&[(1, 130), (3, 5000)])).ran;
        assert_eq!(ran, Nanos(30));
    }
}
