//! The sweep workload: reads and writes in steps of a base page, sixteen sweeps a sample.
//!
//! Owns: its patterns, the harness's side and the child's. Never touches: how the samples are judged.

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;
use hugepilot::stop::Stop;
use hugepilot::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::own_process::{OwnProcess, ReadyLine, print_line, report_forever, words_for};
use super::pages::{UsedPages, WORDS_PER_PAGE, below, populate};
use super::{Running, Workload};

const SWEEPS_PER_SAMPLE: usize = 16;

/// The order in which pages are visited, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepPattern {
    /// All pages, one after the other.
    Sequential,
    /// All pages, at random.
    Random,
    /// A run of a third of the pages, at random; the rest is never touched.
    Skewed,
    /// A third of the pages, spread over every region, at random; the rest is never touched.
    Scattered,
}

/// How it is set up.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Memory mapped.
    pub size: Bytes,
    /// Which pages, in which order.
    pub pattern: SweepPattern,
    /// Where the random numbers start.
    pub seed: u64,
}

/// The child's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct SweepChild {
    /// Memory to map.
    #[arg(long)]
    pub size: Bytes,
    /// Which pages, in which order.
    #[arg(long)]
    pub pattern: SweepPattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Ask for huge pages.
    #[arg(long)]
    pub advise_huge: bool,
}

impl fmt::Display for SweepPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SweepPattern::Sequential => "sequential",
            SweepPattern::Random => "random",
            SweepPattern::Skewed => "skewed",
            SweepPattern::Scattered => "scattered",
        })
    }
}

impl Workload for Sweep {
    fn name(&self) -> String {
        format!("sweep {}", self.pattern)
    }

    fn description(&self) -> String {
        format!("reads and writes in 4 KiB steps over {}, {} sweeps a sample", self.size, SWEEPS_PER_SAMPLE)
    }

    fn unit(&self) -> &'static str {
        "steps"
    }

    fn memory_bytes(&self) -> u64 {
        self.size.0
    }

    fn start_seconds(&self) -> f64 {
        0.5 + 0.7e-9 * self.size.0 as f64
    }

    fn start(&self, own_switch: bool, stop: &Stop) -> Result<Box<dyn Running>> {
        let words = words_for("workload-sweep", self.size, self.pattern, self.seed, own_switch);
        Ok(Box::new(OwnProcess::start(words, stop)?))
    }
}

impl SweepChild {
    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let used = match self.pattern {
            SweepPattern::Sequential | SweepPattern::Random => UsedPages::all(self.size),
            SweepPattern::Skewed => UsedPages::contiguous_third(self.size),
            SweepPattern::Scattered => UsedPages::scattered_third(self.size, self.seed),
        };
        let mut mapping = populate(self.size, &used, self.advise_huge)?;
        print_line(&ReadyLine {
            address: mapping.address(),
            size_bytes: self.size.0,
            pattern: self.pattern.to_string(),
            seed: self.seed,
        })?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let sequential = self.pattern == SweepPattern::Sequential;
        let words = mapping.words_mut();
        report_forever(|| {
            let steps = SWEEPS_PER_SAMPLE * used.count();
            for step in 0..SWEEPS_PER_SAMPLE * used.count() {
                let place = if sequential { step % used.count() } else { below(&mut random, used.count()) };
                let word = &mut words[used.page(place) * WORDS_PER_PAGE];
                *word = word.wrapping_add(1);
            }
            steps as u64
        })
    }
}
