//! Large pages on Linux: reserved ones where the pool has enough, else transparent ones, made and verified at once.
//!
//! Owns: which calls are made, and what their errors mean. Never touches: settings of the machine, or the pool's size.

use std::io;
use std::ptr::NonNull;

use super::{BASE_PAGE, Backing, GIANT_PAGE, Got, LargePagesError, Obtained, Page, rounded};
use crate::advise::collapse_own;
use crate::memory::{Mapping, OwnAdvice};

pub(super) use crate::memory::Mapping as Memory;

const LARGE_PAGE: usize = 2 << 20;

pub(super) fn allocate(bytes: usize, page: Page) -> Result<Obtained<Memory>, LargePagesError> {
    match page {
        Page::Base => ordinary(rounded(bytes, BASE_PAGE)?),
        Page::Large => {
            let bytes = rounded(bytes, LARGE_PAGE)?;
            reserved(bytes, LARGE_PAGE, Mapping::pooled).or_else(|_| transparent(bytes))
        }
        Page::Giant => reserved(rounded(bytes, GIANT_PAGE)?, GIANT_PAGE, Mapping::giant),
    }
}

fn ordinary(bytes: usize) -> Result<Obtained<Memory>, LargePagesError> {
    let mut memory = Mapping::anonymous(bytes).map_err(|error| limit(&error, bytes, "map memory"))?;
    // Refused by a kernel that has no huge pages, which then need not be kept away.
    let _ = memory.advise(0, bytes, OwnAdvice::NoHugePage);
    Ok(obtained(memory, Backing::Ordinary, BASE_PAGE, 0, None))
}

fn reserved(
    bytes: usize,
    page_bytes: usize,
    map: impl FnOnce(usize) -> io::Result<Mapping>,
) -> Result<Obtained<Memory>, LargePagesError> {
    let mut memory = map(bytes).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => LargePagesError::PoolShort { bytes, page_bytes },
        Some(libc::EINVAL | libc::ENOENT | libc::ENOSYS | libc::EOPNOTSUPP) => {
            LargePagesError::NotSupported { page_bytes }
        }
        _ => system(&error, "map reserved pages"),
    })?;
    // A child's copy could take pages that nobody reserved for it. What a control group does not allow shows here and not as a signal.
    memory
        .advise(0, bytes, OwnAdvice::NotForChildren)
        .and_then(|()| memory.advise(0, bytes, OwnAdvice::Populate))
        .map_err(|error| limit(&error, bytes, "take reserved pages"))?;
    Ok(obtained(memory, Backing::Pool, page_bytes, bytes, None))
}

fn transparent(bytes: usize) -> Result<Obtained<Memory>, LargePagesError> {
    let mut memory = Mapping::anonymous(bytes).map_err(|error| limit(&error, bytes, "map memory"))?;
    // Where huge pages are switched off this is of no use, and collapsing may make them still.
    let _ = memory.advise(0, bytes, OwnAdvice::HugePage);
    memory.advise(0, bytes, OwnAdvice::Populate).map_err(|error| limit(&error, bytes, "fill memory"))?;
    let (mut large_bytes, mut short) = (0, None);
    for offset in (0..bytes).step_by(LARGE_PAGE) {
        // The kernel's word that this is a huge page now, also where it was one before.
        match collapse_own(memory.address() + offset as u64, LARGE_PAGE as u64) {
            Ok(()) => large_bytes += LARGE_PAGE,
            Err(error) => short = short.or(Some(not_collapsed(&error, bytes))),
        }
    }
    match short {
        Some(why) if large_bytes == 0 => Err(why),
        short => Ok(obtained(memory, Backing::Transparent, LARGE_PAGE, large_bytes, short)),
    }
}

fn obtained(
    mut memory: Memory,
    backing: Backing,
    page_bytes: usize,
    large_bytes: usize,
    short: Option<LargePagesError>,
) -> Obtained<Memory> {
    let got = Got { bytes: memory.len(), page_bytes, large_bytes, backing };
    Obtained { start: NonNull::from(memory.bytes_mut()).cast(), memory, got, short }
}

fn not_collapsed(error: &io::Error, bytes: usize) -> LargePagesError {
    let page_bytes = LARGE_PAGE;
    match error.raw_os_error() {
        Some(libc::EINVAL) => LargePagesError::NotSupported { page_bytes },
        Some(libc::ENOMEM | libc::EAGAIN) => LargePagesError::NoContiguousMemory { bytes, page_bytes },
        Some(libc::EBUSY) => LargePagesError::Quota { bytes },
        _ => system(error, "put memory on huge pages"),
    }
}

/// Of calls that fail for want of memory.
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
    use crate::large_pages::{LargePages, Options, Wish};

    fn huge_bytes(start: u64) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = smaps.split_once(&format!("{start:x}-")).expect("it is mapped").1;
        let line = mapping.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    #[test]
    fn what_it_says_is_what_the_kernel_says() {
        // What a pool gives is no transparent page: these are asked for by themselves.
        match transparent(6 << 20) {
            Ok(Obtained { got, start, memory, .. }) => {
                assert_eq!(huge_bytes(start.as_ptr() as u64), got.large_bytes as u64);
                assert_eq!(memory.len(), 6 << 20);
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
        let ordinary = LargePages::allocate(6 << 20, Options { wish: Wish::Off, ..Options::default() });
        let mut ordinary = ordinary.unwrap();
        ordinary.bytes_mut().fill(1);
        assert_eq!(huge_bytes(ordinary.start().as_ptr() as u64), 0);
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
        assert_eq!(collapsed(libc::ENOMEM), LargePagesError::NoContiguousMemory { bytes, page_bytes });
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
