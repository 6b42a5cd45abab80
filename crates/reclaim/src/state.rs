//! The state of reclaim: the format of `hugepilot reclaim --json`, of the daemon's state, and of the file for `--status`.
//!
//! Owns: those fields. Never touches: their contents.

use std::collections::BTreeMap;

use heat::memory_use::MemoryUse;
use heat::units::{Bytes, Nanos, SizeOrShare};
use kernel::process;
use serde::{Deserialize, Serialize};

use crate::at_work::AtWork;
use crate::policy::UseDecision;
use crate::{MemoryReading, Reclaimer};

/// The state of reclaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReclaimState {
    /// The version of the format: 1.
    pub version: u32,
    /// The process that reclaims.
    pub pid: u32,
    /// Clock ticks after boot at which that process started.
    pub start_ticks: u64,
    /// Time since it began.
    pub up_ns: Nanos,
    /// Whether nothing is reclaimed because enough memory is free.
    pub enough_free: bool,
    /// How strongly unmapped cache is preferred, 0 to 100.
    pub mapped_page_cost: u8,
    /// Reclaim while less memory than this is free; as requested.
    pub free_below: Option<String>,
    /// Reclaim while less memory than this is free in huge pages; as requested.
    pub huge_below: Option<String>,
    /// The most that is kept free, whatever the preset says, because this virtual machine's host takes free memory back.
    #[serde(default)]
    pub keeps_free_at_most_bytes: Option<Bytes>,
    /// Each use of memory.
    pub classes: Vec<ClassState>,
    /// Each mechanism.
    pub mechanisms: Vec<MechanismState>,
    /// Memory when it began.
    pub before: MemoryReading,
    /// Memory at the last step.
    pub after: MemoryReading,
    /// Memory meanwhile, oldest first; empty if not requested.
    #[serde(default)]
    pub history: Vec<MemoryReading>,
}

/// One use of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassState {
    /// The use.
    pub class: MemoryUse,
    /// The rate per minute; as requested.
    pub rate: String,
    /// How much stays.
    pub floor_bytes: Bytes,
    /// What it held when reclaim began.
    pub held_before_bytes: Bytes,
    /// What it holds.
    pub held_bytes: Bytes,
    /// What the last step was meant to reclaim.
    pub step_bytes: Bytes,
    /// A short name for the reason.
    pub reason: String,
    /// Memory that it was applied to: freed, or put where the kernel frees it first.
    pub applied_bytes: Bytes,
    /// Of it, memory that was freed.
    pub reclaimed_bytes: Bytes,
}

/// One mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MechanismState {
    /// Its name.
    pub name: String,
    /// Why it is not in use; None if it is.
    pub refused: Option<String>,
    /// Its counters, by name.
    pub counts: BTreeMap<String, u64>,
}

impl Reclaimer {
    /// The state, with the history of memory.
    pub fn state_with_history(&self) -> ReclaimState {
        ReclaimState { history: self.history.moments().to_vec(), ..self.state() }
    }

    /// The state without the history.
    pub fn state(&self) -> ReclaimState {
        let requested = |wanted: Option<SizeOrShare>| wanted.map(|wanted| wanted.to_string());
        let moments = self.history.moments();
        ReclaimState {
            version: 1,
            pid: std::process::id(),
            start_ticks: process::start_time(&self.root, std::process::id()).unwrap_or_default(),
            up_ns: Nanos::since(self.began),
            enough_free: self.policies.are_met(&self.stock),
            mapped_page_cost: self.policies.mapped_page_cost.get(),
            free_below: requested(self.policies.free_below),
            huge_below: requested(self.policies.huge_below),
            keeps_free_at_most_bytes: self.policies.most_free(&self.stock),
            classes: MemoryUse::ALL.iter().map(|&class| self.class_state(class)).collect(),
            mechanisms: self.mechanism_states(),
            before: self.first.clone(),
            after: moments.last().unwrap_or(&self.first).clone(),
            history: Vec::new(),
        }
    }

    fn class_state(&self, class: MemoryUse) -> ClassState {
        let UseDecision { bytes, reason } = self.last[class];
        ClassState {
            class,
            rate: self.policies.classes[class].rate.to_string(),
            floor_bytes: self.policies.floor(class, &self.stock),
            held_before_bytes: self.before.held[class],
            held_bytes: self.stock.held[class],
            step_bytes: bytes,
            reason: reason.to_string(),
            applied_bytes: self.applied[class],
            reclaimed_bytes: self.reclaimed[class],
        }
    }

    fn mechanism_states(&self) -> Vec<MechanismState> {
        let at_work = self.mechanisms.iter().map(AtWork::mechanism).map(|mechanism| MechanismState {
            name: mechanism.kind().to_string(),
            refused: None,
            counts: mechanism.counts().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        });
        let refused = self.refused.iter().map(|(kind, why)| MechanismState {
            name: kind.to_string(),
            refused: Some(why.clone()),
            ..MechanismState::default()
        });
        at_work.chain(refused).collect()
    }
}

impl ReclaimState {
    /// Freed memory, of all uses.
    pub fn reclaimed(&self) -> Bytes {
        self.classes.iter().map(|class| class.reclaimed_bytes).sum()
    }
}
