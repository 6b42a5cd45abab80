//! How long a read takes that depends on the previous one.
//!
//! Owns: a chain through all lines of some pages, and its timing. Never touches: other pages.

use std::hint::black_box;
use std::time::Instant;

use heat::units::BASE_PAGE;

use fastrand::Rng;

const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
/// The minimum number of reads that are timed together.
const READS: usize = 1 << 15;
/// How often to time; an interruption prolongs one of them, and the shortest counts.
const TIMES: usize = 3;

/// Nanoseconds per read, going repeatedly through all lines of these pages in one random order.
pub(super) fn nanos_per_read(words: &mut [u64], pages: &[usize], line_words: usize, random: &mut Rng) -> f64 {
    let lines = link(words, pages, line_words, random);
    let reads = READS.next_multiple_of(lines);
    let start = pages[0] * PAGE_WORDS;
    follow(words, start, lines);
    let time = || {
        let began = Instant::now();
        follow(words, start, reads);
        began.elapsed().as_nanos() as f64 / reads as f64
    };
    (0..TIMES).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// Writes into each line the position of the next one, in a circle; returns the number of lines.
fn link(words: &mut [u64], pages: &[usize], line_words: usize, random: &mut Rng) -> usize {
    let lines = |&page: &usize| (0..PAGE_WORDS).step_by(line_words).map(move |word| page * PAGE_WORDS + word);
    let mut order: Vec<usize> = pages.iter().flat_map(lines).collect();
    random.shuffle(&mut order);
    let next = order.iter().copied().cycle().skip(1);
    order.iter().zip(next).for_each(|(&line, next)| words[line] = next as u64);
    order.len()
}

/// Follows the circle for this many steps.
fn follow(words: &[u64], start: usize, steps: usize) {
    let mut line = start;
    for _ in 0..steps {
        line = words[line] as usize;
    }
    black_box(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_reaches_each_line_once_and_no_other_page() {
        let mut words = vec![u64::MAX; 5 * PAGE_WORDS];
        let lines = link(&mut words, &[3, 1], 8, &mut Rng::with_seed(7));
        assert_eq!(lines, 128);
        let mut seen = vec![false; words.len()];
        let mut line = 3 * PAGE_WORDS;
        for _ in 0..lines {
            assert!(!std::mem::replace(&mut seen[line], true));
            line = words[line] as usize;
        }
        assert_eq!(line, 3 * PAGE_WORDS, "it closes");
        for (word, seen) in seen.into_iter().enumerate() {
            assert_eq!(seen, word % 8 == 0 && [1, 3].contains(&(word / PAGE_WORDS)), "{word}");
        }
        assert!(nanos_per_read(&mut words, &[0, 2], 8, &mut Rng::with_seed(7)) > 0.0);
    }
}
