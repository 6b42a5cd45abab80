//! Warm memory: a virtual machine's memory is slow until the host has backed it once.
//!
//! Owns: touching and freeing. Never touches: memory in use.

use anyhow::{Context, Result, bail};
use hugepilot::units::{BASE_PAGE, Bytes};
use hugepilot_os::memory::{Mapping, OwnAdvice};

use crate::sample::machine_memory;
use crate::stop::Stop;

/// Left for everyone else.
const SPARE: u64 = 512 << 20;
/// Touched between two looks at the wish to stop.
const STEP: usize = 64 << 20;

/// Touches that much memory and frees it again, so that each turn finds it backed by the host.
pub fn touch_and_free(needed: u64, stop: &Stop) -> Result<()> {
    let available = machine_memory()?.available_bytes;
    if available < needed + SPARE {
        bail!(
            "this workload takes {} and {} are available: make it smaller with --size, --items or --quick",
            Bytes(needed),
            Bytes(available)
        );
    }
    let len = usize::try_from(needed)?;
    let mut mapping = Mapping::anonymous(len).with_context(|| format!("cannot map {} to warm them", Bytes(needed)))?;
    // Huge pages are merely faster to touch; without them the loop below touches every base page all the same.
    let _ = mapping.advise(0, len, OwnAdvice::HugePage);
    for step in mapping.bytes_mut().chunks_mut(STEP) {
        stop.check()?;
        step.iter_mut().step_by(BASE_PAGE as usize).for_each(|byte| *byte = 1);
    }
    Ok(())
}
