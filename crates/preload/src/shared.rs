//! Shared mappings, aligned for huge pages.
//!
//! Owns: the address of new shared mappings. Never touches: their backing or size.
//!
//! A huge page can only be mapped if address and offset are equal modulo 2 MiB. The kernel ensures that only if
//! `transparent_hugepage/shmem_enabled` allows huge pages, and by default it does not.

use crate::pages::{REGION, unmap_between, whole_pages};
use crate::system::{self, MmapRequest, SyscallResult};

/// Whether it is shared memory at any address, of a kind that can have huge pages.
pub fn is_eligible(request: &MmapRequest) -> bool {
    let kind = request.flags & libc::MAP_TYPE;
    let particular = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT | libc::MAP_HUGETLB;
    request.length >= REGION
        && request.address == 0
        && matches!(kind, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
        && request.flags & particular == 0
        && (request.flags & libc::MAP_ANONYMOUS != 0 || system::is_memory_file(request.fd))
}

/// Maps it, aligned for huge pages if there is room.
pub fn map(request: &MmapRequest) -> SyscallResult {
    let over = |start| MmapRequest { address: start, flags: request.flags | libc::MAP_FIXED, ..*request }.make();
    where_huge_pages_fit(request.length, request.offset as usize, over).or_else(|_| request.make())
}

/// Maps an object from this offset on at an address that equals the offset modulo 2 MiB. `over` gets the address and maps over a
/// placeholder, so no other thread can map anything there.
pub fn where_huge_pages_fit(length: usize, offset: usize, over: impl FnOnce(usize) -> SyscallResult) -> SyscallResult {
    let length = whole_pages(length);
    let room = length.checked_add(REGION).ok_or(libc::ENOMEM)?;
    let placeholder = MmapRequest { rights: libc::PROT_NONE, ..MmapRequest::anonymous(0, room, libc::MAP_NORESERVE) };
    let first = placeholder.make()?;
    let start = first + offset.wrapping_sub(first) % REGION;
    let mapped = over(start);
    if mapped.is_ok() {
        unmap_between(first, start);
        unmap_between(start + length, first + room);
    } else {
        unmap_between(first, first + room);
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_int;

    use crate::pages::PAGE;
    use crate::system::READ_WRITE;

    fn request(length: usize, flags: c_int) -> MmapRequest {
        MmapRequest { address: 0, length, rights: READ_WRITE, flags, fd: -1, offset: 0 }
    }

    #[test]
    fn shared_memory_is_aligned_and_nothing_else_is_left_behind() {
        let length = 3 * REGION + 5 * PAGE;
        for _ in 0..20 {
            // A mapping in between shifts the next one.
            let gap = MmapRequest::anonymous(0, PAGE, 0).make().unwrap();
            let start = map(&request(length - 7, libc::MAP_SHARED | libc::MAP_ANONYMOUS)).unwrap();
            assert_eq!(start % REGION, 0);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let line = maps.lines().find(|line| line.starts_with(&format!("{start:x}-"))).expect("it is mapped");
            assert!(line.starts_with(&format!("{start:x}-{:x} rw-s 00000000", start + length)), "{line}");
            assert!(!maps.contains(&format!("-{start:x} ---p")), "the placeholder is gone: {maps}");
            unmap_between(start, start + length);
            unmap_between(gap, gap + PAGE);
        }
    }

    #[test]
    fn an_offset_counts() {
        let memory = std::fs::File::create_new(format!("/dev/shm/hugepilot-test-{}", std::process::id())).unwrap();
        std::fs::remove_file(format!("/dev/shm/hugepilot-test-{}", std::process::id())).unwrap();
        memory.set_len(8 * REGION as u64).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&memory);
        let offset = (REGION + 3 * PAGE) as i64;
        let of_file = MmapRequest { fd, offset, rights: libc::PROT_READ, ..request(4 * REGION, libc::MAP_SHARED) };
        let start = map(&of_file).unwrap();
        assert_eq!(start % REGION, 3 * PAGE);
        unmap_between(start, start + 4 * REGION);
        assert_eq!(map(&MmapRequest { fd: -1, ..of_file }), Err(libc::EBADF), "as without the library");
        assert!(is_eligible(&of_file));
        let zeroes = std::fs::File::open("/dev/zero").unwrap();
        assert!(!is_eligible(&MmapRequest { fd: std::os::fd::AsRawFd::as_raw_fd(&zeroes), ..of_file }), "a device");
    }

    #[test]
    fn only_what_is_shared_large_and_may_lie_anywhere_is_placed() {
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        assert!(is_eligible(&request(REGION, shared)));
        assert!(!is_eligible(&request(REGION - 1, shared)));
        assert!(!is_eligible(&MmapRequest { address: REGION, ..request(REGION, shared) }));
        for flags in [libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, shared | libc::MAP_FIXED, shared | libc::MAP_HUGETLB] {
            assert!(!is_eligible(&request(REGION, flags)), "{flags:x}");
        }
    }
}
