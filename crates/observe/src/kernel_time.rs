//! Points in time as the kernel tells them.
//!
//! Owns: the type, so that nobody takes a point in time for a duration. Never touches: what happened then.

use std::ops::Add;

use heat::units::Nanos;
use kernel::process;
use rustix::time::ClockId;

/// Nanoseconds of CLOCK_MONOTONIC, which eBPF programs read, too (`bpf_ktime_get_ns`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelTime(pub(crate) u64);

impl KernelTime {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self(process::time_of(ClockId::Monotonic).0)
    }

    /// How long after `earlier` this is; nothing where that is later.
    pub(crate) fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for KernelTime {
    type Output = Self;
    fn add(self, passed: Nanos) -> Self {
        Self(self.0.saturating_add(passed.0))
    }
}
