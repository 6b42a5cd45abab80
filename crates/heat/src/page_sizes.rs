//! Memory by the size of the page that maps it.
//!
//! Owns: sums. Never touches: how the sizes were found.

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Memory on pages of each size, the smallest first; sizes without any are left out. Serialized as an object, in bytes: `{"65536":1048576}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Bytes>")]
pub struct PageSizes(BTreeMap<Bytes, Bytes>);

impl PageSizes {
    /// Adds memory on pages of one size.
    pub fn add(&mut self, page: Bytes, memory: Bytes) {
        if memory > Bytes(0) {
            *self.0.entry(page).or_default() += memory;
        }
    }

    /// All of it.
    pub fn total(&self) -> Bytes {
        self.0.values().copied().sum()
    }

    /// The size of a page, and the memory on such pages.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, Bytes)> {
        self.0.iter().map(|(&page, &memory)| (page, memory))
    }

    /// So many times as much of each, in whole pages.
    pub fn times(&self, factor: f64) -> Self {
        let mut all = Self::default();
        let whole = |page: Bytes, memory: Bytes| (memory.0 as f64 * factor / page.0 as f64).round() as u64 * page.0;
        self.iter().for_each(|(page, memory)| all.add(page, Bytes(whole(page, memory))));
        all
    }
}

/// Keys of JSON are strings, which not every way to read it turns into numbers.
impl TryFrom<BTreeMap<String, Bytes>> for PageSizes {
    type Error = ParseIntError;

    fn try_from(sizes: BTreeMap<String, Bytes>) -> Result<Self, ParseIntError> {
        sizes.into_iter().map(|(page, memory)| Ok((Bytes(page.parse()?), memory))).collect::<Result<_, _>>().map(Self)
    }
}

impl AddAssign<&PageSizes> for PageSizes {
    fn add_assign(&mut self, other: &PageSizes) {
        other.iter().for_each(|(page, memory)| self.add(page, memory));
    }
}

/// `1 MiB on pages of 64 KiB, 128 KiB on pages of 16 KiB`: the largest first.
impl fmt::Display for PageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0.iter().rev().map(|(page, memory)| format!("{memory} on pages of {page}"));
        f.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up_and_are_told_largest_first() {
        let mut all = PageSizes::default();
        for (page, memory) in [(64, 1024), (16, 32), (64, 1024), (32, 0)] {
            all.add(Bytes(page << 10), Bytes(memory << 10));
        }
        assert_eq!(all.to_string(), "2 MiB on pages of 64 KiB, 32 KiB on pages of 16 KiB");
        all += &all.times(0.5);
        assert_eq!(all.total(), Bytes((3072 + 48) << 10));
        assert_eq!(all.times(0.3).to_string(), "896 KiB on pages of 64 KiB, 16 KiB on pages of 16 KiB");
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"{"16384":49152,"65536":3145728}"#);
        assert_eq!(serde_json::from_str::<PageSizes>(&text).unwrap(), all);
        assert!(serde_json::from_str::<PageSizes>(r#"{"64K":1}"#).is_err());
    }
}
