//! Whether the kernel's reclaim depends on the accessed bits that trackers clear.
//!
//! Owns: reading and judging that. Never touches: memory, or swap.
//!
//! Reclaim takes pages whose accessed bit is clear. The kernel's own trackers (DAMON, idle page tracking) leave a mark where they clear a bit
//! (`PG_young`), which reclaim also reads; `clear_refs` removes that mark, and `MADV_COLD` makes pages the next to be reclaimed.

use heat::{MemoryState, Reclaim, TrackerKind};
use kernel::Root;
use kernel::memory::Meminfo;
use kernel::pressure::Pressure;

/// The current state; None where memory is plentiful, or that cannot be told.
pub fn of_machine(root: &Root) -> Option<Reclaim> {
    let pressure = Pressure::read(root).ok().flatten().map(|pressure| pressure.some);
    Meminfo::read(root).ok().and_then(|memory| judge(&memory, pressure))
}

/// Judges `/proc/meminfo` and `/proc/pressure/memory`.
pub fn judge(memory: &Meminfo, pressure: Option<f64>) -> Option<Reclaim> {
    let state = MemoryState { total: memory.total, available: memory.available, pressure };
    match state.shortage() {
        Some(_) => Some(Reclaim::MemoryShort),
        None => (memory.swap_free < memory.swap_total).then_some(Reclaim::SwapInUse),
    }
}

/// The trackers in the order of trial: those that leave reclaim its information come first.
pub(super) fn order<const N: usize>(reclaim: Option<Reclaim>, mut trackers: [TrackerKind; N]) -> [TrackerKind; N] {
    if reclaim.is_some() {
        trackers.sort_by_key(|kind| !matches!(kind, TrackerKind::DamonVaddr | TrackerKind::IdlePage));
    }
    trackers
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;

    use super::*;
    use crate::choice::TRACKERS;

    fn memory(available: u64, swap_free: u64) -> Meminfo {
        let [total, available, swap_total, swap_free] = [100, available, 10, swap_free].map(|mib| Bytes(mib << 20));
        Meminfo { total, available, swap_total, swap_free, ..Meminfo::default() }
    }

    #[test]
    fn reclaim_matters_where_memory_is_short_or_swap_is_used() {
        assert_eq!(judge(&memory(50, 10), Some(0.0)), None);
        assert_eq!(judge(&memory(50, 10), None), None, "what is unknown is no pressure");
        assert_eq!(judge(&memory(50, 9), None), Some(Reclaim::SwapInUse));
        assert_eq!(judge(&memory(4, 10), None), Some(Reclaim::MemoryShort));
        assert_eq!(judge(&memory(50, 9), Some(0.2)), Some(Reclaim::MemoryShort));
    }

    #[test]
    fn trackers_that_spare_reclaim_come_first_only_where_it_matters() {
        use TrackerKind::{DamonPaddr, DamonVaddr, IdlePage, PageWalk, PerfMem};
        assert_eq!(order(None, TRACKERS), TRACKERS);
        let spared = [DamonVaddr, IdlePage, PageWalk, DamonPaddr, PerfMem];
        assert_eq!(order(Some(Reclaim::SwapInUse), TRACKERS), spared);
        assert_eq!(order(Some(Reclaim::MemoryShort), TRACKERS), spared);
    }

    #[test]
    fn a_machine_of_which_nothing_is_known_has_no_reclaim() {
        assert_eq!(of_machine(&Root::at(tempfile::tempdir().unwrap().path())), None);
    }
}
