//! Synthetic music: the fingerprints of each song, and noisy excerpts of them.
//!
//! Owns: what a fingerprint is, how often each occurs, and what noise does. Never touches: the index.
//!
//! A second of a song has 128 fingerprints of 24 bits, each at a place of its own. Some fingerprints are far more frequent than others,
//! as in real music: the one of rank `r` occurs in proportion to `r` to the power of -2/3, which is what the cube of a uniform number
//! gives. With 250,000 songs of 48 seconds some 4,000 lists reach the limit of 7,500, and a fingerprint of a song meets some 950
//! entries on average. The published system has as many songs and 60 GB, which is whole songs, and several times as many entries in a
//! list of average length.
//!
//! A hash of the seed determines everything, so any part of any song can be computed without storing it.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use super::super::pages::below;

/// The number of different fingerprints.
pub const FINGERPRINTS: u32 = 1 << FINGERPRINT_BITS;
/// Fingerprints of an excerpt.
pub const EXCERPT_LENGTH: u32 = 1000;
/// How long an excerpt is.
pub const EXCERPT_SECONDS: f64 = EXCERPT_LENGTH as f64 / FINGERPRINTS_PER_SECOND as f64;
/// Fingerprints of a second of music.
pub const FINGERPRINTS_PER_SECOND: u32 = 128;

const FINGERPRINT_BITS: u32 = 24;
/// One in so many fingerprints of an excerpt is a wrong one.
const CORRUPTED_ONE_IN: usize = 5;
/// Odd, so that multiplication keeps fingerprints distinct; frequent ones are then spread among the others.
const SPREAD: u32 = 0x9E37_79B1;
/// From splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A collection of songs.
#[derive(Clone, Copy, Debug)]
pub struct Music {
    /// The number of songs.
    pub songs: u32,
    /// Fingerprints of each.
    song_length: u32,
    /// Which songs these are.
    salt: u64,
}

/// A few seconds of a song, recorded badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The song.
    pub song: u32,
    /// The place of the song at which it begins.
    pub start: u32,
    /// Fingerprints, one after the other.
    pub fingerprints: Vec<u32>,
}

impl Music {
    /// That many songs of so many fingerprints; at least one, as long as an excerpt.
    pub fn new(songs: u32, song_length: u32, seed: u64) -> Self {
        Self {
            songs: songs.max(1),
            song_length: song_length.max(EXCERPT_LENGTH),
            salt: mixed(seed.wrapping_add(GOLDEN)),
        }
    }

    /// The fingerprint at a place of a song, counted from 0.
    pub fn fingerprint(&self, song: u32, place: u32) -> u32 {
        let number = u64::from(song) << 16 | u64::from(place);
        skewed(mixed(self.salt.wrapping_add(number.wrapping_mul(GOLDEN))))
    }

    /// An excerpt of a song chosen at random.
    pub fn excerpt(&self, random: &mut Xoshiro256PlusPlus) -> Excerpt {
        let song = below(random, self.songs as usize) as u32;
        let start = below(random, (self.song_length - EXCERPT_LENGTH) as usize + 1) as u32;
        let heard = |place: u32| match below(random, CORRUPTED_ONE_IN) {
            // What is heard by mistake is as frequent in music as anything else.
            0 => skewed(random.next_u64()),
            _ => self.fingerprint(song, start + place),
        };
        Excerpt { song, start, fingerprints: (0..EXCERPT_LENGTH).map(heard).collect() }
    }

    /// The random number generator of a thread.
    pub fn random(&self, thread: u32) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.salt.wrapping_add(thread.into()))
    }
}

/// A fingerprint, as often as its rank says, for a number that is uniform.
fn skewed(uniform: u64) -> u32 {
    let uniform = uniform >> 32;
    let cube = (((uniform * uniform) >> 32) * uniform) >> 32;
    let rank = (cube >> (32 - FINGERPRINT_BITS)) as u32;
    rank.wrapping_mul(SPREAD) % FINGERPRINTS
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SONG_LENGTH: u32 = 30_000;

    #[test]
    fn a_song_is_what_its_seed_says() {
        let song = |seed, song| {
            let music = Music::new(10, SONG_LENGTH, seed);
            (0..SONG_LENGTH).map(|place| music.fingerprint(song, place)).collect::<Vec<_>>()
        };
        assert_eq!(song(1, 3), song(1, 3));
        assert_ne!(song(1, 3), song(2, 3));
        assert_ne!(song(1, 3), song(1, 4));
        assert!(song(1, 3).iter().all(|&fingerprint| fingerprint < FINGERPRINTS));
    }

    #[test]
    fn fingerprints_are_as_frequent_as_their_ranks_say() {
        let music = Music::new(64, SONG_LENGTH, 1);
        let mut counts = HashMap::<u32, u32>::new();
        for song in 0..64 {
            (0..SONG_LENGTH).for_each(|place| *counts.entry(music.fingerprint(song, place)).or_default() += 1);
        }
        let whole = f64::from(64 * SONG_LENGTH);
        let of_rank = |rank: u32| f64::from(counts[&(rank.wrapping_mul(SPREAD) % FINGERPRINTS)]) / whole;
        assert!((of_rank(0) - 1.0 / 256.0).abs() < 0.0005, "{}", of_rank(0));
        let second = 2f64.cbrt() / 256.0 - 1.0 / 256.0;
        assert!((of_rank(1) - second).abs() < 0.0003, "{} {second}", of_rank(1));
        assert!(counts.len() > 500_000, "rare ones are there too: {}", counts.len());
    }

    #[test]
    fn a_fifth_of_an_excerpt_is_wrong_and_the_rest_is_the_song() {
        let (music, mut right) = (Music::new(50, SONG_LENGTH, 7), 0);
        let mut random = music.random(0);
        for _ in 0..20 {
            let excerpt = music.excerpt(&mut random);
            assert_eq!(excerpt.fingerprints.len(), EXCERPT_LENGTH as usize);
            assert!(excerpt.start + EXCERPT_LENGTH <= SONG_LENGTH && excerpt.song < 50);
            for (place, &fingerprint) in (0..).zip(&excerpt.fingerprints) {
                let played = music.fingerprint(excerpt.song, excerpt.start + place);
                right += u32::from(played == fingerprint);
            }
        }
        let share = f64::from(right) / f64::from(20 * EXCERPT_LENGTH);
        assert!((share - 0.8).abs() < 0.02, "{share}");
    }

    #[test]
    fn threads_ask_for_different_songs() {
        let music = Music::new(1000, SONG_LENGTH, 1);
        assert_ne!(music.excerpt(&mut music.random(0)), music.excerpt(&mut music.random(1)));
        assert_eq!(music.excerpt(&mut music.random(0)), music.excerpt(&mut music.random(0)));
    }
}
