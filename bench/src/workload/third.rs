//! Programs whose walked pages are known in advance, to hold a tracker's answer against.
//!
//! Owns: `workload-third`, which populates all of its memory and reads one third of it at random, and
//! `workload-resident`, which reads so little that it lives in the TLB. Never touches: trackers.
//!
//! Whoever asks the tracker knows the truth without asking the child: [`ThirdChild::used_pages`] of the same arguments.

use std::fmt;
use std::hint::black_box;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hugepilot::units::{BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE};
use hugepilot_os::memory::{Mapping, OwnAdvice};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::own_process::{ReadyLine, print_line, report_forever};
use super::pages::{UsedPages, WORDS_PER_PAGE, below, populate};

/// Reads in one line of progress.
const READS_PER_LINE: u64 = 1 << 23;

/// How the third lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThirdPattern {
    /// One run of pages.
    Contiguous,
    /// Single pages in every region.
    Scattered,
}

/// Reads one third of its memory.
#[derive(Clone, Debug, clap::Args)]
pub struct ThirdChild {
    /// Memory to map and populate.
    #[arg(long, default_value = "2G")]
    pub size: Bytes,
    /// How the third lies in it.
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

impl fmt::Display for ThirdPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ThirdPattern::Contiguous => "contiguous",
            ThirdPattern::Scattered => "scattered",
        })
    }
}

impl ThirdChild {
    /// The pages that are read, counted from the start of the mapping.
    pub fn used_pages(&self) -> UsedPages {
        match self.pattern {
            ThirdPattern::Contiguous => UsedPages::contiguous_third(self.size),
            ThirdPattern::Scattered => UsedPages::scattered_third(self.size, self.seed),
        }
    }

    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let mapping = populate(self.size, &UsedPages::all(self.size), false)?;
        read_forever(mapping, &self.used_pages(), &self.pattern.to_string(), self.size, self.seed)
    }
}

impl MappingsChild {
    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let used = UsedPages::all(self.size);
        let mut mapping = populate(self.size, &used, false)?;
        let step = (self.size.0 / self.count.max(1) / BASE_PAGE).max(1) * BASE_PAGE;
        // Neighbours with different advice cannot be one mapping.
        for start in (step..self.size.0.min(step * self.count)).step_by(2 * step as usize) {
            let len = step.min(self.size.0 - start);
            mapping.advise(start as usize, len as usize, OwnAdvice::NoHugePage).context("cannot split the mapping")?;
        }
        read_forever(mapping, &used, "mappings", self.size, 1)
    }
}

impl AliasesChild {
    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let times = self.size.0.div_ceil(GIANT_PAGE).max(1) as usize;
        let mapping = Mapping::aliased(GIANT_PAGE as usize, times).context("cannot map a GiB that often")?;
        let size = Bytes(mapping.bytes().len() as u64);
        read_forever(mapping, &UsedPages::contiguous_third(Bytes(GIANT_PAGE)), "aliases", size, 1)
    }
}

impl ResidentChild {
    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let size = Bytes(self.size.0.max(HUGE_PAGE));
        let used = UsedPages::all(size);
        read_forever(populate(size, &used, false)?, &used, "resident", size, 1)
    }
}

fn read_forever(mut mapping: Mapping, used: &UsedPages, pattern: &str, size: Bytes, seed: u64) -> Result<()> {
    let address = mapping.address();
    print_line(&ReadyLine { address, size_bytes: size.0, pattern: pattern.to_owned(), seed })?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let words = &*mapping.words_mut();
    report_forever(|| {
        let mut sum = 0u64;
        for _ in 0..READS_PER_LINE {
            let place = used.page(below(&mut random, used.count()));
            // Another line of each page, so that the caches' sets are used evenly.
            sum = sum.wrapping_add(words[place * WORDS_PER_PAGE + place % (WORDS_PER_PAGE / 8) * 8]);
        }
        black_box(sum);
        READS_PER_LINE
    })
}
