//! One thread's search: finds an excerpt's fingerprints in the index, adds up those that agree in time, and ranks the songs.
//!
//! Owns: the accumulators. Never touches: the index, which all threads read.
//!
//! Where an excerpt is of a song, its fingerprints occur in that song at places that all differ from those in the excerpt by the same
//! number. So each entry found counts for one song and one difference, and the highest count tells song and place.

use std::time::Instant;

use rand::rngs::Xoshiro256PlusPlus;

use super::index::{Index, PLACES, posting, song_and_place};
use super::music::{EXCERPT_LENGTH, Music};
use super::pieces::Pieces;
use crate::workload::search_work::SearchWork;

/// Differences told apart in a song; enough for all that there are, those before the song's start included.
pub const DIFFERENCES: u32 = PLACES;
/// Fingerprints of a song at most.
pub const LONGEST_SONG: u32 = DIFFERENCES - EXCERPT_LENGTH;
/// Songs in an answer.
const RANKED: usize = 10;

/// The state of a thread.
pub struct Searcher<'a> {
    music: &'a Music,
    index: &'a Index,
    random: Xoshiro256PlusPlus,
    /// For each song how many fingerprints agree on each difference; all 0 between two queries.
    counts: Pieces<u16>,
    /// The counts that are not 0: songs and differences, as an entry has songs and places.
    touched: Vec<u32>,
}

/// A song in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The song.
    pub song: u32,
    /// The place of it at which the excerpt begins.
    pub start: u32,
    /// Fingerprints that agree on that.
    pub count: u16,
}

impl<'a> Searcher<'a> {
    /// A searcher with accumulators for all songs.
    pub fn new(music: &'a Music, index: &'a Index, thread: u32) -> Self {
        let counts = Pieces::zeros(music.songs as usize * DIFFERENCES as usize);
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

    /// Adds up all entries of these fingerprints' lists; how many there were.
    fn look_up(&mut self, fingerprints: &[u32]) -> u64 {
        let mut entries = 0;
        for (heard, &fingerprint) in (0..).zip(fingerprints) {
            let postings = self.index.postings(fingerprint);
            entries += postings.len() as u64;
            for &entry in postings {
                let (song, place) = song_and_place(entry);
                let difference = posting(song, place.wrapping_sub(heard) % DIFFERENCES);
                let count = self.counts.at_mut(difference as usize);
                if *count == 0 {
                    self.touched.push(difference);
                }
                *count = count.saturating_add(1);
            }
        }
        entries
    }

    /// The songs and places on which most fingerprints agree, best first; resets all accumulators to 0.
    fn rank(&mut self) -> Vec<Ranked> {
        let mut best = Vec::with_capacity(RANKED + 1);
        for difference in self.touched.drain(..) {
            let (song, start) = song_and_place(difference);
            let count = std::mem::take(self.counts.at_mut(difference as usize));
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

#[cfg(test)]
mod tests {
    use super::super::index::Collection;
    use super::super::music::FINGERPRINTS;
    use super::*;
    use proptest::prelude::*;

    const SONG_LENGTH: u32 = LONGEST_SONG;

    fn index_of(music: &Music) -> Index {
        let collection = Collection {
            fingerprints: FINGERPRINTS,
            songs: music.songs,
            song_length: SONG_LENGTH,
            fingerprint: |song, place| music.fingerprint(song, place),
            longest_list: 7_500,
        };
        Index::build(&collection, 2)
    }

    #[test]
    fn the_song_and_its_place_are_found_in_the_noise() {
        let music = Music::new(60, SONG_LENGTH, 3);
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
        let music = Music::new(20, SONG_LENGTH, 5);
        let index = index_of(&music);
        let mut searcher = Searcher::new(&music, &index, 1);
        let work = (0..10).map(|_| searcher.query()).fold(SearchWork::default(), |mut sum, work| {
            sum += work;
            sum
        });
        assert_eq!((work.queries, work.found, work.look_ups), (10, 10, 10_000));
        assert!(work.postings > 8_000, "right fingerprints are in the index: {work:?}");
        assert!(searcher.touched.is_empty());
        assert!(searcher.counts.pieces().all(|counts| counts.iter().all(|&count| count == 0)));
    }

    #[test]
    fn a_song_that_is_not_there_agrees_on_nothing() {
        let (music, other) = (Music::new(20, SONG_LENGTH, 5), Music::new(20, SONG_LENGTH, 6));
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
