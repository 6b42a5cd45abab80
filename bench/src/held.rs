//! How much warm memory the harness still holds.
//!
//! Owns: that number, shared by who frees the memory and who judges the machine's memory meanwhile. Never touches: memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are held; clones are of the same number. Nothing is held by default.
#[derive(Clone, Debug, Default)]
pub struct HeldBytes(Arc<AtomicU64>);

impl HeldBytes {
    /// So many bytes.
    pub fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// The bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// So many fewer are held.
    pub fn let_go(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
