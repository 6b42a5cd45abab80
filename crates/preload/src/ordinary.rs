//! Turns memory from the pool into ordinary memory with the same contents, or makes an ordinary copy.
//!
//! Owns: copying. Never touches: the decision to copy, or memory that others may write to meanwhile; callers ensure that.

use crate::count;
use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::system::{self, READ_WRITE};

/// Replaces whole huge pages in place. Only while no other thread runs: its writes meanwhile would be lost, and so would this
/// thread's if its stack were there. Returns whether it succeeded.
pub fn make(start: usize, length: usize, rights: i32) -> bool {
    if system::stands_on(start, length) {
        return false;
    }
    // Signal handlers must not write either.
    let signals = system::hold_signals();
    let made = copy(start, length).is_some_and(|copy| {
        let put = give_rights(copy, length, rights) && system::replace(start, copy, length).is_ok();
        if !put {
            unmap_between(copy, copy + length);
        }
        put
    });
    system::release_signals(signals);
    if made {
        count::add(|counts| &counts.made_ordinary_bytes, length);
    }
    made
}

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
/// has its own.
pub fn refresh(copy: usize, start: usize, length: usize, size: usize) {
    let Some(pages) = system::PageMap::open() else { return };
    for offset in (0..length).step_by(size).filter(|offset| pages.is_own(start + offset)) {
        system::copy(start + offset, copy + offset, size.min(length - offset));
    }
}

/// Sets the rights of memory that is readable and writable until now.
pub fn give_rights(start: usize, length: usize, rights: i32) -> bool {
    rights == READ_WRITE || system::mprotect(start, length, rights).is_ok()
}
