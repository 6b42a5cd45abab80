//! Points in time as the kernel reports them.
//!
//! Owns: the type, which keeps points in time and durations apart. Never touches: what happened then.

use std::ops::Add;

use heat::units::Nanos;
use kernel::process;
use rustix::time::ClockId;

/// Nanoseconds of CLOCK_MONOTONIC, which eBPF programs also read (`bpf_ktime_get_ns`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelTime(pub(crate) u64);

impl KernelTime {
    /// The current time.
    pub(crate) fn now() -> Self {
        Self(process::time_of(ClockId::Monotonic).0)
    }

    /// The time since `earlier`; zero if that is later.
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
