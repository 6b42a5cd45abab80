//! Where new private memory comes from: the pool, transparent huge pages, or what the program would get without this library.
//!
//! Owns: which calls of mmap are handled, alignment, advice. Never touches: existing memory.
//!
//! If anything fails, it is undone, and the call is made as the program made it.

use std::ffi::c_int;

use crate::count;
use crate::filled::FilledMappings;
use crate::pages::{PAGE, REGION, unmap_between, whole_pages};
use crate::pool::{self, PoolRefusal};
use crate::settings::{self, Maps, PreloadSettings};
use crate::shared;
use crate::system::{self, MmapRequest, READ_WRITE, SyscallResult};

/// From this length on, the space that alignment wastes is negligible. Smaller pieces of odd size stay adjacent, so the kernel
/// keeps them in one mapping, whose number is limited (vm.max_map_count).
const ALIGNED_AT_ANY_LENGTH: usize = 16 * REGION;
/// A smaller mapping by a thread other than the first is most likely its private heap, where a huge page would mostly be
/// wasted.
const THREADS_LEAST: usize = 4 * REGION;

static PAST: FilledMappings = FilledMappings::new();

/// The program's mmap.
pub fn map(request: &MmapRequest) -> SyscallResult {
    match settings::get() {
        Some(settings) if settings.mmap != Maps::None && is_eligible(request) => {
            let start = place(request, settings)?;
            count::add(|counts| &counts.mmap_eligible_calls, 1);
            count::add(|counts| &counts.mmap_eligible_bytes, request.length);
            Ok(start)
        }
        Some(settings) if settings.pool.is_none() && shared::is_eligible(request) => shared::map(request),
        _ => request.make(),
    }
}

/// Private, readable and writable memory at any address and of no special kind. A mapping without rights is only a reservation,
/// and one larger than the machine's memory can only be sparse.
fn is_eligible(request: &MmapRequest) -> bool {
    let indifferent = libc::MAP_POPULATE | libc::MAP_NORESERVE;
    request.length >= REGION
        && request.address == 0
        && request.rights == READ_WRITE
        && request.flags & !indifferent == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
        && request.length <= system::memory_bytes()
}

fn place(request: &MmapRequest, settings: &PreloadSettings) -> SyscallResult {
    if settings.mmap == Maps::AfterFilled && !PAST.promises_to_be_filled() {
        return ordinary(request);
    }
    if let Some(size) = settings.pool {
        // A program that asks for memory without reservation will not use all of it.
        let taken = match request.flags & libc::MAP_NORESERVE {
            0 => pool::map(size, request.length),
            _ => Err(PoolRefusal::TooSmall),
        };
        match taken {
            Ok(start) => return Ok(start),
            Err(PoolRefusal::TooSmall) => count::add(|counts| &counts.pool_too_small_bytes, request.length),
            Err(PoolRefusal::Empty) => count::add(|counts| &counts.pool_empty_bytes, request.length),
            Err(PoolRefusal::Refused) => count::add(|counts| &counts.refused_bytes, request.length),
            Err(PoolRefusal::NoSpace) => count::add(|counts| &counts.address_space_limit_bytes, request.length),
        }
    }
    if request.length < THREADS_LEAST && !system::is_first_thread() {
        count::add(|counts| &counts.thread_small_bytes, request.length);
    } else {
        match advised(request) {
            Ok(start) => {
                count::advised(start, request.length);
                return Ok(start);
            }
            Err(libc::ENOMEM) => count::add(|counts| &counts.address_space_limit_bytes, request.length),
            Err(_) => count::add(|counts| &counts.refused_bytes, request.length),
        }
    }
    ordinary(request)
}

/// As the program requested it.
fn ordinary(request: &MmapRequest) -> SyscallResult {
    let start = request.make()?;
    count::add(|counts| &counts.mmap_ordinary_bytes, request.length);
    PAST.remember(start, request.length);
    Ok(start)
}

/// Memory with transparent huge pages requested.
fn advised(request: &MmapRequest) -> SyscallResult {
    // Pages must not be populated before the advice.
    let unpopulated = MmapRequest { flags: request.flags & !libc::MAP_POPULATE, ..*request };
    let start = match request.length {
        length if length.is_multiple_of(REGION) || length >= ALIGNED_AT_ANY_LENGTH => aligned(&unpopulated)?,
        _ => unpopulated.make()?,
    };
    let populate = request.flags & libc::MAP_POPULATE != 0;
    match advise(start, request.length, populate) {
        Ok(_) => Ok(start),
        Err(error) => {
            let _ = system::munmap(start, request.length);
            Err(error)
        }
    }
}

fn advise(start: usize, length: usize, populate: bool) -> SyscallResult {
    let advised = system::madvise(start, length, libc::MADV_HUGEPAGE)?;
    if populate { system::madvise(start, whole_pages(length), libc::MADV_POPULATE_WRITE) } else { Ok(advised) }
}

/// With its first byte at a multiple of 2 MiB.
fn aligned(request: &MmapRequest) -> SyscallResult {
    // Kernels from 6.7 on align by themselves.
    let start = request.make()?;
    if start.is_multiple_of(REGION) {
        return Ok(start);
    }
    system::munmap(start, request.length)?;
    let length = whole_pages(request.length);
    let room = length + REGION - PAGE;
    let first = MmapRequest { length: room, ..*request }.make()?;
    let start = first.next_multiple_of(REGION);
    unmap_between(first, start);
    unmap_between(start + length, first + room);
    Ok(start)
}

/// New memory for a copy of this length, aligned, with the advice that the kernel honours.
pub fn for_copy(length: usize) -> SyscallResult {
    let start = aligned(&MmapRequest::anonymous(0, length, 0))?;
    let _ = system::madvise(start, length, libc::MADV_HUGEPAGE);
    Ok(start)
}

/// Whether all of these flags are set.
pub fn has(flags: c_int, wanted: c_int) -> bool {
    flags & wanted == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmap(start: usize, length: usize) {
        system::munmap(start, length).unwrap();
    }

    #[test]
    fn only_large_plain_memory_is_eligible() {
        let plain = MmapRequest::anonymous(0, REGION, 0);
        assert!(is_eligible(&plain));
        assert!(is_eligible(&MmapRequest { flags: plain.flags | libc::MAP_POPULATE | libc::MAP_NORESERVE, ..plain }));
        let others = [
            MmapRequest { address: REGION, ..plain },
            MmapRequest { length: REGION - 1, ..plain },
            MmapRequest { length: usize::MAX, ..plain },
            MmapRequest { rights: libc::PROT_NONE, ..plain },
            MmapRequest { rights: READ_WRITE | libc::PROT_EXEC, ..plain },
            MmapRequest { flags: libc::MAP_SHARED | libc::MAP_ANONYMOUS, ..plain },
            MmapRequest { flags: libc::MAP_PRIVATE, fd: 3, ..plain },
        ];
        let special = [libc::MAP_STACK, libc::MAP_FIXED, libc::MAP_HUGETLB, libc::MAP_GROWSDOWN, libc::MAP_LOCKED];
        let special = special.map(|flag| MmapRequest { flags: plain.flags | flag, ..plain });
        assert!(others.iter().chain(&special).all(|request| !is_eligible(request)));
    }

    #[test]
    fn memory_is_aligned_and_all_of_it_there() {
        for length in [REGION, 3 * REGION, 40 * REGION + 4096, 40 * REGION + 1] {
            let start = aligned(&MmapRequest::anonymous(0, length, 0)).unwrap();
            assert!(start.is_multiple_of(REGION));
            system::zero(start, length);
            unmap(start, length);
        }
        let start = for_copy(2 * REGION).unwrap();
        system::zero(start, 2 * REGION);
        unmap(start, 2 * REGION);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_and_nothing_is_left() {
        assert_eq!(aligned(&MmapRequest::anonymous(0, 1 << 50, 0)), Err(libc::ENOMEM));
    }
}
