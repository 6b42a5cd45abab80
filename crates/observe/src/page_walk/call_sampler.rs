//! Counts for a moment how often a program makes calls that would stall if all bits were cleared at once.
//!
//! Owns: taking the sample. Never touches: the program, or the judgement ([`heat::clearing`]).

use std::time::{Duration, Instant};

use heat::clearing::CallSample;
use heat::units::Nanos;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::process::Stat;
use kernel::target::Target;

use crate::page_walk::ObserveError;
use crate::page_walk::mmap_calls::{Counting, MmapCalls};
use crate::wait_until;

/// The time between reads of the counts: a program that makes many calls is recognized soon.
const BETWEEN_READINGS: Duration = Duration::from_millis(20);

/// Takes samples; the counter of mmap calls is loaded with the first one.
#[derive(Default)]
pub(super) enum CallSampler {
    /// Not needed so far.
    #[default]
    NotLoaded,
    /// Ready.
    Ready(MmapCalls),
    /// The kernel has no such tracepoint, or rejects the program.
    Unavailable,
}

impl CallSampler {
    /// Counts calls for as long as a clearing of that length requires, or until there are too many for it. `address_space` is the kernel's address of
    /// the program's `mm_struct`.
    pub(super) fn sample(
        &mut self,
        root: &Root,
        target: &Target,
        address_space: Option<u64>,
        clearing: Nanos,
        stop: &Stop,
    ) -> Result<CallSample, ObserveError> {
        let counting = address_space.and_then(|address_space| self.count(address_space));
        let before = Stat::read(root, target.pid())?;
        let started = Instant::now();
        let end = started + CallSample::length_for(clearing).duration();
        let mut resized = false;
        loop {
            wait_until(end.min(Instant::now() + BETWEEN_READINGS), target, stop)?;
            let now = Stat::read(root, target.pid())?;
            resized |= now.virtual_size != before.virtual_size;
            let faults = |stat: &Stat| stat.minor_faults.saturating_add(stat.major_faults);
            let sample = CallSample {
                length: Nanos::since(started),
                faults: faults(&now).saturating_sub(faults(&before)),
                mmap_calls: counting.as_ref().and_then(|counting| counting.calls().ok()),
                resized,
            };
            if Instant::now() >= end || sample.is_decided(clearing) {
                return Ok(sample);
            }
        }
    }

    /// Begins to count mmap calls; None where that is impossible.
    fn count(&mut self, address_space: u64) -> Option<Counting<'_>> {
        if let Self::NotLoaded = self {
            *self = match MmapCalls::load() {
                Ok(counter) => Self::Ready(counter),
                Err(error) => {
                    tracing::debug!("mmap calls cannot be counted: {error}");
                    Self::Unavailable
                }
            };
        }
        let Self::Ready(counter) = self else { return None };
        let counting = counter.count(address_space);
        counting.inspect_err(|error| tracing::debug!("mmap calls cannot be counted: {error}")).ok()
    }
}
