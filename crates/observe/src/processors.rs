//! Processors that a target does not use: hugepilot does its own work, and prepares pages, there.
//!
//! Owns: this choice, based on where the target's threads ran lately, and the affinity of hugepilot's own threads. Never touches: where the target
//! runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heat::units::Nanos;
use hugepilot_os::nodes::{PinnedTo, allowed_cpus, current_cpu};
use kernel::Root;
use kernel::process::{ThreadTime, processor, thread_times};

/// The time between polls of the target's threads.
const INTERVAL: Duration = Duration::from_millis(250);
/// A processor is as good as another if it has at most this much more of the target's time.
const AS_GOOD: f64 = 0.1;

/// Keeps the calling thread away from processors that the target uses, as long as the result lives. None where the target uses all processors allowed
/// to this thread, or that cannot be told.
///
/// A thread that has just had a processor and wakes up waits there for the running thread, ordinary or idle, until the scheduler's next tick, up to 4
/// ms (EEVDF, kernel/sched/fair.c): so even a moment of our work in its place is felt.
pub fn keep_away_from(pid: u32) -> Option<PinnedTo> {
    let mut processors = Processors::default();
    processors.scan(pid);
    let allowed = allowed_cpus().ok()?;
    let unused = unused(&allowed, &processors.used);
    (!unused.is_empty() && unused.len() < allowed.len()).then(|| PinnedTo::cpus(&unused).ok())?
}

/// Whether this thread may run where the target does; also true if that cannot be told.
pub fn shares_with(pid: u32) -> bool {
    let mut processors = Processors::default();
    processors.scan(pid);
    let is_known = !processors.used.is_empty();
    !is_known || allowed_cpus().is_ok_and(|allowed| unused(&allowed, &processors.used).len() < allowed.len())
}

/// Tracks where a target's threads run.
#[derive(Debug, Default)]
pub struct Processors {
    last: Option<Scan>,
    /// The target's recent time on each.
    used: BTreeMap<u32, Nanos>,
    chosen: Option<u32>,
}

#[derive(Debug)]
struct Scan {
    at: Instant,
    pid: u32,
    times: BTreeMap<u32, ThreadTime>,
}

impl Processors {
    /// The processor that this target uses least; if nothing is known, where this thread runs.
    pub fn least_used_by(&mut self, pid: u32) -> u32 {
        let is_old = |scan: &Scan| scan.pid != pid || scan.at.elapsed() >= INTERVAL;
        if self.last.as_ref().is_none_or(is_old) {
            self.scan(pid);
            let before = self.chosen.unwrap_or_else(current_cpu);
            self.chosen = allowed_cpus().ok().and_then(|allowed| choose(&allowed, &self.used, before));
        }
        self.chosen.unwrap_or_else(current_cpu)
    }

    fn scan(&mut self, pid: u32) {
        let root = Root::host();
        let times = thread_times(&root, pid).unwrap_or_default();
        // For a target seen for the first time, all of its past counts.
        let before = self.last.take().filter(|scan| scan.pid == pid).map(|scan| scan.times).unwrap_or_default();
        self.used.clear();
        for (&thread, time) in &times {
            let lately = time.ran.saturating_sub(before.get(&thread).map_or(Nanos(0), |time| time.ran));
            if lately > Nanos(0)
                && let Ok(cpu) = processor(&root, pid, thread)
            {
                let sum = self.used.entry(cpu).or_default();
                *sum += lately;
            }
        }
        self.last = Some(Scan { at: Instant::now(), pid, times });
    }
}

/// `used`: the target's time on each processor; `before`: the one to keep if no other is better.
fn choose(allowed: &[u32], used: &BTreeMap<u32, Nanos>, before: u32) -> Option<u32> {
    let of = |cpu: &u32| used.get(cpu).map_or(0, |time| time.0);
    let least = allowed.iter().min_by_key(|cpu| of(cpu))?;
    let all: u64 = used.values().map(|time| time.0).sum();
    let stays = allowed.contains(&before) && of(&before) <= of(least) + (AS_GOOD * all as f64) as u64;
    Some(if stays { before } else { *least })
}

/// The allowed processors on which the target spends next to no time.
fn unused(allowed: &[u32], used: &BTreeMap<u32, Nanos>) -> Vec<u32> {
    let all: u64 = used.values().map(|time| time.0).sum();
    let of = |cpu: &u32| used.get(cpu).map_or(0, |time| time.0) as f64;
    allowed.iter().copied().filter(|cpu| of(cpu) <= AS_GOOD * all as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_that_the_target_uses_least_is_chosen() {
        let used = |times: &[(u32, u64)]| times.iter().map(|&(cpu, time)| (cpu, Nanos(time))).collect();
        let busy = used(&[(0, 900), (1, 50), (2, 80), (9, 1)]);
        assert_eq!(choose(&[0, 1, 2], &busy, 0), Some(1));
        assert_eq!(choose(&[0, 1, 2], &busy, 2), Some(2), "as good as processor 1");
        assert_eq!(choose(&[0, 1, 2, 3], &busy, 0), Some(3), "it is not used at all");
        assert_eq!(choose(&[0, 1], &used(&[]), 1), Some(1));
        assert_eq!(choose(&[0, 1], &used(&[]), 7), Some(0), "it must be allowed");
        assert_eq!(choose(&[], &busy, 0), None);
    }

    #[test]
    fn unused_are_those_with_next_to_nothing_of_the_targets_time() {
        let used = |times: &[(u32, u64)]| times.iter().map(|&(cpu, time)| (cpu, Nanos(time))).collect();
        let busy = used(&[(0, 900), (1, 50), (2, 200), (9, 1)]);
        assert_eq!(unused(&[0, 1, 2, 3], &busy), [1, 3]);
        assert!(unused(&[0, 2], &busy).is_empty(), "it uses both");
        assert_eq!(unused(&[3, 4], &busy), [3, 4], "it uses neither");
    }

    #[test]
    fn this_thread_is_kept_where_the_target_does_not_run() {
        let before = allowed_cpus().unwrap();
        let kept = keep_away_from(std::process::id());
        let now = allowed_cpus().unwrap();
        assert_eq!(kept.is_some(), now.len() < before.len());
        assert!(shares_with(u32::MAX), "what is unknown is not false");
        drop(kept);
        assert_eq!(allowed_cpus().unwrap(), before);
        assert!(keep_away_from(u32::MAX).is_none(), "a target that is not there");
    }

    #[test]
    fn it_is_not_where_a_busy_thread_runs() {
        let mut processor = Processors::default();
        // This is the only thread of the process that has run for long.
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {}
        assert!(allowed_cpus().unwrap().contains(&processor.least_used_by(std::process::id())));
        assert!(processor.last.is_some_and(|scan| !scan.times.is_empty()));
        assert!(Processors::default().least_used_by(u32::MAX) < 8192, "a target that is not there");
    }
}
