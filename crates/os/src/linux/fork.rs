//! What a process does around fork(2).
#![allow(unsafe_code)]

use std::io;

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> libc::c_int;
}

/// Whichever thread forks from now on calls one function before it does, and the other one afterwards, in the parent and in the child.
/// There is no way to end that.
///
/// Errors: `ENOMEM`.
pub fn around(before: extern "C" fn(), after: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the functions are there for as long as the library that they are part of, which the C library keeps account of.
    match unsafe { pthread_atfork(before, after, after) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
