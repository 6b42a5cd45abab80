//! Random numbers for choosing pages and orders: SplitMix64.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Another one each time.
    pub(super) fn anew() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    #[cfg(test)]
    pub(super) fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(mixed ^ (mixed >> 31)) * end as u128) >> 64) as usize
    }

    /// Any order of these, each as likely.
    pub(super) fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (2..=values.len()).rev() {
            values.swap(end - 1, self.below(end));
        }
    }
}
