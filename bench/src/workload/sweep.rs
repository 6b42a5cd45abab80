//! The sweep workload: reads and writes in steps of a base page, sixteen sweeps per sample.
//!
//! Owns: its patterns, and both the harness's and the child's side. Never touches: how the samples are judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use heat::units::{Address, AddressRange, BASE_PAGE, Bytes};
use hps::wire::Range;
use hps::{Application, Judge};
use hugepilot_os::memory::{AlignedMemory, allocate_from_one_arena};
use hugepilot_os::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::client::ClientArguments;
use super::own_process::{OwnProcess, ReadyLine, print_line, report_every, words_for};
use super::packing::{Packing, packing};
use super::pages::{FrontierPoint, UsedPages, WORDS_PER_PAGE, below, populate};
use super::progress::{Progress, Work};
use super::shape::{Running, Start, Workload};
use crate::process::{Pinning, bind_this_thread};

/// As in the paper.
pub const SWEEPS_PER_SAMPLE: u32 = 16;

/// Requests to move pages wait for so many steps at most, tens of microseconds.
const STEPS_BETWEEN_REQUESTS: usize = 4096;

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

shown_as_typed!(SweepPattern);

/// How it is set up, which its child is told, too.
#[derive(Clone, Debug, clap::Args)]
pub struct Sweep {
    /// Memory to map.
    #[arg(long)]
    pub size: Bytes,
    /// Which pages, in which order.
    #[arg(long)]
    pub pattern: SweepPattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Sweeps between two lines of progress.
    #[arg(long, default_value_t = SWEEPS_PER_SAMPLE)]
    pub sweeps: u32,
}

/// The child's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct SweepChild {
    #[command(flatten)]
    setup: Sweep,
    /// Ask for huge pages.
    #[arg(long)]
    advise_huge: bool,
    /// As an application that manages its own memory.
    #[command(flatten)]
    client: ClientArguments,
}

/// The same in a thread of this process, for a tracker with which a process watches itself; ended on drop.
pub struct SweepThread {
    range: AddressRange,
    progress: Progress,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Memory under the sweep.
struct Sweeper {
    mapping: AlignedMemory,
    used: UsedPages,
    random: Xoshiro256PlusPlus,
    sequential: bool,
    sweeps: u32,
    /// As an application that moves its pages.
    packing: Option<Packing>,
}

impl Workload for Sweep {
    fn name(&self) -> String {
        format!("sweep {}", self.pattern)
    }

    fn description(&self) -> String {
        format!("reads and writes in 4 KiB steps over {}, {} sweeps a sample", self.size, self.sweeps)
    }

    fn unit(&self) -> &'static str {
        "steps"
    }

    fn memory_bytes(&self) -> u64 {
        self.size.0
    }

    fn frontier(&self) -> Vec<FrontierPoint> {
        if self.pattern == SweepPattern::Scattered { self.used().frontier() } else { Vec::new() }
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        let mut words = words_for("workload-sweep", self.size, self.pattern, self.seed, how);
        words.push(format!("--sweeps={}", self.sweeps));
        Ok(Box::new(OwnProcess::start_by(how.launcher(), Pinning::of_this_process()?.program, words, stop)?))
    }
}

impl SweepChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        let Sweep { size, pattern, seed, .. } = self.setup;
        // The library's thread hardly allocates, and growth is counted in hundredths of a per cent.
        allocate_from_one_arena();
        let mut sweeper = Sweeper::of(&self.setup, self.advise_huge)?;
        let start = sweeper.mapping.address();
        let (range, used) = (Range { start, end: start + size.0 }, Bytes(sweeper.used.count() as u64 * BASE_PAGE));
        let application = sweeper.application(pattern);
        let _tracked = self.client.register(range, used, application)?;
        print_line(&ReadyLine::of(&sweeper.mapping, size, &pattern.to_string(), seed))?;
        // Each sample is a line.
        report_every(Duration::ZERO, || sweeper.sample())
    }
}

impl Sweeper {
    fn of(sweep: &Sweep, advise_huge: bool) -> Result<Self> {
        let &Sweep { size, pattern, seed, sweeps } = sweep;
        let used = sweep.used();
        // Addresses for scattered pages that are moved together; nobody else populates them.
        let mapped = if pattern == SweepPattern::Scattered { Bytes(2 * size.0) } else { size };
        let mapping = populate(mapped, &used, advise_huge)?;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let sequential = pattern == SweepPattern::Sequential;
        Ok(Self { mapping, used, random, sequential, sweeps, packing: None })
    }

    /// What it is to libhps: one that moves scattered pages, or leaves all to the library.
    fn application(&mut self, pattern: SweepPattern) -> Arc<dyn Application> {
        if pattern != SweepPattern::Scattered {
            return Arc::new(Judge);
        }
        let (packer, packing) = packing(&self.mapping);
        self.packing = Some(packing);
        Arc::new(packer)
    }

    /// Runs one sample; returns its number of steps.
    fn sample(&mut self) -> u64 {
        let Self { mapping, used, random, sequential, sweeps, packing } = self;
        let steps = *sweeps as usize * used.count();
        for first in (0..steps).step_by(STEPS_BETWEEN_REQUESTS) {
            if let Some(packing) = packing {
                packing.serve(mapping, used);
            }
            let words = mapping.words_mut();
            for step in first..steps.min(first + STEPS_BETWEEN_REQUESTS) {
                let place = if *sequential { step % used.count() } else { below(random, used.count()) };
                let word = &mut words[used.page(place) * WORDS_PER_PAGE];
                *word = word.wrapping_add(1);
            }
        }
        steps as u64
    }
}

impl Sweep {
    fn used(&self) -> UsedPages {
        match self.pattern {
            SweepPattern::Sequential | SweepPattern::Random => UsedPages::all(self.size),
            SweepPattern::Skewed => UsedPages::contiguous_third(self.size),
            SweepPattern::Scattered => UsedPages::scattered_third(self.size, self.seed),
        }
    }

    /// Starts it in a thread of this process.
    pub fn start_here(&self) -> Result<SweepThread> {
        let (mut sweeper, processor) = (Sweeper::of(self, false)?, Pinning::of_this_process()?.program);
        let range = AddressRange::new(Address(sweeper.mapping.address()), self.size);
        let (progress, done) = (Progress::default(), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (progress.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            if let Err(error) = bind_this_thread(processor).context("cannot bind the thread") {
                seen.fail(&error);
            }
            while !ended.load(Ordering::Relaxed) {
                let start = Instant::now();
                let operations = sweeper.sample();
                seen.add(Instant::now(), Work { operations, duration: start.elapsed(), ..Work::default() });
            }
        });
        Ok(SweepThread { range, progress, done, thread: Some(thread) })
    }
}

impl SweepThread {
    /// Its memory.
    pub fn range(&self) -> AddressRange {
        self.range
    }
}

impl Running for SweepThread {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn check(&mut self) -> Result<()> {
        self.progress.check()
    }
}

impl Drop for SweepThread {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
    }
}
