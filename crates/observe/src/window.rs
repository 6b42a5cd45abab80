//! The window of one observation: its length, and how busy the process was in it.
//!
//! Owns: the readings at both ends. Never touches: the process.

use std::time::Instant;

use heat::units::Nanos;
use kernel::{KernelError, Root, process};

pub(super) struct Window {
    pid: u32,
    started: Instant,
    had: Nanos,
}

impl Window {
    /// Begins now.
    pub(super) fn begin(root: &Root, pid: u32) -> Result<Self, KernelError> {
        Ok(Self { pid, started: Instant::now(), had: process::cpu_time(root, pid)? })
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// How long it was, and how many processors the process kept busy in it.
    pub(super) fn end(self, root: &Root) -> Result<(Nanos, f64), KernelError> {
        let length = Nanos::since(self.started);
        let busy = process::cpu_time(root, self.pid)?.saturating_sub(self.had);
        Ok((length, busy.seconds() / length.seconds()))
    }
}
