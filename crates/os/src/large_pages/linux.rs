//! Large pages on Linux: reserved ones if the pool has enough, otherwise transparent ones, made and verified at once.
//!
//! Owns: which calls are made, and what their errors mean. Never touches: the machine's settings, or the pool's size.

use std::io;
use std::ptr::NonNull;

use super::{BASE_PAGE, Backing, GIANT_PAGE, Got, LargePagePolicy, LargePagesError, Obtained, Page, rounded};
use crate::advise::collapse_own;
use crate::memory::{AlignedMemory, OwnAdvice, available_bytes};

pub(super) use crate::memory::AlignedMemory as Memory;

const LARGE_PAGE: usize = 2 << 20;

pub(super) fn allocate(
    bytes: usize,
    page: Page,
    policy: LargePagePolicy,
) -> Result<Obtained<Memory>, Vec<LargePagesError>> {
    let in_pages_of = |page_bytes| rounded(bytes, page_bytes).map_err(|error| vec![error]);
    match page {
        Page::Base => ordinary(in_pages_of(BASE_PAGE)?, policy).map_err(|error| vec![error]),
        Page::Large => {
            let bytes = in_pages_of(LARGE_PAGE)?;
            reserved(bytes, LARGE_PAGE, AlignedMemory::pooled)
                .or_else(|short| instead(short, transparent(bytes, policy)))
        }
        Page::Giant => {
            reserved(in_pages_of(GIANT_PAGE)?, GIANT_PAGE, AlignedMemory::giant).map_err(|error| vec![error])
        }
    }
}

/// Transparent pages in place of those that the pool refused. The refusal is not reported if all memory ended up on huge pages.
fn instead<M>(
    refused: LargePagesError,
    transparent: Result<Obtained<M>, LargePagesError>,
) -> Result<Obtained<M>, Vec<LargePagesError>> {
    match transparent {
        Ok(obtained) if obtained.short.is_empty() => Ok(obtained),
        Ok(obtained) => Ok(Obtained { short: [vec![refused], obtained.short].concat(), ..obtained }),
        Err(error) => Err(vec![refused, error]),
    }
}

fn ordinary(bytes: usize, policy: LargePagePolicy) -> Result<Obtained<Memory>, LargePagesError> {
    let mut memory = AlignedMemory::anonymous(bytes).map_err(|error| limit(&error, bytes, "map memory"))?;
    // Otherwise the kernel and the pilot may still promote some of it.
    if policy == LargePagePolicy::Off {
        // A kernel without huge pages refuses this, and then it is not needed.
        let _ = memory.advise(0, bytes, OwnAdvice::NoHugePage);
    }
    Ok(obtained(memory, Backing::Ordinary, BASE_PAGE, 0, Vec::new()))
}

fn reserved(
    bytes: usize,
    page_bytes: usize,
    map: impl FnOnce(usize) -> io::Result<AlignedMemory>,
) -> Result<Obtained<Memory>, LargePagesError> {
    let mut memory = map(bytes).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => LargePagesError::PoolShort { bytes, page_bytes },
        Some(libc::EINVAL | libc::ENOENT | libc::ENOSYS | libc::EOPNOTSUPP) => {
            LargePagesError::NotSupported { page_bytes }
        }
        _ => system(&error, "map reserved pages"),
    })?;
    // A child's copy could take pages that nobody reserved for it. Populating now turns a control group's limit into an error instead
    // of a signal.
    memory
        .advise(0, bytes, OwnAdvice::NotForChildren)
        .and_then(|()| memory.advise(0, bytes, OwnAdvice::Populate))
        .map_err(|error| limit(&error, bytes, "take reserved pages"))?;
    Ok(obtained(memory, Backing::Pool, page_bytes, bytes, Vec::new()))
}

fn transparent(bytes: usize, policy: LargePagePolicy) -> Result<Obtained<Memory>, LargePagesError> {
    ensure_available(bytes)?;
    let mut memory = AlignedMemory::anonymous(bytes).map_err(|error| limit(&error, bytes, "map memory"))?;
    // This has no effect where huge pages are switched off, but collapsing may still make them.
    let _ = memory.advise(0, bytes, OwnAdvice::HugePage);
    memory.advise(0, bytes, OwnAdvice::Populate).map_err(|error| limit(&error, bytes, "fill memory"))?;
    // Success confirms that this is a huge page now, even if it already was one.
    let collapse = |offset| collapse_own(memory.address() + offset as u64, LARGE_PAGE as u64);
    let (large_bytes, short) = collapse_all(bytes, policy, collapse);
    match short {
        Some(why) if large_bytes == 0 => Err(why),
        short => Ok(obtained(memory, Backing::Transparent, LARGE_PAGE, large_bytes, Vec::from_iter(short))),
    }
}

/// How many bytes are on huge pages afterwards, and why not all.
fn collapse_all(
    bytes: usize,
    policy: LargePagePolicy,
    mut collapse: impl FnMut(usize) -> io::Result<()>,
) -> (usize, Option<LargePagesError>) {
    let (mut large_bytes, mut short) = (0, None);
    for offset in (0..bytes).step_by(LARGE_PAGE) {
        match collapse(offset) {
            Ok(()) => large_bytes += LARGE_PAGE,
            Err(error) => short = short.or(Some(not_collapsed(&error, bytes))),
        }
        // The kernel refuses only after compaction or a wait; do not spend that time on what is an error already.
        if policy == LargePagePolicy::Required && short.is_some() {
            break;
        }
    }
    (large_bytes, short)
}

/// Filling more memory than is available would get some program killed, most likely this one.
fn ensure_available(bytes: usize) -> Result<(), LargePagesError> {
    // If that is unknown, the kernel decides.
    let available = available_bytes().ok().flatten();
    if available.is_some_and(|available| bytes as u64 > available) {
        return Err(LargePagesError::Quota { bytes });
    }
    Ok(())
}

fn obtained(
    mut memory: Memory,
    backing: Backing,
    page_bytes: usize,
    large_bytes: usize,
    short: Vec<LargePagesError>,
) -> Obtained<Memory> {
    let got = Got { bytes: memory.len(), page_bytes, large_bytes, backing };
    Obtained { start: NonNull::from(memory.bytes_mut()).cast(), memory, got, short }
}

fn not_collapsed(error: &io::Error, bytes: usize) -> LargePagesError {
    let page_bytes = LARGE_PAGE;
    match error.raw_os_error() {
        Some(libc::EINVAL) => LargePagesError::NotSupported { page_bytes },
        Some(libc::ENOMEM | libc::EAGAIN) => LargePagesError::NoContiguousMemory { bytes, page_bytes, code: None },
        Some(libc::EBUSY) => LargePagesError::Quota { bytes },
        _ => system(error, "put memory on huge pages"),
    }
}

/// The error of a call that failed for lack of memory.
fn limit(error: &io::Error, bytes: usize, doing: &'static str) -> LargePagesError {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EFAULT) => LargePagesError::Quota { bytes },
        _ => system(error, doing),
    }
}

fn system(error: &io::Error, doing: &'static str) -> LargePagesError {
    LargePagesError::System { doing, code: error.raw_os_error().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large_pages::{LargePageOptions, LargePages};

    /// What the kernel says about the mapping that contains this byte.
    fn said_of(start: NonNull<u8>, name: &str) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let has_it = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range = range.map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)));
            let start = start.as_ptr() as u64;
            matches!(range, Some((Ok(from), Ok(to))) if (from..to).contains(&start))
        };
        let mut lines = smaps.lines().skip_while(|line| !has_it(line));
        lines.find_map(|line| line.strip_prefix(name)).expect("it is mapped").to_owned()
    }

    fn huge_bytes(start: NonNull<u8>) -> u64 {
        said_of(start, "AnonHugePages:").split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    fn keeps_huge_pages_away(start: NonNull<u8>) -> bool {
        said_of(start, "VmFlags:").split_whitespace().any(|flag| flag == "nh")
    }

    #[test]
    fn what_it_says_is_what_the_kernel_says() {
        // Memory from a pool is never on transparent pages, so ask for these directly.
        match transparent(6 << 20, LargePagePolicy::Preferred) {
            Ok(Obtained { got, start, memory, .. }) => {
                assert_eq!(huge_bytes(start), got.large_bytes as u64);
                assert_eq!(memory.len(), 6 << 20);
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
        let ordinary = LargePages::allocate(
            6 << 20,
            LargePageOptions { policy: LargePagePolicy::Off, ..LargePageOptions::default() },
        );
        let mut ordinary = ordinary.unwrap();
        ordinary.bytes_mut().fill(1);
        assert_eq!(huge_bytes(ordinary.start()), 0);
    }

    /// Fits into the address space, but exceeds any machine's memory.
    const TOO_MANY_BYTES: usize = 1 << 46;

    #[test]
    fn more_than_there_is_is_refused_before_it_is_filled() {
        let refused = transparent(TOO_MANY_BYTES, LargePagePolicy::Required).err();
        assert_eq!(refused, Some(LargePagesError::Quota { bytes: TOO_MANY_BYTES }));
        match LargePages::allocate(TOO_MANY_BYTES, LargePageOptions::default()) {
            Ok(memory) => {
                let short = LargePagesError::PoolShort { bytes: TOO_MANY_BYTES, page_bytes: LARGE_PAGE };
                assert_eq!(memory.got().large_bytes, 0);
                assert_eq!(memory.refusals(), [short, LargePagesError::Quota { bytes: TOO_MANY_BYTES }]);
            }
            Err(error) => eprintln!("skipped: this kernel promises no memory that it does not have ({error})"),
        }
    }

    #[test]
    fn only_memory_that_is_to_have_no_large_pages_keeps_them_away_for_good() {
        let bytes = 6 << 20;
        let away = |policy| keeps_huge_pages_away(allocate(bytes, Page::Base, policy).unwrap().start);
        assert!(!away(LargePagePolicy::Preferred));
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert!(away(LargePagePolicy::Off));
        }
    }

    #[test]
    fn what_is_all_required_is_not_tried_on_after_a_refusal() {
        let tried = |policy| {
            let mut offsets = Vec::new();
            let found = collapse_all(4 * LARGE_PAGE, policy, |offset| {
                offsets.push(offset / LARGE_PAGE);
                if offset == LARGE_PAGE { Err(io::Error::from_raw_os_error(libc::ENOMEM)) } else { Ok(()) }
            });
            (found.0 / LARGE_PAGE, found.1.is_some(), offsets)
        };
        assert_eq!(tried(LargePagePolicy::Required), (1, true, vec![0, 1]));
        assert_eq!(tried(LargePagePolicy::Preferred), (3, true, vec![0, 1, 2, 3]));
    }

    #[test]
    fn a_pool_that_has_too_few_is_told_of_where_nothing_replaces_it() {
        let (short, fragmented) = (
            LargePagesError::PoolShort { bytes: 8, page_bytes: 4 },
            LargePagesError::NoContiguousMemory { bytes: 8, page_bytes: 4, code: None },
        );
        let of = |large_bytes, short| {
            let got = Got { bytes: 8, page_bytes: 4, large_bytes, backing: Backing::Transparent };
            Ok(Obtained { memory: (), start: NonNull::dangling(), got, short })
        };
        let told = |transparent| instead(short, transparent).map(|obtained| obtained.short);
        assert_eq!(told(of(8, vec![])), Ok(vec![]));
        assert_eq!(told(of(4, vec![fragmented])), Ok(vec![short, fragmented]));
        assert_eq!(told(Err(fragmented)), Err(vec![short, fragmented]));
    }

    #[test]
    fn errors_have_their_meaning() {
        let of = |code, meaning: fn(&io::Error) -> LargePagesError| meaning(&io::Error::from_raw_os_error(code));
        let bytes = 8;
        assert_eq!(of(libc::ENOMEM, |error| limit(error, 8, "x")), LargePagesError::Quota { bytes });
        assert_eq!(
            of(libc::EINVAL, |error| limit(error, 8, "x")),
            LargePagesError::System { doing: "x", code: libc::EINVAL }
        );
        let page_bytes = LARGE_PAGE;
        let collapsed = |code| of(code, |error| not_collapsed(error, 8));
        assert_eq!(collapsed(libc::EINVAL), LargePagesError::NotSupported { page_bytes });
        assert_eq!(collapsed(libc::ENOMEM), LargePagesError::NoContiguousMemory { bytes, page_bytes, code: None });
        assert_eq!(collapsed(libc::EBUSY), LargePagesError::Quota { bytes });
    }

    #[test]
    fn a_pool_that_has_too_few_says_so() {
        let none = |code: i32| move |_: usize| Err(io::Error::from_raw_os_error(code));
        let (bytes, page_bytes) = (1 << 30, GIANT_PAGE);
        let refused = |code| reserved(bytes, page_bytes, none(code)).err().unwrap();
        assert_eq!(refused(libc::ENOMEM), LargePagesError::PoolShort { bytes, page_bytes });
        assert_eq!(refused(libc::EINVAL), LargePagesError::NotSupported { page_bytes });
    }
}
