//! A key-value cache whose hot values are gathered on huge pages. Of 100,000 values every hundredth is used, so that no huge page would
//! pay where they are.
//!
//!     cargo run --release -p hps --example cache [SOCKET]
//!
//! It counts in its hot values until all of them have moved, at most for a minute, and checks that nothing was lost. Without a daemon it
//! watches its own writes.

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hps::wire::{Range, Track};
use hps::{ActiveRegion, Application, ProcessTracking, TrackingSettings};
use hugepilot_os::large_pages::{LargePageOptions, LargePagePolicy, LargePages, LargePagesError};

const KEYS: u64 = 100_000;
const ONE_IN: u64 = 100;
const VALUE_BYTES: usize = 512;
const PAGE_BYTES: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).map_or_else(|| TrackingSettings::default().socket, PathBuf::from);
    let cache = Arc::new(SharedCache(Mutex::new(Cache::of(KEYS)?)));
    let rounds = count_until_all_moved(&cache, socket)?;
    let cache = cache.lock();
    let whole = (0..KEYS).all(|key| cache.count(key) == if key % ONE_IN == 0 { rounds } else { 0 });
    println!(
        "{} of {} hot values moved together, onto {} KiB of huge pages",
        cache.hot.taken,
        KEYS / ONE_IN,
        cache.hot.memory.got().large_bytes >> 10
    );
    if whole { Ok(()) } else { Err("a value was lost".into()) }
}

/// Counts in the hot values, while a thread of libhps moves those that it sees in use; returns how often.
fn count_until_all_moved(cache: &Arc<SharedCache>, socket: PathBuf) -> Result<u64, Box<dyn Error>> {
    let ranges = vec![cache.lock().cold.range()];
    let track = Track { ranges, interval_ms: 200, ..Track::default() };
    let settings = TrackingSettings { track, socket, own_writes: true, ..TrackingSettings::default() };
    let _tracking = ProcessTracking::with_thread(settings, cache.clone())?;
    let (mut rounds, end) = (0, Instant::now() + Duration::from_secs(60));
    while (cache.lock().hot.taken as u64) < KEYS / ONE_IN && Instant::now() < end {
        (0..KEYS).step_by(ONE_IN as usize).for_each(|key| cache.lock().increment(key));
        rounds += 1;
    }
    Ok(rounds)
}

/// Equally large values, one after the other.
struct Slab {
    memory: LargePages,
    taken: usize,
}

impl Slab {
    fn of(values: u64, policy: LargePagePolicy) -> Result<Self, LargePagesError> {
        let options = LargePageOptions { policy, ..LargePageOptions::default() };
        Ok(Self { memory: LargePages::allocate(values as usize * VALUE_BYTES, options)?, taken: 0 })
    }

    /// The next free slot; None if it is full.
    fn take(&mut self) -> Option<usize> {
        let slot = self.taken;
        let fits = (slot + 1) * VALUE_BYTES <= self.memory.got().bytes;
        fits.then(|| {
            self.taken += 1;
            slot
        })
    }

    fn value(&self, slot: usize) -> &[u8] {
        &self.memory.bytes()[slot * VALUE_BYTES..][..VALUE_BYTES]
    }

    fn value_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.memory.bytes_mut()[slot * VALUE_BYTES..][..VALUE_BYTES]
    }

    fn range(&self) -> Range {
        let start = self.memory.start().addr().get() as u64;
        Range { start, end: start + self.memory.got().bytes as u64 }
    }

    /// The slots whose values are in this page.
    fn slots(&self, page: u64) -> std::ops::Range<usize> {
        let first = (page - self.range().start) as usize / VALUE_BYTES;
        first..(first + PAGE_BYTES as usize / VALUE_BYTES).min(self.taken)
    }
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Place {
    Cold(usize),
    Hot(usize),
}

struct Entry {
    place: Place,
    used: bool,
}

struct Cache {
    entries: HashMap<u64, Entry>,
    /// The key of each cold slot: a value that moves must be found again.
    keys: Vec<u64>,
    cold: Slab,
    hot: Slab,
}

impl Cache {
    fn of(keys: u64) -> Result<Self, LargePagesError> {
        let mut cold = Slab::of(keys, LargePagePolicy::Off)?;
        let keys: Vec<u64> = (0..keys).collect();
        let slots = keys.iter().map_while(|key| Some((*key, Entry { place: Place::Cold(cold.take()?), used: false })));
        let entries = slots.collect();
        Ok(Self { entries, cold, hot: Slab::of(KEYS / ONE_IN, LargePagePolicy::Preferred)?, keys })
    }

    fn increment(&mut self, key: u64) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.used = true;
        let value = match entry.place {
            Place::Cold(slot) => self.cold.value_mut(slot),
            Place::Hot(slot) => self.hot.value_mut(slot),
        };
        if let Some(count) = value.first_chunk_mut() {
            *count = (u64::from_ne_bytes(*count) + 1).to_ne_bytes();
        }
    }

    fn count(&self, key: u64) -> u64 {
        let value = match self.entries[&key].place {
            Place::Cold(slot) => self.cold.value(slot),
            Place::Hot(slot) => self.hot.value(slot),
        };
        value.first_chunk().copied().map_or(0, u64::from_ne_bytes)
    }

    /// Moves the used values of a page to the hot slab, and returns their bytes.
    fn gather(&mut self, page: u64) -> u64 {
        let mut moved = 0;
        for slot in self.cold.slots(page) {
            let Some(entry) = self.entries.get_mut(&self.keys[slot]) else { continue };
            if !entry.used || matches!(entry.place, Place::Hot(_)) {
                continue;
            }
            let Some(hot) = self.hot.take() else { break };
            self.hot.value_mut(hot).copy_from_slice(self.cold.value(slot));
            entry.place = Place::Hot(hot);
            moved += VALUE_BYTES as u64;
        }
        moved
    }
}

struct SharedCache(Mutex<Cache>);

impl SharedCache {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// libhps leaves to the cache what only the cache knows: how a value is moved. Dense regions it puts on huge pages itself.
impl Application for SharedCache {
    fn compact(&self, region: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
        Some(Ok(region.pages.iter().map(|page| self.lock().gather(page.address)).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_values_move_and_keep_their_counts() {
        if hugepilot_os::page_scan::WriteWatch::new().is_err() {
            return eprintln!("skipped: this kernel shows no process its own writes");
        }
        let cache = Arc::new(SharedCache(Mutex::new(Cache::of(KEYS).unwrap())));
        let rounds = count_until_all_moved(&cache, PathBuf::from("/nonexistent/control.sock")).unwrap();
        let cache = cache.lock();
        assert_eq!(cache.hot.taken as u64, KEYS / ONE_IN, "after {rounds} rounds");
        assert!((0..KEYS).all(|key| cache.count(key) == if key % ONE_IN == 0 { rounds } else { 0 }));
        assert!(cache.hot.memory.got().large_bytes > 0 || !cache.hot.memory.refusals().is_empty());
    }
}
