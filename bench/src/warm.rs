//! Warm memory: a virtual machine's memory is slow until the host has backed it, and a host that receives reports of free pages takes them back
//! within seconds.
//!
//! Owns: memory that it has touched, and handing it out by freeing it bit by bit. Never touches: memory in use.
//!
//! If all memory were freed at once, most of it would be cold again before a program of several GiB has grown into it. The kernel first hands out
//! what was freed last, so the program gets what is freed just ahead of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heat::units::{BASE_PAGE, Bytes};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::stop::Stop;

use crate::sample::machine_memory;

/// Left for all other programs.
pub const SPARE: u64 = 512 << 20;
/// The amount touched, or freed, between two checks for a request to stop.
const STEP: usize = 64 << 20;
/// Kept free ahead of the program: more than it takes between two checks.
const AHEAD: u64 = 256 << 20;
const POLL: Duration = Duration::from_millis(10);

/// Bytes of warm memory that the harness still holds, which readers of the machine's memory must count as free. Clones share the number. By default
/// nothing is held.
#[derive(Clone, Debug, Default)]
pub struct HeldBytes(Arc<AtomicU64>);

impl HeldBytes {
    /// This many bytes.
    pub fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// The bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Subtracts this many bytes.
    pub fn let_go(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Touched memory, freed just ahead of the program that needs it; the rest is freed on drop.
#[derive(Debug)]
pub struct WarmMemory {
    done: Stop,
    held: HeldBytes,
    feeder: Option<JoinHandle<AlignedMemory>>,
    left: Option<AlignedMemory>,
}

impl WarmMemory {
    /// Touches that much memory and begins to free it as needed.
    pub fn touch(needed: u64, stop: &Stop) -> Result<Self> {
        let available = machine_memory()?.available.0;
        if available < needed + SPARE {
            bail!(
                "this workload takes {} and {} are available: make it smaller (--size, --sizes, --items or --quick)",
                Bytes(needed),
                Bytes(available)
            );
        }
        let len = usize::try_from(needed)?.next_multiple_of(STEP);
        let mut mapping =
            AlignedMemory::anonymous(len).with_context(|| format!("cannot map {needed} bytes to warm them"))?;
        // Huge pages are merely faster to touch; without them the loop below touches every base page anyway.
        let _ = mapping.advise(0, len, OwnAdvice::HugePage);
        for step in mapping.bytes_mut().chunks_mut(STEP) {
            stop.check()?;
            step.iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
        }
        let floor = machine_memory()?.free.0;
        let (done, held) = (Stop::default(), HeldBytes::of(len as u64));
        let (seen, counted) = (done.clone(), held.clone());
        let feeder = std::thread::spawn(move || feed(mapping, floor + AHEAD, &counted, &seen));
        Ok(Self { done, held, feeder: Some(feeder), left: None })
    }

    /// The bytes still held.
    pub fn held(&self) -> HeldBytes {
        self.held.clone()
    }

    /// Frees nothing more until drop: this must not disturb the measurement, and memory still held need not be warmed again next time.
    pub fn stop_feeding(&mut self) {
        self.done.request();
        self.left = self.feeder.take().and_then(|feeder| feeder.join().ok());
    }
}

impl Drop for WarmMemory {
    fn drop(&mut self) {
        self.stop_feeding();
    }
}

/// Frees a step whenever less than `floor` is free; returns the rest of the mapping.
fn feed(mut mapping: AlignedMemory, floor: u64, held: &HeldBytes, done: &Stop) -> AlignedMemory {
    let mut offset = 0;
    while done.sleep_until(Instant::now() + POLL).is_ok() && held.bytes() > 0 {
        while held.bytes() > 0 && machine_memory().is_ok_and(|memory| memory.free.0 < floor) {
            if mapping.advise(offset, STEP, OwnAdvice::DontNeed).is_err() {
                return mapping;
            }
            offset += STEP;
            held.let_go(STEP as u64);
        }
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_given_back() {
        let mut memory = WarmMemory::touch(8 << 20, &Stop::default()).unwrap();
        memory.stop_feeding();
        assert!(memory.held().bytes() <= STEP as u64);
    }

    #[test]
    fn more_than_there_is_is_refused_with_advice() {
        let error = WarmMemory::touch(1 << 50, &Stop::default()).unwrap_err().to_string();
        assert!(error.contains("--size"), "{error}");
    }
}
