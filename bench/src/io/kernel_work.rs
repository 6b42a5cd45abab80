//! The kernel's work to reclaim memory: the machine's counters, and their differences.
//!
//! Owns: reading `/proc/vmstat`, kswapd's CPU time and memory pressure. Never touches: anything that writes.

use anyhow::Result;
use heat::units::Nanos;
use kernel::Root;
use kernel::pressure::Pressure;
use kernel::process::{Stat, cpu_time};
use serde::{Deserialize, Serialize};

/// Counters, since boot or between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelWork {
    /// Pages that reclaim scanned.
    pub scanned: u64,
    /// Pages that it reclaimed.
    pub reclaimed: u64,
    /// Allocations that had to reclaim memory directly.
    pub stalls: u64,
    /// Allocations that had to compact memory directly.
    pub compaction_stalls: u64,
    /// File pages that were read again after they were reclaimed.
    pub refaults: u64,
    /// CPU time of kswapd.
    pub kswapd_seconds: f64,
    /// Time in which some task waited for memory; None if the kernel does not report it.
    pub pressure_seconds: Option<f64>,
}

impl KernelWork {
    /// The counters since boot.
    pub fn so_far() -> Result<Self> {
        let root = Root::host();
        let counters = Counters(root.text("proc/vmstat")?);
        Ok(Self {
            scanned: counters.sum(&["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"]),
            reclaimed: counters.sum(&["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"]),
            stalls: counters.beginning_with("allocstall_"),
            compaction_stalls: counters.sum(&["compact_stall"]),
            refaults: counters.sum(&["workingset_refault_file"]),
            kswapd_seconds: kswapd_time(&root)?.seconds(),
            pressure_seconds: Pressure::read(&root)?.map(|pressure| pressure.waited.seconds()),
        })
    }

    /// The difference from `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            scanned: self.scanned.saturating_sub(earlier.scanned),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            stalls: self.stalls.saturating_sub(earlier.stalls),
            compaction_stalls: self.compaction_stalls.saturating_sub(earlier.compaction_stalls),
            refaults: self.refaults.saturating_sub(earlier.refaults),
            kswapd_seconds: self.kswapd_seconds - earlier.kswapd_seconds,
            pressure_seconds: self.pressure_seconds.zip(earlier.pressure_seconds).map(|(now, then)| now - then),
        }
    }
}

/// The text of `/proc/vmstat`.
struct Counters(String);

impl Counters {
    /// The sum of those counters that this kernel has.
    fn sum(&self, names: &[&str]) -> u64 {
        self.of(|name| names.contains(&name))
    }

    fn beginning_with(&self, start: &str) -> u64 {
        self.of(|name| name.starts_with(start))
    }

    fn of(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let counters = self.0.lines().filter_map(|line| line.split_once(' '));
        counters.filter(|(name, _)| is_wanted(name)).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    }
}

/// The sum over all memory nodes.
fn kswapd_time(root: &Root) -> Result<Nanos> {
    let is_kswapd = |&pid: &u32| Stat::read(root, pid).is_ok_and(|stat| stat.name.starts_with("kswapd"));
    let mut threads = root.numbered_entries("proc")?.into_iter().filter(is_kswapd);
    threads.try_fold(Nanos(0), |sum, pid| Ok(sum + cpu_time(root, pid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_by_name() {
        let counters =
            Counters("pgscan_kswapd 5\npgscan_direct 7\nallocstall_normal 2\nallocstall_movable 3\nodd\n".to_owned());
        assert_eq!(counters.sum(&["pgscan_kswapd", "pgscan_direct", "pgscan_proactive"]), 12);
        assert_eq!(counters.beginning_with("allocstall_"), 5);
    }

    #[test]
    fn a_difference_counts_from_the_earlier() {
        let then =
            KernelWork { scanned: 10, kswapd_seconds: 1.0, pressure_seconds: Some(2.0), ..KernelWork::default() };
        let now = KernelWork { scanned: 25, kswapd_seconds: 1.5, pressure_seconds: None, ..then };
        let between = now.since(&then);
        assert_eq!((between.scanned, between.kswapd_seconds, between.pressure_seconds), (15, 0.5, None));
    }

    #[test]
    fn this_machine_can_be_read() {
        let now = KernelWork::so_far().unwrap();
        assert!(now.scanned >= now.reclaimed);
    }
}
