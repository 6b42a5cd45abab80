//! Reclaim memory: have the kernel let go of what is used least, so that what is left can be had in huge pages.
//!
//! Owns: the mechanisms, one file each behind one small trait, and the account of what they did. Never touches: the choice of what goes.
//!
//! Nothing is lost by any of them: only what is on disk, or was written to swap, leaves memory.

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

/// After a pause of the machine or of this process no more is due than after this.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One way to reclaim memory.
pub trait Mechanism {
    /// Which one it is.
    fn kind(&self) -> MechanismKind;

    /// Sets of uses, each of which it can take, and only without telling the uses in it apart; best first.
    fn reach(&self) -> Vec<Uses>;

    /// From one turn to the next.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// For how long a step is to do what is due, when it comes `elapsed` after the one before.
    fn span(&self, elapsed: Duration) -> Duration {
        elapsed.min(LONGEST_PAUSE)
    }

    /// Carries batches out, each within its uses; where the kernel does it by itself, sets it going and tells what came of the
    /// step before. Without a batch nothing more is done.
    ///
    /// Errors: DAMON's files cannot be read or written, the guardian of DAMON cannot be started, or a group's `memory.reclaim` cannot be
    /// written.
    fn step(&mut self, batches: &[Batch], stop: &Stop) -> Result<Vec<Effect>, ReclaimError>;

    /// What it has met, by a short name each.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
}

/// Which mechanism, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MechanismKind {
    /// Schemes of DAMON's over physical addresses.
    Damon,
    /// `memory.reclaim` of control groups.
    MemoryReclaim,
    /// Advice on the files of named directories.
    DropBehind,
}

/// As it is shown, and in JSON.
impl fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// The uses that it was for.
    pub uses: Uses,
    /// Memory that it was applied to: freed, or put where the kernel frees it first.
    pub applied: Bytes,
    /// Of it, what is free already.
    pub reclaimed: Bytes,
}
