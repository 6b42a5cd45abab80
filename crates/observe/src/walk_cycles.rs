//! What the processor counts of a process: the share of its time taken by page walks, and its instructions.
//!
//! Owns: counting during its lifetime. Never touches: the target.
//!
//! Only some Intel processors count cycles of walks ([`kernel::pmu`]); AMD's have no such event. Where nothing can be counted, as is usual in virtual
//! machines, it scans sysfs once, and is refused one counter.

use heat::WalkShare;
use hugepilot_os::perf::Counters;
use kernel::pmu::{INSTRUCTIONS, walk_events};
use kernel::{Root, process};

/// Counters for all threads of one process, and for threads they start.
#[derive(Debug)]
pub struct WalkCycles(Vec<Counters>);

impl WalkCycles {
    /// Begins to count. None where that is not possible.
    pub fn start(root: &Root, pid: u32) -> Option<Self> {
        let events = walk_events(root).ok().flatten()?;
        let threads = process::threads(root, pid).ok()?;
        // Some of the threads would say nothing about the whole.
        let counters = Counters::of_threads(&[events.cycles, events.loads, events.stores], &threads);
        let counters = counters.inspect_err(|error| tracing::debug!("cycles of page walks cannot be counted: {error}"));
        counters.ok().map(Self)
    }

    /// The result so far. None if nothing was counted.
    pub fn share(&mut self) -> Option<WalkShare> {
        let [cycles, loads, stores] = sums(&mut self.0)?;
        share(cycles, loads, stores)
    }

    /// Cycles so far, and at most how many of them walked.
    pub fn counted(&mut self) -> Option<[f64; 2]> {
        let [cycles, loads, stores] = sums(&mut self.0)?;
        (cycles > 0.0 && loads + stores > 0.0).then(|| [cycles, (loads + stores).min(cycles)])
    }
}

/// Instructions of all threads of one process, and of threads they start.
#[derive(Debug)]
pub struct Instructions(Vec<Counters>);

impl Instructions {
    /// Begins to count. None where that is not possible.
    pub fn start(root: &Root, pid: u32) -> Option<Self> {
        let threads = process::threads(root, pid).ok()?;
        let counters = Counters::of_threads(&[INSTRUCTIONS], &threads);
        let counters = counters.inspect_err(|error| tracing::debug!("instructions cannot be counted: {error}"));
        counters.ok().map(Self)
    }

    /// Those so far. None if none were counted.
    pub fn counted(&mut self) -> Option<f64> {
        sums(&mut self.0).map(|[instructions]| instructions).filter(|&instructions| instructions > 0.0)
    }
}

/// The sums of each event over all threads.
fn sums<const EVENTS: usize>(each: &mut [Counters]) -> Option<[f64; EVENTS]> {
    let mut sums = [0.0; EVENTS];
    for counters in each {
        let counts = counters.read().ok()?;
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    Some(sums)
}

/// Walks of loads and of stores may overlap: the total is at least the longer of the two, and at most their sum.
fn share(cycles: f64, loads: f64, stores: f64) -> Option<WalkShare> {
    // Every program walks; a virtual processor may offer the events and count nothing.
    let counted = cycles > 0.0 && loads + stores > 0.0;
    counted
        .then(|| WalkShare { low: (loads.max(stores) / cycles).min(1.0), high: ((loads + stores) / cycles).min(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_of_loads_and_stores_may_overlap() {
        assert_eq!(share(1000.0, 300.0, 100.0), Some(WalkShare { low: 0.3, high: 0.4 }));
        assert_eq!(share(1000.0, 0.0, 100.0), Some(WalkShare { low: 0.1, high: 0.1 }));
        assert_eq!(share(1000.0, 900.0, 1200.0), Some(WalkShare { low: 1.0, high: 1.0 }), "counts are scaled up");
    }

    #[test]
    fn what_was_not_counted_is_not_known() {
        assert_eq!(share(0.0, 0.0, 0.0), None);
        assert_eq!(share(1000.0, 0.0, 0.0), None, "a virtual machine's counters");
    }

    #[test]
    fn without_a_pmu_nothing_is_opened() {
        let tree = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", tree.path().join("proc")).unwrap();
        assert!(WalkCycles::start(&Root::at(tree.path()), std::process::id()).is_none());
    }
}
