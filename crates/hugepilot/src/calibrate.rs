//! What a page walk costs on this machine, from pointer chases over memory of our own.
//!
//! Owns: the seconds of measuring, and what is kept of them until the machine is restarted. Never touches: the target.
//!
//! The same reads run over base pages and over huge pages; the difference is what page walks cost. That depends on how much
//! of the page tables the processor's caches hold, so it is measured over memory of several sizes.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::{Advice, PidFd, advise::advise};

use crate::decide::{Chase, WalkCost};
use crate::kernel::{Root, cgroup, memory};
use crate::units::{BASE_PAGE, Bytes, HUGE_PAGE};

/// What was measured, until the machine is restarted.
const CACHE: &str = "/run/hugepilot/walk-cost.json";
/// The sizes of the memory: page tables of 256 KiB, 1 MiB, and 2 MiB. Beyond, a walk hardly costs more: what a virtual machine
/// showed for 4 GiB is what it showed for 1 GiB.
const SIZES: [Bytes; 3] = [Bytes(128 << 20), Bytes(512 << 20), Bytes(1 << 30)];
/// For each chase: together with filling and collapsing the memory, about three seconds.
const TIME: Duration = Duration::from_millis(100);
/// Words in a base page, and in a cache line.
const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
const LINE_WORDS: usize = 8;
/// Cache lines read of each page, so that data come from memory, too, where programs of that size have theirs.
const LINES: usize = 16;

/// The chases of one size on one kind of page, nanoseconds a read: in order, independent, dependent.
type Chased = [f64; 3];

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
    let costs = measure(&sizes_that_fit()?)?;
    // Measured again next time, if it cannot be kept.
    let _ = keep(&costs);
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

fn measure(sizes: &[Bytes]) -> io::Result<Vec<WalkCost>> {
    let len = sizes.last().map_or(0, |size| size.0 as usize);
    let mut mapping = Mapping::anonymous(len)?;
    mapping.advise(0, len, OwnAdvice::NoHugePage)?;
    let on_base = chase_all(mapping.words_mut(), sizes);
    mapping.advise(0, len, OwnAdvice::HugePage)?;
    let own = PidFd::open(std::process::id())?;
    for region in (0..len as u64).step_by(HUGE_PAGE as usize) {
        let collapse = || advise(&own, mapping.address() + region, HUGE_PAGE, Advice::Collapse);
        // The kernel may have asked to try again.
        collapse().or_else(|_| collapse())?;
    }
    let on_huge = chase_all(mapping.words_mut(), sizes);
    let cost = |((&footprint, base), huge): ((&Bytes, Chased), Chased)| {
        let chase = |number: usize| Chase { base_ns: base[number], huge_ns: huge[number].min(base[number]) };
        WalkCost { footprint, ordered: chase(0), independent: chase(1), dependent: chase(2) }
    };
    Ok(sizes.iter().zip(on_base).zip(on_huge).map(cost).collect())
}

/// Largest first, so that the memory is populated before anything is timed.
fn chase_all(words: &mut [u64], sizes: &[Bytes]) -> Vec<Chased> {
    let mut chased: Vec<Chased> = sizes.iter().rev().map(|size| chase(&mut words[..size.0 as usize / 8])).collect();
    chased.reverse();
    chased
}

fn chase(words: &mut [u64]) -> Chased {
    let places = words.len() / PAGE_WORDS * LINES;
    lay_chain(words, places);
    [ordered(words, places), independent(words, places), dependent(words, places)]
}

fn cached() -> Option<Vec<WalkCost>> {
    let file = File::open(CACHE).ok()?;
    let costs: Vec<WalkCost> = serde_json::from_reader(file.take(4096)).ok()?;
    let ascending = costs.is_sorted_by(|one, other| one.footprint < other.footprint);
    (!costs.is_empty() && ascending && costs.iter().all(is_sound)).then_some(costs)
}

fn is_sound(cost: &WalkCost) -> bool {
    let sound = |chase: Chase| (0.01..1e6).contains(&chase.base_ns) && (0.0..=chase.base_ns).contains(&chase.huge_ns);
    [cost.ordered, cost.independent, cost.dependent].into_iter().all(sound)
}

fn keep(costs: &[WalkCost]) -> io::Result<()> {
    std::fs::create_dir_all("/run/hugepilot")?;
    std::fs::write(CACHE, serde_json::to_vec(costs)?)
}

/// The word that is read at a place. Neighbouring places are neighbouring pages; after all pages comes another line of each. Pages
/// start at different lines, so that they do not share cache sets.
fn word_of(place: usize, places: usize) -> usize {
    let pages = places / LINES;
    let (page, line) = (place % pages, place / pages);
    let lines_of_page = PAGE_WORDS / LINE_WORDS;
    page * PAGE_WORDS + (page + line * (lines_of_page / LINES)) % lines_of_page * LINE_WORDS
}

/// Lays one cycle through all places, a power of two of them: each one's word holds the next place.
fn lay_chain(words: &mut [u64], places: usize) {
    // A full-period linear congruential sequence (Hull and Dobell) visits every place once before it repeats.
    let next = |place: usize| (place * 40_501 + 12_345) % places;
    let mut place = 0;
    for _ in 0..places {
        words[word_of(place, places)] = next(place) as u64;
        place = next(place);
    }
}

/// Nanoseconds for a read of the next page.
fn ordered(words: &[u64], places: usize) -> f64 {
    let (mut place, mut sum) = (0, 0u64);
    let nanos = timed(|| {
        place = (place + 1) % places;
        sum = sum.wrapping_add(words[word_of(place, places)]);
    });
    black_box(sum);
    nanos
}

/// Nanoseconds for a read at random whose address is known ahead.
fn independent(words: &[u64], places: usize) -> f64 {
    let (mut state, mut sum) = (1u64, 0u64);
    let nanos = timed(|| {
        // SplitMix64, about the work that a hash takes before it reads.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum = sum.wrapping_add(words[word_of((mixed ^ (mixed >> 31)) as usize % places, places)]);
    });
    black_box(sum);
    nanos
}

/// Nanoseconds for a read whose address the read before it tells.
fn dependent(words: &[u64], places: usize) -> f64 {
    let mut place = 0;
    timed(|| place = words[word_of(place, places)] as usize)
}

/// Nanoseconds that a step takes, over `TIME`.
fn timed(mut step: impl FnMut()) -> f64 {
    const STEPS: u64 = 1 << 14;
    let started = Instant::now();
    let mut steps = 0;
    while started.elapsed() < TIME {
        for _ in 0..STEPS {
            step();
        }
        steps += STEPS;
    }
    started.elapsed().as_nanos() as f64 / steps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_place_once() {
        let pages = 1 << 10;
        let places = pages * LINES;
        let mut words = vec![u64::MAX; pages * PAGE_WORDS];
        lay_chain(&mut words, places);
        let (mut place, mut steps) = (0, 0);
        loop {
            place = words[word_of(place, places)] as usize;
            steps += 1;
            if place == 0 {
                break;
            }
        }
        assert_eq!(steps, places);
        assert_eq!(words.iter().filter(|&&word| word != u64::MAX).count(), places, "each has a line of its own");
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
