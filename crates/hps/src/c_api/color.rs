//! The C interface to colored memory.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::{answer, invalid};
use crate::TrackError;
use crate::color::{ArenaOptions, ColorError, ColoredArena, Palette};
use crate::judge::REGION;

/// Flag of colored memory: huge pages for each whole 2 MiB, as far as they are available, and colored base pages for the rest. With more than
/// 512 colors a huge page does not have all of them, and none is used.
pub const HPS_COLOR_HUGE: u32 = 1;

/// Which colored memory is wanted. Zero it, set `size`, `colors` and `bytes`, then the fields that should differ from the defaults.
#[repr(C)]
pub struct hps_color_options {
    /// `sizeof (struct hps_color_options)`; tells the library which fields exist.
    pub size: u32,
    /// How many colors the cache has; `hugepilot color probe` tells, and whether they are real.
    pub colors: u32,
    /// Its size in bytes, rounded up to 4 KiB.
    pub bytes: u64,
    /// Colors that may be used, counted from 0, which keeps the memory out of the rest of the cache (and off huge pages, which have all
    /// colors); NULL: all. Copied.
    pub used: *const u32,
    /// How many; 0 with NULL.
    pub used_count: u64,
    /// `HPS_COLOR_HUGE`.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// Memory whose pages follow each other through the sets of a cache.
pub struct hps_color_arena(ColoredArena);

/// Where colored memory lies, and what it consists of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_color_info {
    /// Where it lies.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Of these, bytes at its beginning that were put on huge pages.
    pub huge_bytes: u64,
    /// Base pages after those, chosen by color.
    pub pages: u64,
}

/// How much of colored memory still has its colors: all of it while these numbers equal those in `struct hps_color_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_color_verified {
    /// Of `huge_bytes`, bytes in 2 MiB blocks that are still contiguous, and so have all colors evenly.
    pub contiguous_bytes: u64,
    /// Of `pages`, those that have the color they should have: fewer where a color had run out, and after the kernel migrated, merged or
    /// swapped some, or a forked process wrote to them.
    pub right_pages: u64,
}

/// Makes colored memory, zeroed and fully populated, so that no access fails later: each base page has the next color. Meanwhile it takes
/// at least 1.05 times as much memory, and as many times more as there are colors for each one that may be used; where some are short, at
/// most twice that, or 8 MiB more. It checks that so much is available on the machine, but not limits of control groups. A process
/// that has locked all memory to come (`mlockall` with `MCL_FUTURE`) gets none: make it before.
///
/// While it is made, which takes seconds for a large one, `fork` in another thread waits.
///
/// A forked child has it too, but what either writes to then is copied to a page of any color.
///
/// Returns 0 and the memory in `arena`, which is the application's until `hps_color_destroy`; or `-EINVAL` an option is out of range,
/// or all memory to come is locked; `-EPERM` page frames are hidden (CAP_SYS_ADMIN is missing); `-EACCES` they are closed to a program that
/// has its rights by `setcap`; `-ENOMEM` too little memory, or too few pages of the colors that may be used, or before Linux 6.8 too many
/// mappings. `hps_error` says it in words.
///
/// # Safety
///
/// `options` points to a `struct hps_color_options` whose pointer is NULL or valid, and `arena` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_color_create(
    options: *const hps_color_options,
    arena: *mut *mut hps_color_arena,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (Some(options), Some(place)) = (unsafe { (options.as_ref(), arena.as_mut()) }) else {
        return answer(Err(invalid("make colored memory: NULL was given")));
    };
    // SAFETY: guaranteed by the caller.
    let made = unsafe { arena_options(options) }.and_then(|options| Ok(ColoredArena::create(&options)?));
    answer(made.map(|made| *place = Box::into_raw(Box::new(hps_color_arena(made)))))
}

/// Writes to `info` where colored memory lies; needs no privilege. Returns 0, or `-EINVAL` for NULL.
///
/// # Safety
///
/// `arena` was created and not destroyed, and `info` points to a `struct hps_color_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_color_get_info(arena: *const hps_color_arena, info: *mut hps_color_info) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (Some(hps_color_arena(arena)), Some(info)) = (unsafe { (arena.as_ref(), info.as_mut()) }) else {
        return answer(Err(invalid("describe colored memory: NULL was given")));
    };
    *info = hps_color_info {
        address: arena.address(),
        bytes: arena.len() as u64,
        huge_bytes: arena.huge_bytes() as u64,
        pages: arena.pages() as u64,
    };
    0
}

/// Writes to `verified` how much of colored memory still has its colors. It reads the page tables, microseconds for each MiB, and
/// changes nothing. Lost colors come back only by making the memory anew.
///
/// Returns 0, or `-EINVAL` for NULL; `-EPERM`, `-EACCES` page frames are hidden, as from a process that has dropped CAP_SYS_ADMIN.
///
/// # Safety
///
/// `arena` was created and not destroyed, and `verified` points to a `struct hps_color_verified`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_color_verify(arena: *const hps_color_arena, verified: *mut hps_color_verified) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (Some(hps_color_arena(arena)), Some(place)) = (unsafe { (arena.as_ref(), verified.as_mut()) }) else {
        return answer(Err(invalid("verify colored memory: NULL was given")));
    };
    let verified = arena.verify().map_err(TrackError::from);
    answer(verified.map(|verified| {
        *place = hps_color_verified { contiguous_bytes: verified.contiguous * REGION, right_pages: verified.right }
    }))
}

/// Returns colored memory to the machine.
///
/// # Safety
///
/// `arena` is NULL, or was created and not destroyed, and nobody uses its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_color_destroy(arena: *mut hps_color_arena) {
    if let Some(arena) = NonNull::new(arena) {
        // SAFETY: `hps_color_create` made it, and the caller guarantees that it is destroyed only once.
        drop(unsafe { Box::from_raw(arena.as_ptr()) });
    }
}

/// # Safety
///
/// As `hps_color_create`.
unsafe fn arena_options(options: &hps_color_options) -> Result<ArenaOptions, TrackError> {
    if options.size as usize != size_of::<hps_color_options>() {
        return Err(invalid("read struct hps_color_options: its size is of no known version"));
    }
    if options.flags & !HPS_COLOR_HUGE != 0 || options.reserved != 0 {
        return Err(invalid("read struct hps_color_options: an unknown flag"));
    }
    let palette = match NonNull::new(options.used.cast_mut()) {
        None if options.used_count > 0 => {
            return Err(invalid("read struct hps_color_options: used is NULL, and used_count is not 0"));
        }
        None => Palette::all(options.colors)?,
        Some(_) if options.used_count > u64::from(options.colors) => return Err(ColorError::TooMany.into()),
        Some(used) => {
            // SAFETY: the caller guarantees that many.
            let used = unsafe { std::slice::from_raw_parts(used.as_ptr(), options.used_count as usize) };
            Palette::only(options.colors, used.iter().copied())?
        }
    };
    let huge_pages = options.flags & HPS_COLOR_HUGE != 0;
    Ok(ArenaOptions { bytes: options.bytes, palette, huge_pages, first: None })
}
