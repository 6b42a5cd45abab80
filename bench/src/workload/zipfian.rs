//! YCSB's scrambled zipfian choice of items, as its generator defines it.
//!
//! Owns: numbers. Never touches: keys or connections.
//!
//! YCSB draws from a zipfian distribution over ten billion imagined items with constant 0.99, and spreads the result
//! over the real items by a hash (FNV-1a of 64 bits), so that popular items lie anywhere. Drawing is the method of
//! Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.

use rand::RngExt;

const CONSTANT: f64 = 0.99;
/// YCSB's imagined items: 0 to ten billion, both included.
const IMAGINED_ITEMS: f64 = 10_000_000_001.0;
/// The sum of 1/i^0.99 over them, which YCSB keeps as a constant because it takes minutes to add up.
const ZETA_OF_IMAGINED_ITEMS: f64 = 26.469_028_201_783_02;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;

/// Chooses items from 0 to `items` - 1.
#[derive(Clone, Copy, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    eta: f64,
    second: f64,
}

impl ScrambledZipfian {
    /// For that many items; at least one.
    pub fn new(items: u64) -> Self {
        let eta = (1.0 - (2.0 / IMAGINED_ITEMS).powf(1.0 - CONSTANT)) / (1.0 - zeta(2) / ZETA_OF_IMAGINED_ITEMS);
        Self { items: items.max(1), eta, second: 1.0 + 0.5f64.powf(CONSTANT) }
    }

    /// The next item.
    pub fn next(&self, random: &mut impl rand::Rng) -> u64 {
        hash(self.rank(random.random::<f64>())) % self.items
    }

    /// The rank of popularity, 0 first, for a uniform number from 0 to 1.
    fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * ZETA_OF_IMAGINED_ITEMS;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        (IMAGINED_ITEMS * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - CONSTANT))) as u64
    }
}

/// FNV-1a over the eight bytes, lowest first; the sign is dropped as Java's `Math.abs` does.
pub fn hash(value: u64) -> u64 {
    let hashed =
        value.to_le_bytes().iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    (hashed as i64).wrapping_abs() as u64
}

fn zeta(items: u64) -> f64 {
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
        // The sum's head, and its tail by the Euler-Maclaurin formula.
        let (head, last) = (1_000_000u64, 10_000_000_000f64);
        let power = |x: f64| x.powf(-CONSTANT);
        let integral = (last.powf(1.0 - CONSTANT) - (head as f64).powf(1.0 - CONSTANT)) / (1.0 - CONSTANT);
        let sum = zeta(head) + integral + (power(last) - power(head as f64)) / 2.0;
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
    fn ranks_stay_among_the_imagined_items() {
        let zipfian = ScrambledZipfian::new(10);
        assert_eq!(zipfian.rank(0.0), 0);
        assert!(zipfian.rank(1.0 - f64::EPSILON) <= IMAGINED_ITEMS as u64);
        assert!(zipfian.next(&mut Xoshiro256PlusPlus::seed_from_u64(2)) < 10);
    }
}
