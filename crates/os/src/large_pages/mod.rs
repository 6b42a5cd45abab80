//! Large pages for memory that a program allocates once, at its start: one call for Linux and Windows.
//!
//! Owns: what may be asked for ([`LargePageOptions`]), in which order it is tried, what came of it ([`Got`]), and the memory until it is dropped.
//! Never touches: how a system is asked. That is `linux.rs` and `windows.rs`, of which one is chosen here, and for Windows
//! `virtual_alloc.rs`: what its answers mean, which is tested everywhere. `lock_right.rs` and `lsa.rs` have the right that Windows asks for.
//!
//! On Windows the memory is locked: it is never paged out, is not in the working set, and needs contiguous memory, which runs out soon
//! after the machine starts. On Linux the same holds for reserved pages; transparent huge pages may be paged out.
#![allow(unsafe_code)]

mod error;
#[cfg(target_os = "linux")]
mod linux;
mod lock_right;
#[cfg(any(windows, test))]
mod lsa;
#[cfg(any(windows, test))]
mod virtual_alloc;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(windows)]
use windows as system;

use std::ptr::NonNull;

pub use error::LargePagesError;
pub use lock_right::{LockRightChange, LockRightError, LockRightOutcome};
#[cfg(windows)]
pub use windows::{change_lock_right, standing};

const BASE_PAGE: usize = 4 << 10;
const GIANT_PAGE: usize = 1 << 30;
/// No processor today has more address space.
const MOST_BYTES: usize = 1 << 47;

/// Whether large pages are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargePagePolicy {
    /// Large pages if possible; otherwise, or for the rest, ordinary ones.
    #[default]
    Preferred,
    /// Large pages for all of it, or an error.
    Required,
    /// Ordinary pages only.
    Off,
}

/// Which large pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// The smallest that the system has: 2 MiB on x86-64.
    #[default]
    Large,
    /// 1 GiB.
    Giant,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargePageOptions {
    /// Whether large pages are wanted.
    pub policy: LargePagePolicy,
    /// Which size.
    pub page_size: PageSize,
    /// Whether large pages will do if giant ones are unavailable.
    pub smaller_pages: bool,
}

impl Default for LargePageOptions {
    fn default() -> Self {
        Self { policy: LargePagePolicy::Preferred, page_size: PageSize::Large, smaller_pages: true }
    }
}

/// The kind of page that backs the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Ordinary pages.
    Ordinary,
    /// Huge pages that Linux made on request, at least for a part of it.
    Transparent,
    /// Huge pages that were reserved in a pool of Linux.
    Pool,
    /// Large pages of Windows, locked.
    Locked,
}

/// What was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// Bytes: the size requested, rounded up to whole pages.
    pub bytes: usize,
    /// Bytes of one page of this kind.
    pub page_bytes: usize,
    /// How many of these bytes are on large pages.
    pub large_bytes: usize,
    /// What backs it.
    pub backing: Backing,
}

/// What Windows says about large pages for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Bytes of the smallest large page; 0 if there are none.
    pub minimum_bytes: usize,
    /// Whether the account was given the privilege to lock pages, according to its token.
    pub held: bool,
    /// Whether the privilege could be enabled, which every allocation attempts.
    pub enabled: Result<(), LargePagesError>,
    /// Whether the process runs elevated, which is a different matter.
    pub elevated: bool,
}

/// A kind of page to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Base,
    Large,
    Giant,
}

/// What a system provided.
struct Obtained<M> {
    /// Frees itself.
    memory: M,
    start: NonNull<u8>,
    got: Got,
    /// Why not all of it is on large pages, in the order in which they were tried.
    short: Vec<LargePagesError>,
}

/// Zeroed memory that is returned to the system when it is dropped.
#[derive(Debug)]
pub struct LargePages {
    /// Held for its drop.
    _memory: system::Memory,
    start: NonNull<u8>,
    got: Got,
    refusals: Vec<LargePagesError>,
}

impl LargePages {
    /// Allocates at least `bytes` of new memory, on the kind of pages requested. Large pages are populated at once: no access to them fails
    /// later.
    ///
    /// On Windows this enables the privilege to lock pages for the process for good. On Linux forked children do not inherit memory on
    /// reserved pages, because copying it could fail at any write.
    ///
    /// Errors: why the last kind of page that was allowed was not available.
    pub fn allocate(bytes: usize, options: LargePageOptions) -> Result<Self, LargePagesError> {
        let (obtained, refusals) = first_of(options, |page| system::allocate(bytes, page, options.policy))?;
        Ok(Self { _memory: obtained.memory, start: obtained.start, got: obtained.got, refusals })
    }

    /// What was allocated.
    pub fn got(&self) -> Got {
        self.got
    }

    /// Why the kinds of page tried before were not available, in the order in which they were tried; empty if everything is as requested.
    pub fn refusals(&self) -> &[LargePagesError] {
        &self.refusals
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: these bytes belong to this value until it is dropped, and are zero where nobody wrote.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.got.bytes) }
    }

    /// The contents, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the exclusive borrow keeps every other reference away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.got.bytes) }
    }

    /// The contents as 4-byte numbers, mutable.
    pub fn numbers_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `bytes_mut`; the memory starts at a page and consists of whole pages, and every bit pattern is a number.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.got.bytes / size_of::<u32>()) }
    }
}

// SAFETY: the memory belongs to this value alone, like a Vec's buffer; it is tied to no thread.
unsafe impl Send for LargePages {}
// SAFETY: shared references only read.
unsafe impl Sync for LargePages {}

/// The kinds of page that are acceptable, in the order in which they are tried.
fn acceptable(options: LargePageOptions) -> Vec<Page> {
    let smaller = options.page_size == PageSize::Giant && options.smaller_pages;
    let wanted = match options.page_size {
        PageSize::Large => Page::Large,
        PageSize::Giant => Page::Giant,
    };
    let large = std::iter::once(wanted).chain(smaller.then_some(Page::Large));
    match options.policy {
        LargePagePolicy::Off => vec![Page::Base],
        LargePagePolicy::Required => large.collect(),
        LargePagePolicy::Preferred => large.chain([Page::Base]).collect(),
    }
}

/// The first kind that is available, and why those before it were not.
fn first_of<M>(
    options: LargePageOptions,
    mut ask: impl FnMut(Page) -> Result<Obtained<M>, Vec<LargePagesError>>,
) -> Result<(Obtained<M>, Vec<LargePagesError>), LargePagesError> {
    let mut refusals = Vec::new();
    for page in acceptable(options) {
        match ask(page) {
            Ok(mut obtained) => {
                let all = obtained.short.is_empty();
                refusals.append(&mut obtained.short);
                if all || options.policy != LargePagePolicy::Required {
                    return Ok((obtained, refusals));
                }
            }
            Err(refused) => refusals.extend(refused),
        }
    }
    Err(refusals.pop().unwrap_or(LargePagesError::NotSupported { page_bytes: 0 }))
}

/// Rounded up to whole pages.
fn rounded(bytes: usize, page_bytes: usize) -> Result<usize, LargePagesError> {
    let rounded = bytes.checked_next_multiple_of(page_bytes);
    rounded.filter(|&rounded| (1..=MOST_BYTES).contains(&rounded)).ok_or(LargePagesError::Size { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAGMENTED: LargePagesError = LargePagesError::NoContiguousMemory { bytes: 8, page_bytes: 4, code: None };

    /// How a system answers for each kind of page: how many of 8 bytes it puts on large pages, or why none.
    fn asked(
        options: LargePageOptions,
        answers: &[(Page, Result<usize, LargePagesError>)],
    ) -> Result<(usize, Vec<LargePagesError>), LargePagesError> {
        let mut answers = answers.iter();
        let ask = |page| {
            let (expected, answer) = answers.next().expect("no more is asked for");
            assert_eq!(page, *expected);
            answer
                .map(|large_bytes| Obtained {
                    memory: (),
                    start: NonNull::dangling(),
                    got: Got { bytes: 8, page_bytes: 4, large_bytes, backing: Backing::Ordinary },
                    short: (page != Page::Base && large_bytes < 8).then_some(FRAGMENTED).into_iter().collect(),
                })
                .map_err(|refused| vec![refused])
        };
        let found = first_of(options, ask).map(|(obtained, refusals)| (obtained.got.large_bytes, refusals));
        assert!(answers.next().is_none(), "all of it is asked for");
        found
    }

    #[test]
    fn what_is_not_to_be_had_is_replaced_where_that_is_allowed() {
        let privilege = LargePagesError::PrivilegeNotAssigned;
        let preferred = LargePageOptions::default();
        assert_eq!(asked(preferred, &[(Page::Large, Ok(8))]), Ok((8, vec![])));
        assert_eq!(asked(preferred, &[(Page::Large, Err(privilege)), (Page::Base, Ok(0))]), Ok((0, vec![privilege])));
        let required = LargePageOptions { policy: LargePagePolicy::Required, ..preferred };
        assert_eq!(asked(required, &[(Page::Large, Err(privilege))]), Err(privilege));
        let off = LargePageOptions { policy: LargePagePolicy::Off, page_size: PageSize::Giant, ..preferred };
        assert_eq!(asked(off, &[(Page::Base, Ok(0))]), Ok((0, vec![])));
    }

    #[test]
    fn giant_pages_may_become_large_ones() {
        let (unsupported, quota) =
            (LargePagesError::NotSupported { page_bytes: GIANT_PAGE }, LargePagesError::Quota { bytes: 8 });
        let giant = LargePageOptions { page_size: PageSize::Giant, ..LargePageOptions::default() };
        let answers = [(Page::Giant, Err(unsupported)), (Page::Large, Err(FRAGMENTED)), (Page::Base, Ok(0))];
        assert_eq!(asked(giant, &answers), Ok((0, vec![unsupported, FRAGMENTED])));
        let only = LargePageOptions { smaller_pages: false, ..giant };
        assert_eq!(asked(only, &[(Page::Giant, Err(unsupported)), (Page::Base, Ok(0))]), Ok((0, vec![unsupported])));
        let required = LargePageOptions { policy: LargePagePolicy::Required, ..giant };
        assert_eq!(asked(required, &answers[..2]), Err(FRAGMENTED), "the last that was tried is the one to fix");
        let answers = [(Page::Giant, Err(unsupported)), (Page::Large, Err(quota)), (Page::Base, Err(quota))];
        assert_eq!(asked(giant, &answers), Err(quota));
    }

    #[test]
    fn a_part_is_enough_unless_all_is_required() {
        assert_eq!(asked(LargePageOptions::default(), &[(Page::Large, Ok(4))]), Ok((4, vec![FRAGMENTED])));
        let required = LargePageOptions { policy: LargePagePolicy::Required, ..LargePageOptions::default() };
        assert_eq!(asked(required, &[(Page::Large, Ok(4))]), Err(FRAGMENTED));
    }

    #[test]
    fn sizes_are_rounded_to_whole_pages() {
        assert_eq!(rounded(1, BASE_PAGE), Ok(BASE_PAGE));
        assert_eq!(rounded(2 << 20, 2 << 20), Ok(2 << 20));
        assert_eq!(rounded((2 << 20) + 1, 2 << 20), Ok(4 << 20));
        for bytes in [0, usize::MAX, MOST_BYTES + 1] {
            assert_eq!(rounded(bytes, GIANT_PAGE), Err(LargePagesError::Size { bytes }));
        }
    }

    /// On whichever system the test runs.
    #[test]
    fn memory_is_zeroed_writable_and_says_what_it_is() {
        for policy in [LargePagePolicy::Off, LargePagePolicy::Preferred] {
            let mut memory =
                LargePages::allocate(5_000_000, LargePageOptions { policy, ..LargePageOptions::default() }).unwrap();
            let got = memory.got();
            assert!(got.bytes >= 5_000_000 && got.bytes.is_multiple_of(got.page_bytes), "{got:?}");
            assert!(memory.bytes().len() == got.bytes && memory.bytes().iter().all(|&byte| byte == 0));
            assert_eq!(memory.start().as_ptr() as usize % got.page_bytes, 0);
            assert_eq!(got.backing == Backing::Ordinary, got.large_bytes == 0, "{got:?}");
            assert_eq!(
                policy == LargePagePolicy::Preferred && got.large_bytes < got.bytes,
                !memory.refusals().is_empty(),
                "{got:?}"
            );
            memory.numbers_mut().fill(u32::MAX);
            assert_eq!(memory.bytes_mut().last(), Some(&255));
        }
        assert_eq!(
            LargePages::allocate(0, LargePageOptions::default()).unwrap_err(),
            LargePagesError::Size { bytes: 0 }
        );
    }

    #[test]
    fn what_is_required_is_all_large_or_an_error() {
        let required = LargePageOptions { policy: LargePagePolicy::Required, ..LargePageOptions::default() };
        match LargePages::allocate(3 << 20, required) {
            Ok(memory) => assert_eq!((memory.got().bytes, memory.got().large_bytes), (4 << 20, 4 << 20)),
            Err(error) => assert!(!matches!(error, LargePagesError::Size { .. }), "{error}"),
        }
    }
}
