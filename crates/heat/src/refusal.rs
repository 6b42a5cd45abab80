//! Why the kernel refuses a request for a region.
//!
//! Owns: the reasons. Never touches: the kernel's answer.

use serde::{Deserialize, Serialize};

/// Why the kernel refused one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// EINVAL: the mapping changed, or huge pages are switched off for it or for the process.
    NotEligible,
    /// ENOMEM: no contiguous 2 MiB could be had, or the mapping went away.
    NoContiguousMemory,
    /// EBUSY: the memory cgroup is full, or pages are pinned by others.
    CgroupFullOrPinned,
    /// EAGAIN, after repeated tries.
    Busy,
    /// Not split: other processes map the same huge page, or the kernel held it for a moment.
    MappedByOthers,
    /// Not tried: the memory has changed since the plan.
    Changed,
    /// ESRCH: the process ended.
    Exited,
    /// EPERM: a capability is missing.
    NotPermitted,
    /// Any other answer.
    Other,
}
