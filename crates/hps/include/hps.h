/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libhps tells an application that manages its own memory which of its pages are hot, so that it can put them on huge pages.
 * Link with -lhps (pkg-config hps); see hps(3).
 *
 * Every function may be called from any thread at any time, also from callbacks, but not from a signal handler. Tracking
 * belongs to the process: a forked child is not tracked until it asks for that itself, and exec ends it.
 *
 * On Windows the library has only hps_large_alloc, hps_large_get_info, hps_large_free and hps_error.
 */

#ifndef HPS_H
#define HPS_H

#include <stdint.h>


// A thread of the library fetches lists and calls the functions that were set.
#define HPS_HANDLE 0

// A thread of the application does so, in `hps_wait_signal`.
#define HPS_WAIT 1

// Flag: after `hps_disable_track` the process stays registered, and is tracked again once its page walks rise.
#define HPS_WAKE 1

// Flag: where no daemon answers, see the pages of `ranges` that this process writes (Linux 6.7), not those that it only reads. A daemon that
// starts later is preferred. Requires ranges; what is mapped in them later is watched from the next scan on.
#define HPS_OWN_WRITES 2

// Flag of an arena: forked children may use it, too; it then takes nothing from the pool of reserved huge pages.
#define HPS_ARENA_FORK 1

// Verdict: leave the region as it is.
#define HPS_KEEP 0

// Verdict: put the region on a huge page in place.
#define HPS_CONVERT 1

// Verdict: have the `compact` function move the region's hot objects.
#define HPS_COMPACT 2

// An arena lies on reserved huge pages.
#define HPS_POOL 1

// An arena lies on huge pages that the kernel made on request.
#define HPS_HUGE_PAGES 2

// An arena lies on ordinary pages, at least in part.
#define HPS_BASE_PAGES 3

// Flag of colored memory: huge pages for each whole 2 MiB, as far as they are available, and colored base pages for the rest. With more than
// 512 colors a huge page does not have all of them, and none is used.
#define HPS_COLOR_HUGE 1

// Large pages, or ordinary ones where there are no or too few large ones.
#define HPS_LARGE_PREFERRED 0

// Large pages for all of it, or an error.
#define HPS_LARGE_REQUIRED 1

// Ordinary pages, and no large ones.
#define HPS_LARGE_OFF 2

// Flag: pages of 1 GiB; without it the smallest large ones, 2 MiB on x86-64.
#define HPS_LARGE_GIANT 1

// Flag: do not use the smallest large pages in place of those of 1 GiB.
#define HPS_LARGE_NO_SMALLER 2

// The memory lies on ordinary pages.
#define HPS_LARGE_ON_ORDINARY 0

// It lies on huge pages that Linux made on request, at least in part.
#define HPS_LARGE_ON_TRANSPARENT 1

// It lies on huge pages of a Linux pool (hugetlbfs).
#define HPS_LARGE_ON_POOL 2

// It lies on locked large pages of Windows: never paged out, not in the working set.
#define HPS_LARGE_ON_LOCKED 3

// Memory on huge pages for hot objects.
struct hps_arena;

// Memory whose pages follow each other through the sets of a cache.
struct hps_color_arena;

// Memory on large pages, or on what was available in their place.
struct hps_large;

// Addresses from `start` up to but not including `end`.
struct hps_range {
  // The first.
  uint64_t start;
  // The one after the last.
  uint64_t end;
};

// How to be tracked. Zero it, set `size`, then the fields that should differ from the defaults.
struct hps_options {
  // `sizeof (struct hps_options)`; tells the library which fields exist.
  uint32_t size;
  // `HPS_HANDLE` or `HPS_WAIT`.
  uint32_t mode;
  // The real-time signal with which the daemon announces a new list; 0: `SIGRTMIN + 4`.
  int32_t signal;
  // A page counts as active if it was used within this many milliseconds; lists come no more often than that. 0: 1000.
  uint32_t interval_ms;
  // No list comes while fewer base pages than this are active; 0: 512, which is 2 MiB. A small program tries it out with 1.
  uint64_t threshold_pages;
  // Where pages count, at most 32 ranges, which need not be aligned; NULL: in all of the process, its stacks and the C library's heap
  // included, so `judge` must keep what the application cannot move. To change them, disable and enable tracking again. Copied.
  const struct hps_range *ranges;
  // How many ranges there are; 0 if and only if `ranges` is NULL.
  uint64_t ranges_count;
  // Bytes that the library may put on huge pages in place, over all lists; what is freed later still counts. 0: no limit.
  uint64_t max_huge_bytes;
  // Bytes that the library may add to the process by converting regions with pages that had no memory yet, over all lists. A region that
  // would add more is compacted, if the application can. 0: a hundredth of what is resident when the first list comes; UINT64_MAX: no
  // limit.
  uint64_t max_growth_bytes;
  // `HPS_WAKE`, `HPS_OWN_WRITES`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
  // Where the daemon listens; NULL: `/run/hugepilot/control.sock`. Copied.
  const char *socket;
};

// An active page.
struct hps_page {
  // Where it starts; a multiple of 4096.
  uint64_t address;
  // Page walks a second, about; writes a second where there is no daemon.
  double walks_per_second;
};


// 2 MiB with active pages. The library owns it and its pages; they are valid until the function that received it returns.
struct hps_region {
  // Where it starts; a multiple of 2 MiB.
  uint64_t start;
  // Its active pages, ascending.
  const struct hps_page *pages;
  // How many there are, 1 to 512.
  uint64_t pages_count;
  // Page walks a second in all of them.
  double walks_per_second;
};

// The outcome of one list.
struct hps_report {
  // Active pages in it.
  uint64_t pages;
  // Regions that hold them.
  uint64_t regions;
  // Regions put on huge pages.
  uint64_t converted;
  // Regions whose hot objects the application moved.
  uint64_t compacted;
  // Bytes that it moved.
  uint64_t compacted_bytes;
  // Regions left as they are: by verdict, because they are on a huge page already, or because nothing can compact them or nothing had to be moved.
  uint64_t kept;
  // Regions left as they are because a limit is reached: of huge pages, or of growth where the application cannot compact either.
  uint64_t over_limit;
  // Regions that the kernel or the application refused.
  uint64_t refused;
  // The errno of the last refusal; 0 if there was none.
  int32_t last_error;
  // Active pages missing from the list, which had no room for the least walked.
  uint64_t left_out;
};

// What an application knows about its own memory. Each function may be NULL. They are called one at a time, on the library's thread or on
// the one in `hps_wait_signal`, without any lock of the library held. They must return: no exception, no longjmp.
struct hps_functions {
  // `sizeof (struct hps_functions)`.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // Passed to each function. Owned by the application; must stay valid until tracking has ended (`hps_disable_track` waits for a running
  // function); resting (`HPS_WAKE`) does not end it.
  void *context;
  // Called before a list is processed, with all active pages in ascending order; valid until this returns.
  void (*begin)(void *context, const struct hps_page *pages, uint64_t count);
  // Decides what to do with a region: `HPS_KEEP`, `HPS_CONVERT` or `HPS_COMPACT`. Regions come by page walks, most first. NULL:
  // `hps_judge`.
  int (*judge)(void *context, const struct hps_region *region);
  // Moves the hot objects of a region elsewhere, such as into an arena. Returns the bytes moved, 0 if nothing could be, or a negative errno,
  // in which case the region counts as refused. NULL: such regions are kept.
  int64_t (*compact)(void *context, const struct hps_region *region);
  // Called after a list was processed; the report is valid until this returns.
  void (*end)(void *context, const struct hps_report *report);
};

// The state of an arena.
struct hps_arena_info {
  // `HPS_POOL`, `HPS_HUGE_PAGES` or `HPS_BASE_PAGES`.
  int backing;
  // 0.
  uint32_t reserved;
  // Where it lies.
  uint64_t address;
  // Its capacity in bytes.
  uint64_t bytes;
  // Bytes that it has taken from the machine so far.
  uint64_t backed_bytes;
  // Of these, bytes on huge pages.
  uint64_t huge_bytes;
};

// Which colored memory is wanted. Zero it, set `size`, `colors` and `bytes`, then the fields that should differ from the defaults.
struct hps_color_options {
  // `sizeof (struct hps_color_options)`; tells the library which fields exist.
  uint32_t size;
  // How many colors the cache has; `hugepilot color probe` tells, and whether they are real.
  uint32_t colors;
  // Its size in bytes, rounded up to 4 KiB.
  uint64_t bytes;
  // Colors that may be used, counted from 0, which keeps the memory out of the rest of the cache (and off huge pages, which have all
  // colors); NULL: all. Copied.
  const uint32_t *used;
  // How many; 0 with NULL.
  uint64_t used_count;
  // `HPS_COLOR_HUGE`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
};

// Where colored memory lies, and what it consists of.
struct hps_color_info {
  // Where it lies.
  uint64_t address;
  // How long it is.
  uint64_t bytes;
  // Of these, bytes at its beginning that were put on huge pages.
  uint64_t huge_bytes;
  // Base pages after those, chosen by color.
  uint64_t pages;
};

// How much of colored memory still has its colors: all of it while these numbers equal those in `struct hps_color_info`.
struct hps_color_verified {
  // Of `huge_bytes`, bytes in 2 MiB blocks that are still contiguous, and so have all colors evenly.
  uint64_t contiguous_bytes;
  // Of `pages`, those that have the color they should have: fewer where a color had run out, and after the kernel migrated, merged or
  // swapped some, or a forked process wrote to them.
  uint64_t right_pages;
};

// Which pages are wanted. Zero it, set `size`, then the fields that should differ from the defaults.
struct hps_large_options {
  // `sizeof (struct hps_large_options)`; tells the library which fields exist.
  uint32_t size;
  // `HPS_LARGE_PREFERRED`, `HPS_LARGE_REQUIRED` or `HPS_LARGE_OFF`.
  uint32_t policy;
  // `HPS_LARGE_GIANT`, `HPS_LARGE_NO_SMALLER`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
};

// What was allocated.
struct hps_large_info {
  // The first byte.
  void *memory;
  // How many bytes: the request, rounded up to whole pages.
  uint64_t bytes;
  // Bytes of one page of that kind.
  uint64_t page_bytes;
  // Of all bytes, those on large pages.
  uint64_t large_bytes;
  // `HPS_LARGE_ON_ORDINARY`, `HPS_LARGE_ON_TRANSPARENT`, `HPS_LARGE_ON_POOL` or `HPS_LARGE_ON_LOCKED`.
  int backing;
  // 0.
  uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Tracks this process from now on. With `HPS_HANDLE` the functions that were set are called on a thread of the library; with
// `HPS_WAIT`, in `hps_wait_signal`. If it rests after `hps_disable_track` (`HPS_WAKE`), tracking resumes as it was, whatever the options.
//
// Returns 0, or a negative errno: `-EBUSY` it is tracked already, or the signal has another handler; `-ECONNREFUSED` no daemon listens; `-EPERM`
// the daemon refuses (a set-user-id program, or too many of one user's); `-EPROTO` it is of another release; `-EINVAL` an option is out of range;
// `-EIO` the daemon does not answer; `-EAGAIN` no thread can be had; with `HPS_OWN_WRITES` also `-ENOSYS`, `-EPERM` this process cannot watch its
// own writes. `hps_error` explains it. If the daemon goes away later, the library waits for the next one.
//
// Requires:
//
// `options` is NULL, for the defaults, or points to a `struct hps_options` whose pointers are NULL or valid.
int hps_enable_track(const struct hps_options *options);

// Ends tracking, or with `HPS_WAKE` lets it rest until the daemon sees the page walks of this process rise (without a daemon it
// rests until `hps_enable_track` is called); called while it rests, it ends tracking. Waits until the library's thread has finished the
// list at hand, unless called on that thread. A thread in `hps_wait_signal` returns `-ECANCELED`.
//
// Returns 0, or `-ESRCH`: it is not tracked.
int hps_disable_track(void);

// Sets what the application knows about its own memory; NULL: nothing. The structure is copied. May be called before and while it is tracked,
// and does not wait: a function that is running continues with the old context, so free that only after `hps_disable_track`.
//
// Returns 0, or `-EINVAL`: the size is of no known version.
//
// Requires:
//
// `functions` is NULL or points to a `struct hps_functions`, whose functions may be called with its context, on any thread and one at a
// time, until tracking ended or others were set.
int hps_set_functions(const struct hps_functions *functions);

// Waits for a list, processes it on this thread, and writes the outcome to `report`. The signal need be neither blocked nor
// handled by the application; none is missed between two calls.
//
// `limit_ms`: the longest wait in milliseconds; 0: do not wait; negative: wait without a limit.
//
// Returns 0, or a negative errno: `-ETIMEDOUT` none came; `-ECANCELED` tracking was ended; `-ESRCH` this process is not tracked; `-EBUSY`
// another thread waits, the library's own with `HPS_HANDLE`; `-EPERM`, `-EPROTO` a daemon that has come back refuses; `-EPROTO` also: its
// lists cannot be read, because it is of another release, and it is asked again in ten minutes.
//
// Requires:
//
// `report` is NULL or points to a `struct hps_report`.
int hps_wait_signal(int64_t limit_ms,
                    struct hps_report *report);

// The default rule: `HPS_CONVERT` for a region of which at least a quarter is active, `HPS_COMPACT` for any other.
//
// Requires:
//
// `region` points to a `struct hps_region`, of which the pages are not read.
int hps_judge(const struct hps_region *region);

// Makes an arena of `bytes`, rounded up to 2 MiB: memory for hot objects, on reserved huge pages if the pool has room for all of it now (free less
// reserved), else on huge pages that the kernel makes on request, else on ordinary pages. Except for pool reservations, memory is taken from the
// machine only when needed, and no access fails later.
//
// On reserved huge pages the arena does not exist in a forked child: touching it there raises SIGSEGV. `HPS_ARENA_FORK` shares it with children.
//
// Returns 0 and the arena in `arena`, which is the application's until `hps_arena_destroy`; or `-EINVAL`, `-ENOMEM`.
//
// Requires:
//
// `arena` points to a pointer.
int hps_arena_create(uint64_t bytes,
                     uint32_t flags,
                     struct hps_arena **arena);

// Allocates `bytes` from an arena, aligned to 16, contents undefined. Returns NULL if the arena has no room, or the machine no memory.
//
// Requires:
//
// `arena` was created and not destroyed.
void *hps_arena_alloc(struct hps_arena *arena,
                      uint64_t bytes);

// Frees an allocation that is no longer used; its memory stays with the arena.
//
// Returns 0, or `-EINVAL`: no live allocation of this arena begins there; nothing was done.
//
// Requires:
//
// `arena` was created and not destroyed.
int hps_arena_free(struct hps_arena *arena, void *piece);

// Writes the state of an arena to `info`. Returns 0, or `-EINVAL` for NULL.
//
// Requires:
//
// `arena` was created and not destroyed, and `info` points to a `struct hps_arena_info`.
int hps_arena_get_info(const struct hps_arena *arena, struct hps_arena_info *info);

// Returns the memory of an arena to the machine, with all of its allocations.
//
// Requires:
//
// `arena` is NULL, or was created and not destroyed, and none of its allocations is used any more.
void hps_arena_destroy(struct hps_arena *arena);

// Makes colored memory, zeroed and fully populated, so that no access fails later: each base page has the next color. Meanwhile it takes
// at least 1.05 times as much memory, and as many times more as there are colors for each one that may be used; where some are short, at
// most twice that, or 8 MiB more. It checks that so much is available on the machine, but not limits of control groups. A process
// that has locked all memory to come (`mlockall` with `MCL_FUTURE`) gets none: make it before.
//
// While it is made, which takes seconds for a large one, `fork` in another thread waits.
//
// A forked child has it too, but what either writes to then is copied to a page of any color.
//
// Returns 0 and the memory in `arena`, which is the application's until `hps_color_destroy`; or `-EINVAL` an option is out of range,
// or all memory to come is locked; `-EPERM` page frames are hidden (CAP_SYS_ADMIN is missing); `-EACCES` they are closed to a program that
// has its rights by `setcap`; `-ENOMEM` too little memory, or too few pages of the colors that may be used, or before Linux 6.8 too many
// mappings. `hps_error` says it in words.
//
// Requires:
//
// `options` points to a `struct hps_color_options` whose pointer is NULL or valid, and `arena` to a pointer.
int hps_color_create(const struct hps_color_options *options,
                     struct hps_color_arena **arena);

// Writes to `info` where colored memory lies; needs no privilege. Returns 0, or `-EINVAL` for NULL.
//
// Requires:
//
// `arena` was created and not destroyed, and `info` points to a `struct hps_color_info`.
int hps_color_get_info(const struct hps_color_arena *arena, struct hps_color_info *info);

// Writes to `verified` how much of colored memory still has its colors. It reads the page tables, microseconds for each MiB, and
// changes nothing. Lost colors come back only by making the memory anew.
//
// Returns 0, or `-EINVAL` for NULL; `-EPERM`, `-EACCES` page frames are hidden, as from a process that has dropped CAP_SYS_ADMIN.
//
// Requires:
//
// `arena` was created and not destroyed, and `verified` points to a `struct hps_color_verified`.
int hps_color_verify(const struct hps_color_arena *arena,
                     struct hps_color_verified *verified);

// Returns colored memory to the machine.
//
// Requires:
//
// `arena` is NULL, or was created and not destroyed, and nobody uses its memory any more.
void hps_color_destroy(struct hps_color_arena *arena);

// The last error of this thread in words: what is wrong and what to do; empty if there was none. Valid until the next error on this thread.
const char *hps_error(void);

// Allocates at least `bytes` of zeroed memory on the pages that `options` names; NULL: large ones, preferred. Call it once, at the program's
// start: contiguous memory becomes scarce as a machine grows older. On Linux and on Windows, where the account must hold the right to lock pages
// in memory (`hugepilot.exe doctor` checks that); the call enables that right for the process and leaves it enabled.
//
// On Linux, memory on reserved pages does not exist in a forked child; touching it there raises SIGSEGV. Huge pages that are made on request are
// populated at once: it checks that the machine has so much memory available, but not limits of control groups, beyond which the kernel ends a
// program of the group.
//
// Returns 0 and the memory in `large`, which is the application's until `hps_large_free`; where it lies on other pages than requested, `hps_error`
// says why, for each kind that was tried. Or `-EPERM` the right is missing, or this thread impersonates an account that lacks it; `-ENOMEM` no
// contiguous memory, too small a pool, or too little memory; `-ENOSYS` there are no such pages; `-EINVAL` no memory has that size, or an option is
// out of range; `-EIO` anything else. `hps_error` says it in words.
//
// Requires:
//
// `options` is NULL or points to a `struct hps_large_options`, and `large` points to a pointer.
int hps_large_alloc(uint64_t bytes,
                    const struct hps_large_options *options,
                    struct hps_large **large);

// Writes to `info` what was allocated. Returns 0, or `-EINVAL` for NULL.
//
// Requires:
//
// `large` is NULL, or memory that was allocated and not freed, and `info` is NULL or points to a `struct hps_large_info`.
int hps_large_get_info(const struct hps_large *large,
                       struct hps_large_info *info);

// Returns the memory to the machine.
//
// Requires:
//
// `large` is NULL, or memory that was allocated and not freed, and nobody uses it any more.
void hps_large_free(struct hps_large *large);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HPS_H */
