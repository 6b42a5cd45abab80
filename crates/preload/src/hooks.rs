//! The C interface: functions with the names of the C library's, which the dynamic linker finds first.
//!
//! Owns: arguments, errno, and the environment at load. Never touches: anything else; each function delegates.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::system::{MmapRequest, SyscallResult};
use crate::{partial, shm};

/// The dynamic linker calls the functions in this section when the library is loaded, with main's arguments.
#[used]
// SAFETY: the section holds pointers to functions of this type.
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = load;

extern "C" fn load(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the linker passes the environment as main gets it, and nothing changes it before the program begins.
    crate::begin(|name| unsafe { variable(environment, name) });
}

/// # Safety
///
/// `environment` is NULL or points to pointers to strings, the last of which is NULL; all of them stay.
unsafe fn variable<'a>(environment: *const *const c_char, name: &str) -> Option<&'a CStr> {
    let mut entry = environment;
    loop {
        // SAFETY: neither NULL nor beyond the last, which ended the loop.
        let text = unsafe { entry.as_ref()? };
        if text.is_null() {
            return None;
        }
        // SAFETY: guaranteed by the caller.
        let text = unsafe { CStr::from_ptr(*text) };
        let value = text.to_bytes_with_nul().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        if let Some(value) = value {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: this one was not the last.
        entry = unsafe { entry.add(1) };
    }
}

/// The C library's convention: a number, or -1 and errno.
fn number(answer: SyscallResult) -> c_int {
    answer.map_or_else(failed, |number| number as c_int)
}

/// The C library's convention: an address, or -1 and errno.
fn address(answer: SyscallResult) -> *mut c_void {
    answer.map_or_else(|error| ptr::without_provenance_mut(failed(error) as usize), ptr::with_exposed_provenance_mut)
}

fn failed(error: c_int) -> c_int {
    // SAFETY: the address belongs to this thread for its whole life.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// # Safety
///
/// As for the C library's; the same holds for all functions below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    address(partial::map(&MmapRequest { address: start as usize, length, rights, flags, fd, offset }))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    address(partial::map(&MmapRequest { address: start as usize, length, rights, flags, fd, offset }))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, length: usize) -> c_int {
    number(partial::unmap(start as usize, length))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, length: usize, rights: c_int) -> c_int {
    number(partial::protect(start as usize, length, rights))
}

/// # Safety
///
/// As above. C programs pass `new` only with `MREMAP_FIXED`; otherwise it is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    address(partial::remap(old as usize, old_length, new_length, flags, new as usize))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int {
    number(partial::advise(start as usize, length, advice))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmget(key: c_int, size: usize, flags: c_int) -> c_int {
    number(shm::get(key, size, flags))
}

/// # Safety
///
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, start: *const c_void, flags: c_int) -> *mut c_void {
    address(shm::attach(id, start as usize, flags))
}
