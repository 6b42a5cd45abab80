//! What system calls answer that neither the standard library nor rustix makes for us.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A call's answer, of which -1 stands for an error.
pub(crate) fn checked(answer: impl Into<i64>) -> io::Result<i64> {
    match answer.into() {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// The descriptor that a call has made.
///
/// # Safety
///
/// The call made it for us, and nobody else has it.
pub(crate) unsafe fn made(answer: impl Into<i64>) -> io::Result<OwnedFd> {
    let descriptor = checked(answer)?;
    // SAFETY: the caller says so.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
