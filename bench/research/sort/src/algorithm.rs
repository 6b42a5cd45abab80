//! The algorithms.
//!
//! Owns: their code, from textbooks where the standard library has none that is suitable. Never touches: memory other than what is sorted.
//!
//! - *Heap sort* is Williams's with Floyd's way to build the heap, in place: each number sinks from the top through the whole memory, so nearly each
//!   step is a page walk. The experiment timed this one. Variants that are gentler to caches (heaps with more children, sinking to the bottom first)
//!   would measure something else.
//! - *Quick sort* is the standard library's unstable sort: partitions pass through memory in order.
//! - *Merge sort* is bottom-up between two halves of the same memory. The standard library's stable sort allocates its own buffer from the heap,
//!   which would be on other pages than those under test.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// From the top of a heap through all of the memory.
    Heap,
    /// The standard library's unstable sort.
    Quick,
    /// Bottom-up, between two halves of the memory.
    Merge,
}

impl Algorithm {
    /// Memory that it needs per number, in numbers.
    pub fn room(self) -> usize {
        match self {
            Algorithm::Heap | Algorithm::Quick => 1,
            Algorithm::Merge => 2,
        }
    }

    /// Sorts the first `count` numbers; algorithms that need more memory use the space after them.
    pub fn sort(self, memory: &mut [u32], count: usize) {
        let (numbers, rest) = memory.split_at_mut(count);
        match self {
            Algorithm::Heap => heap_sort(numbers),
            Algorithm::Quick => numbers.sort_unstable(),
            Algorithm::Merge => merge_sort(numbers, &mut rest[..count]),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

fn heap_sort(numbers: &mut [u32]) {
    for parent in (0..numbers.len() / 2).rev() {
        sink(numbers, parent);
    }
    for end in (1..numbers.len()).rev() {
        numbers.swap(0, end);
        sink(&mut numbers[..end], 0);
    }
}

/// Lets one number sink until both of its children are smaller.
fn sink(heap: &mut [u32], mut parent: usize) {
    let number = heap[parent];
    loop {
        let mut child = 2 * parent + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && heap[child + 1] > heap[child] {
            child += 1;
        }
        if heap[child] <= number {
            break;
        }
        heap[parent] = heap[child];
        parent = child;
    }
    heap[parent] = number;
}

fn merge_sort(numbers: &mut [u32], room: &mut [u32]) {
    let (count, mut width, mut passes) = (numbers.len(), 1, 0);
    let (mut from, mut to) = (&mut *numbers, &mut *room);
    while width < count {
        for (source, target) in from.chunks(2 * width).zip(to.chunks_mut(2 * width)) {
            let (one, other) = source.split_at(width.min(source.len()));
            merge(one, other, target);
        }
        (from, to) = (to, from);
        width *= 2;
        passes += 1;
    }
    if passes % 2 == 1 {
        numbers.copy_from_slice(room);
    }
}

fn merge(one: &[u32], other: &[u32], target: &mut [u32]) {
    let (mut left, mut right) = (0, 0);
    for place in target {
        if right == other.len() || (left < one.len() && one[left] <= other[right]) {
            *place = one[left];
            left += 1;
        } else {
            *place = other[right];
            right += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_mt::Mt;

    #[test]
    fn each_sorts_like_the_standard_library() {
        let mut random = Mt::new(1);
        for count in 0..300 {
            // Few distinct numbers, so that many are equal.
            let numbers: Vec<u32> = (0..count).map(|_| random.next_u32() % 100).collect();
            let mut expected = numbers.clone();
            expected.sort();
            for algorithm in Algorithm::value_variants() {
                let mut memory = numbers.clone();
                memory.resize(count * algorithm.room() + 3, 7);
                algorithm.sort(&mut memory, count);
                assert_eq!(memory[..count], expected, "{algorithm}");
                assert_eq!(memory[count * algorithm.room()..], [7; 3], "{algorithm} keeps to its room");
            }
        }
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for algorithm in Algorithm::value_variants() {
            assert_eq!(Algorithm::from_str(&algorithm.to_string(), false), Ok(*algorithm));
        }
    }
}
