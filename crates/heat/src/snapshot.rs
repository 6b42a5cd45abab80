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
    /// Processors that the process kept busy meanwhile; None where that could not be told.
    pub busy_cpus: Option<f64>,
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
        Self {
            walks_per_second: Some(heat.walks_per_second()),
            busy_cpus: heat.busy_cpus,
            rss: heat.rss,
            huge: heat.huge_bytes(),
            page_tables,
        }
    }

    /// Page walks in a second of the process's CPU time, which can be compared where it had more to do, or more processors, at one moment than at
    /// another. None where that is not known, or where it used no CPU time.
    pub fn walks_per_cpu_second(&self) -> Option<f64> {
        Some(self.walks_per_second? / self.busy_cpus.filter(|&cpus| cpus > 0.0)?)
    }
}
