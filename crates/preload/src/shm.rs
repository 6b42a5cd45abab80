//! Segments of System V shared memory: from the pool, or with transparent huge pages.
//!
//! Owns: the program's shmget and shmat. Never touches: segments that the program did not request.
//!
//! Fork shares such memory and does not copy it, so no page of it is ever needed twice. The kernel rounds up the memory of a
//! segment on huge pages, but keeps the requested size, which shmctl reports.

use std::ffi::c_int;

use crate::count;
use crate::pages::{PAGE, REGION, unmap_between, whole_pages};
use crate::place::has;
use crate::pool;
use crate::settings::{self, PoolPage, PreloadSettings};
use crate::shared::where_huge_pages_fit;
use crate::system::{self, MmapRequest, SyscallResult};

/// Rounding up may waste at most this fraction of a segment's size: an eighth.
const WASTE: usize = 8;

/// The program's shmget.
pub fn get(key: c_int, size: usize, flags: c_int) -> SyscallResult {
    let may_create = key == libc::IPC_PRIVATE || has(flags, libc::IPC_CREAT);
    let settings = settings::get().filter(|settings| settings.shm && may_create);
    let Some(settings) = settings.filter(|_| size >= REGION && !has(flags, libc::SHM_HUGETLB)) else {
        return system::shmget(key, size, flags);
    };
    // This guarantees a new segment that nobody has attached yet.
    let only_new = flags | libc::IPC_EXCL;
    let pooled = settings.pool.and_then(|page| from_pool(page, key, size, only_new));
    match pooled.map_or_else(|| system::shmget(key, size, only_new), Ok) {
        Ok(id) => {
            count::add(|counts| &counts.shm_eligible_bytes, size);
            Ok(id)
        }
        Err(_) => system::shmget(key, size, flags),
    }
}

/// A new segment with all its pages taken from the pool. None: not possible.
fn from_pool(page: PoolPage, key: c_int, size: usize, flags: c_int) -> Option<usize> {
    let rounded = size.checked_next_multiple_of(page.bytes())?;
    if rounded - size > size / WASTE {
        count::add(|counts| &counts.pool_too_small_bytes, size);
        return None;
    }
    let made = promised(page, key, rounded).and_then(|()| {
        let id = system::shmget(key, size, flags | libc::SHM_HUGETLB | page.flag())?;
        populate(id as c_int, rounded).inspect_err(|_| system::remove_segment(id as c_int))?;
        Ok(id)
    });
    match made {
        Ok(_) => count::add(|counts| &counts.shm_hugetlb_bytes, size),
        Err(libc::ENOMEM | libc::ENOSPC | libc::EFAULT) => count::add(|counts| &counts.pool_empty_bytes, size),
        // An error that any shmget may return; without huge pages it will return it again.
        Err(libc::EEXIST) => {}
        Err(_) => count::add(|counts| &counts.refused_bytes, size),
    }
    made.ok()
}

/// Whether this many pages can be taken. Others may find a segment by its key while it is being populated, which takes long; it
/// must not have to be removed then.
fn promised(page: PoolPage, key: c_int, length: usize) -> Result<(), c_int> {
    if key == libc::IPC_PRIVATE {
        return Ok(());
    }
    if system::shmget(key, 0, 0) != Err(libc::ENOENT) {
        return Err(libc::EEXIST);
    }
    let at = MmapRequest::anonymous(0, length, libc::MAP_HUGETLB | page.flag()).make()?;
    let populated = system::madvise(at, length, libc::MADV_POPULATE_WRITE);
    unmap_between(at, at + length);
    populated.map(|_| ())
}

/// Takes all pages now: later a limit could refuse them, which kills the process that touches them (SIGBUS).
fn populate(id: c_int, length: usize) -> Result<(), c_int> {
    let at = match system::shmat(id, 0, 0) {
        // Its owner may not write to it, and neither may others until that is changed. The pages stay reserved.
        Err(libc::EACCES) => return Ok(()),
        at => at?,
    };
    let populated = system::madvise(at, length, libc::MADV_POPULATE_WRITE);
    let _ = system::shmdt(at);
    populated.map(|_| ())
}

/// The program's shmat.
pub fn attach(id: c_int, address: usize, flags: c_int) -> SyscallResult {
    let anywhere = address == 0 && flags & !libc::SHM_RDONLY == 0;
    let settings = settings::get().filter(|settings| settings.shm && anywhere);
    let before = settings.and_then(|settings| Some((settings, system::segment(id)?)));
    let at = system::shmat(id, address, flags)?;
    Ok(match before {
        Some((settings, before)) if before.shm_segsz >= REGION => placed(settings, id, at, flags, &before),
        _ => at,
    })
}

/// Its final address.
fn placed(settings: &PreloadSettings, id: c_int, at: usize, flags: c_int, before: &libc::shmid_ds) -> usize {
    if is_from_pool(at) {
        let moved = settings.pool.and_then(|page| in_the_zone(page, id, at, flags, before.shm_segsz));
        return moved.unwrap_or(at);
    }
    if flags == 0 { advised(id, at, before) } else { at }
}

/// Whether it is on huge pages from a pool, which are never reclaimed.
fn is_from_pool(at: usize) -> bool {
    system::madvise(at, PAGE, libc::MADV_COLD) == Err(libc::EINVAL)
}

/// Reattaches it in the zone that identifies pool memory by address, so calls for parts of it work (`partial`).
fn in_the_zone(page: PoolPage, id: c_int, at: usize, flags: c_int, size: usize) -> Option<usize> {
    let start = pool::claim(size, page)?;
    // Something else may be mapped there.
    system::shmat(id, start, flags).ok()?;
    let _ = system::shmdt(at);
    Some(start)
}

/// Its final address, with huge pages requested.
fn advised(id: c_int, at: usize, before: &libc::shmid_ds) -> usize {
    let size = before.shm_segsz;
    let at = if at.is_multiple_of(REGION) { at } else { aligned(id, at, size).unwrap_or(at) };
    let advised = system::madvise(at, whole_pages(size), libc::MADV_HUGEPAGE).is_ok();
    // Once per segment, when it is attached for the first time.
    if advised && before.shm_atime == 0 && before.shm_cpid == system::process() {
        count::add(|counts| &counts.shm_thp_bytes, size);
    }
    at
}

/// Reattaches it at a multiple of 2 MiB, without which shared memory is never mapped huge.
fn aligned(id: c_int, at: usize, size: usize) -> Option<usize> {
    let start = where_huge_pages_fit(size, 0, |start| system::shmat(id, start, libc::SHM_REMAP)).ok()?;
    let _ = system::shmdt(at);
    Some(start)
}
