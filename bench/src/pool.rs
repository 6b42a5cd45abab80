//! The pool of reserved huge pages that a turn needs: how many pages it needs, and how many it got.
//!
//! Owns: this arithmetic. Never touches: the pool; `SavedSettings` changes and restores it.

use std::path::Path;

use anyhow::{Context, Result};
use heat::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::settings::{SETTINGS, SavedSettings};

/// In addition to the program's known memory: other libraries' memory, and alignment.
const SPARE: u64 = 128 << 20;

/// A pool to be filled.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledPool {
    setting: String,
    /// Its new size, as the setting is written.
    size: String,
    as_found: u64,
    page: Bytes,
    wanted: u64,
}

/// A turn's pages of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUse {
    /// Bytes in one page.
    pub page_bytes: u64,
    /// Pages requested.
    pub wanted: u64,
    /// Pages obtained: contiguous memory may be short.
    pub obtained: u64,
}

impl FilledPool {
    /// Large enough for a program with that much memory, in addition to the pool's present pages.
    pub fn for_program(settings: &SavedSettings, page: Bytes, memory: Bytes) -> Result<Self> {
        let setting = setting(page);
        let as_found = size(settings, &setting)?;
        let wanted = wanted(page, memory);
        Ok(Self { setting, size: (as_found + wanted).to_string(), as_found, page, wanted })
    }

    /// The setting to write, and its value.
    pub fn change(&self) -> (&str, &str) {
        (&self.setting, &self.size)
    }

    /// The memory that it will hold.
    pub fn bytes(&self) -> u64 {
        self.wanted * self.page.0
    }

    /// The result after the setting was written.
    pub fn obtained(&self, settings: &SavedSettings) -> Result<PoolUse> {
        let obtained = size(settings, &self.setting)?.saturating_sub(self.as_found);
        Ok(PoolUse { page_bytes: self.page.0, wanted: self.wanted, obtained })
    }
}

/// Whether this machine has pages of that size.
pub fn is_there(page: Bytes) -> bool {
    Path::new(SETTINGS).join(setting(page)).is_file()
}

/// Mappings are rounded up to whole pages, so one more than the memory needs.
fn wanted(page: Bytes, memory: Bytes) -> u64 {
    (memory.0 + memory.0 / 16 + SPARE).div_ceil(page.0) + 1
}

/// The pool's size as a setting; its path is relative to the settings of transparent huge pages.
fn setting(page: Bytes) -> String {
    format!("../hugepages/hugepages-{}kB/nr_hugepages", page.0 >> 10)
}

fn size(settings: &SavedSettings, setting: &str) -> Result<u64> {
    let text = settings.read(setting)?;
    text.parse().with_context(|| format!("{setting} holds '{text}', which is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::units::{GIANT_PAGE, HUGE_PAGE};

    #[test]
    fn a_pool_holds_the_program_and_a_little_more() {
        assert_eq!(wanted(Bytes(GIANT_PAGE), Bytes(6 << 30)), 8);
        let small = wanted(Bytes(HUGE_PAGE), Bytes(6 << 30)) * HUGE_PAGE;
        assert!((6 << 30..7 << 30).contains(&small), "{small}");
    }

    #[test]
    fn settings_are_named_as_the_kernel_does() {
        assert_eq!(setting(Bytes(HUGE_PAGE)), "../hugepages/hugepages-2048kB/nr_hugepages");
        assert_eq!(setting(Bytes(GIANT_PAGE)), "../hugepages/hugepages-1048576kB/nr_hugepages");
    }
}
