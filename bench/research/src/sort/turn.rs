//! One turn: a separate process, which gets new physical pages, and sorts until it has been timed for long enough.
//!
//! Owns: the order of steps. Never touches: which turn comes next.

use std::time::{Duration, Instant};

use anyhow::Result;
use heat::units::{AddressRange, HUGE_PAGE};
use hugepilot_bench::sample::{huge_ranges, machine_memory};
use hugepilot_bench::warm::{SPARE, WarmMemory};
use hugepilot_bench::workload::Running;
use hugepilot_os::stop::Stop;
use hugepilot_sort::line::SortTurn;
use hugepilot_sort::task::Task;

use super::child::start_sort;

/// The minimum time of sorting, or one sort if that takes longer.
const LENGTH: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(5);

/// Measures one turn.
pub(super) fn turn(round: u32, task: Task, stop: &Stop) -> Result<SortTurn> {
    let memory = (task.bytes * task.algorithm.room()) as u64;
    let mut warm = WarmMemory::touch(warmed(memory, machine_memory()?.available.0), stop)?;
    let began = Instant::now();
    let mut running = start_sort(task, stop)?;
    warm.stop_feeding();
    let window = loop {
        stop.sleep_until(Instant::now() + POLL)?;
        running.check()?;
        let window = running.progress().window(began, Instant::now());
        if window.duration >= LENGTH {
            break window;
        }
    };
    let sorted = window.operations as f64 / (task.bytes / size_of::<u32>()) as f64;
    let (start, taken_bytes) = (running.ready().address, running.ready().size_bytes);
    Ok(SortTurn {
        round,
        algorithm: task.algorithm,
        pages: task.pages,
        bytes: task.bytes as u64,
        nanoseconds: (window.duration.as_nanos() as f64 / sorted) as u64,
        // The kernel's count, whatever the child believes.
        large_bytes: overlap(&huge_ranges(running.pid())?, start, start + taken_bytes),
        taken_bytes,
        refusal: running.ready().refusal.clone(),
    })
}

/// The amount to warm for a child of this size: a quarter more, because making huge pages takes additional free memory, but leaving available what
/// the child takes, or it would be refused.
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
    fn a_child_is_left_what_it_takes() {
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
