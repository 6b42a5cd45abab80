//! A process at one moment.
//!
//! Owns: the few figures reported before and after. Never touches: the system.

use crate::Heat;
use crate::units::Bytes;

/// One moment of a process, for before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Page walks a second; None where nothing was observed.
    pub walks_per_second: Option<f64>,
    /// Resident memory (`VmRSS`).
    pub rss: Bytes,
    /// Memory on huge pages, hugetlb included.
    pub huge: Bytes,
    /// Memory that the process's page tables take (`VmPTE`).
    pub page_tables: Bytes,
}

impl Snapshot {
    /// From a heat; page tables are counted separately.
    pub fn of(heat: &Heat, page_tables: Bytes) -> Self {
        Self { walks_per_second: Some(heat.walks_per_second()), rss: heat.rss, huge: heat.huge_bytes(), page_tables }
    }
}
