//! Warm memory: a virtual machine's memory is slow until the host has backed it, and a host that gets reports of free
//! pages takes it back within seconds of its being freed.
//!
//! Owns: memory that it has touched, and handing it out by freeing it bit by bit. Never touches: memory in use.
//!
//! Freed all at once, most of the memory would be cold again before a program of several GiB has grown into it; the kernel
//! gives out first what was freed last, so what is freed just ahead of the program is what the program gets.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hugepilot::units::{BASE_PAGE, Bytes};
use hugepilot_os::memory::{Mapping, OwnAdvice};

use crate::sample::{free_memory, machine_memory};
use crate::stop::Stop;

/// Left for everyone else.
const SPARE: u64 = 512 << 20;
/// Touched between two looks at the wish to stop, and freed at once.
const STEP: usize = 64 << 20;
/// Kept free ahead of the program: more than it takes between two looks.
const AHEAD: u64 = 256 << 20;
const LOOK: Duration = Duration::from_millis(10);

/// Touched memory, freed just ahead of whoever takes memory; all of it is freed on drop.
#[derive(Debug)]
pub struct WarmMemory {
    done: Stop,
    feeder: Option<JoinHandle<()>>,
}

impl WarmMemory {
    /// Touches that much memory and begins to feed it.
    pub fn touch(needed: u64, stop: &Stop) -> Result<Self> {
        let available = machine_memory()?.available_bytes;
        if available < needed + SPARE {
            bail!(
                "this workload takes {} and {} are available: make it smaller with --size, --items or --quick",
                Bytes(needed),
                Bytes(available)
            );
        }
        let len = usize::try_from(needed)?.next_multiple_of(STEP);
        let mut mapping = Mapping::anonymous(len).with_context(|| format!("cannot map {needed} bytes to warm them"))?;
        // Huge pages are merely faster to touch; without them the loop below touches every base page all the same.
        let _ = mapping.advise(0, len, OwnAdvice::HugePage);
        for step in mapping.bytes_mut().chunks_mut(STEP) {
            stop.check()?;
            step.iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
        }
        let floor = free_memory()?;
        let done = Stop::default();
        let seen = done.clone();
        let feeder = std::thread::spawn(move || feed(mapping, len, floor + AHEAD, &seen));
        Ok(Self { done, feeder: Some(feeder) })
    }
}

impl Drop for WarmMemory {
    fn drop(&mut self) {
        self.done.request();
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
    }
}

/// Frees a step whenever less than `floor` is free; unmaps the rest in the end.
fn feed(mut mapping: Mapping, len: usize, floor: u64, done: &Stop) {
    for offset in (0..len).step_by(STEP) {
        while free_memory().is_ok_and(|free| free >= floor) {
            if done.sleep_until(Instant::now() + LOOK).is_err() {
                return;
            }
        }
        if done.requested() || mapping.advise(offset, STEP, OwnAdvice::DontNeed).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_given_back() {
        drop(WarmMemory::touch(8 << 20, &Stop::default()).unwrap());
    }

    #[test]
    fn more_than_there_is_is_refused_with_advice() {
        let error = WarmMemory::touch(1 << 50, &Stop::default()).unwrap_err().to_string();
        assert!(error.contains("--size"), "{error}");
    }
}
