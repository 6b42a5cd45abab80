//! The hot workload: dependent random reads that favour some regions of the memory; the harness knows which.
//!
//! Owns: the choice of regions, and both the harness's and the child's side. Never touches: how the figures are judged.
//!
//! Zipfian: the region of rank `i` is read in proportion to `i` to the power of -0.99, and the seed shuffles the ranks. Quarter: only a quarter of
//! the memory is read, and SIGUSR1 moves the reads to the next quarter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use heat::units::{Address, Bytes, HUGE_PAGE};
use hugepilot_os::PidFd;
use hugepilot_os::memory::OwnAdvice;
use hugepilot_os::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rustix::process::Signal;

use super::chase::{place, step};
use super::own_process::{OwnProcess, ReadyLine, print_line, report_every, words_for};
use super::pages::{UsedPages, populate};
use super::progress::Progress;
use super::shape::{Running, Start, Workload};

/// The resolution of progress reports: several per sample of a quarter of a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Reads between two checks of the clock.
const READS_PER_CHECK: u64 = 1 << 14;
const CONSTANT: f64 = 0.99;
/// The size of the table of draws; the top 16 bits of a random number select one.
const DRAWS: usize = 1 << 16;
const WORDS_PER_REGION: usize = HUGE_PAGE as usize / 8;
const QUARTERS: usize = 4;

/// Which regions are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HotPattern {
    /// All, by a zipfian distribution.
    Zipfian,
    /// A quarter, each page as often.
    Quarter,
}

shown_as_typed!(HotPattern);

/// How it is set up, which its child is told, too.
#[derive(Clone, Debug, clap::Args)]
pub struct Hot {
    /// Its name in reports.
    #[arg(skip)]
    pub name: &'static str,
    /// Memory to map.
    #[arg(long)]
    pub size: Bytes,
    /// Which regions are read.
    #[arg(long)]
    pub pattern: HotPattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The child's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct HotChild {
    #[command(flatten)]
    setup: Hot,
    /// Ask for huge pages once the memory is populated, so that only khugepaged can give them.
    #[arg(long)]
    advise_huge: bool,
}

struct RunningHot {
    process: OwnProcess,
    /// Regions relative to the start of the memory, those with most reads first; None if they move.
    ranking: Option<Vec<u32>>,
}

impl Workload for Hot {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn description(&self) -> String {
        let regions = match self.pattern {
            HotPattern::Zipfian => "its regions by a zipfian distribution (0.99), shuffled",
            HotPattern::Quarter => "a quarter of it",
        };
        format!("dependent random reads of 8 bytes over {}, {regions}", self.size)
    }

    fn unit(&self) -> &'static str {
        "reads"
    }

    fn memory_bytes(&self) -> u64 {
        self.size.0
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        let words = words_for("workload-hot", self.size, self.pattern, self.seed, how);
        let ranking = (self.pattern == HotPattern::Zipfian).then(|| ranking(regions(self.size), self.seed));
        Ok(Box::new(RunningHot { process: OwnProcess::start(words, stop)?, ranking }))
    }
}

impl Running for RunningHot {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn progress(&self) -> &Progress {
        self.process.progress()
    }

    fn check(&mut self) -> Result<()> {
        self.process.check()
    }

    fn hottest_regions(&self, memory: Bytes) -> Option<Vec<Address>> {
        let start = self.process.ready().address;
        let hottest = self.ranking.as_ref()?.iter().take((memory.0 / HUGE_PAGE) as usize);
        Some(hottest.map(|&region| Address(start + u64::from(region) * HUGE_PAGE)).collect())
    }
}

/// Makes a program with the pattern `quarter` read the next quarter.
pub fn move_on(pid: u32) -> Result<()> {
    let target = PidFd::open(pid).with_context(|| format!("cannot open process {pid}"))?;
    target.signal(Signal::USR1).with_context(|| format!("cannot signal process {pid}"))
}

impl HotChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let Hot { size, pattern, seed, .. } = self.setup;
        ensure!(regions(size) <= DRAWS / 16, "--size {size} is too large");
        let moves = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(Signal::USR1.as_raw(), moves.clone())?;
        let mut mapping = populate(size, &UsedPages::all(size), false)?;
        if self.advise_huge {
            mapping.advise(0, size.0 as usize, OwnAdvice::HugePage).context("MADV_HUGEPAGE is refused here")?;
        }
        print_line(&ReadyLine::of(&mapping, size, &pattern.to_string(), seed))?;
        match pattern {
            HotPattern::Zipfian => self.setup.read_by_rank(mapping.words_mut()),
            HotPattern::Quarter => self.setup.read_a_quarter(mapping.words_mut(), &moves),
        }
    }
}

impl Hot {
    fn read_by_rank(&self, words: &[u64]) -> Result<()> {
        let (draws, mut state) = (draws(&ranking(regions(self.size), self.seed)), self.seed);
        report_every(INTERVAL, || {
            for _ in 0..READS_PER_CHECK {
                state = step(state).wrapping_add(words[place_by_rank(state, &draws)]);
            }
            READS_PER_CHECK
        })
    }

    fn read_a_quarter(&self, words: &[u64], moves: &AtomicBool) -> Result<()> {
        let (length, mut quarter, mut state) = (words.len() / QUARTERS, 0, self.seed);
        report_every(INTERVAL, || {
            quarter = (quarter + usize::from(moves.swap(false, Ordering::Relaxed))) % QUARTERS;
            for _ in 0..READS_PER_CHECK {
                let at = quarter * length + place(state, length);
                // The words read are zero, but the processor cannot know that before it has them.
                state = step(state).wrapping_add(words[at]);
            }
            READS_PER_CHECK
        })
    }
}

fn regions(size: Bytes) -> usize {
    (size.0 / HUGE_PAGE) as usize
}

/// Regions in descending order of reads.
fn ranking(regions: usize, seed: u64) -> Vec<u32> {
    let mut ranking: Vec<u32> = (0..regions as u32).collect();
    ranking.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    ranking
}

/// Each region as often as its rank requires.
fn draws(ranking: &[u32]) -> Vec<u32> {
    let weight = |rank: usize| ((rank + 1) as f64).powf(-CONSTANT);
    let whole: f64 = (0..ranking.len()).map(weight).sum();
    let (mut draws, mut sum) = (Vec::with_capacity(DRAWS), 0.0);
    for (rank, &region) in ranking.iter().enumerate() {
        sum += weight(rank);
        draws.resize((sum / whole * DRAWS as f64).round() as usize, region);
    }
    draws
}

/// The first word of a cache line: the top 16 bits select the region, the bits below them the line.
fn place_by_rank(state: u64, draws: &[u32]) -> usize {
    let region = draws[(state >> 48) as usize] as usize;
    region * WORDS_PER_REGION + place(state << 16, WORDS_PER_REGION)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn regions_are_drawn_as_often_as_their_rank_says() {
        let ranking = ranking(2048, 1);
        let draws = draws(&ranking);
        assert_eq!(draws.len(), DRAWS);
        let count = |rank: usize| draws.iter().filter(|&&region| region == ranking[rank]).count() as f64;
        assert!((count(0) / count(99) / 100f64.powf(CONSTANT) - 1.0).abs() < 0.02);
        assert!(count(2047) >= 1.0, "nobody is left out");
        let quarter = ranking[..512].iter().copied().collect::<std::collections::HashSet<_>>();
        let share = draws.iter().filter(|region| quarter.contains(region)).count() as f64 / DRAWS as f64;
        assert!((share - 0.83).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_seed_says_which_region_has_which_rank() {
        assert_eq!(ranking(512, 3), ranking(512, 3));
        assert_ne!(ranking(512, 3), ranking(512, 4));
        let mut sorted = ranking(512, 3);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..512));
    }

    proptest! {
        #[test]
        fn reads_stay_in_the_region_drawn(state: u64) {
            let draws = draws(&ranking(64, 1));
            let at = place_by_rank(state, &draws);
            prop_assert_eq!(at / WORDS_PER_REGION, draws[(state >> 48) as usize] as usize);
        }
    }
}
