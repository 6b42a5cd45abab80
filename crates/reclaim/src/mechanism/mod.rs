//! Mechanisms that make the kernel reclaim the least-used memory, so that huge pages can be made of it.
//!
//! Owns: the mechanisms, one file each behind one small trait, and the account of what they did. Never touches: the choice of what is
//! reclaimed.
//!
//! None of them loses data: only memory that is on disk, or was written to swap, is freed.

mod damon;
mod drop_behind;
mod error;
mod memory_reclaim;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use damon::DamonReclaim;
pub use drop_behind::{DropBehind, DropBehindOptions, probe as probe_drop_behind};
pub use error::ReclaimError;
pub use memory_reclaim::MemoryReclaim;

use serde::Serialize;

use crate::policy::Batch;
use heat::memory_use::Uses;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;

/// After a pause of the machine or of this process, no more is due than after this time.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One way to reclaim memory.
pub trait Mechanism {
    /// Which one it is.
    fn kind(&self) -> MechanismKind;

    /// Sets of uses that it can reclaim, without distinguishing the uses within a set; best first.
    fn reach(&self) -> Vec<Uses>;

    /// The interval between its turns.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The time that a step's work should cover, if it comes `elapsed` after the previous one.
    fn span(&self, elapsed: Duration) -> Duration {
        elapsed.min(LONGEST_PAUSE)
    }

    /// Carries out batches, each within its uses. If the kernel does the work, starts it and returns the effects of the previous step.
    /// Without batches nothing more is done.
    ///
    /// Errors: DAMON's files cannot be read or written, the guardian of DAMON cannot be started, or a group's `memory.reclaim` cannot be
    /// written.
    fn step(&mut self, batches: &[Batch], stop: &Stop) -> Result<Vec<Effect>, ReclaimError>;

    /// Its counters, by short name.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
}

/// The mechanism, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MechanismKind {
    /// DAMON schemes over physical addresses.
    Damon,
    /// `memory.reclaim` of control groups.
    MemoryReclaim,
    /// Advice on the files in named directories.
    DropBehind,
}

/// The name in text output and JSON.
impl fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The effect of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// The uses of the batch.
    pub uses: Uses,
    /// Memory that it was applied to: freed, or put where the kernel frees it first.
    pub applied: Bytes,
    /// Of it, memory that is already free.
    pub reclaimed: Bytes,
}
