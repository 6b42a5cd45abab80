//! The processor on which pages are prepared: the one that the target uses least.
//!
//! Owns: this choice, from where the target's threads ran lately. Never touches: where anything runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hugepilot_os::nodes::{allowed_cpus, current_cpu};

use crate::kernel::Root;
use crate::kernel::process::{ThreadTime, processor, thread_times};
use crate::units::Nanos;

/// Between two looks at the target's threads.
const INTERVAL: Duration = Duration::from_millis(250);
/// A processor that has so little more of the target's time than another is as good.
const AS_GOOD: f64 = 0.1;

/// Knows where a target's threads run.
#[derive(Debug, Default)]
pub struct Processor {
    looked: Option<Look>,
    chosen: Option<u32>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    pid: u32,
    times: BTreeMap<u32, ThreadTime>,
}

impl Processor {
    /// The processor for this target; where this thread runs if nothing is known.
    pub fn for_target(&mut self, pid: u32) -> u32 {
        let is_old = |look: &Look| look.pid != pid || look.at.elapsed() >= INTERVAL;
        if self.looked.as_ref().is_none_or(is_old) {
            self.chosen = self.look(pid);
        }
        self.chosen.unwrap_or_else(current_cpu)
    }

    fn look(&mut self, pid: u32) -> Option<u32> {
        let root = Root::host();
        let times = thread_times(&root, pid).unwrap_or_default();
        // Of a target that is seen for the first time, all of its past counts.
        let before = self.looked.take().filter(|look| look.pid == pid).map(|look| look.times).unwrap_or_default();
        let mut used = BTreeMap::new();
        for (&thread, time) in &times {
            let earlier = before.get(&thread).map_or(0, |time| time.ran.0);
            let lately = Nanos(time.ran.0.saturating_sub(earlier));
            if lately > Nanos(0)
                && let Ok(cpu) = processor(&root, pid, thread)
            {
                let sum: &mut Nanos = used.entry(cpu).or_default();
                *sum = *sum + lately;
            }
        }
        self.looked = Some(Look { at: Instant::now(), pid, times });
        choose(&allowed_cpus().ok()?, &used, self.chosen.unwrap_or_else(current_cpu))
    }
}

/// `used`: the target's time on each processor; `before`: where to stay if no other is better.
fn choose(allowed: &[u32], used: &BTreeMap<u32, Nanos>, before: u32) -> Option<u32> {
    let of = |cpu: &u32| used.get(cpu).map_or(0, |time| time.0);
    let least = allowed.iter().min_by_key(|cpu| of(cpu))?;
    let all: u64 = used.values().map(|time| time.0).sum();
    let stays = allowed.contains(&before) && of(&before) <= of(least) + (AS_GOOD * all as f64) as u64;
    Some(if stays { before } else { *least })
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
    fn it_is_not_where_a_busy_thread_runs() {
        let mut processor = Processor::default();
        // The only thread of this process that has run for long is this one.
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {}
        assert!(allowed_cpus().unwrap().contains(&processor.for_target(std::process::id())));
        assert!(processor.looked.is_some_and(|look| !look.times.is_empty()));
        assert!(Processor::default().for_target(u32::MAX) < 8192, "a target that is not there");
    }
}
