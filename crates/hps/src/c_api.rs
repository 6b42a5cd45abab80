//! The C interface; `include/hps.h` is made from this file.
//!
//! Owns: what crosses into C and back: pointers, errno, structs whose size tells their version. Never touches: anything else; each function
//! translates, and calls what the other modules offer to Rust.
//!
//! Every function may be called from any thread at any time, also from callbacks, but not from a signal handler. A process is
//! tracked once at a time. A forked child has none of its parent's and may begin its own.
#![allow(unsafe_code)]
#![allow(non_camel_case_types, reason = "these are C's names")]

mod color;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::arena::Arena;
use crate::c_error;
use crate::judge::{self, ActiveRegion, Application, RegionVerdict, Report};
use crate::tracking::{ProcessTracking, TrackingSettings, locked};
use crate::wire::{MOST_RANGES, Page, Range, Track};
use crate::{ArenaBacking, TrackError};

/// A thread of the library fetches lists and calls the functions that were set.
pub const HPS_HANDLE: u32 = 0;
/// A thread of the application does so, in `hps_wait_signal`.
pub const HPS_WAIT: u32 = 1;
/// Flag: after `hps_disable_track` the process stays registered, and is tracked again once its page walks rise.
pub const HPS_WAKE: u32 = 1;
/// Flag: where no daemon answers, see the pages of `ranges` that this process writes (Linux 6.7), not those that it only reads. A daemon that
/// starts later is preferred. Requires ranges; what is mapped in them later is watched from the next scan on.
pub const HPS_OWN_WRITES: u32 = 2;
/// Flag of an arena: forked children may use it, too; it then takes nothing from the pool of reserved huge pages.
pub const HPS_ARENA_FORK: u32 = 1;
/// Verdict: leave the region as it is.
pub const HPS_KEEP: c_int = 0;
/// Verdict: put the region on a huge page in place.
pub const HPS_CONVERT: c_int = 1;
/// Verdict: have the `compact` function move the region's hot objects.
pub const HPS_COMPACT: c_int = 2;
/// An arena lies on reserved huge pages.
pub const HPS_POOL: c_int = 1;
/// An arena lies on huge pages that the kernel made on request.
pub const HPS_HUGE_PAGES: c_int = 2;
/// An arena lies on ordinary pages, at least in part.
pub const HPS_BASE_PAGES: c_int = 3;

/// How to be tracked. Zero it, set `size`, then the fields that should differ from the defaults.
#[repr(C)]
pub struct hps_options {
    /// `sizeof (struct hps_options)`; tells the library which fields exist.
    pub size: u32,
    /// `HPS_HANDLE` or `HPS_WAIT`.
    pub mode: u32,
    /// The real-time signal with which the daemon announces a new list; 0: `SIGRTMIN + 4`.
    pub signal: i32,
    /// A page counts as active if it was used within this many milliseconds; lists come no more often than that. 0: 1000.
    pub interval_ms: u32,
    /// No list comes while fewer base pages than this are active; 0: 512, which is 2 MiB. A small program tries it out with 1.
    pub threshold_pages: u64,
    /// Where pages count, at most 32 ranges, which need not be aligned; NULL: in all of the process, its stacks and the C library's heap
    /// included, so `judge` must keep what the application cannot move. To change them, disable and enable tracking again. Copied.
    pub ranges: *const Range,
    /// How many ranges there are; 0 if and only if `ranges` is NULL.
    pub ranges_count: u64,
    /// Bytes that the library may put on huge pages in place, over all lists; what is freed later still counts. 0: no limit.
    pub max_huge_bytes: u64,
    /// Bytes that the library may add to the process by converting regions with pages that had no memory yet, over all lists. A region that
    /// would add more is compacted, if the application can. 0: a hundredth of what is resident when the first list comes; UINT64_MAX: no
    /// limit.
    pub max_growth_bytes: u64,
    /// `HPS_WAKE`, `HPS_OWN_WRITES`.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Where the daemon listens; NULL: `/run/hugepilot/control.sock`. Copied.
    pub socket: *const c_char,
}

/// 2 MiB with active pages. The library owns it and its pages; they are valid until the function that received it returns.
#[repr(C)]
pub struct hps_region {
    /// Where it starts; a multiple of 2 MiB.
    pub start: u64,
    /// Its active pages, ascending.
    pub pages: *const Page,
    /// How many there are, 1 to 512.
    pub pages_count: u64,
    /// Page walks a second in all of them.
    pub walks_per_second: f64,
}

/// What an application knows about its own memory. Each function may be NULL. They are called one at a time, on the library's thread or on
/// the one in `hps_wait_signal`, without any lock of the library held. They must return: no exception, no longjmp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_functions {
    /// `sizeof (struct hps_functions)`.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// Passed to each function. Owned by the application; must stay valid until tracking has ended (`hps_disable_track` waits for a running
    /// function); resting (`HPS_WAKE`) does not end it.
    pub context: *mut c_void,
    /// Called before a list is processed, with all active pages in ascending order; valid until this returns.
    pub begin: Option<unsafe extern "C" fn(context: *mut c_void, pages: *const Page, count: u64)>,
    /// Decides what to do with a region: `HPS_KEEP`, `HPS_CONVERT` or `HPS_COMPACT`. Regions come by page walks, most first. NULL:
    /// `hps_judge`.
    pub judge: Option<unsafe extern "C" fn(context: *mut c_void, region: *const hps_region) -> c_int>,
    /// Moves the hot objects of a region elsewhere, such as into an arena. Returns the bytes moved, 0 if nothing could be, or a negative errno,
    /// in which case the region counts as refused. NULL: such regions are kept.
    pub compact: Option<unsafe extern "C" fn(context: *mut c_void, region: *const hps_region) -> i64>,
    /// Called after a list was processed; the report is valid until this returns.
    pub end: Option<unsafe extern "C" fn(context: *mut c_void, report: *const Report)>,
}

/// Memory on huge pages for hot objects.
pub struct hps_arena(Arena);

/// The state of an arena.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hps_arena_info {
    /// `HPS_POOL`, `HPS_HUGE_PAGES` or `HPS_BASE_PAGES`.
    pub backing: c_int,
    /// 0.
    pub reserved: u32,
    /// Where it lies.
    pub address: u64,
    /// Its capacity in bytes.
    pub bytes: u64,
    /// Bytes that it has taken from the machine so far.
    pub backed_bytes: u64,
    /// Of these, bytes on huge pages.
    pub huge_bytes: u64,
}

// SAFETY: the caller that sets functions promises that they may be called on any thread, one at a time.
unsafe impl Send for hps_functions {}

// SAFETY: 0 means no function and no context.
const NO_FUNCTIONS: hps_functions =
    hps_functions { size: size_of::<hps_functions>() as u32, ..unsafe { std::mem::zeroed() } };

/// Calls the functions that are set at the time of the call.
struct Current;

impl Application for Current {
    fn begin(&self, pages: &[Page]) {
        let hps_functions { context, begin, .. } = functions();
        if let Some(begin) = begin {
            // SAFETY: the caller that set the function promised that it and its context remain usable until other functions are set.
            unsafe { begin(context, pages.as_ptr(), pages.len() as u64) };
        }
    }

    fn judge(&self, region: &ActiveRegion<'_>) -> RegionVerdict {
        let hps_functions { context, judge, .. } = functions();
        let Some(judge) = judge else { return judge::judge(region) };
        // SAFETY: as in `begin`.
        match with_region(region, |region| unsafe { judge(context, region) }) {
            HPS_CONVERT => RegionVerdict::Convert,
            HPS_COMPACT => RegionVerdict::Compact,
            _ => RegionVerdict::Keep,
        }
    }

    fn compact(&self, region: &ActiveRegion<'_>) -> Option<Result<u64, i32>> {
        let hps_functions { context, compact, .. } = functions();
        let compact = compact?;
        // SAFETY: as in `begin`.
        let moved = with_region(region, |region| unsafe { compact(context, region) });
        Some(u64::try_from(moved).map_err(|_| i32::try_from(moved.unsigned_abs()).unwrap_or(libc::EIO)))
    }

    fn end(&self, report: &Report) {
        let hps_functions { context, end, .. } = functions();
        if let Some(end) = end {
            // SAFETY: as in `begin`.
            unsafe { end(context, report) };
        }
    }
}

/// This process's state in the library.
struct State {
    pid: u32,
    tracking: Mutex<Option<Tracking>>,
    functions: Mutex<hps_functions>,
}

#[derive(Clone)]
struct Tracking {
    tracker: Arc<ProcessTracking>,
    wake: bool,
}

/// Never freed: a forked child leaves its parent's state alone, because it may have copied locks that were held.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());

fn state() -> &'static State {
    let pid = std::process::id();
    loop {
        let found = STATE.load(Ordering::Acquire);
        // SAFETY: the pointer was leaked, and the state is only changed under its locks.
        if let Some(state) = unsafe { found.as_ref() }.filter(|state| state.pid == pid) {
            return state;
        }
        let fresh = State { pid, tracking: Mutex::new(None), functions: Mutex::new(NO_FUNCTIONS) };
        let fresh = Box::into_raw(Box::new(fresh));
        if STATE.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it was created above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

fn functions() -> hps_functions {
    *locked(&state().functions)
}

/// 0 or a negative errno; keeps the message for `hps_error`.
fn answer(result: Result<(), TrackError>) -> c_int {
    let Err(error) = result else { return 0 };
    c_error::keep(&error);
    -error.errno()
}

fn invalid(doing: &'static str) -> TrackError {
    TrackError::System { doing, cause: io::Error::from_raw_os_error(libc::EINVAL) }
}

/// Tracks this process from now on. With `HPS_HANDLE` the functions that were set are called on a thread of the library; with
/// `HPS_WAIT`, in `hps_wait_signal`. If it rests after `hps_disable_track` (`HPS_WAKE`), tracking resumes as it was, whatever the options.
///
/// Returns 0, or a negative errno: `-EBUSY` it is tracked already, or the signal has another handler; `-ECONNREFUSED` no daemon listens; `-EPERM`
/// the daemon refuses (a set-user-id program, or too many of one user's); `-EPROTO` it is of another release; `-EINVAL` an option is out of range;
/// `-EIO` the daemon does not answer; `-EAGAIN` no thread can be had; with `HPS_OWN_WRITES` also `-ENOSYS`, `-EPERM` this process cannot watch its
/// own writes. `hps_error` explains it. If the daemon goes away later, the library waits for the next one.
///
/// # Safety
///
/// `options` is NULL, for the defaults, or points to a `struct hps_options` whose pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_enable_track(options: *const hps_options) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (settings, mode, wake) = match unsafe { settings(options) } {
        Ok(read) => read,
        Err(error) => return answer(Err(error)),
    };
    let mut tracking = locked(&state().tracking);
    if let Some(resting) = tracking.as_ref() {
        let rests = resting.tracker.is_resting();
        if rests {
            resting.tracker.watch();
        }
        return answer(if rests { Ok(()) } else { Err(TrackError::Tracked) });
    }
    let made = match mode {
        HPS_HANDLE => ProcessTracking::with_thread(settings, Arc::new(Current)),
        _ => ProcessTracking::new(settings),
    };
    answer(made.map(|tracker| *tracking = Some(Tracking { tracker: Arc::new(tracker), wake })))
}

/// Ends tracking, or with `HPS_WAKE` lets it rest until the daemon sees the page walks of this process rise (without a daemon it
/// rests until `hps_enable_track` is called); called while it rests, it ends tracking. Waits until the library's thread has finished the
/// list at hand, unless called on that thread. A thread in `hps_wait_signal` returns `-ECANCELED`.
///
/// Returns 0, or `-ESRCH`: it is not tracked.
#[unsafe(no_mangle)]
pub extern "C" fn hps_disable_track() -> c_int {
    let mut tracking = locked(&state().tracking);
    match tracking.take() {
        None => answer(Err(TrackError::NotTracked)),
        Some(resting) if resting.wake && !resting.tracker.is_resting() => {
            resting.tracker.rest();
            *tracking = Some(resting);
            0
        }
        Some(ended) => {
            // Its thread may need this lock one last time.
            drop(tracking);
            ended.tracker.end();
            0
        }
    }
}

/// Sets what the application knows about its own memory; NULL: nothing. The structure is copied. May be called before and while it is tracked,
/// and does not wait: a function that is running continues with the old context, so free that only after `hps_disable_track`.
///
/// Returns 0, or `-EINVAL`: the size is of no known version.
///
/// # Safety
///
/// `functions` is NULL or points to a `struct hps_functions`, whose functions may be called with its context, on any thread and one at a
/// time, until tracking ended or others were set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_set_functions(functions: *const hps_functions) -> c_int {
    // SAFETY: guaranteed by the caller; the size is the first field of every version.
    let set = match unsafe { functions.as_ref() } {
        None => NO_FUNCTIONS,
        Some(set) if set.size as usize == size_of::<hps_functions>() => *set,
        Some(_) => {
            return answer(Err(invalid(
                "read struct hps_functions: its `size` is of no known version; set it to sizeof (struct hps_functions)",
            )));
        }
    };
    *locked(&state().functions) = set;
    0
}

/// Waits for a list, processes it on this thread, and writes the outcome to `report`. The signal need be neither blocked nor
/// handled by the application; none is missed between two calls.
///
/// `limit_ms`: the longest wait in milliseconds; 0: do not wait; negative: wait without a limit.
///
/// Returns 0, or a negative errno: `-ETIMEDOUT` none came; `-ECANCELED` tracking was ended; `-ESRCH` this process is not tracked; `-EBUSY`
/// another thread waits, the library's own with `HPS_HANDLE`; `-EPERM`, `-EPROTO` a daemon that has come back refuses; `-EPROTO` also: its
/// lists cannot be read, because it is of another release, and it is asked again in ten minutes.
///
/// # Safety
///
/// `report` is NULL or points to a `struct hps_report`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_wait_signal(limit_ms: i64, report: *mut Report) -> c_int {
    let Some(Tracking { tracker, .. }) = locked(&state().tracking).clone() else {
        return answer(Err(TrackError::NotTracked));
    };
    if tracker.has_thread() {
        return answer(Err(TrackError::Busy));
    }
    let limit = u64::try_from(limit_ms).ok().map(Duration::from_millis);
    answer(tracker.wait(limit, &Current).map(|told| {
        // SAFETY: guaranteed by the caller.
        if let Some(report) = unsafe { report.as_mut() } {
            *report = told;
        }
    }))
}

/// The default rule: `HPS_CONVERT` for a region of which at least a quarter is active, `HPS_COMPACT` for any other.
///
/// # Safety
///
/// `region` points to a `struct hps_region`, of which the pages are not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_judge(region: *const hps_region) -> c_int {
    // SAFETY: guaranteed by the caller.
    let count = unsafe { region.as_ref() }.map_or(0, |region| region.pages_count);
    match judge::verdict(count) {
        RegionVerdict::Keep => HPS_KEEP,
        RegionVerdict::Convert => HPS_CONVERT,
        RegionVerdict::Compact => HPS_COMPACT,
    }
}

/// Makes an arena of `bytes`, rounded up to 2 MiB: memory for hot objects, on reserved huge pages if the pool has room for all of it now (free less
/// reserved), else on huge pages that the kernel makes on request, else on ordinary pages. Except for pool reservations, memory is taken from the
/// machine only when needed, and no access fails later.
///
/// On reserved huge pages the arena does not exist in a forked child: touching it there raises SIGSEGV. `HPS_ARENA_FORK` shares it with children.
///
/// Returns 0 and the arena in `arena`, which is the application's until `hps_arena_destroy`; or `-EINVAL`, `-ENOMEM`.
///
/// # Safety
///
/// `arena` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_arena_create(bytes: u64, flags: u32, arena: *mut *mut hps_arena) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Some(place) = (unsafe { arena.as_mut() }) else {
        return answer(Err(invalid("make an arena: no place for it")));
    };
    if flags & !HPS_ARENA_FORK != 0 {
        return answer(Err(invalid("make an arena: an unknown flag")));
    }
    if bytes == 0 {
        return answer(Err(invalid("make an arena: `bytes` is 0; give the size of your hot objects")));
    }
    let made = Arena::create(bytes, flags & HPS_ARENA_FORK != 0);
    let made = made.map_err(|cause| TrackError::System { doing: "make an arena", cause });
    answer(made.map(|made| *place = Box::into_raw(Box::new(hps_arena(made)))))
}

/// Allocates `bytes` from an arena, aligned to 16, contents undefined. Returns NULL if the arena has no room, or the machine no memory.
///
/// # Safety
///
/// `arena` was created and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_arena_alloc(arena: *mut hps_arena, bytes: u64) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    let Some(hps_arena(arena)) = (unsafe { arena.as_ref() }) else { return ptr::null_mut() };
    let piece = usize::try_from(bytes).ok().and_then(|bytes| arena.take(bytes));
    piece.map_or(ptr::null_mut(), |piece| piece.cast().as_ptr())
}

/// Frees an allocation that is no longer used; its memory stays with the arena.
///
/// Returns 0, or `-EINVAL`: no live allocation of this arena begins there; nothing was done.
///
/// # Safety
///
/// `arena` was created and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_arena_free(arena: *mut hps_arena, piece: *mut c_void) -> c_int {
    // SAFETY: guaranteed by the caller.
    let given_back = unsafe { arena.as_ref() }.is_some_and(|hps_arena(arena)| arena.give_back(piece as usize));
    answer(if given_back { Ok(()) } else { Err(invalid("free what is no piece of this arena")) })
}

/// Writes the state of an arena to `info`. Returns 0, or `-EINVAL` for NULL.
///
/// # Safety
///
/// `arena` was created and not destroyed, and `info` points to a `struct hps_arena_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_arena_get_info(arena: *const hps_arena, info: *mut hps_arena_info) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (Some(hps_arena(arena)), Some(info)) = (unsafe { (arena.as_ref(), info.as_mut()) }) else {
        return answer(Err(invalid("describe an arena: NULL was given")));
    };
    let extent = arena.extent();
    *info = hps_arena_info {
        backing: match arena.backing() {
            ArenaBacking::Pool => HPS_POOL,
            ArenaBacking::HugePages => HPS_HUGE_PAGES,
            ArenaBacking::BasePages => HPS_BASE_PAGES,
        },
        reserved: 0,
        address: extent.address,
        bytes: extent.bytes,
        backed_bytes: extent.backed_bytes,
        huge_bytes: extent.huge_bytes,
    };
    0
}

/// Returns the memory of an arena to the machine, with all of its allocations.
///
/// # Safety
///
/// `arena` is NULL, or was created and not destroyed, and none of its allocations is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hps_arena_destroy(arena: *mut hps_arena) {
    if let Some(arena) = NonNull::new(arena) {
        // SAFETY: `hps_arena_create` made it, and the caller guarantees that it is destroyed only once.
        drop(unsafe { Box::from_raw(arena.as_ptr()) });
    }
}

/// # Safety
///
/// As `hps_enable_track`.
unsafe fn settings(options: *const hps_options) -> Result<(TrackingSettings, u32, bool), TrackError> {
    // SAFETY: 0 means the default for each field.
    let default = hps_options { size: size_of::<hps_options>() as u32, ..unsafe { std::mem::zeroed() } };
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.as_ref() }.unwrap_or(&default);
    if options.size != default.size {
        return Err(invalid(
            "read struct hps_options: its `size` is of no known version; set it to sizeof (struct hps_options)",
        ));
    }
    if options.mode > HPS_WAIT || options.flags & !(HPS_WAKE | HPS_OWN_WRITES) != 0 || options.reserved != 0 {
        return Err(invalid("read struct hps_options: an unknown mode or flag"));
    }
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let ranges = match (NonNull::new(options.ranges.cast_mut()), options.ranges_count) {
        (None, 0) => &[],
        // SAFETY: the caller guarantees that many.
        (Some(ranges), count) if (1..=MOST_RANGES as u64).contains(&count) => unsafe {
            std::slice::from_raw_parts(ranges.as_ptr(), count as usize)
        },
        _ => {
            return Err(invalid(
                "read struct hps_options: `ranges` without `ranges_count`, the reverse, or more than 32 ranges",
            ));
        }
    };
    let usual = TrackingSettings::default();
    let socket = match NonNull::new(options.socket.cast_mut()) {
        None => usual.socket,
        // SAFETY: the caller guarantees that it is a string.
        Some(socket) => PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(socket.as_ptr()) }.to_bytes())),
    };
    let track = Track {
        signal: if options.signal == 0 { usual.track.signal } else { options.signal },
        thread: None,
        threshold_pages: or(options.threshold_pages, usual.track.threshold_pages),
        interval_ms: if options.interval_ms == 0 { usual.track.interval_ms } else { options.interval_ms },
        ranges: ranges.to_vec(),
    };
    let settings = TrackingSettings {
        track,
        socket,
        own_writes: options.flags & HPS_OWN_WRITES != 0,
        most_huge_bytes: or(options.max_huge_bytes, usual.most_huge_bytes),
        most_growth_bytes: (options.max_growth_bytes != 0).then_some(options.max_growth_bytes),
    };
    Ok((settings, options.mode, options.flags & HPS_WAKE != 0))
}

fn with_region<T>(region: &ActiveRegion<'_>, call: impl FnOnce(*const hps_region) -> T) -> T {
    let region = hps_region {
        start: region.start,
        pages: region.pages.as_ptr(),
        pages_count: region.pages.len() as u64,
        walks_per_second: region.walks_per_second,
    };
    call(&raw const region)
}
