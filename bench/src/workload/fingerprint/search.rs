//! One thread's search: finds an excerpt's fingerprints in the index, adds up those that agree in time, and ranks the songs.
//!
//! Owns: the accumulators. Never touches: the index, which all threads read.
//!
//! If an excerpt is from a song, its fingerprints occur in that song at times that all differ from those in the excerpt by the same number of frames.
//! So each entry found counts for one song and one difference, and the highest count identifies song and place. Each song's accumulators are a
//! separate allocation, as in a program that does not know how many songs will come.

use std::time::Instant;

use rand::rngs::Xoshiro256PlusPlus;

use super::index::{Index, song_and_time};
use super::music::{EXCERPT_FRAMES, FRAMES, Music};
use crate::workload::search_work::SearchWork;

/// Distinct time differences per song; enough for all that can occur, including those before the song's start.
pub const DIFFERENCES: usize = 1 << DIFFERENCE_BITS;
/// The number of songs that fit in 32 bits together with a difference.
pub const MOST_SONGS: u32 = 1 << (32 - DIFFERENCE_BITS);
const DIFFERENCE_BITS: u32 = 13;
const _: () = assert!((FRAMES + EXCERPT_FRAMES) as usize <= DIFFERENCES);
/// Songs in an answer.
const RANKED: usize = 10;

/// The state of a thread.
pub struct Searcher<'a> {
    music: &'a Music,
    index: &'a Index,
    random: Xoshiro256PlusPlus,
    /// For each song, how many fingerprints agree on each difference; all 0 between two queries.
    counts: Vec<Box<[u16; DIFFERENCES]>>,
    /// The counts that are not 0, as song and difference.
    touched: Vec<u32>,
}

/// A song in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The song.
    pub song: u32,
    /// The frame of the song at which the excerpt begins.
    pub start: u32,
    /// Fingerprints that agree on that.
    pub count: u16,
}

impl<'a> Searcher<'a> {
    /// A searcher with accumulators for all songs.
    pub fn new(music: &'a Music, index: &'a Index, thread: u32) -> Self {
        let counts = (0..music.songs).map(|_| zeros()).collect();
        Self { music, index, random: music.random(thread), counts, touched: Vec::new() }
    }

    /// Takes a random excerpt of a song, and searches for it.
    pub fn query(&mut self) -> SearchWork {
        let began = Instant::now();
        let excerpt = self.music.excerpt(&mut self.random);
        let extracted = Instant::now();
        let postings = self.look_up(&excerpt.fingerprints);
        let looked_up = Instant::now();
        let ranked = self.rank();
        let nanoseconds = |from: Instant, to: Instant| (to - from).as_nanos() as u64;
        SearchWork {
            queries: 1,
            found: u64::from(ranked.first().is_some_and(|best| best.song == excerpt.song)),
            look_ups: excerpt.fingerprints.len() as u64,
            postings,
            extract_ns: nanoseconds(began, extracted),
            look_up_ns: nanoseconds(extracted, looked_up),
            rank_ns: nanoseconds(looked_up, Instant::now()),
        }
    }

    /// Adds up all entries in these fingerprints' lists; returns their number.
    fn look_up(&mut self, fingerprints: &[(u32, u32)]) -> u64 {
        let mut entries = 0;
        for &(fingerprint, heard) in fingerprints {
            let postings = self.index.postings(fingerprint);
            entries += postings.len() as u64;
            for &posting in postings {
                let (song, time) = song_and_time(posting);
                let difference = time.wrapping_sub(heard) as usize % DIFFERENCES;
                let count = &mut self.counts[song as usize][difference];
                if *count == 0 {
                    self.touched.push(song << DIFFERENCE_BITS | difference as u32);
                }
                *count = count.saturating_add(1);
            }
        }
        entries
    }

    /// The songs and places on which most fingerprints agree, best first; resets all accumulators to 0.
    fn rank(&mut self) -> Vec<Ranked> {
        let mut best = Vec::with_capacity(RANKED + 1);
        for place in self.touched.drain(..) {
            let (song, start) = (place >> DIFFERENCE_BITS, place % DIFFERENCES as u32);
            let count = std::mem::take(&mut self.counts[song as usize][start as usize]);
            let is_among_the_best = best.get(RANKED - 1).is_none_or(|last: &Ranked| count > last.count);
            if is_among_the_best {
                insert(&mut best, Ranked { song, start, count });
            }
        }
        best
    }
}

/// Inserts a song at its rank, unless it is already there with a better place.
fn insert(best: &mut Vec<Ranked>, found: Ranked) {
    if best.iter().any(|known| known.song == found.song && known.count >= found.count) {
        return;
    }
    best.retain(|known| known.song != found.song);
    let at = best.partition_point(|known| known.count >= found.count);
    best.insert(at, found);
    best.truncate(RANKED);
}

fn zeros() -> Box<[u16; DIFFERENCES]> {
    let zeros = vec![0; DIFFERENCES].into_boxed_slice();
    zeros.try_into().expect("as long as it was made")
}

#[cfg(test)]
mod tests {
    use super::super::index::Collection;
    use super::super::music::{FINGERPRINTS, SONG_LENGTH, frame};
    use super::*;
    use proptest::prelude::*;

    fn index_of(music: &Music) -> Index {
        let collection = Collection {
            fingerprints: FINGERPRINTS,
            songs: music.songs,
            song_length: SONG_LENGTH,
            fingerprint: |song, place| music.fingerprint(song, place),
            time: frame,
            longest_list: 7_500,
        };
        Index::build(&collection, 2)
    }

    #[test]
    fn the_song_and_its_place_are_found_in_the_noise() {
        let music = Music::new(60, 3);
        let index = index_of(&music);
        let mut searcher = Searcher::new(&music, &index, 0);
        let mut random = music.random(9);
        for _ in 0..30 {
            let excerpt = music.excerpt(&mut random);
            searcher.look_up(&excerpt.fingerprints);
            let ranked = searcher.rank();
            assert_eq!((ranked[0].song, ranked[0].start), (excerpt.song, excerpt.start), "{ranked:?}");
            assert!(ranked[0].count > 3 * ranked[1].count, "{ranked:?}");
            assert!(ranked.is_sorted_by(|left, right| left.count >= right.count) && ranked.len() == RANKED);
        }
    }

    #[test]
    fn nothing_is_left_of_a_query() {
        let music = Music::new(20, 5);
        let index = index_of(&music);
        let mut searcher = Searcher::new(&music, &index, 1);
        let work = (0..10).map(|_| searcher.query()).fold(SearchWork::default(), |mut sum, work| {
            sum += work;
            sum
        });
        assert_eq!((work.queries, work.found, work.look_ups), (10, 10, 10_000));
        assert!(work.postings > 8_000, "right fingerprints are in the index: {work:?}");
        assert!(searcher.touched.is_empty());
        assert!(searcher.counts.iter().all(|counts| counts.iter().all(|&count| count == 0)));
    }

    #[test]
    fn a_song_that_is_not_there_agrees_on_nothing() {
        let (music, other) = (Music::new(20, 5), Music::new(20, 6));
        let index = index_of(&music);
        let mut searcher = Searcher::new(&music, &index, 0);
        let excerpt = other.excerpt(&mut other.random(0));
        searcher.look_up(&excerpt.fingerprints);
        assert!(searcher.rank()[0].count < 50);
    }

    proptest! {
        #[test]
        fn the_best_are_kept_in_order(found in prop::collection::vec((0..15u32, 1..40u16), 0..60)) {
            let mut best = Vec::new();
            for &(song, count) in &found {
                insert(&mut best, Ranked { song, start: 0, count });
            }
            let mut expected: Vec<u16> = (0..15)
                .filter_map(|song| found.iter().filter(|each| each.0 == song).map(|each| each.1).max())
                .collect();
            expected.sort_unstable_by(|left, right| right.cmp(left));
            expected.truncate(RANKED);
            prop_assert_eq!(best.iter().map(|each| each.count).collect::<Vec<_>>(), expected);
        }
    }
}
