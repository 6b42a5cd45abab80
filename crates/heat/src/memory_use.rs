//! What memory is used for: the terms in which reclaim is described.
//!
//! Owns: the six uses, sets of them, and one value for each. Never touches: the system, or what happens to any memory.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A use of memory that the kernel can reclaim. Each page has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryUse {
    /// Files that processes map to execute them.
    Code,
    /// Files that processes map from their programs and libraries and only read.
    ReadOnlyData,
    /// Heaps, stacks, and a process's private copies of file pages.
    Anonymous,
    /// System V and POSIX shared memory, memfd, tmpfs.
    Shared,
    /// Other files that a process maps.
    MappedFiles,
    /// Files that no process maps: what reading and writing them left in memory.
    UnmappedCache,
}

impl MemoryUse {
    /// All uses, in display order.
    pub const ALL: [Self; 6] =
        [Self::Code, Self::ReadOnlyData, Self::Anonymous, Self::Shared, Self::MappedFiles, Self::UnmappedCache];

    /// Its name on the command line, in the configuration and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::ReadOnlyData => "read-only-data",
            Self::Anonymous => "anonymous",
            Self::Shared => "shared",
            Self::MappedFiles => "mapped-files",
            Self::UnmappedCache => "unmapped-cache",
        }
    }

    /// Whether a process has it in its address space, so that reclaiming it costs the process a page fault.
    pub fn is_mapped(self) -> bool {
        self != Self::UnmappedCache
    }

    /// Whether it can be reclaimed only by swapping.
    pub fn needs_swap(self) -> bool {
        matches!(self, Self::Anonymous | Self::Shared)
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MemoryUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|class| class.name()).collect();
            format!("'{text}' is not a use of memory: write one of {}", names.join(", "))
        })
    }
}

/// A value for each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByUse<T>([T; 6]);

impl<T> ByUse<T> {
    /// The value of each use by this function.
    pub fn of(value: impl FnMut(MemoryUse) -> T) -> Self {
        Self(MemoryUse::ALL.map(value))
    }

    /// Each use with its value.
    pub fn iter(&self) -> impl Iterator<Item = (MemoryUse, &T)> {
        MemoryUse::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<MemoryUse> for ByUse<T> {
    type Output = T;

    fn index(&self, class: MemoryUse) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<MemoryUse> for ByUse<T> {
    fn index_mut(&mut self, class: MemoryUse) -> &mut T {
        &mut self.0[class as usize]
    }
}

/// A set of uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uses(u8);

impl Uses {
    /// Every use.
    pub const ALL: Self = Self(0b11_1111);
    /// Everything that is read from and written to files.
    pub const OF_FILES: Self = Self(0b11_0011);
    /// The part of it that some process maps.
    pub const MAPPED_FILES: Self = Self(0b01_0011);

    /// Whether the set contains this use.
    pub fn has(self, class: MemoryUse) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// The uses for which it holds.
    pub fn that(holds: impl Fn(MemoryUse) -> bool) -> Self {
        MemoryUse::ALL.into_iter().filter(|&class| holds(class)).collect()
    }

    /// The uses in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The uses that are not in the other set.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it contains no use.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each use in the set, in display order.
    pub fn iter(self) -> impl Iterator<Item = MemoryUse> {
        MemoryUse::ALL.into_iter().filter(move |&class| self.has(class))
    }
}

impl FromIterator<MemoryUse> for Uses {
    fn from_iter<I: IntoIterator<Item = MemoryUse>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |set, class| set | 1 << class as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_uses() {
        for class in MemoryUse::ALL {
            assert_eq!(class.name().parse(), Ok(class));
            assert_eq!(serde_json::to_string(&class).unwrap(), format!("\"{class}\""));
        }
        assert!("heap".parse::<MemoryUse>().unwrap_err().contains("code, read-only-data, anonymous"));
    }

    #[test]
    fn sets_are_those_of_their_members() {
        let files = Uses::that(|class| !class.needs_swap());
        assert_eq!(files, Uses::OF_FILES);
        assert_eq!(Uses::that(|class| files.has(class) && class.is_mapped()), Uses::MAPPED_FILES);
        assert_eq!(Uses::ALL.iter().collect::<Vec<_>>(), MemoryUse::ALL);
        assert_eq!(Uses::ALL.without(files).iter().collect::<Vec<_>>(), [MemoryUse::Anonymous, MemoryUse::Shared]);
        assert!(files.and(Uses::ALL.without(files)).is_empty() && files.has(MemoryUse::UnmappedCache));
    }

    #[test]
    fn each_use_has_a_value_of_its_own() {
        let mut lengths = ByUse::of(|class| class.name().len());
        lengths[MemoryUse::Shared] = 0;
        assert_eq!((lengths[MemoryUse::Code], lengths[MemoryUse::Shared]), (4, 0));
        assert!(lengths.iter().all(|(class, &length)| length == class.name().len() || class == MemoryUse::Shared));
    }
}
