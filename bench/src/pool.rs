//! The pool of reserved huge pages that a turn needs: how many pages it needs, and how many it got.
//!
//! Owns: this arithmetic, and what stays in a pool between turns. Never touches: the pool; `SavedSettings` changes it and puts it back.
//!
//! Pages of 1 GiB are taken before any program has run and broken memory up, and stay in the pool from turn to turn as far as the
//! programs of other configurations leave room for them: once given back they may not be had again.

use std::path::Path;

use anyhow::{Context, Result};
use heat::units::{Bytes, GIANT_PAGE};
use serde::{Deserialize, Serialize};

use crate::sample::machine_memory;
use crate::settings::{SETTINGS, SavedSettings};
use crate::warm;

/// In addition to the program's known memory: other libraries' memory, and alignment.
const SPARE: u64 = 128 << 20;

/// A pool to be filled.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledPool {
    setting: String,
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
    /// As large as a program with that much memory needs, beside what was in the pool already.
    pub fn for_program(settings: &SavedSettings, page: Bytes, memory: Bytes) -> Result<Self> {
        let setting = setting(page);
        let as_found = number(&setting, &settings.found(&setting)?)?;
        Ok(Self { setting, as_found, page, wanted: wanted(page, memory) })
    }

    /// The memory that it will hold.
    pub fn bytes(&self) -> u64 {
        self.wanted * self.page.0
    }

    /// Fills it; what became of that.
    pub fn fill(&self, settings: &mut SavedSettings) -> Result<PoolUse> {
        settings.change(&self.setting, &(self.as_found + self.wanted).to_string())?;
        if self.page.0 == GIANT_PAGE {
            settings.keep(&self.setting)?;
        }
        let obtained = number(&self.setting, &settings.read(&self.setting)?)?.saturating_sub(self.as_found);
        Ok(PoolUse { page_bytes: self.page.0, wanted: self.wanted, obtained })
    }
}

/// Memory that is kept in pages of 1 GiB.
pub fn kept_bytes(settings: &SavedSettings) -> Result<u64> {
    Ok(kept_pages(settings)?.map_or(0, |(as_found, held)| held.saturating_sub(as_found) * GIANT_PAGE))
}

/// Gives back as many of the pages of 1 GiB that are kept as a program that needs so much memory leaves no room for.
pub fn leave_room(settings: &mut SavedSettings, needed: Bytes) -> Result<()> {
    let Some((as_found, held)) = kept_pages(settings)? else { return Ok(()) };
    let setting = setting(Bytes(GIANT_PAGE));
    let left = left_in_pool(as_found, held, Bytes(needed.0 + warm::SPARE), machine_memory()?.available);
    settings.change(&setting, &left.to_string())?;
    settings.keep(&setting)
}

/// How many pages of 1 GiB the pool had and has, where they are kept.
fn kept_pages(settings: &SavedSettings) -> Result<Option<(u64, u64)>> {
    let setting = setting(Bytes(GIANT_PAGE));
    if !settings.keeps(&setting) {
        return Ok(None);
    }
    Ok(Some((number(&setting, &settings.found(&setting)?)?, number(&setting, &settings.read(&setting)?)?)))
}

/// Pages of 1 GiB that may stay of those held, none of which are available memory.
fn left_in_pool(as_found: u64, held: u64, needed: Bytes, available: Bytes) -> u64 {
    let missing = needed.0.saturating_sub(available.0).div_ceil(GIANT_PAGE);
    held.saturating_sub(missing).max(as_found)
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

fn number(setting: &str, text: &str) -> Result<u64> {
    text.trim().parse().with_context(|| format!("{setting} holds '{text}', which is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heat::units::HUGE_PAGE;

    #[test]
    fn a_pool_holds_the_program_and_a_little_more() {
        assert_eq!(wanted(Bytes(GIANT_PAGE), Bytes(6 << 30)), 8);
        let small = wanted(Bytes(HUGE_PAGE), Bytes(6 << 30)) * HUGE_PAGE;
        assert!((6 << 30..7 << 30).contains(&small), "{small}");
    }

    #[test]
    fn pages_stay_as_far_as_there_is_room_beside_them() {
        let gigabytes = |count: u64| Bytes(count << 30);
        assert_eq!(left_in_pool(0, 12, gigabytes(8), gigabytes(10)), 12);
        assert_eq!(left_in_pool(0, 12, Bytes((12 << 30) + 1), gigabytes(10)), 9);
        assert_eq!(left_in_pool(0, 12, gigabytes(40), gigabytes(10)), 0);
        assert_eq!(left_in_pool(5, 12, gigabytes(40), gigabytes(10)), 5, "others' are theirs");
    }

    #[test]
    fn settings_are_named_as_the_kernel_does() {
        assert_eq!(setting(Bytes(HUGE_PAGE)), "../hugepages/hugepages-2048kB/nr_hugepages");
        assert_eq!(setting(Bytes(GIANT_PAGE)), "../hugepages/hugepages-1048576kB/nr_hugepages");
    }
}
