//! Programs whose walked pages are known in advance, so that a tracker's results can be checked.
//!
//! Owns: `workload-third`, which populates all of its memory and reads a known part of it, and `workload-resident`, which reads so little that the
//! TLB covers it. Never touches: trackers.
//!
//! [`ThirdChild::truth`] gives the truth from the same arguments, without asking the child.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use heat::units::{BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE, PAGES_PER_REGION};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::own_process::{ReadyLine, end_child, print_line, report_with_waits};
use super::pages::{UsedPages, WORDS_PER_PAGE, below, populate};
use super::zipfian::ScrambledZipfian;

/// Reads per progress line.
const READS_PER_LINE: u64 = 1 << 23;

/// Reads between two checks of the clock.
const READS_PER_CHECK: u64 = 1 << 16;
/// Draws that determine the hottest regions of a distribution.
const DRAWS: u32 = 4_000_000;

/// Which part of memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThirdPattern {
    /// All of it, each page as often.
    Uniform,
    /// A third, one run of pages.
    Contiguous,
    /// A third, single pages in every region.
    Scattered,
    /// A third, one run of pages, and another third every two seconds.
    Moving,
    /// All of it, regions by a zipfian distribution (0.99).
    Zipfian,
}

shown_as_typed!(ThirdPattern);

/// What a tracker should find.
pub enum Truth {
    /// Exactly these pages, relative to the start of the mapping.
    Pages(UsedPages),
    /// These regions, relative to the start, which are walked more often than the others.
    HottestRegions(Vec<usize>),
}

/// Reads a part of its memory.
#[derive(Clone, Debug, clap::Args)]
pub struct ThirdChild {
    /// Memory to map and populate.
    #[arg(long, default_value = "2G")]
    pub size: Bytes,
    /// Which part is read.
    #[arg(long, default_value_t = ThirdPattern::Contiguous)]
    pub pattern: ThirdPattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Populates memory that lies in many mappings, and reads all of it.
#[derive(Clone, Debug, clap::Args)]
pub struct MappingsChild {
    /// Memory to map and populate.
    #[arg(long, default_value = "2G")]
    pub size: Bytes,
    /// How many mappings it lies in.
    #[arg(long, default_value_t = 60_000)]
    pub count: u64,
}

/// Maps one GiB of memory again and again, and reads a part of it.
#[derive(Clone, Debug, clap::Args)]
pub struct AliasesChild {
    /// Memory to map, in steps of 1 GiB.
    #[arg(long, default_value = "4G")]
    pub size: Bytes,
}

/// Reads memory that the TLB covers.
#[derive(Clone, Debug, clap::Args)]
pub struct ResidentChild {
    /// Memory to map, populate and read.
    #[arg(long, default_value = "2M")]
    pub size: Bytes,
}

impl ThirdPattern {
    /// How long the pages read stay the same; None if they always do.
    pub fn period(self) -> Option<Duration> {
        (self == ThirdPattern::Moving).then_some(Duration::from_secs(2))
    }
}

impl ThirdChild {
    /// What a tracker should find, by the time of [`clock`].
    pub fn truth(&self, now: Duration) -> Truth {
        match self.pattern {
            ThirdPattern::Zipfian => Truth::HottestRegions(self.hottest_quarter()),
            _ => Truth::Pages(self.used_pages(now)),
        }
    }

    fn used_pages(&self, now: Duration) -> UsedPages {
        match self.pattern {
            ThirdPattern::Contiguous => UsedPages::contiguous_third(self.size),
            ThirdPattern::Scattered => UsedPages::scattered_third(self.size, self.seed),
            ThirdPattern::Uniform | ThirdPattern::Zipfian => UsedPages::all(self.size),
            ThirdPattern::Moving => {
                let third = UsedPages::all(self.size).count() / 3;
                let step = now.as_secs() / ThirdPattern::Moving.period().map_or(1, |period| period.as_secs());
                UsedPages::Run { first: (step % 3) as usize * third, count: third }
            }
        }
    }

    fn regions(&self) -> u64 {
        (self.size.0 / HUGE_PAGE).max(1)
    }

    /// The quarter of the regions with most reads, ascending.
    fn hottest_quarter(&self) -> Vec<usize> {
        let (zipfian, mut random) =
            (ScrambledZipfian::new(self.regions()), Xoshiro256PlusPlus::seed_from_u64(self.seed));
        let mut reads = vec![0u32; self.regions() as usize];
        (0..DRAWS).for_each(|_| reads[zipfian.next(&mut random) as usize] += 1);
        let mut regions: Vec<usize> = (0..reads.len()).collect();
        regions.sort_by_key(|&region| std::cmp::Reverse(reads[region]));
        regions.truncate(reads.len().div_ceil(4));
        regions.sort_unstable();
        regions
    }

    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let mapping = populate(self.size, &UsedPages::all(self.size), false)?;
        let ready = ReadyLine::of(&mapping, self.size, &self.pattern.to_string(), self.seed);
        let zipfian = ScrambledZipfian::new(self.regions());
        let mut used = self.used_pages(clock());
        let mut reads = 0u64;
        read_forever(mapping, &ready, |random| {
            reads += 1;
            if reads.is_multiple_of(READS_PER_CHECK) && self.pattern.period().is_some() {
                used = self.used_pages(clock());
            }
            match self.pattern {
                ThirdPattern::Zipfian => {
                    zipfian.next(random) as usize * PAGES_PER_REGION + below(random, PAGES_PER_REGION)
                }
                _ => used.page(below(random, used.count())),
            }
        })
    }
}

/// Time since boot, the same for every process.
pub fn clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl MappingsChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let used = UsedPages::all(self.size);
        let mut mapping = populate(self.size, &used, false)?;
        let step = (self.size.0 / self.count.max(1) / BASE_PAGE).max(1) * BASE_PAGE;
        // Neighbours with different advice cannot merge into one mapping.
        for start in (step..self.size.0.min(step * self.count)).step_by(2 * step as usize) {
            let len = step.min(self.size.0 - start);
            mapping.advise(start as usize, len as usize, OwnAdvice::NoHugePage).context("cannot split the mapping")?;
        }
        read_at_random(mapping, &used, "mappings", self.size)
    }
}

impl AliasesChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let times = self.size.0.div_ceil(GIANT_PAGE).max(1) as usize;
        let mapping = AlignedMemory::aliased(GIANT_PAGE as usize, times).context("cannot map a GiB that often")?;
        let size = Bytes(mapping.bytes().len() as u64);
        read_at_random(mapping, &UsedPages::contiguous_third(Bytes(GIANT_PAGE)), "aliases", size)
    }
}

impl ResidentChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let size = Bytes(self.size.0.max(HUGE_PAGE));
        let used = UsedPages::all(size);
        read_at_random(populate(size, &used, false)?, &used, "resident", size)
    }
}

fn read_at_random(mapping: AlignedMemory, used: &UsedPages, pattern: &str, size: Bytes) -> Result<()> {
    let ready = ReadyLine::of(&mapping, size, pattern, 1);
    read_forever(mapping, &ready, |random| used.page(below(random, used.count())))
}

/// Reads pages that `next` selects, while a second thread measures how long mapping memory takes.
fn read_forever(
    mut mapping: AlignedMemory,
    ready: &ReadyLine,
    mut next: impl FnMut(&mut Xoshiro256PlusPlus) -> usize,
) -> Result<()> {
    print_line(ready)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(ready.seed);
    let words = &*mapping.words_mut();
    let longest_wait = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| map_forever(&longest_wait));
        let work = || {
            let mut sum = 0u64;
            for _ in 0..READS_PER_LINE {
                let place = next(&mut random);
                // A different line of each page, so that the caches' sets are used evenly.
                sum = sum.wrapping_add(words[place * WORDS_PER_PAGE + place % (WORDS_PER_PAGE / 8) * 8]);
            }
            black_box(sum);
            READS_PER_LINE
        };
        let ended = report_with_waits(work, || Some(Duration::from_nanos(longest_wait.swap(0, Ordering::Relaxed))));
        ended.map_err(|error| end_child(&error))
    })
}

/// Maps and unmaps a page every now and then; for both the kernel takes the mmap lock for writing.
fn map_forever(longest_wait: &AtomicU64) {
    const PAUSE: Duration = Duration::from_micros(200);
    loop {
        let started = Instant::now();
        drop(AlignedMemory::anonymous(BASE_PAGE as usize));
        longest_wait.fetch_max(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}
