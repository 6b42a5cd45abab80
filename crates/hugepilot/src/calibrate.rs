//! What a page walk costs on this machine, from pointer chases over memory of our own.
//!
//! Owns: the seconds of measuring, and what is kept of them until the machine is restarted. Never touches: the target.
//!
//! The same reads run over base pages and over huge pages; the difference is what page walks cost. That depends on how much
//! of the page tables the processor's caches hold, so it is measured over memory of several sizes.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::{Advice, PidFd, advise::advise};
use rustix::time::{ClockId, clock_gettime};

use crate::decide::{Chase, WalkCost};
use crate::kernel::{Root, cgroup, memory};
use crate::run_directory::{self, RUN_DIRECTORY};
use crate::units::{BASE_PAGE, Bytes, HUGE_PAGE};

/// What was measured, until the machine is restarted.
const CACHE: &str = "/run/hugepilot/walk-cost.json";
/// The sizes of the memory: page tables of 256 KiB, 1 MiB, and 4 MiB.
const SIZES: [Bytes; 3] = [Bytes(128 << 20), Bytes(512 << 20), Bytes(2 << 30)];
/// CPU time for each chase: together with filling and collapsing the memory, five to ten seconds.
const TIME: Duration = Duration::from_millis(100);
/// Steps between two looks at the clock.
const STEPS: u64 = 1 << 12;
/// Words in a base page, and in a cache line.
const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
const LINE_WORDS: usize = 8;
/// Other work that is done before an occasional read: about what a server copies for a request, from memory that no cache holds.
const OTHER_WORK: usize = 4096;
const OTHER_MEMORY: usize = 64 << 20;
/// A read that took longer was interrupted.
const INTERRUPTED: Duration = Duration::from_micros(3);

/// The chases of one size on one kind of page.
struct Chased {
    /// Nanoseconds a read: in order, independent, dependent.
    reads: [f64; 3],
    /// Nanoseconds an occasional read, and a step of it with the other work.
    occasional: (f64, f64),
}

/// What a walk costs a program that walks for so much memory, and how that is known: measured here, or, where huge pages cannot be
/// had to measure it, what other machines showed.
pub fn walk_cost(footprint: Bytes, measuring: impl FnOnce()) -> (WalkCost, &'static str) {
    match walk_costs(measuring) {
        Ok(costs) => (WalkCost::at(&costs, footprint).unwrap_or(WalkCost::UNCALIBRATED), "as measured on this machine"),
        Err(error) => {
            tracing::warn!("the cost of a page walk could not be measured ({error}); using what other machines showed");
            (WalkCost::UNCALIBRATED, "as other machines showed")
        }
    }
}

/// What a walk costs over memory of each size, ascending; measured unless it was measured since boot. `measuring` is called before
/// it takes its seconds.
///
/// Errors: no memory, or no huge pages for it.
fn walk_costs(measuring: impl FnOnce()) -> io::Result<Vec<WalkCost>> {
    if let Some(costs) = cached() {
        return Ok(costs);
    }
    measuring();
    let sizes = sizes_that_fit()?;
    let costs = measure(&sizes)?;
    // What could not be had may be there next time.
    if costs.len() == sizes.len() {
        // Measured again next time, if it cannot be kept.
        let _ = keep(&costs);
    }
    Ok(costs)
}

/// At most an eighth of what is available, to the machine and in our own memory cgroup.
fn sizes_that_fit() -> io::Result<Vec<Bytes>> {
    let root = Root::host();
    let available = memory::Memory::read(&root).map_err(io::Error::other)?.available;
    let room = cgroup::memory_room(&root, std::process::id()).map_err(io::Error::other)?;
    let available = room.map_or(available, |room| available.min(room.left()));
    let sizes: Vec<Bytes> = SIZES.into_iter().filter(|&size| size.0 <= available.0 / 8).collect();
    if sizes.is_empty() {
        return Err(io::Error::other(format!("only {available} of memory are available")));
    }
    Ok(sizes)
}

/// The cost over those of the sizes, ascending, for which huge pages were to be had. Errors: for none.
fn measure(sizes: &[Bytes]) -> io::Result<Vec<WalkCost>> {
    let len = sizes.last().map_or(0, |size| size.0 as usize);
    let mut mapping = Mapping::anonymous(len)?;
    mapping.advise(0, len, OwnAdvice::NoHugePage)?;
    let on_base = chase_all(mapping.words_mut(), sizes)?;
    mapping.advise(0, len, OwnAdvice::HugePage)?;
    let own = PidFd::open(std::process::id())?;
    let collapse = |region| advise(&own, mapping.address() + region, HUGE_PAGE, Advice::Collapse);
    let sizes = collapsed(sizes, collapse)?;
    let on_huge = chase_all(mapping.words_mut(), sizes)?;
    Ok(sizes.iter().zip(on_base).zip(on_huge).map(|((&size, base), huge)| cost(size, &base, &huge)).collect())
}

fn cost(footprint: Bytes, base: &Chased, huge: &Chased) -> WalkCost {
    let chase = |base_ns: f64, huge_ns: f64| Chase { base_ns, huge_ns: huge_ns.clamp(0.0, base_ns) };
    let [ordered, independent, dependent] = [0, 1, 2].map(|number| chase(base.reads[number], huge.reads[number]));
    let ((base_read, step), (huge_read, _)) = (base.occasional, huge.occasional);
    let occasional = chase(step, step - (base_read - huge_read));
    WalkCost { footprint, ordered, independent, dependent, occasional }
}

/// Puts memory on huge pages from its start, and tells which of the sizes, ascending, lie wholly on them. Errors: none does.
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

/// Each size in turn, over memory that is populated before anything is timed.
fn chase_all(words: &mut [u64], sizes: &[Bytes]) -> io::Result<Vec<Chased>> {
    words.iter_mut().step_by(PAGE_WORDS).for_each(|word| *word = 0);
    let mut other = Mapping::anonymous(OTHER_MEMORY)?;
    other.words_mut().fill(1);
    Ok(sizes.iter().map(|size| chase(&words[..size.0 as usize / 8], other.words_mut())).collect())
}

fn chase(words: &[u64], other: &[u64]) -> Chased {
    Chased { reads: [ordered(words), independent(words), dependent(words)], occasional: occasional(words, other) }
}

fn cached() -> Option<Vec<WalkCost>> {
    let file = File::open(CACHE).ok()?;
    let costs: Vec<WalkCost> = serde_json::from_reader(file.take(4096)).ok()?;
    let ascending = costs.is_sorted_by(|one, other| one.footprint < other.footprint);
    (!costs.is_empty() && ascending && costs.iter().all(is_sound)).then_some(costs)
}

fn is_sound(cost: &WalkCost) -> bool {
    let sound = |chase: Chase| (0.01..1e6).contains(&chase.base_ns) && (0.0..=chase.base_ns).contains(&chase.huge_ns);
    cost.chases().into_iter().all(sound)
}

fn keep(costs: &[WalkCost]) -> io::Result<()> {
    run_directory::ensure(Path::new(RUN_DIRECTORY))?;
    std::fs::write(CACHE, serde_json::to_vec(costs)?)
}

/// Knuth's linear congruential generator: little work, so that walks overlap as far as the processor can, and good high bits.
fn random(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// The first word of a cache line, chosen by the state's high bits.
fn word_of(state: u64, words: &[u64]) -> usize {
    let lines = (words.len() / LINE_WORDS) as u64;
    (((state >> 32) * lines) >> 32) as usize * LINE_WORDS
}

/// Nanoseconds for a read of the next page; after all pages comes another line of each. Pages start at different lines, so that they
/// do not share cache sets.
fn ordered(words: &[u64]) -> f64 {
    let pages = words.len() / PAGE_WORDS;
    let (mut page, mut line, mut sum) = (0, 0, 0u64);
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

/// Nanoseconds for a read at random whose address is known ahead.
fn independent(words: &[u64]) -> f64 {
    let (mut state, mut sum) = (1u64, 0u64);
    let nanos = timed(|| {
        state = random(state);
        sum = sum.wrapping_add(words[word_of(state, words)]);
    });
    black_box(sum);
    nanos
}

/// Nanoseconds for a read whose address depends on the one before: what is read is zero, which the processor cannot know.
fn dependent(words: &[u64]) -> f64 {
    let mut state = 1u64;
    timed(|| state = random(state).wrapping_add(words[word_of(state, words)]))
}

/// Nanoseconds for a read at random after other work, which took the page tables out of the caches, and for both together.
fn occasional(words: &[u64], other: &[u64]) -> (f64, f64) {
    let (mut state, mut reading, mut reads) = (1u64, Duration::ZERO, 0u32);
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

/// Nanoseconds of CPU time that a step takes, over `TIME`: other programs may have the processor in between.
fn timed(mut step: impl FnMut()) -> f64 {
    let (started, mut steps, mut elapsed) = (cpu_time(), 0, Duration::ZERO);
    while elapsed < TIME {
        for _ in 0..STEPS {
            step();
        }
        steps += STEPS;
        elapsed = cpu_time().saturating_sub(started);
    }
    elapsed.as_nanos() as f64 / steps as f64
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
