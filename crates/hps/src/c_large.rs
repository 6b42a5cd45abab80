//! The C interface to large pages, the same on Linux and on Windows.
//!
//! Owns: what crosses into C and back: pointers, errno, structs whose size tells their version. Never touches: how large pages are had;
//! that is `hugepilot_os::large_pages`.
#![allow(unsafe_code)]
#![allow(non_camel_case_types, reason = "these are C's names")]

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use hugepilot_os::large_pages::{Backing, LargePageOptions, LargePagePolicy, LargePages, LargePagesError, PageSize};

use crate::c_error;

/// Large pages, or ordinary ones where there are no or too few large ones.
pub const HPS_LARGE_PREFERRED: u32 = 0;
/// Large pages for all of it, or an error.
pub const HPS_LARGE_REQUIRED: u32 = 1;
/// Ordinary pages, and no large ones.
pub const HPS_LARGE_OFF: u32 = 2;
/// Flag: pages of 1 GiB; without it the smallest large ones, 2 MiB on x86-64.
pub const HPS_LARGE_GIANT: u32 = 1;
/// Flag: do not use the smallest large pages in place of those of 1 GiB.
pub const HPS_LARGE_NO_SMALLER: u32 = 2;
/// The memory lies on ordinary pages.
pub const HPS_LARGE_ON_ORDINARY: c_int = 0;
/// It lies on huge pages that Linux made on request, at least in part.
pub const HPS_LARGE_ON_TRANSPARENT: c_int = 1;
/// It lies on huge pages of a Linux pool (hugetlbfs).
pub const HPS_LARGE_ON_POOL: c_int = 2;
/// It lies on locked large pages of Windows: never paged out, not in the working set.
pub const HPS_LARGE_ON_LOCKED: c_int = 3;

/// Which pages are wanted. Zero it, set `size`, then the fields that should differ from the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_large_options {
    /// `sizeof (struct hps_large_options)`; tells the library which fields exist.
    pub size: u32,
    /// `HPS_LARGE_PREFERRED`, `HPS_LARGE_REQUIRED` or `HPS_LARGE_OFF`.
    pub policy: u32,
    /// `HPS_LARGE_GIANT`, `HPS_LARGE_NO_SMALLER`.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// Memory on large pages, or on what was available in their place.
pub struct hps_large(LargePages);

/// What was allocated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_large_info {
    /// The first byte.
    pub memory: *mut c_void,
    /// How many bytes: the request, rounded up to whole pages.
    pub bytes: u64,
    /// Bytes of one page of that kind.
    pub page_bytes: u64,
    /// Of all bytes, those on large pages.
    pub large_bytes: u64,
    /// `HPS_LARGE_ON_ORDINARY`, `HPS_LARGE_ON_TRANSPARENT`, `HPS_LARGE_ON_POOL` or `HPS_LARGE_ON_LOCKED`.
    pub backing: c_int,
    /// 0.
    pub reserved: u32,
}

/// Allocates at least `bytes` of zeroed memory on the pages that `options` names; NULL: large ones, preferred. Call it once, at the program's
/// start: contiguous memory becomes scarce as a machine grows older. On Linux and on Windows, where the account must hold the right to lock pages
/// in memory (`hugepilot.exe doctor` checks that); the call enables that right for the process and leaves it enabled.
///
/// On Linux, memory on reserved pages does not exist in a forked child; touching it there raises SIGSEGV. Huge pages that are made on request are
/// populated at once: it checks that the machine has so much memory available, but not limits of control groups, beyond which the kernel ends a
/// program of the group.
///
/// Returns 0 and the memory in `large`, which is the application's until `hps_large_free`; where it lies on other pages than requested, `hps_error`
/// says why, for each kind that was tried. Or `-EPERM` the right is missing, or this thread impersonates an account that lacks it; `-ENOMEM` no
/// contiguous memory, too small a pool, or too little memory; `-ENOSYS` there are no such pages; `-EINVAL` no memory has that size, or an option is
/// out of range; `-EIO` anything else. `hps_error` says it in words.
///
/// # Safety
///
/// `options` is NULL or points to a `struct hps_large_options`, and `large` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_large_alloc(
    bytes: u64,
    options: *const hps_large_options,
    large: *mut *mut hps_large,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Some(place) = (unsafe { large.as_mut() }) else { return invalid("take memory: no place for it") };
    // Freeing it after an error must be harmless.
    *place = std::ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    let options = match unsafe { options.as_ref() }.map_or(Ok(LargePageOptions::default()), read) {
        Ok(options) => options,
        Err(wrong) => return invalid(wrong),
    };
    // A size beyond the address space is refused as too large.
    match LargePages::allocate(usize::try_from(bytes).unwrap_or(usize::MAX), options) {
        Ok(memory) => {
            if !memory.refusals().is_empty() {
                c_error::keep(&joined(memory.refusals()));
            }
            *place = Box::into_raw(Box::new(hps_large(memory)));
            0
        }
        Err(error) => {
            c_error::keep(&error);
            -errno(error)
        }
    }
}

/// Writes to `info` what was allocated. Returns 0, or `-EINVAL` for NULL.
///
/// # Safety
///
/// `large` is NULL, or memory that was allocated and not freed, and `info` is NULL or points to a `struct hps_large_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_large_get_info(large: *const hps_large, info: *mut hps_large_info) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (Some(hps_large(memory)), Some(info)) = (unsafe { (large.as_ref(), info.as_mut()) }) else {
        return invalid("describe memory: NULL was given");
    };
    let got = memory.got();
    *info = hps_large_info {
        memory: memory.start().as_ptr().cast(),
        bytes: got.bytes as u64,
        page_bytes: got.page_bytes as u64,
        large_bytes: got.large_bytes as u64,
        backing: match got.backing {
            Backing::Ordinary => HPS_LARGE_ON_ORDINARY,
            Backing::Transparent => HPS_LARGE_ON_TRANSPARENT,
            Backing::Pool => HPS_LARGE_ON_POOL,
            Backing::Locked => HPS_LARGE_ON_LOCKED,
        },
        reserved: 0,
    };
    0
}

/// Returns the memory to the machine.
///
/// # Safety
///
/// `large` is NULL, or memory that was allocated and not freed, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_large_free(large: *mut hps_large) {
    if let Some(large) = NonNull::new(large) {
        // SAFETY: `hps_large_alloc` made it, and the caller guarantees that it is freed only once.
        drop(unsafe { Box::from_raw(large.as_ptr()) });
    }
}

fn read(options: &hps_large_options) -> Result<LargePageOptions, &'static str> {
    if options.size as usize != size_of::<hps_large_options>() {
        return Err("read struct hps_large_options: its size is of no known version");
    }
    if options.flags & !(HPS_LARGE_GIANT | HPS_LARGE_NO_SMALLER) != 0 || options.reserved != 0 {
        return Err("read struct hps_large_options: an unknown flag");
    }
    let policy = match options.policy {
        HPS_LARGE_PREFERRED => LargePagePolicy::Preferred,
        HPS_LARGE_REQUIRED => LargePagePolicy::Required,
        HPS_LARGE_OFF => LargePagePolicy::Off,
        _ => return Err("read struct hps_large_options: an unknown policy"),
    };
    let page_size = if options.flags & HPS_LARGE_GIANT != 0 { PageSize::Giant } else { PageSize::Large };
    Ok(LargePageOptions { policy, page_size, smaller_pages: options.flags & HPS_LARGE_NO_SMALLER == 0 })
}

/// Why each kind of page that was tried was not available; a reason common to several is given once.
fn joined(refusals: &[LargePagesError]) -> String {
    let mut reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    reasons.dedup();
    reasons.join("; ")
}

fn invalid(doing: &str) -> c_int {
    c_error::keep(&format!("cannot {doing}"));
    -libc::EINVAL
}

fn errno(error: LargePagesError) -> c_int {
    match error {
        LargePagesError::PrivilegeNotHeld | LargePagesError::PrivilegeNotAssigned => libc::EPERM,
        LargePagesError::NoContiguousMemory { .. }
        | LargePagesError::PoolShort { .. }
        | LargePagesError::Quota { .. } => libc::ENOMEM,
        LargePagesError::NotSupported { .. } => libc::ENOSYS,
        LargePagesError::Size { .. } => libc::EINVAL,
        LargePagesError::System { .. } => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    /// Exceeds any machine's memory, but not its address space.
    const TOO_MANY_BYTES: u64 = 1 << 46;

    #[test]
    fn every_refusal_is_told() {
        let options = hps_large_options {
            size: size_of::<hps_large_options>() as u32,
            policy: HPS_LARGE_PREFERRED,
            flags: HPS_LARGE_GIANT,
            reserved: 0,
        };
        let mut large = std::ptr::null_mut();
        // SAFETY: both pointers are to variables of this function.
        if unsafe { hps_large_alloc(TOO_MANY_BYTES, &raw const options, &raw mut large) } != 0 {
            return eprintln!("skipped: this system promises no memory that it does not have");
        }
        // SAFETY: the message is a string, and is copied before the next error.
        let said = unsafe { CStr::from_ptr(c_error::hps_error()) }.to_string_lossy().into_owned();
        // SAFETY: it was just made, and `hps_large` is freed once.
        let refusals = unsafe { (*large).0.refusals().to_vec() };
        // SAFETY: as above.
        unsafe { hps_large_free(large) };
        assert!(refusals.len() == 3 && refusals.iter().all(|each| said.contains(&each.to_string())), "{said}");
    }

    #[test]
    fn what_is_wrong_with_several_kinds_is_said_once() {
        let (right, limit) = (LargePagesError::PrivilegeNotAssigned, LargePagesError::Quota { bytes: 8 });
        assert_eq!(joined(&[right, right, limit]), format!("{right}; {limit}"));
    }
}
