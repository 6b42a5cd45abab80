//! What a page walk costs on this machine, from a pointer chase over memory of our own.
//!
//! Owns: the one-second measurement. Never touches: the target.
//!
//! The same random reads run over base pages and over huge pages; the difference is what page walks cost. Reads that wait for
//! each other give the most that a walk can cost, independent reads (whose walks the CPU overlaps) the least.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::{Advice, PidFd, advise::advise};

use crate::decide::WalkCost;
use crate::units::{BASE_PAGE, HUGE_PAGE, Nanos};

/// What was measured, until the machine is restarted.
const CACHE: &str = "/run/hugepilot/walk-cost.json";
/// Far more than any TLB holds (12 MiB of base pages, 6 GiB of huge ones on a server of 2023).
const MEMORY: usize = 256 << 20;
/// For each of the four chases: together with filling the memory, about one second.
const TIME: Duration = Duration::from_millis(150);
/// Words in a base page.
const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
const PAGES: usize = MEMORY / BASE_PAGE as usize;

/// Measures the extra cost of a walk on base pages, from 256 MiB that are given back at once.
///
/// Errors: no memory, or no huge pages for it.
pub fn walk_cost() -> io::Result<WalkCost> {
    let mut mapping = Mapping::anonymous(MEMORY)?;
    mapping.advise(0, MEMORY, OwnAdvice::NoHugePage)?;
    lay_chain(mapping.words_mut());
    let (dependent_base, independent_base) = (dependent(mapping.words_mut()), independent(mapping.words_mut()));
    mapping.advise(0, MEMORY, OwnAdvice::HugePage)?;
    let own = PidFd::open(std::process::id())?;
    for region in (0..MEMORY as u64).step_by(HUGE_PAGE as usize) {
        advise(&own, mapping.address() + region, HUGE_PAGE, Advice::Collapse)?;
    }
    let (dependent_huge, independent_huge) = (dependent(mapping.words_mut()), independent(mapping.words_mut()));
    let low = Nanos((independent_base - independent_huge).max(0.0).round() as u64);
    let high = Nanos((dependent_base - dependent_huge).max(0.0).round() as u64);
    Ok(WalkCost { low, high: high.max(low) })
}

/// What a walk costs here, and how that was found out: measured, read from what was measured since boot, or, where huge pages
/// cannot be had to measure it, what other machines showed.
pub fn walk_cost_or_usual() -> (WalkCost, &'static str) {
    if let Some(cost) = cached() {
        return (cost, "as measured on this machine");
    }
    match walk_cost() {
        Ok(cost) => {
            // Measured again next time, if it cannot be kept.
            let _ = keep(cost);
            (cost, "as just measured on this machine")
        }
        Err(error) => {
            tracing::warn!("the cost of a page walk could not be measured ({error}); using what other machines showed");
            (WalkCost::UNCALIBRATED, "as other machines showed")
        }
    }
}

fn cached() -> Option<WalkCost> {
    let file = File::open(CACHE).ok()?;
    let (low, high): (u64, u64) = serde_json::from_reader(file.take(100)).ok()?;
    (low <= high && high < 10_000).then_some(WalkCost { low: Nanos(low), high: Nanos(high) })
}

fn keep(cost: WalkCost) -> io::Result<()> {
    std::fs::create_dir_all("/run/hugepilot")?;
    std::fs::write(CACHE, serde_json::to_vec(&(cost.low, cost.high))?)
}

/// Where in a page its word is read: a different cache line each, so that reads do not share cache sets.
fn word_of(page: usize) -> usize {
    page * PAGE_WORDS + page % (PAGE_WORDS / 8) * 8
}

/// Lays one cycle through all pages: each page's word holds the next page's number.
fn lay_chain(words: &mut [u64]) {
    // A full-period linear congruential sequence (Hull and Dobell) visits every page once before it repeats.
    let next = |page: usize| (page * 40_501 + 12_345) % PAGES;
    let mut page = 0;
    for _ in 0..PAGES {
        words[word_of(page)] = next(page) as u64;
        page = next(page);
    }
}

/// Nanoseconds for a read whose address the read before it tells.
fn dependent(words: &[u64]) -> f64 {
    let mut page = 0;
    timed(|| page = words[word_of(page)] as usize)
}

/// Nanoseconds for a read whose address is known ahead.
fn independent(words: &[u64]) -> f64 {
    let (mut state, mut sum) = (1u64, 0u64);
    let nanos = timed(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum = sum.wrapping_add(words[word_of((state >> 33) as usize % PAGES)]);
    });
    black_box(sum);
    nanos
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
    fn the_chain_visits_every_page_once() {
        let mut words = vec![u64::MAX; PAGES * PAGE_WORDS];
        lay_chain(&mut words);
        let mut page = 0;
        let mut steps = 0;
        loop {
            page = words[word_of(page)] as usize;
            steps += 1;
            if page == 0 {
                break;
            }
        }
        assert_eq!(steps, PAGES);
    }
}
