//! The window of one observation: its length, and how the process used processors in it.
//!
//! Owns: the readings at both ends. Never touches: the process.

use std::collections::BTreeMap;
use std::time::Instant;

use heat::Heat;
use heat::units::Nanos;
use kernel::process::{self, ThreadTime, thread_times};
use kernel::{KernelError, Root};

pub(super) struct Window {
    pid: u32,
    started: Instant,
    had: Nanos,
    threads: BTreeMap<u32, ThreadTime>,
}

/// What the window was like.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowUse {
    pub(super) length: Nanos,
    pub(super) busy_cpus: f64,
    pub(super) waited_share: Option<f64>,
}

impl Window {
    /// Begins now.
    pub(super) fn begin(root: &Root, pid: u32) -> Result<Self, KernelError> {
        let threads = thread_times(root, pid).unwrap_or_default();
        Ok(Self { pid, started: Instant::now(), had: process::cpu_time(root, pid)?, threads })
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Ends now.
    pub(super) fn end(self, root: &Root) -> Result<WindowUse, KernelError> {
        let length = Nanos::since(self.started);
        let busy = process::cpu_time(root, self.pid)?.saturating_sub(self.had);
        let threads = thread_times(root, self.pid).unwrap_or_default();
        Ok(WindowUse {
            length,
            busy_cpus: busy.seconds() / length.seconds(),
            waited_share: waited_share(&self.threads, &threads),
        })
    }
}

impl WindowUse {
    /// Adds it to the heat that was observed in it.
    pub(super) fn add_to(self, heat: Heat) -> Heat {
        Heat { window: self.length, busy_cpus: Some(self.busy_cpus), waited_share: self.waited_share, ..heat }
    }
}

/// The share of waiting in the time of the threads that lived at both moments; None if they were never ready to run.
fn waited_share(before: &BTreeMap<u32, ThreadTime>, after: &BTreeMap<u32, ThreadTime>) -> Option<f64> {
    let (mut ran, mut waited) = (Nanos(0), Nanos(0));
    for (thread, now) in after {
        if let Some(then) = before.get(thread) {
            ran += now.ran.saturating_sub(then.ran);
            waited += now.waited.saturating_sub(then.waited);
        }
    }
    let ready = (ran + waited).seconds();
    (ready > 0.0).then(|| waited.seconds() / ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_told_of_threads_that_lived_all_the_time() {
        let time = |ran, waited| ThreadTime { ran: Nanos(ran), waited: Nanos(waited) };
        let before = BTreeMap::from([(1, time(100, 50)), (2, time(7, 7))]);
        let after = BTreeMap::from([(1, time(200, 350)), (3, time(1_000_000, 0))]);
        assert_eq!(waited_share(&before, &after), Some(0.75));
        assert_eq!(waited_share(&before, &before), None, "none of them was ready");
    }
}
