//! The launcher's settings, from the environment at the time the library was loaded.
//!
//! Owns: the meaning of `HUGEPILOT_PAGES`, `_MMAP`, `_SHM` and `_TEXT`. Never touches: the environment afterwards, or any
//! other variable. An unknown value is ignored.

use std::ffi::c_int;
use std::sync::OnceLock;

/// A page size of the machine's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPage {
    shift: u32,
}

impl PoolPage {
    const TWO_MEBIBYTES: Self = Self { shift: 21 };
    const ONE_GIBIBYTE: Self = Self { shift: 30 };

    pub fn bytes(self) -> usize {
        1 << self.shift
    }

    /// The size flag for mmap and shmget, in addition to `MAP_HUGETLB` and `SHM_HUGETLB`.
    pub fn flag(self) -> c_int {
        (self.shift as c_int) << libc::MAP_HUGE_SHIFT
    }
}

/// How program text is put on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not at all.
    Left,
    /// Where the file's own pages can be huge.
    OfFile,
    /// Where they cannot, by a copy.
    OrCopied,
}

/// Which large mappings are put on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    None,
    All,
    /// Those of a program that has filled the previous ones.
    AfterFilled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreloadSettings {
    /// None: transparent huge pages.
    pub pool: Option<PoolPage>,
    pub mmap: Maps,
    pub shm: bool,
    pub text: Text,
}

impl PreloadSettings {
    /// None if the library should do nothing.
    pub fn read<'a>(variable: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Self> {
        let pool = match variable("HUGEPILOT_PAGES")? {
            b"thp" => None,
            b"2M" => Some(PoolPage::TWO_MEBIBYTES),
            b"1G" => Some(PoolPage::ONE_GIBIBYTE),
            _ => return None,
        };
        let text = match variable("HUGEPILOT_TEXT") {
            Some(b"1") => Text::OfFile,
            Some(b"copy") => Text::OrCopied,
            _ => Text::Left,
        };
        let mmap = match variable("HUGEPILOT_MMAP") {
            Some(b"1") => Maps::All,
            Some(b"after-filled") => Maps::AfterFilled,
            _ => Maps::None,
        };
        Some(Self { pool, mmap, shm: variable("HUGEPILOT_SHM") == Some(b"1"), text })
    }
}

static SETTINGS: OnceLock<PreloadSettings> = OnceLock::new();

/// Once, before the program starts.
pub fn set(settings: PreloadSettings) {
    let _ = SETTINGS.set(settings);
}

/// None if the library should do nothing, or not yet.
pub fn get() -> Option<&'static PreloadSettings> {
    SETTINGS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)]) -> Option<PreloadSettings> {
        PreloadSettings::read(|name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
        })
    }

    #[test]
    fn what_is_not_asked_for_is_off() {
        let off = PreloadSettings { pool: None, mmap: Maps::None, shm: false, text: Text::Left };
        assert_eq!(read(&[("HUGEPILOT_MMAP", "1")]), None);
        assert_eq!(read(&[("HUGEPILOT_PAGES", "4K"), ("HUGEPILOT_MMAP", "1")]), None);
        let growing = [("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_MMAP", "after-filled")];
        assert_eq!(read(&growing), Some(PreloadSettings { mmap: Maps::AfterFilled, ..off }));
        assert_eq!(read(&[("HUGEPILOT_PAGES", "thp"), ("HUGEPILOT_SHM", "0"), ("HUGEPILOT_TEXT", "")]), Some(off));
        let all =
            [("HUGEPILOT_PAGES", "1G"), ("HUGEPILOT_MMAP", "1"), ("HUGEPILOT_SHM", "1"), ("HUGEPILOT_TEXT", "copy")];
        let pool = Some(PoolPage::ONE_GIBIBYTE);
        assert_eq!(read(&all), Some(PreloadSettings { pool, mmap: Maps::All, shm: true, text: Text::OrCopied }));
    }

    #[test]
    fn sizes_are_told_as_the_kernel_wants_them() {
        assert_eq!((PoolPage::TWO_MEBIBYTES.bytes(), PoolPage::TWO_MEBIBYTES.flag()), (2 << 20, libc::MAP_HUGE_2MB));
        assert_eq!((PoolPage::ONE_GIBIBYTE.bytes(), PoolPage::ONE_GIBIBYTE.flag()), (1 << 30, libc::MAP_HUGE_1GB));
    }
}
