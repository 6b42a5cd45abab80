//! What happened in a period, in base pages, whatever the size of the model's pages.
//!
//! Owns: these numbers. Never touches: what they cost.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::pages::PerClass;
use super::policy::Scan;

/// Everything that happened; numbers add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// File pages that writers and readers moved.
    pub moved: u64,
    /// How often memory ran low and reclaim was called.
    pub reclaims: u64,
    /// What reclaim did.
    pub scan: Scan,
    /// Pages that were evicted and needed again, by class.
    pub refaults: PerClass<u64>,
    /// Other pages read from disk: used for the first time, and not new.
    pub first_reads: u64,
    /// Pages that reclaim sent to swap space.
    pub swapped_out: u64,
    /// File pages that reclaim reached before the disk's own order did, and had written one by one.
    pub written_early: u64,
    /// Pages of files written in the disk's own order.
    pub written: u64,
    /// How often nothing could be freed until the disk had written something.
    pub waits: u64,
    /// Pages that were refused, because nothing could be freed at all.
    pub refused: u64,
}

impl Account {
    /// Pages scanned per page freed; None if none was freed.
    pub fn scanned_per_reclaimed(&self) -> Option<f64> {
        (self.scan.reclaimed > 0).then(|| self.scan.scanned as f64 / self.scan.reclaimed as f64)
    }

    /// Refaults of all classes.
    pub fn all_refaults(&self) -> u64 {
        self.refaults.iter().sum()
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.moved += other.moved;
        self.reclaims += other.reclaims;
        self.scan += other.scan;
        self.refaults.iter_mut().zip(other.refaults).for_each(|(sum, more)| *sum += more);
        self.first_reads += other.first_reads;
        self.swapped_out += other.swapped_out;
        self.written_early += other.written_early;
        self.written += other.written;
        self.waits += other.waits;
        self.refused += other.refused;
    }
}
