//! What a page walk costs on this machine, from pointer chases over our own memory, and what a page fault costs.
//!
//! Owns: measuring, for seconds, and keeping the results until reboot. Never touches: the target.
//!
//! The same reads run over base pages and over huge pages; the difference is the cost of page walks. It depends on how much of the page tables the
//! processor's caches hold, so it is measured with several sizes of memory.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use heat::statistics::median;
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};
use heat::{ReadTimes, WalkCost};
use hugepilot_os::advise::advise;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::run_directory::{self, RUN_DIRECTORY};
use hugepilot_os::{Advice, PidFd};
use kernel::process::thread_cpu_time;
use kernel::{Root, cgroup, memory};

/// The results, kept until reboot.
const CACHE: &str = "/run/hugepilot/walk-cost.json";
/// How long results are kept when memory did not suffice for all sizes; later it may.
const HOLDS_IN_PART: Duration = Duration::from_secs(600);
/// The sizes of memory: page tables of 256 KiB, 1 MiB, and 4 MiB.
const SIZES: [Bytes; 3] = [Bytes(128 << 20), Bytes(512 << 20), Bytes(2 << 30)];
/// CPU time for each chase in each turn: five to ten seconds in all, most of it to fill the memory.
const TIME: Duration = Duration::from_millis(20);
/// Turns of each kind of page. Load on the machine changes within these seconds, so the kinds alternate, and the typical difference between
/// neighbouring turns counts.
const TURNS: usize = 5;
/// Shared memory to fault in: the kernel's data about its pages exceeds the processor's own caches.
const FAULTED: usize = 128 << 20;
/// A read fault maps this much around it (`fault_around_bytes`, by default).
const AROUND: usize = 64 << 10;
/// Coprime to the number of faults, so that each comes once, far from the one before.
const SCATTER: usize = 1237;
/// Over so much memory no TLB holds more than a part, so that the walks of reads that wait for each other cost at least this share of a read. Less was
/// seen once in a virtual machine, when huge pages were as slow as base pages, probably because the host had just taken other programs' memory back.
const NO_TLB_HOLDS: Bytes = Bytes(512 << 20);
const LEAST_WALK: f64 = 0.02;
/// The plausible duration of a page fault, in nanoseconds.
const FAULT_TAKES: RangeInclusive<f64> = 50.0..=50_000.0;
/// Steps between two readings of the clock.
const STEPS: u64 = 1 << 12;
/// Words in a base page, and in a cache line.
const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
const LINE_WORDS: usize = 8;
/// Other work done before an occasional read: about what a server copies for a request, from memory not in any cache.
const OTHER_WORK: usize = 4096;
const OTHER_MEMORY: usize = 64 << 20;
/// A read that took longer was interrupted.
const INTERRUPTED: Duration = Duration::from_micros(3);

/// One turn of all chases over memory of one kind of page.
struct Chased {
    /// Nanoseconds per read: in order, independent, dependent.
    reads: [f64; 3],
    /// Nanoseconds per occasional read, and per step including the other work.
    occasional: (f64, f64),
}

/// The cost of a walk for a program that walks for this much memory, and its source: measured here or, where no huge pages can be had for measuring,
/// taken from other machines.
pub fn walk_cost(footprint: Bytes, measuring: impl FnOnce()) -> (WalkCost, &'static str) {
    match walk_costs(measuring) {
        Ok(costs) => (WalkCost::at(&costs, footprint).unwrap_or(WalkCost::UNCALIBRATED), "as measured on this machine"),
        Err(error) => {
            tracing::warn!("the cost of a page walk could not be measured ({error}); using what other machines showed");
            (WalkCost::UNCALIBRATED, "as other machines showed")
        }
    }
}

/// The same without measuring: as measured here since boot, otherwise as other machines showed.
pub fn kept_walk_cost(footprint: Bytes) -> WalkCost {
    cached().and_then(|costs| WalkCost::at(&costs, footprint)).unwrap_or(WalkCost::UNCALIBRATED)
}

/// The cost of a walk with memory of each size, ascending; measured unless that was done since boot. `measuring` is called before the seconds of
/// measuring begin.
///
/// Errors: no memory, or no huge pages for it.
fn walk_costs(measuring: impl FnOnce()) -> io::Result<Vec<WalkCost>> {
    if let Some(costs) = cached() {
        return Ok(costs);
    }
    measuring();
    let sizes = sizes_that_fit()?;
    let costs = measure(&sizes)?;
    if !costs.iter().all(is_credible) {
        return Err(io::Error::other("page walks seemed to cost nothing, so something else was measured"));
    }
    // If it cannot be kept, it is measured again next time.
    let _ = keep(&costs);
    Ok(costs)
}

/// The sizes that together take, on both kinds of page, at most a fifth of what is available on the machine and in our own memory cgroup.
fn sizes_that_fit() -> io::Result<Vec<Bytes>> {
    let root = Root::host();
    let available = memory::Meminfo::read(&root).map_err(io::Error::other)?.available;
    let room = cgroup::memory_room(&root, std::process::id()).map_err(io::Error::other)?;
    let available = room.map_or(available, |room| available.min(room.left()));
    let sizes: Vec<Bytes> = SIZES.into_iter().filter(|&size| 2 * size.0 <= available.0 / 5).collect();
    if sizes.is_empty() {
        return Err(io::Error::other(format!("only {available} of memory are available")));
    }
    Ok(sizes)
}

/// The cost with those of the sizes, ascending, for which huge pages could be had. Errors: there are none for any size.
fn measure(sizes: &[Bytes]) -> io::Result<Vec<WalkCost>> {
    let len = sizes.last().map_or(0, |size| size.0 as usize);
    let mut base = populated(len, OwnAdvice::NoHugePage)?;
    let mut huge = populated(len, OwnAdvice::HugePage)?;
    let mut other = AlignedMemory::anonymous(OTHER_MEMORY)?;
    other.words_mut().fill(1);
    let (page_fault_ns, unmap_ns) = page_fault(other.words_mut())?;
    let own = PidFd::open(std::process::id())?;
    let collapse = |region| advise(&own, huge.address() + region, HUGE_PAGE, Advice::Collapse);
    let sizes = collapsed(sizes, collapse)?;
    let mut measured = |size: Bytes| {
        let words = size.0 as usize / 8;
        let mut chase = |memory: &mut AlignedMemory, turn| chase(&memory.words_mut()[..words], other.words_mut(), turn);
        let turns: Vec<_> = (0..TURNS).map(|turn| (chase(&mut base, turn), chase(&mut huge, turn))).collect();
        WalkCost { page_fault_ns, unmap_ns, ..cost(size, &turns) }
    };
    Ok(sizes.iter().map(|&size| measured(size)).collect())
}

/// Memory with all pages present before anything is timed.
fn populated(len: usize, advice: OwnAdvice) -> io::Result<AlignedMemory> {
    let mut mapping = AlignedMemory::anonymous(len)?;
    mapping.advise(0, len, advice)?;
    mapping.words_mut().iter_mut().step_by(PAGE_WORDS).for_each(|word| *word = 0);
    Ok(mapping)
}

/// From turns on base pages, each with the following one on huge pages.
fn cost(footprint: Bytes, turns: &[(Chased, Chased)]) -> WalkCost {
    let typical = |number: &dyn Fn(&(Chased, Chased)) -> f64| {
        median(&turns.iter().map(number).collect::<Vec<_>>()).unwrap_or_default()
    };
    let chase = |whole: fn(&Chased, usize) -> f64, read: fn(&Chased, usize) -> f64, number| {
        let base_ns = typical(&|(base, _)| whole(base, number));
        let walk_ns = typical(&|(base, huge)| read(base, number) - read(huge, number));
        ReadTimes { base_ns, huge_ns: (base_ns - walk_ns).clamp(0.0, base_ns) }
    };
    let read = |chased: &Chased, number: usize| chased.reads[number];
    let [ordered, independent, dependent] = [0, 1, 2].map(|number| chase(read, read, number));
    let occasional = chase(|chased, _| chased.occasional.1, |chased, _| chased.occasional.0, 0);
    WalkCost { footprint, ordered, independent, dependent, occasional, ..WalkCost::UNCALIBRATED }
}

/// Nanoseconds of CPU time for a page fault that reads already present shared memory after other work, at random as a server's processes do (in order
/// it would take a third), and for unmapping what it mapped. Errors: no memory.
fn page_fault(other: &[u64]) -> io::Result<(f64, f64)> {
    let mut memory = AlignedMemory::shared(FAULTED)?;
    memory.advise(0, FAULTED, OwnAdvice::NoHugePage)?;
    memory.words_mut().iter_mut().step_by(PAGE_WORDS).for_each(|word| *word = 1);
    let faults = FAULTED / AROUND;
    let each = |work: &mut dyn FnMut() -> io::Result<()>| {
        black_box(other.iter().step_by(LINE_WORDS).sum::<u64>());
        let started = thread_cpu_time();
        work()?;
        Ok::<f64, io::Error>(thread_cpu_time().saturating_sub(started).0 as f64 / faults as f64)
    };
    let (mut touching, mut unmapping) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        // Shared memory stays; only the page tables lose it.
        unmapping.push(each(&mut || memory.advise(0, FAULTED, OwnAdvice::DontNeed))?);
        touching.push(each(&mut || {
            (0..faults).for_each(|number| _ = black_box(memory.words_mut()[number * SCATTER % faults * (AROUND / 8)]));
            Ok(())
        })?);
    }
    // Where all shared memory is huge there is no such page fault.
    let usual = |turns: &[f64]| median(turns).filter(|ns| FAULT_TAKES.contains(ns));
    let WalkCost { page_fault_ns, unmap_ns, .. } = WalkCost::UNCALIBRATED;
    Ok((usual(&touching).unwrap_or(page_fault_ns), usual(&unmapping).unwrap_or(unmap_ns)))
}

/// Collapses memory from its start, and returns the sizes, ascending, that are entirely on huge pages. Errors: there are none.
fn collapsed(sizes: &[Bytes], mut collapse: impl FnMut(u64) -> io::Result<()>) -> io::Result<&[Bytes]> {
    let len = sizes.last().map_or(0, |size| size.0);
    for region in (0..len).step_by(HUGE_PAGE as usize) {
        // The kernel may have asked to try again.
        if let Err(error) = collapse(region).or_else(|_| collapse(region)) {
            let whole = sizes.partition_point(|size| size.0 <= region);
            tracing::debug!("no huge page for byte {region} of the memory to be measured: {error}");
            return if whole > 0 { Ok(&sizes[..whole]) } else { Err(error) };
        }
    }
    Ok(sizes)
}

/// Each chase and each turn uses its own random numbers, so none reads what the caches still hold from another.
fn chase(words: &[u64], other: &[u64], turn: usize) -> Chased {
    let [one, another, third] = [1, 2, 3].map(|chase| random(10 * turn as u64 + chase));
    Chased {
        reads: [ordered(words, turn), independent(words, one), dependent(words, another)],
        occasional: occasional(words, other, third),
    }
}

fn cached() -> Option<Vec<WalkCost>> {
    let file = File::open(CACHE).ok()?;
    let is_fresh = file.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok()? < HOLDS_IN_PART;
    let costs: Vec<WalkCost> = serde_json::from_reader(file.take(4096)).ok()?;
    if costs.len() < SIZES.len() && !is_fresh {
        return None;
    }
    let ascending = costs.is_sorted_by(|one, other| one.footprint < other.footprint);
    let sound = costs.iter().all(|cost| is_sound(cost) && is_credible(cost));
    (!costs.is_empty() && ascending && sound).then_some(costs)
}

/// Whether walks were measured, and not something else.
fn is_credible(cost: &WalkCost) -> bool {
    let ReadTimes { base_ns, huge_ns } = cost.dependent;
    cost.footprint < NO_TLB_HOLDS || base_ns - huge_ns >= LEAST_WALK * base_ns
}

fn is_sound(cost: &WalkCost) -> bool {
    let sound =
        |chase: ReadTimes| (0.01..1e6).contains(&chase.base_ns) && (0.0..=chase.base_ns).contains(&chase.huge_ns);
    cost.chases().into_iter().all(sound)
        && [cost.page_fault_ns, cost.unmap_ns].iter().all(|ns| FAULT_TAKES.contains(ns))
}

fn keep(costs: &[WalkCost]) -> io::Result<()> {
    run_directory::ensure(Path::new(RUN_DIRECTORY))?;
    std::fs::write(CACHE, serde_json::to_vec(costs)?)
}

/// The next state, derived from this one alone, so that a read can depend on the previous one. It is little work: walks overlap as far as the
/// processor can.
fn random(state: u64) -> u64 {
    Rng::with_seed(state).u64(..)
}

/// The first word of a cache line, chosen by the state's high bits.
fn word_of(state: u64, words: &[u64]) -> usize {
    let lines = (words.len() / LINE_WORDS) as u64;
    (((state >> 32) * lines) >> 32) as usize * LINE_WORDS
}

/// Nanoseconds per read of the next page; after all pages comes another line of each. The line differs from page to page, so pages do not share cache
/// sets.
fn ordered(words: &[u64], mut line: usize) -> f64 {
    let pages = words.len() / PAGE_WORDS;
    let (mut page, mut sum) = (0, 0u64);
    let nanos = timed(|| {
        sum = sum.wrapping_add(words[page * PAGE_WORDS + (page + line) * LINE_WORDS % PAGE_WORDS]);
        page += 1;
        if page == pages {
            (page, line) = (0, line + 4);
        }
    });
    black_box(sum);
    nanos
}

/// Nanoseconds per random read whose address is known ahead.
fn independent(words: &[u64], mut state: u64) -> f64 {
    let mut sum = 0u64;
    let nanos = timed(|| {
        state = random(state);
        sum = sum.wrapping_add(words[word_of(state, words)]);
    });
    black_box(sum);
    nanos
}

/// Nanoseconds per read whose address depends on the previous one: the value read is zero, which the processor cannot know.
fn dependent(words: &[u64], mut state: u64) -> f64 {
    timed(|| state = random(state).wrapping_add(words[word_of(state, words)]))
}

/// Nanoseconds per random read after other work that evicted the page tables from the caches, and for both together.
fn occasional(words: &[u64], other: &[u64], mut state: u64) -> (f64, f64) {
    let (mut reading, mut reads) = (Duration::ZERO, 0u32);
    let mut works = other.chunks_exact(OTHER_WORK / 8).cycle();
    let mut copy = [0u64; OTHER_WORK / 8];
    let each_step = timed(|| {
        copy.copy_from_slice(works.next().unwrap_or(&[0; OTHER_WORK / 8]));
        state = random(state).wrapping_add(black_box(&copy)[0]);
        let word = word_of(state, words);
        let asked = Instant::now();
        black_box(words[word]);
        let took = asked.elapsed();
        if took < INTERRUPTED {
            reading += took;
            reads += 1;
        }
    });
    (reading.as_nanos() as f64 / f64::from(reads.max(1)), each_step)
}

/// Nanoseconds of CPU time per step, over `TIME`: other programs may run in between.
fn timed(mut step: impl FnMut()) -> f64 {
    let (started, mut steps, mut elapsed) = (thread_cpu_time(), 0, Duration::ZERO);
    while elapsed < TIME {
        for _ in 0..STEPS {
            step();
        }
        steps += STEPS;
        elapsed = thread_cpu_time().saturating_sub(started).duration();
    }
    elapsed.as_nanos() as f64 / steps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_without_huge_pages_are_left_out() {
        let sizes = [Bytes(4 << 20), Bytes(16 << 20), Bytes(32 << 20)];
        let fails_at = |failing: u64| {
            collapsed(&sizes, |region| if region == failing { Err(io::Error::other("none")) } else { Ok(()) })
        };
        assert_eq!(fails_at(64 << 20).unwrap(), sizes);
        assert_eq!(fails_at(16 << 20).unwrap(), &sizes[..2]);
        assert_eq!(fails_at(14 << 20).unwrap(), &sizes[..1]);
        assert_eq!(fails_at(2 << 20).unwrap_err().to_string(), "none");
        let mut tries = 0;
        let second_time = |_| {
            tries += 1;
            if tries % 2 == 1 { Err(io::Error::other("again")) } else { Ok(()) }
        };
        assert_eq!(collapsed(&sizes, second_time).unwrap(), sizes);
    }

    #[test]
    fn walks_that_cost_nothing_were_not_measured() {
        let with = |footprint, huge_ns| {
            let dependent = ReadTimes { base_ns: 293.0, huge_ns };
            is_credible(&WalkCost { footprint, dependent, ..WalkCost::UNCALIBRATED })
        };
        assert!(!with(Bytes(2 << 30), 293.0) && !with(NO_TLB_HOLDS, 290.0));
        assert!(with(NO_TLB_HOLDS, 270.0) && with(Bytes(128 << 20), 293.0), "a TLB may hold the small one");
    }

    #[test]
    fn a_walk_costs_the_typical_difference_between_neighbors() {
        let turn = |slowed: f64, walk: f64| {
            let chased = |walk: f64| Chased {
                reads: [10.0, 20.0, 100.0].map(|read| slowed * read + walk),
                occasional: (slowed * 200.0 + walk, slowed * 500.0 + walk),
            };
            (chased(walk), chased(0.0))
        };
        // The machine is slow for three of five turns, and one is interrupted.
        let turns = [turn(1.0, 2.0), turn(3.0, 2.0), turn(3.0, 2.0), turn(3.0, 50.0), turn(1.0, 2.0)];
        let cost = cost(Bytes(1 << 30), &turns);
        let near = |chase: ReadTimes, base_ns: f64| {
            assert!((chase.base_ns - base_ns).abs() < 1e-9 && (chase.base_ns - chase.huge_ns - 2.0).abs() < 1e-9);
        };
        near(cost.ordered, 32.0);
        near(cost.independent, 62.0);
        near(cost.dependent, 302.0);
        near(cost.occasional, 1502.0);
    }

    #[test]
    fn each_size_is_measured() {
        let sizes = [Bytes(4 << 20), Bytes(16 << 20)];
        let costs = match measure(&sizes) {
            Ok(costs) => costs,
            Err(error) => return eprintln!("skipped: no huge pages here ({error})"),
        };
        assert_eq!(costs.iter().map(|cost| cost.footprint).collect::<Vec<_>>(), sizes);
        assert!(costs.iter().all(is_sound), "{costs:?}");
    }
}
