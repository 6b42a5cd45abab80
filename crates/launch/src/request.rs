//! The request: which kind of huge page, and for which memory of the program.
//!
//! Owns: the names of both. Never touches: whether they are available.

use std::fmt;
use std::str::FromStr;

use heat::units::{BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE};
use kernel::hugetlb::size_name;

/// A kind of huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Transparent huge pages of 2 MiB, made from ordinary memory on request.
    Transparent,
    /// Smaller transparent huge pages (mTHP): 8 KiB to 1 MiB, where the kernel knows that size.
    Smaller(Bytes),
    /// Reserved pages of 2 MiB, from a pool (hugetlb).
    Huge,
    /// Reserved pages of 1 GiB, from a pool (hugetlb).
    Giant,
}

/// Whether to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// No.
    No,
    /// Unless there is a reason against it: the user did not say.
    ByDefault,
    /// The user requested it.
    Asked,
    /// Only for mappings that follow memory that the program has filled.
    AfterFilled,
}

/// Which pages code is put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantText {
    /// It stays as it is.
    No,
    /// Huge pages of its file, where profilers and debuggers find symbols as before.
    OfFile,
    /// The same; what cannot be on those is copied to memory of the process, where they find none.
    OrCopied,
}

/// Which memory to put on which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchRequest {
    /// The kind of page.
    pub pages: PageKind,
    /// The allocator's memory.
    pub heap: bool,
    /// Large mappings that the program makes itself.
    pub mmap: Want,
    /// Shared memory: System V segments; with transparent huge pages also its shared mappings.
    pub shm: bool,
    /// The program's code.
    pub text: WantText,
}

/// An unknown kind of page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a kind of huge page: write thp, 2M or 1G, or a smaller size of transparent ones such as 64K")]
pub struct PageKindError {
    given: String,
}

impl PageKind {
    /// Bytes in such a page.
    pub fn size(self) -> Bytes {
        match self {
            Self::Transparent | Self::Huge => Bytes(HUGE_PAGE),
            Self::Smaller(size) => size,
            Self::Giant => Bytes(GIANT_PAGE),
        }
    }

    /// Whether such pages come from a pool.
    pub fn is_reserved(self) -> bool {
        matches!(self, Self::Huge | Self::Giant)
    }
}

/// Its name on the command line.
impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transparent => f.write_str("thp"),
            Self::Smaller(_) | Self::Huge | Self::Giant => f.write_str(&size_name(self.size())),
        }
    }
}

impl FromStr for PageKind {
    type Err = PageKindError;

    fn from_str(text: &str) -> Result<Self, PageKindError> {
        let kinds = [Self::Transparent, Self::Huge, Self::Giant];
        let named = kinds.into_iter().find(|kind| kind.to_string().eq_ignore_ascii_case(text));
        let is_smaller = |size: &Bytes| size.0.is_power_of_two() && (2 * BASE_PAGE..HUGE_PAGE).contains(&size.0);
        let smaller = || text.parse().ok().filter(is_smaller).map(Self::Smaller);
        named.or_else(smaller).ok_or_else(|| PageKindError { given: text.to_owned() })
    }
}

impl LaunchRequest {
    /// The heap and large mappings: the default.
    pub fn of(pages: PageKind) -> Self {
        Self { pages, heap: true, mmap: Want::ByDefault, shm: false, text: WantText::No }
    }

    /// Shared memory only, aligned for huge pages.
    pub fn shared() -> Self {
        Self { pages: PageKind::Transparent, heap: false, mmap: Want::No, shm: true, text: WantText::No }
    }

    /// Only new mappings of a growing program, once it has filled the previous ones.
    pub fn growing() -> Self {
        Self { mmap: Want::AfterFilled, shm: false, ..Self::shared() }
    }

    /// Whether the user requested something that only the preload library can do.
    pub fn insists_on_preload(&self) -> bool {
        matches!(self.mmap, Want::Asked | Want::AfterFilled) || self.shm || self.text != WantText::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        let smaller = [8 << 10, 1 << 20].map(|size| PageKind::Smaller(Bytes(size)));
        for kind in [PageKind::Transparent, PageKind::Huge, PageKind::Giant].into_iter().chain(smaller) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("1g".parse(), Ok(PageKind::Giant));
        for text in ["", "2", "4K", "48K", "4M", "huge", "always"] {
            assert!(text.parse::<PageKind>().unwrap_err().to_string().contains("thp, 2M or 1G"), "{text}");
        }
    }
}
