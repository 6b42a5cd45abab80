//! The CPU time of the daemon's other threads.
//!
//! Owns: this one counter. Never touches: a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heat::units::Nanos;

/// CPU time of the threads that answer users. It is not charged to the budget for observing: otherwise whoever asks often enough ends that.
#[derive(Clone, Debug, Default)]
pub struct ServingTime {
    spent_ns: Arc<AtomicU64>,
}

impl ServingTime {
    /// Adds what a thread has spent.
    pub fn add(&self, spent: Nanos) {
        self.spent_ns.fetch_add(spent.0, Ordering::Relaxed);
    }

    /// Everything added so far.
    pub fn total(&self) -> Nanos {
        Nanos(self.spent_ns.load(Ordering::Relaxed))
    }
}
