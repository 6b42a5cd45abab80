//! Private memory on reserved huge pages from the machine's pool.
//!
//! Owns: when it is taken, and where it is mapped, which also goes for pool segments of shared memory (`shm`): in a part of the address
//! space that nothing else uses, so one comparison identifies its addresses. Never touches: that memory afterwards (`partial` does).
//!
//! All pages are taken at once. A reservation alone is no guarantee: a group's limit, a cpuset or a memory policy may still refuse the
//! page when it is touched, which kills the program (SIGBUS).

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pages::{REGION, whole_pages};
use crate::settings::PoolPage;
use crate::system::{self, MmapRequest};

/// Smaller mappings are mostly made by allocators that unmap, protect and pass on parts of them, which is impossible with huge pages
/// from a pool.
const LEAST: usize = 32 << 20;
/// The kernel maps from the top of the address space downwards, and programs from the bottom up; this is in between.
const ZONE: std::ops::Range<usize> = 0x2000_0000_0000..0x5000_0000_0000;
/// A random number of GiB, up to this many, is left out at the start of the zone, so that addresses cannot be guessed.
const SCATTER: usize = 1 << 13;
/// Attempts, because another library may have mapped something there.
const ATTEMPTS: usize = 8;

/// The next address; 0 before the first mapping.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Why memory does not come from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRefusal {
    /// Smaller than the minimum for a pool.
    TooSmall,
    /// The pool has too few pages, or a limit on them was reached.
    Empty,
    /// The kernel does not support it, or not for this process.
    Refused,
    /// No room in the address space.
    NoSpace,
}

/// Whole huge pages from the pool, followed by ordinary memory for the rest of the length: no part of a huge page is wasted, and all of
/// it can be unmapped as usual.
///
/// Errors: the length is less than 32 MiB or one page, the pool or a limit on it has too few pages, the kernel does not support it, or
/// no address space is left.
pub fn map(size: PoolPage, length: usize) -> Result<usize, PoolRefusal> {
    if length < LEAST.max(size.bytes()) {
        return Err(PoolRefusal::TooSmall);
    }
    let pooled = length / size.bytes() * size.bytes();
    let rest = whole_pages(length) - pooled;
    let start = at_a_free_place(size, pooled)?;
    if rest > 0 {
        if let Err(refusal) = map_at(start + pooled, rest, 0) {
            let _ = system::munmap(start, pooled);
            return Err(refusal.unwrap_or(PoolRefusal::NoSpace));
        }
        if rest >= REGION {
            let _ = system::madvise(start + pooled, rest, libc::MADV_HUGEPAGE);
        }
    }
    count(start, pooled, length);
    Ok(start)
}

fn count(start: usize, pooled: usize, length: usize) {
    let rest = length.saturating_sub(pooled);
    crate::count::add(|counts| &counts.mmap_hugetlb_bytes, pooled);
    if rest >= REGION {
        crate::count::advised(start + pooled, rest);
    } else {
        crate::count::add(|counts| &counts.mmap_ordinary_bytes, rest);
    }
    crate::count::add(|counts| &counts.pool_too_small_bytes, rest);
}

fn at_a_free_place(size: PoolPage, pooled: usize) -> Result<usize, PoolRefusal> {
    for _ in 0..ATTEMPTS {
        // Leave room for the rest behind it.
        let start = claim(pooled + size.bytes(), size).ok_or(PoolRefusal::NoSpace)?;
        match map_at(start, pooled, libc::MAP_HUGETLB | size.flag()) {
            Ok(()) => return populated(start, pooled),
            Err(Some(refusal)) => return Err(refusal),
            Err(None) => {}
        }
    }
    Err(PoolRefusal::NoSpace)
}

/// Memory in the zone that is not from the pool, at a multiple of the page size, so the pool's pages can be moved there.
pub fn room(size: PoolPage, length: usize) -> Option<usize> {
    let start = (0..ATTEMPTS).find_map(|_| claim(length, size).filter(|&start| map_at(start, length, 0).is_ok()))?;
    let _ = system::madvise(start, length, libc::MADV_HUGEPAGE);
    Some(start)
}

/// Populates all its pages, or unmaps it.
fn populated(start: usize, pooled: usize) -> Result<usize, PoolRefusal> {
    let refusal = match system::madvise(start, pooled, libc::MADV_POPULATE_WRITE) {
        Ok(_) => return Ok(start),
        Err(libc::EINVAL | libc::EPERM | libc::EACCES | libc::ENOSYS) => PoolRefusal::Refused,
        Err(_) => PoolRefusal::Empty,
    };
    let _ = system::munmap(start, pooled);
    Err(refusal)
}

/// `Err(None)`: something else is mapped there.
fn map_at(start: usize, length: usize, flags: i32) -> Result<(), Option<PoolRefusal>> {
    let from_pool = flags & libc::MAP_HUGETLB != 0;
    match MmapRequest::anonymous(start, length, flags | libc::MAP_FIXED_NOREPLACE).make() {
        Ok(there) if there == start => Ok(()),
        // Kernels before 4.17 treat the address as a mere hint.
        Ok(elsewhere) => {
            let _ = system::munmap(elsewhere, length);
            Err(None)
        }
        Err(libc::EEXIST) => Err(None),
        // The kernel gives the same error for a pool with too few pages and for a full address space.
        Err(libc::ENOMEM) if from_pool => Err(Some(PoolRefusal::Empty)),
        Err(libc::ENOMEM) => Err(Some(PoolRefusal::NoSpace)),
        Err(_) => Err(Some(PoolRefusal::Refused)),
    }
}

/// An address that was not given out before, or long ago; a multiple of the page size.
pub fn claim(length: usize, size: PoolPage) -> Option<usize> {
    let length = length.checked_next_multiple_of(size.bytes())?;
    let mut next = NEXT.load(Ordering::Relaxed);
    loop {
        let mut start = if next == 0 { first() } else { next.next_multiple_of(size.bytes()) };
        if start.checked_add(length)? > ZONE.end {
            start = ZONE.start;
        }
        let end = start.checked_add(length).filter(|&end| end <= ZONE.end)?;
        // Relaxed: only the address matters, and the kernel has the last word.
        match NEXT.compare_exchange(next, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(start),
            Err(now) => next = now,
        }
    }
}

fn first() -> usize {
    // Bits that the kernel chose at random, without those that are the same for all stack objects.
    ZONE.start + (((system::stack_address() >> 4) % SCATTER) << 30)
}

/// Whether a range may contain memory from the pool.
pub fn reaches(start: usize, length: usize) -> bool {
    NEXT.load(Ordering::Relaxed) != 0 && start < ZONE.end && start.saturating_add(length) > ZONE.start
}

/// Whether a range may be all memory from the pool.
pub fn holds(start: usize, length: usize) -> bool {
    start >= ZONE.start && start.checked_add(length).is_some_and(|end| end <= ZONE.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PreloadSettings;

    #[test]
    fn places_are_aligned_apart_and_in_the_zone() {
        let variable = |name: &str| (name == "HUGEPILOT_PAGES").then_some(&b"1G"[..]);
        let size = PreloadSettings::read(variable).unwrap().pool.unwrap();
        let mut end = 0;
        for length in [1, 1 << 30, (5 << 30) + 1, 3 << 30] {
            let start = claim(length, size).unwrap();
            assert!(start.is_multiple_of(1 << 30) && start >= end && ZONE.contains(&start));
            end = start + length;
            assert!(reaches(start, length) && reaches(0, usize::MAX) && !reaches(0, 4096));
        }
        assert_eq!(claim(ZONE.end, size), None);
        let long = ZONE.end - ZONE.start - (1 << 30);
        assert_eq!(claim(long, size), Some(ZONE.start), "at its end it begins anew");
        assert_eq!(map(size, 1 << 29), Err(PoolRefusal::TooSmall));
    }
}
