//! The algorithms, in the shape that a C++ program gets from its standard library; the experiment timed `std::make_heap` with
//! `std::sort_heap`, and `std::sort`.
//!
//! Owns: their code. Never touches: memory but what is sorted.
//!
//! A shape is which numbers are compared and moved, in which order. It is libstdc++'s (GCC 12; `__adjust_heap` in `bits/stl_heap.h`,
//! `__introsort_loop` in `bits/stl_algo.h`), comparison by comparison, which the tests check.
//!
//! - *Heap sort* is in place and bottom-up: the hole that the largest number leaves sinks to the bottom, always to the larger child, and the
//!   number that is to fill it climbs from there. The way down goes anywhere in memory, so that nearly each step is a page walk.
//!   Microsoft's library, which the experiment probably had, does the same.
//! - *Quick sort* is introsort: partitions around the median of three pass through memory in order, a heap sort ends what gets too deep, and
//!   one insertion sort finishes pieces of up to 16 numbers. Microsoft's takes medians of more, and leaves pieces of 32.
//! - *Merge sort* is the textbook's, bottom-up between two halves of the same memory. A library's stable sort takes its own buffer from the
//!   heap, that is on pages of another kind than those under test.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// By a heap, from its top through all of the memory.
    Heap,
    /// The largest sixteenth only, by the same heap: what a heap sort does while its heap is largest, where the whole of it takes minutes.
    HeapTop,
    /// By partitions.
    Quick,
    /// Bottom-up, between two halves of the memory.
    Merge,
}

impl Algorithm {
    /// Memory that it needs per number, in numbers.
    pub fn room(self) -> usize {
        match self {
            Algorithm::Heap | Algorithm::HeapTop | Algorithm::Quick => 1,
            Algorithm::Merge => 2,
        }
    }

    /// Which of the ways to do it; results that were kept before they said so are of others.
    pub fn shape(self) -> &'static str {
        match self {
            Algorithm::Heap | Algorithm::HeapTop => "bottom-up",
            Algorithm::Quick => "introsort",
            Algorithm::Merge => "textbook",
        }
    }

    /// From where on the first `count` numbers are sorted; none before is larger than any from there on.
    pub fn sorted_from(self, count: usize) -> usize {
        match self {
            Algorithm::HeapTop => count - count / 16,
            Algorithm::Heap | Algorithm::Quick | Algorithm::Merge => 0,
        }
    }

    /// Sorts the first `count` numbers; there is room beyond them for those that need it.
    pub fn sort(self, memory: &mut [u32], count: usize) {
        let (numbers, rest) = memory.split_at_mut(count);
        match self {
            Algorithm::Heap | Algorithm::HeapTop => take_largest(numbers, self.sorted_from(count)),
            Algorithm::Quick => introsort(numbers),
            Algorithm::Merge => merge_sort(numbers, &mut rest[..count]),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

fn heap_sort<T: Ord + Copy>(numbers: &mut [T]) {
    take_largest(numbers, 0);
}

/// Makes a heap, and takes the largest number from it until no more than so many are left in it.
fn take_largest<T: Ord + Copy>(numbers: &mut [T], left: usize) {
    for parent in (0..numbers.len() / 2).rev() {
        fill_hole(numbers, parent, numbers[parent]);
    }
    for end in (left.max(1)..numbers.len()).rev() {
        let number = numbers[end];
        numbers[end] = numbers[0];
        fill_hole(&mut numbers[..end], 0, number);
    }
}

/// Puts a number where it belongs at or below `top`, whose own is not needed any more.
fn fill_hole<T: Ord + Copy>(heap: &mut [T], top: usize, number: T) {
    let mut hole = top;
    while 2 * hole + 1 < heap.len() {
        let (left, right) = (2 * hole + 1, 2 * hole + 2);
        let larger = if right == heap.len() || heap[right] < heap[left] { left } else { right };
        heap[hole] = heap[larger];
        hole = larger;
    }
    while hole > top && heap[(hole - 1) / 2] < number {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = number;
}

/// Pieces of so many numbers are left to insertion.
const SMALL: usize = 16;

fn introsort<T: Ord + Copy>(numbers: &mut [T]) {
    let depth = 2 * numbers.len().checked_ilog2().unwrap_or(0);
    sort_roughly(numbers, depth);
    insertion_sort(numbers);
}

/// Until nothing stands in another piece than it belongs to.
fn sort_roughly<T: Ord + Copy>(mut numbers: &mut [T], mut depth: u32) {
    while numbers.len() > SMALL {
        if depth == 0 {
            return heap_sort(numbers);
        }
        depth -= 1;
        let cut = partition(numbers);
        let (small, large) = numbers.split_at_mut(cut);
        sort_roughly(large, depth);
        numbers = small;
    }
}

/// Where those begin that are no smaller than the median of three, which is put first.
fn partition<T: Ord + Copy>(numbers: &mut [T]) -> usize {
    numbers.swap(0, median(numbers, [1, numbers.len() / 2, numbers.len() - 1]));
    let pivot = numbers[0];
    let (mut low, mut high) = (1, numbers.len());
    loop {
        while numbers[low] < pivot {
            low += 1;
        }
        high -= 1;
        while pivot < numbers[high] {
            high -= 1;
        }
        if low >= high {
            return low;
        }
        numbers.swap(low, high);
        low += 1;
    }
}

/// The place of the one in the middle.
fn median<T: Ord>(numbers: &[T], [one, two, three]: [usize; 3]) -> usize {
    let less = |left: usize, right: usize| numbers[left] < numbers[right];
    let (small, large) = if less(one, two) { (one, two) } else { (two, one) };
    match less(large, three) {
        true => large,
        false if less(small, three) => three,
        false => small,
    }
}

fn insertion_sort<T: Ord + Copy>(numbers: &mut [T]) {
    for place in 1..numbers.len() {
        let number = numbers[place];
        let mut hole = place;
        // The smallest number is among the first few, so that no later one belongs before them.
        if place < SMALL && number < numbers[0] {
            numbers.copy_within(..place, 1);
            hole = 0;
        }
        while hole > 0 && number < numbers[hole - 1] {
            numbers[hole] = numbers[hole - 1];
            hole -= 1;
        }
        numbers[hole] = number;
    }
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
    use std::cell::Cell;
    use std::cmp::Ordering;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand_mt::Mt;

    use super::*;

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
                let from = algorithm.sorted_from(count);
                assert_eq!(memory[from..count], expected[from..], "{algorithm}");
                memory[..from].sort();
                assert_eq!(memory[..from], expected[..from], "{algorithm} keeps what it does not sort");
                assert_eq!(memory[count * algorithm.room()..], [7; 3], "{algorithm} keeps to its room");
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sorted_is_sorted(numbers in vec(any::<u32>(), 0..1000), without_bits in 0u32..32) {
            let numbers: Vec<u32> = numbers.into_iter().map(|number| number >> without_bits).collect();
            let mut expected = numbers.clone();
            expected.sort();
            for algorithm in Algorithm::value_variants() {
                let mut memory = [numbers.clone(), numbers.clone()].concat();
                algorithm.sort(&mut memory, numbers.len());
                let from = algorithm.sorted_from(numbers.len());
                prop_assert_eq!(&memory[from..numbers.len()], &expected[from..], "{}", algorithm);
            }
        }
    }

    thread_local! {
        static SEEN: Cell<Comparisons> = const { Cell::new(Comparisons { count: 0, digest: 0 }) };
    }

    /// How many there were, and a number that tells which, and in which order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Comparisons {
        count: u64,
        digest: u64,
    }

    /// A number whose comparisons are seen.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Seen(u32);

    impl PartialOrd for Seen {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Seen {
        fn cmp(&self, other: &Self) -> Ordering {
            // FNV-1a.
            let with = |digest: u64, number: u32| (digest ^ u64::from(number)).wrapping_mul(0x0100_0000_01b3);
            let Comparisons { count, digest } = SEEN.get();
            SEEN.set(Comparisons { count: count + 1, digest: with(with(digest, self.0), other.0) });
            self.0.cmp(&other.0)
        }
    }

    fn comparisons(sort: fn(&mut [Seen]), numbers: &[u32]) -> Comparisons {
        let mut numbers: Vec<Seen> = numbers.iter().copied().map(Seen).collect();
        SEEN.set(Comparisons { count: 0, digest: 0xcbf2_9ce4_8422_2325 });
        sort(&mut numbers);
        let seen = SEEN.get();
        assert!(numbers.is_sorted_by_key(|number| number.0));
        seen
    }

    /// What tests/shape.cpp prints of these numbers when it is built with GCC 12: what libstdc++ compares, in its order.
    #[test]
    fn the_shapes_are_those_of_the_standard_library_of_cxx() {
        let mut random = Mt::new(5489);
        let random: Vec<u32> = (0..10_000).map(|_| random.next_u32()).collect();
        let few: Vec<u32> = random.iter().map(|number| number % 100).collect();
        // Musser's, whose every median of three is one of the smallest.
        let odd_then_far = (1..=1000).map(|number| if number % 2 == 1 { number } else { 999 + number });
        let killer: Vec<u32> = odd_then_far.chain((1..=1000).map(|number| 2 * number)).collect();
        let seen = |count, digest| Comparisons { count, digest };
        assert_eq!(comparisons(heap_sort, &random), seen(136_683, 0x2cd2_8237_d906_d5ed));
        assert_eq!(comparisons(heap_sort, &few), seen(136_261, 0xb544_c663_0ef5_dfa1));
        assert_eq!(comparisons(introsort, &random), seen(163_125, 0x3ddf_d9ba_c596_10f3));
        assert_eq!(comparisons(introsort, &few), seen(129_528, 0x2435_aa8c_b785_693e));
        assert_eq!(comparisons(introsort, &killer), seen(52_448, 0x82ff_eb8b_e555_0e10));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for algorithm in Algorithm::value_variants() {
            assert_eq!(Algorithm::from_str(&algorithm.to_string(), false), Ok(*algorithm));
        }
    }
}
