//! userfaultfd: descriptors, and the memory registered with them (Documentation/admin-guide/mm/userfaultfd.rst).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::answer::{checked, made};

const UFFDIO_API: libc::Ioctl = 0xC018_AA3F_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xC020_AA00_u32 as libc::Ioctl;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_AA01_u32 as libc::Ioctl;
const UFFD_API: u64 = 0xAA;
const UFFD_USER_MODE_ONLY: i32 = 1;
/// Register for faults on pages that are missing.
pub(crate) const REGISTER_MODE_MISSING: u64 = 1;

/// Opens a descriptor with these features. Errors: `EINVAL` the kernel lacks one, `ENOSYS` it has no userfaultfd, `EPERM` forbidden
/// (seccomp).
pub(crate) fn open(features: u64) -> io::Result<OwnedFd> {
    // SAFETY: takes flags and returns a new descriptor, which nobody else has, or an error.
    let faults = unsafe { made(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY)) }?;
    // The version, the features, and room for the answer.
    let mut api = [UFFD_API, features, 0];
    // SAFETY: `api` has the shape that this request expects (`struct uffdio_api`), and lives through the call.
    checked(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_API, &raw mut api) })?;
    Ok(faults)
}

/// Registers memory of this process. Errors: `EINVAL` nothing is mapped there, or it is of a kind that does not support this mode; `EBUSY`
/// another userfaultfd has it.
pub(crate) fn register(faults: &OwnedFd, start: u64, len: u64, mode: u64) -> io::Result<()> {
    // The last one is room for the ioctls that the kernel says are available.
    let mut register = [start, len, mode, 0];
    // SAFETY: the kernel reads and writes four numbers (`struct uffdio_register`), which live through the call; contents stay as they are.
    checked(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) }).map(drop)
}

/// Unregisters this part. Errors: `EINVAL` not all of it is registered.
pub(crate) fn unregister(faults: &OwnedFd, start: u64, len: u64) -> io::Result<()> {
    let range = [start, len];
    // SAFETY: the kernel reads two numbers (`struct uffdio_range`), which live through the call; contents stay as they are.
    checked(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_UNREGISTER, &raw const range) }).map(drop)
}
