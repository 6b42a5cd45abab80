//! Memory from the pool becomes ordinary memory with the same contents, or gets an ordinary copy.
//!
//! Owns: copying. Never touches: the decision that it has to be, or memory that others may write to meanwhile; callers see to
//! that.

use crate::count;
use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::system::{self, READ_WRITE};

/// Replaces whole huge pages where they are. Only while no other thread runs: what one wrote meanwhile would be lost, as what
/// this one writes would be, if it stood on them. Says whether it could.
pub fn make(start: usize, length: usize, rights: i32) -> bool {
    if system::stands_on(start, length) {
        return false;
    }
    // Nor may a signal handler write.
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

/// Ordinary memory, to read and write, with the same contents; both in whole 2 MiB. What nobody has touched takes no memory
/// there either. None: no room, or another thread has unmapped some of it.
pub fn copy(start: usize, length: usize) -> Option<usize> {
    let to = for_copy(length).ok()?;
    // A huge page that is merely reserved must not be read: that takes it from the pool, and a child has nothing reserved.
    let copied = (0..length)
        .step_by(REGION)
        .filter(|offset| system::is_present(start + offset))
        .all(|offset| system::copy(start + offset, to + offset, REGION.min(length - offset)));
    if !copied {
        unmap_between(to, to + length);
    }
    copied.then_some(to)
}

/// Copies again what this child alone has, in huge pages of that size: of these the child, or the parent, has got its own since
/// the child was forked, by writing there.
pub fn refresh(copy: usize, start: usize, length: usize, size: usize) {
    let Some(pages) = system::PageMap::open() else { return };
    for offset in (0..length).step_by(size).filter(|offset| pages.is_own(start + offset)) {
        system::copy(start + offset, copy + offset, size.min(length - offset));
    }
}

/// For memory that is to be read and written up to now.
pub fn give_rights(start: usize, length: usize, rights: i32) -> bool {
    rights == READ_WRITE || system::mprotect(start, length, rights).is_ok()
}
