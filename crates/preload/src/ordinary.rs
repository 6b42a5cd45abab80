//! Memory from the pool becomes ordinary memory with the same contents, or gets an ordinary copy.
//!
//! Owns: copying. Never touches: the decision that it has to be, or memory that others may write to meanwhile; callers see to
//! that.

use crate::count;
use crate::place::{REGION, for_copy, unmap_between};
use crate::system::{self, READ_WRITE};

/// Replaces whole huge pages where they are. Only while no other thread runs: what one wrote meanwhile would be lost. Says
/// whether it could.
pub fn make(start: usize, length: usize, rights: i32) -> bool {
    // Nor may a signal handler write.
    let signals = system::hold_signals();
    let made = copy(start, length, rights).is_some_and(|copy| {
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
/// there either. None: no room.
pub fn copy(start: usize, length: usize, rights: i32) -> Option<usize> {
    let to = for_copy(length).ok()?;
    if rights & libc::PROT_READ == 0 && system::mprotect(start, length, rights | libc::PROT_READ).is_err() {
        unmap_between(to, to + length);
        return None;
    }
    // A huge page that is merely reserved must not be read: that takes it from the pool, and a child has nothing reserved.
    for offset in (0..length).step_by(REGION).filter(|offset| system::is_present(start + offset)) {
        system::copy(start + offset, to + offset, REGION.min(length - offset));
    }
    if rights & libc::PROT_READ == 0 {
        let _ = system::mprotect(start, length, rights);
    }
    Some(to)
}

/// For memory that is to be read and written up to now.
pub fn give_rights(start: usize, length: usize, rights: i32) -> bool {
    rights == READ_WRITE || system::mprotect(start, length, rights).is_ok()
}
