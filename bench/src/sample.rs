//! Memory of the measured program and of the machine: exact at one moment, and cheap over time.
//!
//! Owns: reading `/proc`, and one slow thread. Never touches: the program; the cheap samples do not take its mmap lock.

use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heat::units::{Address, AddressRange, BASE_PAGE, Bytes};
use hugepilot_os::page_scan;
use hugepilot_os::stop::Stop;
use kernel::Root;
use kernel::memory::Meminfo;
use kernel::process::ProcessStatus;
use kernel::rollup::Rollup;
use kernel::zones::free_in_cpu_lists;
use serde::{Deserialize, Serialize};

use crate::warm::HeldBytes;

/// Low, because on a small machine the program and its load need every CPU.
const PERIOD: Duration = Duration::from_millis(250);
/// Programs' addresses are below this.
const END_OF_ADDRESSES: u64 = (1 << 47) - BASE_PAGE;

/// Memory of one program, and the machine's available memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramMemory {
    /// Resident memory.
    pub rss_bytes: u64,
    /// Resident memory without file pages. How much of its binary and libraries is mapped varies by a hundred KiB between starts, for reasons
    /// unrelated to huge pages.
    pub own_bytes: u64,
    /// Page tables.
    pub page_tables_bytes: u64,
    /// Memory on huge pages.
    pub huge_bytes: u64,
    /// The machine's available memory.
    pub available_bytes: u64,
}

/// Memory at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// Since the program was ready.
    pub seconds: f64,
    /// The memory then.
    #[serde(flatten)]
    pub memory: ProgramMemory,
}

/// Reads the machine's memory. What is available includes free pages in per-CPU lists, which `MemAvailable` leaves out: a collapse frees
/// its pages to them, and would seem to take memory otherwise.
pub fn machine_memory() -> Result<Meminfo> {
    let root = Root::host();
    let memory = Meminfo::read(&root)?;
    Ok(Meminfo { available: memory.available + free_in_cpu_lists(&root)?, ..memory })
}

/// Reads a program's memory exactly. This walks its page tables under its mmap lock, so do not call it while timing.
pub fn exact_memory(pid: u32, held: &HeldBytes) -> Result<ProgramMemory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let rollup = Rollup::parse(&text).with_context(|| format!("cannot read {path}"))?;
    Ok(ProgramMemory {
        // The kernel does not count a pool's pages as resident.
        rss_bytes: field(&text, "Rss:") + rollup.reserved.0,
        huge_bytes: (rollup.transparent() + rollup.reserved).0,
        ..cheap_memory(pid, 0, held)?
    })
}

/// A program's memory on huge pages, exactly. Reads only page-table entries, which takes a few milliseconds per GiB.
pub fn huge_memory(pid: u32) -> Result<Bytes> {
    Ok(huge_ranges(pid)?.iter().map(|range| range.len()).sum())
}

/// The address ranges of a program's huge pages; equally cheap.
pub fn huge_ranges(pid: u32) -> Result<Vec<AddressRange>> {
    let mut huge = Vec::new();
    let each = |run: page_scan::PageRun| huge.push(AddressRange { start: Address(run.start), end: Address(run.end) });
    page_scan::scan(pid, 0, END_OF_ADDRESSES, page_scan::category::HUGE, each)
        .with_context(|| format!("cannot ask for the huge pages of process {pid} (needs Linux 6.7)"))?;
    Ok(huge)
}

/// Reads a program's memory from counters alone; its huge pages are the machine's, minus those of others.
fn cheap_memory(pid: u32, huge_of_others: u64, held: &HeldBytes) -> Result<ProgramMemory> {
    let ProcessStatus { vm_rss, rss_anon, rss_shmem, vm_pte, hugetlb, .. } = ProcessStatus::read(&Root::host(), pid)?;
    let machine = machine_memory()?;
    Ok(ProgramMemory {
        rss_bytes: (vm_rss + hugetlb).0,
        own_bytes: (rss_anon + rss_shmem + hugetlb).0,
        page_tables_bytes: vm_pte.0,
        huge_bytes: machine.anon_huge.0.saturating_sub(huge_of_others + held.bytes()) + hugetlb.0,
        available_bytes: machine.available.0 + held.bytes(),
    })
}

/// CPU time used so far by all threads of a program.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let directory = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&directory).with_context(|| format!("cannot read {directory}: the program ended"))?;
    let mut total = Duration::ZERO;
    for thread in threads {
        // A thread may end between being listed and being read; its time, which is small, is then lost.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanoseconds = text.split_whitespace().next().and_then(|number| number.parse().ok());
        total += Duration::from_nanos(nanoseconds.with_context(|| format!("{directory}: no CPU time in '{text}'"))?);
    }
    Ok(total)
}

/// A thread that samples a program's memory until it is finished.
#[derive(Debug)]
pub struct MemorySampler {
    done: Stop,
    thread: Option<JoinHandle<Vec<MemoryPoint>>>,
}

impl MemorySampler {
    /// Starts sampling; times count from `origin`, and the harness's warm memory counts as free.
    pub fn start(pid: u32, origin: Instant, huge_of_others: u64, held: HeldBytes) -> Self {
        let done = Stop::default();
        let seen = done.clone();
        let thread = std::thread::spawn(move || sample_until(&seen, pid, origin, huge_of_others, &held));
        Self { done, thread: Some(thread) }
    }

    /// Ends the thread and returns its samples.
    pub fn finish(mut self) -> Vec<MemoryPoint> {
        self.done.request();
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.done.request();
    }
}

fn sample_until(done: &Stop, pid: u32, origin: Instant, huge_of_others: u64, held: &HeldBytes) -> Vec<MemoryPoint> {
    let mut points = Vec::new();
    let mut next = Instant::now();
    while let Ok(memory) = cheap_memory(pid, huge_of_others, held) {
        points.push(MemoryPoint { seconds: origin.elapsed().as_secs_f64(), memory });
        next += PERIOD;
        if done.sleep_until(next).is_err() {
            break;
        }
    }
    points
}

/// The bytes in a line such as `VmRSS:   12 kB`; 0 without such a line.
pub fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use heat::units::HUGE_PAGE;
    use hugepilot_os::memory::AlignedMemory;
    use hugepilot_os::{Advice, PidFd, advise};

    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        let text = "VmPeak:\t 900 kB\nVmRSS:\t    12 kB\nVmPTE:\t 4 kB\n";
        assert_eq!((field(text, "VmRSS:"), field(text, "VmPTE:"), field(text, "VmSwap:")), (12 << 10, 4 << 10, 0));
    }

    #[test]
    fn this_process_has_memory_and_cpu_time() {
        let pid = std::process::id();
        let exact = exact_memory(pid, &HeldBytes::default()).unwrap();
        assert!(exact.rss_bytes > 0 && exact.page_tables_bytes > 0 && exact.available_bytes > 0, "{exact:?}");
        assert!(cpu_time(pid).unwrap() > Duration::ZERO);
    }

    #[test]
    fn huge_pages_of_this_process_are_counted() {
        let mut mapping = AlignedMemory::anonymous(4 * HUGE_PAGE as usize).unwrap();
        mapping.bytes_mut()[HUGE_PAGE as usize] = 1;
        let before = huge_memory(std::process::id()).unwrap();
        let target = PidFd::open(std::process::id()).unwrap();
        match advise::advise(&target, mapping.address() + HUGE_PAGE, HUGE_PAGE, Advice::Collapse) {
            Err(error) => eprintln!("skipped: {error}"),
            Ok(()) => assert!(huge_memory(std::process::id()).unwrap() >= before + Bytes(HUGE_PAGE)),
        }
    }

    #[test]
    fn a_sampler_ends_when_its_program_is_gone() {
        let gone = u32::MAX - 1;
        assert_eq!(MemorySampler::start(gone, Instant::now(), 0, HeldBytes::default()).finish(), Vec::new());
    }
}
