//! Scrambled zipfian choices of items: YCSB's, as its generator defines them, and one over the items themselves.
//!
//! Owns: numbers. Never touches: keys or connections.
//!
//! YCSB draws from a zipfian distribution over ten billion imagined items with constant 0.99, and a hash (FNV-1a of 64 bits) spreads the result over
//! the real items, so that popular items are anywhere among them. The method of drawing is from Gray et al., "Quickly generating billion-record
//! synthetic databases", SIGMOD 1994.
//!
//! Nearly all imagined items are seldom drawn, but together they are half of the draws. With 800,000 items the most popular tenth has half of the
//! draws; in a zipfian over the items themselves, with the same constant, it has 80 %.

use clap::ValueEnum;
use rand::RngExt;

const CONSTANT: f64 = 0.99;
/// YCSB's imagined items: 0 to ten billion, inclusive.
const IMAGINED_ITEMS: f64 = 10_000_000_001.0;
/// The sum of 1/i^0.99 over them, which YCSB also has as a constant because it takes minutes to add up.
const ZETA_OF_IMAGINED_ITEMS: f64 = 26.469_028_201_783_02;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;
/// A prime (2^32 divided by the golden ratio), so that it has no factor in common with any smaller number of items.
const SPREAD: u64 = 2_654_435_761;

/// Among which items the zipfian distribution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Popularity {
    /// YCSB's ten billion imagined items, hashed onto the real ones.
    Ycsb,
    /// The real items: fewer of them have most of the reads.
    Items,
}

/// Chooses items from 0 to `items` - 1.
#[derive(Clone, Copy, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    popularity: Popularity,
    ranks: f64,
    zeta: f64,
    eta: f64,
    second: f64,
}

impl ScrambledZipfian {
    /// YCSB's distribution over that many items; at least one.
    pub fn new(items: u64) -> Self {
        Self::of(Popularity::Ycsb, items)
    }

    /// This distribution over that many items, at least one, and fewer than 2^31.
    pub fn of(popularity: Popularity, items: u64) -> Self {
        let items = items.clamp(1, (1 << 31) - 1);
        let (ranks, zeta) = match popularity {
            Popularity::Ycsb => (IMAGINED_ITEMS, ZETA_OF_IMAGINED_ITEMS),
            Popularity::Items => (items as f64, zeta_of(items)),
        };
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - CONSTANT)) / (1.0 - zeta_of(2) / zeta);
        Self { items, popularity, ranks, zeta, eta, second: 1.0 + 0.5f64.powf(CONSTANT) }
    }

    /// The next item.
    pub fn next(&self, random: &mut impl rand::Rng) -> u64 {
        self.item(self.rank(random.random::<f64>()))
    }

    fn item(&self, rank: u64) -> u64 {
        match self.popularity {
            Popularity::Ycsb => hash(rank) % self.items,
            // Each rank maps to a different item.
            Popularity::Items => rank * SPREAD % self.items,
        }
    }

    /// The rank of popularity, 0 first, for a uniform number from 0 to 1.
    fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        (self.ranks * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - CONSTANT))) as u64
    }
}

/// FNV-1a over the eight bytes, lowest first; the sign is dropped as Java's `Math.abs` does.
pub fn hash(value: u64) -> u64 {
    let hashed =
        value.to_le_bytes().iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    (hashed as i64).wrapping_abs() as u64
}

fn zeta_of(items: u64) -> f64 {
    (1..=items).map(|item| (item as f64).powf(-CONSTANT)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    #[test]
    fn the_hash_is_fnv_1a() {
        // FNV-1a of eight zero bytes, a published test vector.
        assert_eq!(hash(0), (0xa8c7_f832_281a_39c5_u64 as i64).wrapping_abs() as u64);
        assert_ne!(hash(1), hash(256));
    }

    #[test]
    fn the_constant_is_the_sum_that_it_stands_for() {
        // The head of the sum, and its tail by the Euler-Maclaurin formula.
        let (head, last) = (1_000_000u64, 10_000_000_000f64);
        let power = |x: f64| x.powf(-CONSTANT);
        let integral = (last.powf(1.0 - CONSTANT) - (head as f64).powf(1.0 - CONSTANT)) / (1.0 - CONSTANT);
        let sum = zeta_of(head) + integral + (power(last) - power(head as f64)) / 2.0;
        assert!((sum - ZETA_OF_IMAGINED_ITEMS).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn the_most_popular_items_come_as_often_as_the_distribution_says() {
        let zipfian = ScrambledZipfian::new(1_000_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let draws = 1_000_000;
        let mut counts = std::collections::HashMap::<u64, u32>::new();
        (0..draws).for_each(|_| *counts.entry(zipfian.next(&mut random)).or_default() += 1);
        for (rank, chance) in [(0, 1.0), (1, 0.5f64.powf(CONSTANT))] {
            let expected = f64::from(draws) * chance / ZETA_OF_IMAGINED_ITEMS;
            let seen = f64::from(counts[&(hash(rank) % 1_000_000)]);
            assert!((seen / expected - 1.0).abs() < 0.03, "rank {rank}: {seen} of {expected}");
        }
    }

    #[test]
    fn of_the_items_themselves_few_have_most_draws() {
        let items = 800_000;
        let zipfian = ScrambledZipfian::of(Popularity::Items, items);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = vec![0u32; items as usize];
        (0..1_000_000).for_each(|_| counts[zipfian.next(&mut random) as usize] += 1);
        let of_tenth: u32 = (0..items / 10).map(|rank| counts[zipfian.item(rank) as usize]).sum();
        let expected = zeta_of(items / 10) / zeta_of(items);
        let seen = f64::from(of_tenth) / 1e6;
        assert!((seen - expected).abs() < 0.01 && (0.8..0.85).contains(&expected), "{seen} of {expected}");
    }

    #[test]
    fn each_rank_has_an_item_of_its_own() {
        for items in [1, 2, 10, 1000, 65_536] {
            let zipfian = ScrambledZipfian::of(Popularity::Items, items);
            let mut all: Vec<u64> = (0..items).map(|rank| zipfian.item(rank)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..items).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ranks_stay_among_the_imagined_items() {
        let zipfian = ScrambledZipfian::new(10);
        assert_eq!(zipfian.rank(0.0), 0);
        assert!(zipfian.rank(1.0 - f64::EPSILON) <= IMAGINED_ITEMS as u64);
        assert!(zipfian.next(&mut Xoshiro256PlusPlus::seed_from_u64(2)) < 10);
    }
}
