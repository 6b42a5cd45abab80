//! Makes memory scarce: holds so much of it that only the requested size is left.
//!
//! What it leaves is a random part of the machine's blocks of 2 MiB. A program that simply asks for huge pages gets all blocks that are free, and
//! would leave those that kernel memory breaks up: a smaller machine has its part of both.

use anyhow::{Context, Result, ensure};
use heat::units::{Address, BASE_PAGE, Bytes, PAGES_PER_REGION};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use kernel::pagemap::own_frames;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rustix::mm::{MlockAllFlags, mlockall};

use super::common::use_up_first;
use crate::workload::{ReadyLine, print_line, words};

/// Left alone at first, so that the machine does not run out of memory.
const MARGIN: Bytes = Bytes(512 << 20);

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldChild {
    /// Memory to hold.
    #[arg(long)]
    size: Bytes,
    /// Memory to take first, and to release again in random blocks.
    #[arg(long)]
    release: Bytes,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
}

/// Adjacent base pages of ours, in frames of one physical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    block: u64,
    first: usize,
    pages: usize,
}

impl HoldChild {
    /// Its command line, after the program's name: `left` of the `available` memory stays free.
    pub fn words(available: Bytes, left: Bytes, seed: u64) -> Vec<String> {
        let (size, release) = (available.saturating_sub(left), left.saturating_sub(MARGIN));
        words("workload-hold", &[("size", &size.0), ("release", &release.0), ("seed", &seed)])
    }

    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        use_up_first()?;
        let all = self.size + self.release;
        let mut mapping = AlignedMemory::anonymous(all.0 as usize).context("cannot map the memory to hold")?;
        // Huge pages are quick to take, and leave the rest contiguous, as large programs do that started early.
        mapping.advise(0, mapping.len(), OwnAdvice::HugePage).context("MADV_HUGEPAGE is refused here")?;
        mapping.advise(0, mapping.len(), OwnAdvice::Populate).context("cannot populate the memory to hold")?;
        self.release_random_blocks(&mut mapping)?;
        // What was released must not be populated again.
        let now_and_later = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        mlockall(now_and_later).context("cannot lock the memory to hold")?;
        print_line(&ReadyLine::of(&mapping, self.size, "hold", 0))?;
        loop {
            std::thread::park();
        }
    }

    fn release_random_blocks(&self, mapping: &mut AlignedMemory) -> Result<()> {
        let start = Address(mapping.bytes().as_ptr() as u64);
        let frames = own_frames(start, mapping.len() / BASE_PAGE as usize)?;
        ensure!(frames.iter().any(|&frame| frame != 0), "page frames are hidden from this process: run as root");
        for run in chosen(&frames, self.release, self.seed) {
            mapping.advise(run.first * BASE_PAGE as usize, run.pages * BASE_PAGE as usize, OwnAdvice::DontNeed)?;
        }
        Ok(())
    }
}

/// Runs in random blocks, as many as are needed for `wanted`.
fn chosen(frames: &[u64], wanted: Bytes, seed: u64) -> Vec<Run> {
    let mut runs = runs(frames);
    runs.sort_by_cached_key(|run| (Xoshiro256PlusPlus::seed_from_u64(seed ^ run.block).next_u64(), run.block));
    let mut left = wanted.0 / BASE_PAGE;
    let fits = |run: &Run| {
        let is_needed = left > 0;
        left = left.saturating_sub(run.pages as u64);
        is_needed
    };
    runs.into_iter().take_while(fits).collect()
}

fn runs(frames: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (page, frame) in frames.iter().enumerate() {
        let block = frame / PAGES_PER_REGION as u64;
        match runs.last_mut() {
            Some(last) if last.block == block => last.pages += 1,
            _ => runs.push(Run { block, first: page, pages: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_released_by_chance() {
        let frames: Vec<u64> = (0..64 * 512).chain([100_000, 5, 100_001]).collect();
        assert_eq!(
            runs(&frames)[63..65],
            [Run { block: 63, first: 63 * 512, pages: 512 }, Run { block: 195, first: 64 * 512, pages: 1 }]
        );
        let blocks = |seed| chosen(&frames, Bytes(16 << 21), seed).iter().map(|run| run.block).collect::<Vec<_>>();
        assert!((16..=19).contains(&blocks(1).len()), "{:?}", blocks(1));
        assert_ne!(blocks(1), blocks(2));
        let of_first: Vec<_> = chosen(&frames, Bytes(65 << 21), 1).into_iter().filter(|run| run.block == 0).collect();
        assert_eq!(of_first.len(), 2, "all pages of a block");
    }

    #[test]
    fn what_is_left_counts_what_was_never_taken() {
        let words = HoldChild::words(Bytes(20 << 30), Bytes(6 << 30), 7).join(" ");
        assert!(words.contains(&(14u64 << 30).to_string()) && words.contains(&(11u64 << 29).to_string()), "{words}");
    }
}
