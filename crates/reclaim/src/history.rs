//! Free and contiguous memory over time, in bounded space.
//!
//! Owns: the moments kept, and their spacing. Never touches: memory.

use std::time::Instant;

use heat::units::{Bytes, Nanos};
use kernel::buddy::Buddy;
use kernel::memory::Meminfo;
use kernel::{KernelError, Root, process};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

/// Moments kept. Beyond that every other one is dropped, and new ones are taken half as often.
const MOST: usize = 720;
const FIRST_INTERVAL: Nanos = Nanos(1_000_000_000);

/// The state of memory at one moment. Its fields are those of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// Time since boot, including sleep.
    pub at_ns: Nanos,
    /// Free memory.
    pub free_bytes: Bytes,
    /// Of it, memory in blocks that hold a huge page.
    pub free_huge_bytes: Bytes,
    /// Files in memory, shared memory excluded.
    pub file_cache_bytes: Bytes,
    /// Share of free memory in blocks too small for a huge page, 0 to 1 (the kernel's unusable free space index).
    pub unusable: f64,
    /// Why no huge page is available, from 0 for lack of memory to 1 for fragmentation; None if one is available.
    pub fragmentation_index: Option<f64>,
    /// Free blocks of 2^index base pages, in all zones.
    pub free_blocks: Vec<u64>,
}

impl MemoryReading {
    /// The current state.
    ///
    /// Errors: `/proc/meminfo` or `/proc/buddyinfo` cannot be read, or is malformed.
    pub fn now(root: &Root) -> Result<Self, KernelError> {
        let (memory, buddy) = (Meminfo::read(root)?, Buddy::read(root)?);
        let fragmentation = buddy.fragmentation();
        Ok(Self {
            at_ns: process::time_of(ClockId::Boottime),
            free_bytes: memory.free,
            free_huge_bytes: buddy.free_huge(),
            file_cache_bytes: (memory.cached + memory.buffers).saturating_sub(memory.shared),
            unusable: fragmentation.unusable,
            fragmentation_index: fragmentation.index,
            free_blocks: buddy.free_blocks(),
        })
    }
}

/// Moments from the beginning on, spaced ever farther apart.
#[derive(Clone, Debug)]
pub struct History {
    moments: Vec<MemoryReading>,
    interval: Nanos,
    next: Instant,
}

impl Default for History {
    fn default() -> Self {
        Self { moments: Vec::new(), interval: FIRST_INTERVAL, next: Instant::now() }
    }
}

impl History {
    /// Records the state of memory if it is time.
    pub fn note(&mut self, root: &Root) {
        if Instant::now() >= self.next
            && let Ok(moment) = MemoryReading::now(root)
        {
            self.add(moment);
        }
    }

    /// Adds a moment.
    pub fn add(&mut self, moment: MemoryReading) {
        if self.moments.len() >= MOST {
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval = Nanos(2 * self.interval.0);
        }
        self.moments.push(moment);
        self.next = Instant::now() + self.interval.duration();
    }

    /// The recorded moments, oldest first.
    pub fn moments(&self) -> &[MemoryReading] {
        &self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_and_keeps_its_beginning_and_end() {
        let mut history = History::default();
        for at in 0..10_000 {
            history.add(MemoryReading { at_ns: Nanos(at), ..MemoryReading::default() });
        }
        let times: Vec<u64> = history.moments().iter().map(|moment| moment.at_ns.0).collect();
        assert!((MOST / 2..=MOST).contains(&times.len()), "{}", times.len());
        assert_eq!((times[0], times[times.len() - 1]), (0, 9_999));
        assert!(times.is_sorted() && history.interval > FIRST_INTERVAL);
    }

    #[test]
    fn this_machine_is_read() {
        let moment = MemoryReading::now(&Root::host()).unwrap();
        assert!(moment.free_huge_bytes <= moment.free_bytes && moment.at_ns > Nanos(0) && moment.free_blocks.len() > 5);
    }
}
