//! The chase workload: random reads of eight bytes over memory that fits in no cache.
//!
//! Owns: its patterns, and both the harness's and the child's side. Never touches: how the figures are judged.
//!
//! A dependent read needs the value of the previous one for its address, so each read waits for a full page walk and cache miss; independent reads
//! overlap as far as the processor allows.

use std::ffi::CString;
use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;

use super::own_process::{OwnProcess, ReadyLine, print_line, report_with_waits, words_for, work_for};
use super::pages::{UsedPages, populate};
use super::shape::{Running, Start, Workload};
use crate::process::Pinning;

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// Reads between two checks of the clock.
const READS_PER_CHECK: u64 = 1 << 14;
/// Words in a cache line: reads go to the first word of a line, so that each line has only one target.
const WORDS_PER_LINE: usize = 8;

/// Whether a read waits for the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ChasePattern {
    /// Each read's address needs the value of the one before.
    Dependent,
    /// Addresses are known ahead.
    Independent,
}

shown_as_typed!(ChasePattern);

/// How it is set up, which its child is told, too.
#[derive(Clone, Debug, clap::Args)]
pub struct Chase {
    /// Memory to map and read.
    #[arg(long)]
    pub size: Bytes,
    /// Whether reads wait for each other.
    #[arg(long)]
    pub pattern: ChasePattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The child's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ChaseChild {
    #[command(flatten)]
    setup: Chase,
    /// Ask for huge pages.
    #[arg(long)]
    advise_huge: bool,
    /// First write pages in random order, so that neighbors seldom lie next to each other in physical memory.
    #[arg(long)]
    shuffled: bool,
    /// The share of the time in which it works, in percent; all of it by default.
    #[arg(long, value_name = "PERCENT")]
    busy: Option<f64>,
    /// A name of its own, as `ps -o comm` shows it, by which a configuration file can name it.
    #[arg(long)]
    called: Option<String>,
}

impl Workload for Chase {
    fn name(&self) -> String {
        format!("chase {}", self.pattern)
    }

    fn description(&self) -> String {
        format!("{} random reads of 8 bytes over {}", self.pattern, self.size)
    }

    fn unit(&self) -> &'static str {
        "reads"
    }

    fn memory_bytes(&self) -> u64 {
        self.size.0
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        let words = words_for("workload-chase", self.size, self.pattern, self.seed, how);
        Ok(Box::new(OwnProcess::start_by(how.launcher(), Pinning::of_this_process()?.program, words, stop)?))
    }
}

impl ChaseChild {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        if let Some(name) = &self.called {
            rustix::thread::set_name(&CString::new(name.as_str())?)?;
        }
        let Chase { size, pattern, seed } = self.setup;
        let pages = if self.shuffled { UsedPages::all_shuffled(size, seed) } else { UsedPages::all(size) };
        let mut mapping = populate(size, &pages, self.advise_huge)?;
        print_line(&ReadyLine::of(&mapping, size, &pattern.to_string(), seed))?;
        let (words, mut state) = (&*mapping.words_mut(), seed);
        let read = match pattern {
            ChasePattern::Dependent => read_dependent,
            ChasePattern::Independent => read_independent,
        };
        let busy = INTERVAL.mul_f64(self.busy.unwrap_or(100.0).clamp(0.0, 100.0) / 100.0);
        let mut work = || {
            state = read(words, state);
            READS_PER_CHECK
        };
        report_with_waits(
            || {
                let operations = work_for(busy, &mut work);
                std::thread::sleep(INTERVAL - busy);
                operations
            },
            || None,
        )
    }
}

fn read_dependent(words: &[u64], mut state: u64) -> u64 {
    for _ in 0..READS_PER_CHECK {
        // The words read are zero, but the processor cannot know that before it has them.
        state = step(state).wrapping_add(words[place(state, words.len())]);
    }
    state
}

fn read_independent(words: &[u64], mut state: u64) -> u64 {
    let mut sum = 0u64;
    for _ in 0..READS_PER_CHECK {
        sum = sum.wrapping_add(words[place(state, words.len())]);
        state = step(state);
    }
    black_box(sum);
    state
}

/// Knuth's linear congruential generator: one multiplication, and good high bits.
pub fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// The first word of a cache line chosen by the state's high bits.
pub fn place(state: u64, words: usize) -> usize {
    let lines = (words / WORDS_PER_LINE) as u64;
    (((state >> 32) * lines) >> 32) as usize * WORDS_PER_LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_reach_every_part_of_the_memory() {
        let words = 1 << 20;
        let mut seen = [false; 64];
        let mut state = 1;
        for _ in 0..10_000 {
            let at = place(state, words);
            assert!(at < words && at.is_multiple_of(WORDS_PER_LINE));
            seen[at * seen.len() / words] = true;
            state = step(state);
        }
        assert!(seen.iter().all(|&part| part));
    }

    #[test]
    fn a_dependent_read_follows_the_value_read() {
        let (zeros, ones) = (vec![0; 64], vec![1; 64]);
        assert_ne!(read_dependent(&zeros, 1), read_dependent(&ones, 1));
        assert_eq!(read_independent(&zeros, 1), read_independent(&ones, 1));
    }
}
