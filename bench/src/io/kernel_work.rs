//! What the kernel did to reclaim memory: counters of the machine, and the difference of two of them.
//!
//! Owns: reading `/proc/vmstat`, kswapd's CPU time and the pressure of memory. Never touches: anything that writes.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};

/// Counters, since the machine's start or between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelWork {
    /// Pages that reclaim scanned.
    pub scanned: u64,
    /// Pages that it reclaimed.
    pub reclaimed: u64,
    /// Allocations that had to reclaim memory themselves.
    pub stalls: u64,
    /// Allocations that had to compact memory themselves.
    pub compaction_stalls: u64,
    /// Pages of files that came back after they were reclaimed.
    pub refaults: u64,
    /// CPU time of kswapd.
    pub kswapd_seconds: f64,
    /// Time in which somebody waited for memory; None where the kernel does not say.
    pub pressure_seconds: Option<f64>,
}

impl KernelWork {
    /// Since the machine's start.
    pub fn so_far() -> Result<Self> {
        let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
        let counters = Counters::parse(&text);
        Ok(Self {
            scanned: counters.sum(&["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"]),
            reclaimed: counters.sum(&["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"]),
            stalls: counters.beginning_with("allocstall_"),
            compaction_stalls: counters.sum(&["compact_stall"]),
            refaults: counters.sum(&["workingset_refault_file"]),
            kswapd_seconds: kswapd_time()?.as_secs_f64(),
            pressure_seconds: fs::read_to_string("/proc/pressure/memory").ok().and_then(|text| waited(&text)),
        })
    }

    /// What came after `earlier`.
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

/// The lines of `/proc/vmstat`.
struct Counters<'a>(HashMap<&'a str, u64>);

impl<'a> Counters<'a> {
    fn parse(text: &'a str) -> Self {
        let line = |line: &'a str| line.split_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?)));
        Self(text.lines().filter_map(line).collect())
    }

    /// Kernels differ in which of them they have.
    fn sum(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(name)).sum()
    }

    fn beginning_with(&self, start: &str) -> u64 {
        self.0.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, count)| count).sum()
    }
}

/// Of all memory nodes' together.
fn kswapd_time() -> Result<Duration> {
    let ticks: u64 = fs::read_dir("/proc")?
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter_map(|stat| ticks_of_kswapd(&stat))
        .sum();
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// `/proc/PID/stat` (man proc_pid_stat): user and system time are fields 14 and 15.
fn ticks_of_kswapd(stat: &str) -> Option<u64> {
    let (name, fields) = stat.split_once('(')?.1.split_once(") ")?;
    name.starts_with("kswapd").then_some(())?;
    let mut times = fields.split(' ').skip(11).map(|field| field.parse::<u64>());
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// The line `some` of a pressure file: its total is in microseconds (Documentation/accounting/psi.rst).
fn waited(text: &str) -> Option<f64> {
    let total = text.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1;
    Some(total.trim().parse::<u64>().ok()? as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_by_name() {
        let counters =
            Counters::parse("pgscan_kswapd 5\npgscan_direct 7\nallocstall_normal 2\nallocstall_movable 3\nodd\n");
        assert_eq!(counters.sum(&["pgscan_kswapd", "pgscan_direct", "pgscan_proactive"]), 12);
        assert_eq!(counters.beginning_with("allocstall_"), 5);
    }

    #[test]
    fn only_kswapd_counts() {
        let stat = |name: &str| format!("52 ({name}) S 2 0 0 0 -1 10619968 0 0 0 0 30 1200 0 0 20 0 1 0 88 0 0");
        assert_eq!(ticks_of_kswapd(&stat("kswapd0")), Some(1230));
        assert_eq!(ticks_of_kswapd(&stat("bash) S (x")), None);
    }

    #[test]
    fn pressure_is_told_in_microseconds() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(waited(text), Some(1.5));
        assert_eq!(waited("nothing"), None);
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
