//! Numbers in pages of one kind, to be sorted repeatedly.
//!
//! Owns: the memory, the numbers, and the check that they were sorted. Never touches: a clock, except around the sorting itself.

use std::fmt;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hugepilot_os::large_pages::{LargePageOptions, LargePagePolicy, LargePages, LargePagesError};
use rand_mt::Mt;
use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::line::SortTurn;

/// Where the generator starts by itself, in the paper that describes it and in C++.
const SEED: u32 = 5489;

/// Which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageChoice {
    /// Ordinary ones, and no others.
    Ordinary,
    /// Large ones, or what is to be had in their place, which is told.
    Large,
    /// Ordinary ones once more, which tells what the machine's noise is.
    OrdinaryAgain,
}

/// A sorting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The pages.
    pub pages: PageChoice,
    /// Bytes of numbers, 4 each.
    pub bytes: usize,
}

/// Memory, and the numbers to be sorted in it.
#[derive(Debug)]
pub struct Ready {
    task: Task,
    memory: LargePages,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TaskError {
    #[error(transparent)]
    Memory(#[from] LargePagesError),
    #[error("{algorithm} sort of {bytes} bytes left numbers that are not sorted, or not those that were there")]
    Wrong { algorithm: Algorithm, bytes: usize },
}

impl PageChoice {
    /// All of them, in the order of one round. Six rounds are all orders there are, so that each kind comes first, second and last as
    /// often, and follows each other one as often.
    pub fn order(round: u32) -> Vec<Self> {
        let mut order = Self::value_variants().to_vec();
        let (turns, kinds) = (round as usize, order.len());
        order.rotate_left(turns % kinds);
        // Turning alone leaves each kind after the same one.
        if turns / kinds % 2 == 1 {
            order.reverse();
        }
        order
    }
}

impl Task {
    /// Allocates memory and touches all of it.
    pub fn prepare(self) -> Result<Ready, TaskError> {
        let policy = if self.pages == PageChoice::Large { LargePagePolicy::Preferred } else { LargePagePolicy::Off };
        let memory = LargePages::allocate(
            self.bytes.saturating_mul(self.algorithm.room()),
            LargePageOptions { policy, ..LargePageOptions::default() },
        )?;
        let mut ready = Ready { task: self, memory };
        ready.memory.numbers_mut().fill(1);
        ready.fill();
        Ok(ready)
    }

    fn count(self) -> usize {
        self.bytes / size_of::<u32>()
    }
}

impl Ready {
    /// Writes the numbers, the same each time; returns a sum that shows whether they are all present.
    fn fill(&mut self) -> u64 {
        let mut random = Mt::new(SEED);
        let numbers = &mut self.memory.numbers_mut()[..self.task.count()];
        let mut sum = 0u64;
        for number in numbers {
            *number = random.next_u32();
            sum = sum.wrapping_add(u64::from(*number).pow(2));
        }
        sum
    }

    /// Sorts them, from the same order each time; returns the time it took.
    pub fn sort(&mut self) -> Result<Duration, TaskError> {
        let (Task { algorithm, bytes, .. }, count) = (self.task, self.task.count());
        let expected = self.fill();
        let numbers = self.memory.numbers_mut();
        let began = Instant::now();
        algorithm.sort(numbers, count);
        let took = began.elapsed();
        let numbers = &numbers[..count];
        let sum = numbers.iter().fold(0u64, |sum, &number| sum.wrapping_add(u64::from(number).pow(2)));
        let (smaller, sorted) = numbers.split_at(algorithm.sorted_from(count));
        let largest_last = smaller.iter().max() <= sorted.first() || sorted.is_empty();
        if sum == expected && largest_last && sorted.is_sorted() {
            Ok(took)
        } else {
            Err(TaskError::Wrong { algorithm, bytes })
        }
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.memory.start().as_ptr() as u64
    }

    /// A turn in which one sort took so long; how much of the memory is on large pages is what the allocation said.
    pub fn turn(&self, round: u32, took: Duration) -> SortTurn {
        let Task { algorithm, pages, bytes } = self.task;
        let got = self.memory.got();
        let refusals: Vec<String> = self.memory.refusals().iter().map(ToString::to_string).collect();
        SortTurn {
            round,
            algorithm,
            shape: Some(algorithm.shape().to_owned()),
            pages,
            bytes: bytes as u64,
            nanoseconds: took.as_nanos() as u64,
            large_bytes: got.large_bytes as u64,
            taken_bytes: got.bytes as u64,
            refusal: (!refusals.is_empty()).then(|| refusals.join("; ")),
        }
    }
}

impl fmt::Display for PageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_numbers_are_the_mersenne_twisters() {
        // The C++ standard states the 10,000th number of its generator ([rand.predef]).
        let task = Task { algorithm: Algorithm::Quick, pages: PageChoice::Ordinary, bytes: 4 * 10_000 };
        let mut ready = task.prepare().unwrap();
        assert_eq!((ready.task.count(), ready.memory.numbers_mut()[9_999]), (10_000, 4_123_659_995));
    }

    #[test]
    fn six_rounds_are_all_orders_there_are() {
        let orders: BTreeSet<Vec<PageChoice>> = (0..6).map(PageChoice::order).collect();
        assert_eq!(orders.len(), 6);
        let follows_large =
            |round: &u32| PageChoice::order(*round).ends_with(&[PageChoice::Large, PageChoice::OrdinaryAgain]);
        assert_eq!((6..12).filter(follows_large).count(), 1);
    }

    #[test]
    fn every_algorithm_sorts_in_every_kind_of_page() {
        for &algorithm in Algorithm::value_variants() {
            for &pages in PageChoice::value_variants() {
                let mut ready = Task { algorithm, pages, bytes: 40_000 }.prepare().unwrap();
                ready.sort().unwrap();
                let took = ready.sort().unwrap();
                let turn = ready.turn(3, took);
                assert!(pages == PageChoice::Large || turn.large_bytes == 0);
                assert_eq!((turn.round, turn.bytes, turn.shape.as_deref()), (3, 40_000, Some(algorithm.shape())));
            }
        }
    }

    #[test]
    fn nothing_is_no_task() {
        let task = Task { algorithm: Algorithm::Heap, pages: PageChoice::Large, bytes: 0 };
        assert!(matches!(task.prepare().unwrap_err(), TaskError::Memory(LargePagesError::Size { .. })));
    }
}
