//! One turn: memory of its own, which gets new physical pages, and sorting until it has been timed for long enough.
//!
//! Owns: the order of steps. Never touches: which turn comes next.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use heat::units::{AddressRange, HUGE_PAGE};
use hugepilot_bench::process::{Pinning, bind_this_thread};
use hugepilot_bench::sample::{huge_ranges, machine_memory};
use hugepilot_bench::warm::{SPARE, WarmMemory};
use hugepilot_os::stop::Stop;
use hugepilot_sort::line::SortTurn;
use hugepilot_sort::task::Task;

/// So much sorting is timed at least, or one sort where that takes longer.
const LENGTH: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(20);

/// Measures one, in a thread of its own: a sort that nobody waits for any more ends with the process.
pub(super) fn turn(round: u32, task: Task, stop: &Stop) -> Result<SortTurn> {
    let memory = (task.bytes * task.algorithm.room()) as u64;
    let warm = WarmMemory::touch(warmed(memory, machine_memory()?.available.0), stop)?;
    let sorting = thread::spawn(move || sort(round, task, warm));
    while !sorting.is_finished() {
        stop.sleep_until(Instant::now() + POLL)?;
    }
    sorting.join().map_err(|_| anyhow!("sorting panicked"))?
}

/// Alone on its processor, and in the memory that was warmed for it.
fn sort(round: u32, task: Task, mut warm: WarmMemory) -> Result<SortTurn> {
    let processor = Pinning::of_this_process()?.program;
    bind_this_thread(processor).with_context(|| format!("cannot bind to processor {processor:?}"))?;
    let mut ready = task.prepare()?;
    warm.stop_feeding();
    let (mut sorts, mut took) = (0, Duration::ZERO);
    while took < LENGTH {
        took += ready.sort()?;
        sorts += 1;
    }
    let turn = ready.turn(round, took / sorts);
    // The kernel's word, whatever the allocation said.
    let huge = huge_ranges(std::process::id())?;
    let large_bytes = overlap(&huge, ready.address(), ready.address() + turn.taken_bytes);
    Ok(SortTurn { large_bytes, ..turn })
}

/// How much is warmed for a turn that takes so much: a quarter more, because making huge pages needs free memory beside them, but no
/// more than leaves available what the turn takes, or it would be refused.
fn warmed(memory: u64, available: u64) -> u64 {
    (memory / 4 * 5).min(available.saturating_sub(memory + SPARE)).max(HUGE_PAGE)
}

/// Bytes of these ranges that lie between two addresses.
fn overlap(ranges: &[AddressRange], start: u64, end: u64) -> u64 {
    ranges.iter().map(|range| range.end.0.min(end).saturating_sub(range.start.0.max(start))).sum()
}

#[cfg(test)]
mod tests {
    use heat::units::Address;

    use super::*;

    #[test]
    fn a_turn_is_left_what_it_takes() {
        const GIB: u64 = 1 << 30;
        assert_eq!(warmed(GIB, 20 * GIB), GIB / 4 * 5);
        assert_eq!(warmed(12 * GIB, 20 * GIB) + 12 * GIB + SPARE, 20 * GIB);
        assert_eq!(warmed(12 * GIB, 8 * GIB), HUGE_PAGE);
    }

    #[test]
    fn only_huge_pages_of_its_own_memory_count() {
        let range = |start, end| AddressRange { start: Address(start), end: Address(end) };
        let ranges = [range(0, 10), range(15, 25), range(30, 40), range(58, 70), range(90, 99)];
        assert_eq!(overlap(&ranges, 20, 60), 5 + 10 + 2);
    }
}
