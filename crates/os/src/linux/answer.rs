//! Results of system calls that neither the standard library nor rustix wraps.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A call's result; -1 means an error.
pub(crate) fn checked(answer: impl Into<i64>) -> io::Result<i64> {
    match answer.into() {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// The descriptor that a call has created.
///
/// # Safety
///
/// The call created it for us, and nobody else has it.
pub(crate) unsafe fn made(answer: impl Into<i64>) -> io::Result<OwnedFd> {
    let descriptor = checked(answer)?;
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
