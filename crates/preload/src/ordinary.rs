//! Copies of memory from the pool on ordinary memory, for forked children.
//!
//! Owns: copying. Never touches: the original. In the process that took it from the pool it is never replaced: devices may hold
//! its pages, and write to them at any time.

use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::system::{self, READ_WRITE};

/// Ordinary memory, readable and writable, with the same contents; both in whole 2 MiB. Untouched parts take no memory in the
/// copy either. None: no room, or another thread has unmapped some of it.
pub fn copy(start: usize, length: usize) -> Option<usize> {
    let to = for_copy(length).ok()?;
    // A huge page that is only reserved must not be read: that would take it from the pool, and a child has no reservation.
    let copied = (0..length)
        .step_by(REGION)
        .filter(|offset| system::is_present(start + offset))
        .all(|offset| system::copy(start + offset, to + offset, REGION.min(length - offset)));
    if !copied {
        unmap_between(to, to + length);
    }
    copied.then_some(to)
}

/// Copies those huge pages again that this child alone has: the child or the parent wrote to them since the fork, so the child
/// has its own. A larger page is asked about in each of its 2 MiB.
pub fn refresh(copy: usize, start: usize, length: usize) {
    let Some(pages) = system::PageMap::open() else { return };
    for offset in (0..length).step_by(REGION).filter(|offset| pages.is_own(start + offset)) {
        system::copy(start + offset, copy + offset, REGION.min(length - offset));
    }
}

/// Sets the rights of memory that is readable and writable until now.
pub fn give_rights(start: usize, length: usize, rights: i32) -> bool {
    rights == READ_WRITE || system::mprotect(start, length, rights).is_ok()
}
