//! Functions that run around fork(2).
#![allow(unsafe_code)]

use std::io;

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> libc::c_int;
}

/// From now on any thread that forks calls `before` first, and `after` when it has forked, in both parent and child. This cannot be
/// undone.
///
/// Errors: `ENOMEM`.
pub fn around(before: extern "C" fn(), after: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the functions exist for as long as the library that contains them, and the C library keeps track of that.
    match unsafe { pthread_atfork(before, after, after) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
