//! Adds to the counters that the launcher reads, if it provided any.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hugepilot_os::placement::PlacementCounts;

static COUNTS: OnceLock<&'static PlacementCounts> = OnceLock::new();

/// Counts in that file from now on, if it exists.
pub fn into_file(path: &CStr) {
    if let Some(counts) = PlacementCounts::attach(path) {
        let _ = COUNTS.set(counts);
    }
}

/// Counts memory for which transparent huge pages were requested, and records where it is.
pub fn advised(start: usize, length: usize) {
    add(|counts| &counts.mmap_thp_bytes, length);
    if let Some(counts) = COUNTS.get() {
        counts.record(start, length);
    }
}

pub fn add(counter: impl Fn(&PlacementCounts) -> &AtomicU64, amount: usize) {
    if let Some(counts) = COUNTS.get() {
        // Relaxed: no other memory depends on it.
        counter(counts).fetch_add(amount as u64, Ordering::Relaxed);
    }
}
