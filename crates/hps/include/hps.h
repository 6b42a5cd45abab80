/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libhps: an application that manages its own memory is told which pages of it are hot, and sees to it that they lie on huge pages.
 * Link with -lhps (pkg-config hps); see hps(3).
 *
 * Every function may be called from any thread at any time, also from callbacks, but not from a signal handler. A process has one
 * tracking. A forked child has none of its parent's and may begin its own; exec ends it.
 *
 * On Windows the library has hps_large_alloc, hps_large_get_info, hps_large_free and hps_error, and nothing else.
 */

#ifndef HPS_H
#define HPS_H

#include <stdint.h>


// A thread of the library's fetches lists and calls the functions that were set.
#define HPS_HANDLE 0

// A thread of the application's does, in `hps_wait_signal`.
#define HPS_WAIT 1

// Flag: after `hps_disable_track` the process stays registered, and is tracked again when its walks have risen.
#define HPS_WAKE 1

// Flag: where no daemon answers, see the pages of `ranges` that this process writes (Linux 6.7), not those that it only reads; a daemon that
// comes later is preferred. It needs ranges. What is mapped in them later is watched from the next scan on.
#define HPS_OWN_WRITES 2

// Flag of an arena: forked children may use it too, for which it takes nothing from the pool of reserved huge pages.
#define HPS_ARENA_FORK 1

// Verdict: nothing is done with a region.
#define HPS_KEEP 0

// Verdict: it is put on a huge page where it is.
#define HPS_CONVERT 1

// Verdict: its hot objects are moved by the `compact` function.
#define HPS_COMPACT 2

// An arena lies on reserved huge pages.
#define HPS_POOL 1

// An arena lies on huge pages that the kernel made on request.
#define HPS_HUGE_PAGES 2

// An arena lies on ordinary pages, at least in part.
#define HPS_BASE_PAGES 3

// Flag of colored memory: huge pages for each whole 2 MiB, as far as they are to be had, and colored base pages for the rest. Of more than
// 512 colors a huge page has not all, and then there are none.
#define HPS_COLOR_HUGE 1

// Large pages; where there are none, or too few, ordinary ones will do.
#define HPS_LARGE_PREFERRED 0

// Large pages for all of it, or an error.
#define HPS_LARGE_REQUIRED 1

// Ordinary pages, and no large ones.
#define HPS_LARGE_OFF 2

// Flag: pages of 1 GiB; without it the smallest large ones, 2 MiB on x86-64.
#define HPS_LARGE_GIANT 1

// Flag: the smallest large pages will not do in place of those of 1 GiB.
#define HPS_LARGE_NO_SMALLER 2

// The memory lies on ordinary pages.
#define HPS_LARGE_ON_ORDINARY 0

// It lies on huge pages that Linux made on request, at least in part.
#define HPS_LARGE_ON_TRANSPARENT 1

// It lies on huge pages of a pool of Linux's.
#define HPS_LARGE_ON_POOL 2

// It lies on large pages of Windows, locked: never paged out, not in the working set.
#define HPS_LARGE_ON_LOCKED 3

// Memory on huge pages for hot objects.
struct hps_arena;

// Memory whose pages follow each other through the sets of a cache.
struct hps_color_arena;

// Memory on large pages, or on what was had in their place.
struct hps_large;

// Addresses from `start` up to but not including `end`.
struct hps_range {
  // The first.
  uint64_t start;
  // The one after the last.
  uint64_t end;
};

// How to be tracked. Set everything to 0, then `size`, then what is to be different.
struct hps_options {
  // `sizeof (struct hps_options)`, by which the library knows which fields there are.
  uint32_t size;
  // `HPS_HANDLE` or `HPS_WAIT`.
  uint32_t mode;
  // The real-time signal by which the daemon tells of a new list; 0: `SIGRTMIN + 4`.
  int32_t signal;
  // A page counts as active if it was used within this many milliseconds; lists come no more often than that. 0: 1000.
  uint32_t interval_ms;
  // No list comes while fewer base pages than this are active; 0: 512, which is 2 MiB. A small program tries it out with 1.
  uint64_t threshold_pages;
  // Where pages count, at most 32 ranges, which need not be aligned; NULL: in all of the process, its stacks and the C library's heap
  // included, so that `judge` must keep what is not the application's to move. To change them, end tracking and begin anew. Copied.
  const struct hps_range *ranges;
  // How many ranges there are.
  uint64_t ranges_count;
  // Bytes that the library may put on huge pages where they are, over all lists; what is freed later still counts. 0: no limit.
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


// 2 MiB in which pages are active. It and its pages are the library's, and there until the function that got it returns.
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

// What came of one list.
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
  // Regions left as they are by the verdict, or because nobody can compact them.
  uint64_t kept;
  // Regions left as they are because a limit is reached: of huge pages, or of growth where the application cannot compact either.
  uint64_t over_limit;
  // Regions that the kernel or the application refused.
  uint64_t refused;
  // The errno of the last refusal; 0 if there was none.
  int32_t last_error;
  // Active pages that are not in the list: the daemon had no room for those walked least.
  uint64_t left_out;
};

// What an application knows of its own memory. Each function may be NULL. They are called one at a time, on the library's thread or on
// the one in `hps_wait_signal`, with no lock of the library's held. They must return: no exception, no longjmp.
struct hps_functions {
  // `sizeof (struct hps_functions)`.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // Given to each function. The application's, and must stay until tracking has ended (`hps_disable_track` waits for a function that runs);
  // resting (`HPS_WAKE`) is not the end.
  void *context;
  // Before a list is worked through: all active pages, ascending, the library's and there until this returns.
  void (*begin)(void *context, const struct hps_page *pages, uint64_t count);
  // What is to be done with a region: `HPS_KEEP`, `HPS_CONVERT` or `HPS_COMPACT`. Regions come in the order of their walks, most first. NULL:
  // `hps_judge`.
  int (*judge)(void *context, const struct hps_region *region);
  // Moves the hot objects of a region elsewhere, such as into an arena. Returns the bytes moved, 0 if nothing could be, or a negative errno,
  // by which the region counts as refused. NULL: such regions are kept.
  int64_t (*compact)(void *context, const struct hps_region *region);
  // After a list was worked through; the report is the library's and there until this returns.
  void (*end)(void *context, const struct hps_report *report);
};

// What an arena has.
struct hps_arena_info {
  // `HPS_POOL`, `HPS_HUGE_PAGES` or `HPS_BASE_PAGES`.
  int backing;
  // 0.
  uint32_t reserved;
  // Where it lies.
  uint64_t address;
  // Bytes that it may come to have.
  uint64_t bytes;
  // Bytes that it has taken from the machine so far.
  uint64_t backed_bytes;
  // Of these, bytes on huge pages.
  uint64_t huge_bytes;
};

// What colored memory is wanted. Set everything to 0, then `size`, `colors` and `bytes`, then what is to be different.
struct hps_color_options {
  // `sizeof (struct hps_color_options)`, by which the library knows which fields there are.
  uint32_t size;
  // How many colors the cache has; `hugepilot color probe` tells, and whether they are real.
  uint32_t colors;
  // How large, rounded up to 4 KiB.
  uint64_t bytes;
  // Colors that may be used, counted from 0, which keeps the memory out of the rest of the cache (and off huge pages, which have all
  // colors); NULL: all. Copied.
  const uint32_t *used;
  // How many there are; 0 with NULL.
  uint64_t used_count;
  // `HPS_COLOR_HUGE`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
};

// Where colored memory lies, and what it was made of.
struct hps_color_info {
  // Where it lies.
  uint64_t address;
  // How long it is.
  uint64_t bytes;
  // Of these, bytes at its beginning that were put on huge pages.
  uint64_t huge_bytes;
  // Base pages behind those, chosen by their color.
  uint64_t pages;
};

// How much of colored memory still has its colors: all of it while these are the numbers of `struct hps_color_info`.
struct hps_color_verified {
  // Of `huge_bytes`, bytes in 2 MiB that are contiguous still, and so have all colors evenly.
  uint64_t contiguous_bytes;
  // Of `pages`, those that have the color they should have: fewer where a color had run out, and after the kernel migrated, merged or
  // swapped some, or a forked process wrote to them.
  uint64_t right_pages;
};

// Which pages are wanted. Set everything to 0, then `size`, then what is to be different.
struct hps_large_options {
  // `sizeof (struct hps_large_options)`, by which the library knows which fields there are.
  uint32_t size;
  // `HPS_LARGE_PREFERRED`, `HPS_LARGE_REQUIRED` or `HPS_LARGE_OFF`.
  uint32_t policy;
  // `HPS_LARGE_GIANT`, `HPS_LARGE_NO_SMALLER`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
};

// What was had.
struct hps_large_info {
  // The first byte.
  void *memory;
  // How many there are: what was asked for, rounded up to whole pages.
  uint64_t bytes;
  // Bytes of a page of the kind that was had.
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

// Has this process tracked from now on. With `HPS_HANDLE` the functions that were set are called on a thread of the library's; with
// `HPS_WAIT`, in `hps_wait_signal`. While it rests after `hps_disable_track` (`HPS_WAKE`), it is tracked again as it was, whatever the options.
//
// Returns 0, or a negative errno: `-EBUSY` it is tracked already, or the signal has another handler; `-ECONNREFUSED` no daemon
// listens; `-EPERM` the daemon refuses (a set-user-id program, or too many of one user's); `-EPROTO` it is of another release; `-EINVAL` an option is out of range; `-EIO` the
// daemon does not answer; `-EAGAIN` no thread can be had; with `HPS_OWN_WRITES` also `-ENOSYS`, `-EPERM` this process
// cannot watch its own writes. `hps_error` says it in words. A daemon that goes away later is waited for.
//
// # Safety
//
// `options` is NULL, for the defaults, or points to a `struct hps_options` whose pointers are NULL or valid.
int hps_enable_track(const struct hps_options *options);

// Ends tracking, or with `HPS_WAKE` lets it rest until the walks of this process have risen again, which the daemon tells (without one it
// rests until `hps_enable_track` is called); called while it rests, it ends tracking. Waits until the library's thread has finished the
// list that it works through, unless called on that thread. A thread in `hps_wait_signal` returns `-ECANCELED`.
//
// Returns 0, or `-ESRCH`: it is not tracked.
int hps_disable_track(void);

// Sets what the application knows of its own memory; NULL: nothing. The structure is copied. May be called before and while it is tracked,
// and does not wait: a function that runs just now goes on with the old context, so free that after `hps_disable_track` only.
//
// Returns 0, or `-EINVAL`: the size is of no known version.
//
// # Safety
//
// `functions` is NULL or points to a `struct hps_functions`, whose functions may be called with its context, on any thread and one at a
// time, until tracking ended or others were set.
int hps_set_functions(const struct hps_functions *functions);

// Waits for a list, works through it on this thread, and writes what came of it to `report`. The signal need be neither blocked nor
// handled by the application, and none is missed between two calls.
//
// `limit_ms`: how long to wait at most, in milliseconds; 0: not at all; negative: for as long as it takes.
//
// Returns 0, or a negative errno: `-ETIMEDOUT` none came; `-ECANCELED` tracking was ended; `-ESRCH` this process is not tracked; `-EBUSY`
// another thread waits, the library's own with `HPS_HANDLE`; `-EPERM`, `-EPROTO` a daemon that has come back refuses; `-EPROTO` also: its
// lists cannot be read, because it is of another release, and it is asked again in ten minutes.
//
// # Safety
//
// `report` is NULL or points to a `struct hps_report`.
int hps_wait_signal(int64_t limit_ms,
                    struct hps_report *report);

// The rule where the application has none: `HPS_CONVERT` for a region of which at least a quarter is active, `HPS_COMPACT` for any other.
//
// # Safety
//
// `region` points to a `struct hps_region`, of which the pages are not read.
int hps_judge(const struct hps_region *region);

// Makes an arena of `bytes`, rounded up to 2 MiB: memory for hot objects, on reserved huge pages if the pool has room for all of it now
// (free less reserved), else on huge pages that the kernel makes on request, else on ordinary pages. Nothing is taken from the machine
// before it is needed, but for what is reserved in a pool; and no access to it fails later.
//
// With reserved huge pages a forked child has no arena: touching it there is an error (SIGSEGV). `HPS_ARENA_FORK` gives it to children.
//
// Returns 0 and the arena in `arena`, which is the application's until `hps_arena_destroy`; or `-EINVAL`, `-ENOMEM`.
//
// # Safety
//
// `arena` points to a pointer.
int hps_arena_create(uint64_t bytes,
                     uint32_t flags,
                     struct hps_arena **arena);

// A piece of so many bytes, aligned to 16, its contents undefined. NULL where the arena has no room, or the machine no memory.
//
// # Safety
//
// `arena` is one that was made and not destroyed.
void *hps_arena_alloc(struct hps_arena *arena,
                      uint64_t bytes);

// Takes a piece back, which nobody uses any more; its memory stays with the arena.
//
// Returns 0, or `-EINVAL`: no piece of this arena that is out begins there, and nothing was done.
//
// # Safety
//
// `arena` is one that was made and not destroyed.
int hps_arena_free(struct hps_arena *arena, void *piece);

// Writes to `info` what an arena has. Returns 0, or `-EINVAL` for NULL.
//
// # Safety
//
// `arena` is one that was made and not destroyed, and `info` points to a `struct hps_arena_info`.
int hps_arena_get_info(const struct hps_arena *arena, struct hps_arena_info *info);

// Gives the memory of an arena back to the machine, with all of its pieces.
//
// # Safety
//
// `arena` is NULL, or one that was made and not destroyed, and nobody uses a piece of it any more.
void hps_arena_destroy(struct hps_arena *arena);

// Makes colored memory, zeroed and all of it there, so that no access fails later: each base page has the next color. Takes for a while
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
// # Safety
//
// `options` points to a `struct hps_color_options` whose pointer is NULL or valid, and `arena` to a pointer.
int hps_color_create(const struct hps_color_options *options,
                     struct hps_color_arena **arena);

// Writes to `info` where colored memory lies, for which no privilege is needed. Returns 0, or `-EINVAL` for NULL.
//
// # Safety
//
// `arena` is one that was made and not destroyed, and `info` points to a `struct hps_color_info`.
int hps_color_get_info(const struct hps_color_arena *arena,
                       struct hps_color_info *info);

// Writes to `verified` how much of colored memory still has its colors. It reads the page tables, microseconds for each MiB, and
// changes nothing. What was lost comes back only by making the memory anew.
//
// Returns 0, or `-EINVAL` for NULL; `-EPERM`, `-EACCES` page frames are hidden by now, as from a process that has given up CAP_SYS_ADMIN.
//
// # Safety
//
// `arena` is one that was made and not destroyed, and `verified` points to a `struct hps_color_verified`.
int hps_color_verify(const struct hps_color_arena *arena,
                     struct hps_color_verified *verified);

// Gives colored memory back to the machine.
//
// # Safety
//
// `arena` is NULL, or one that was made and not destroyed, and nobody uses its memory any more.
void hps_color_destroy(struct hps_color_arena *arena);

// The last error of this thread in words, what is wrong and what to do; empty if there was none. The library's, until the next error
// on this thread.
const char *hps_error(void);

// Takes at least `bytes` of new memory, zeroed, on pages as wanted; NULL: large ones, preferred. Call it once, when the program starts:
// contiguous memory becomes scarce as a machine grows older. On Linux and on Windows, where the account must hold the right to lock pages
// in memory (`hugepilot.exe doctor` tells); that right is enabled for the process, and stays so.
//
// On Linux a forked child does not get what lies on reserved pages; touching it there is an error (SIGSEGV). Huge pages that are made on
// request are all there at once: it checks that the machine has so much memory available, but not limits of control groups, beyond
// which the kernel ends a program of the group.
//
// Returns 0 and the memory in `large`, which is the application's until `hps_large_free`; where other pages were had than those asked for,
// `hps_error` says why, of each kind that was tried. Or `-EPERM` the right is missing, or this thread impersonates an account that has it
// not; `-ENOMEM` no contiguous memory, too small a pool, or too little memory; `-ENOSYS` there are no such pages; `-EINVAL` no memory has
// that size, or an option is out of range; `-EIO` anything else. `hps_error` says it in words.
//
// # Safety
//
// `options` is NULL or points to a `struct hps_large_options`, and `large` points to a pointer.
int hps_large_alloc(uint64_t bytes,
                    const struct hps_large_options *options,
                    struct hps_large **large);

// Writes to `info` what was had. Returns 0, or `-EINVAL` for NULL.
//
// # Safety
//
// `large` is NULL, or memory that was taken and not freed, and `info` is NULL or points to a `struct hps_large_info`.
int hps_large_get_info(const struct hps_large *large,
                       struct hps_large_info *info);

// Gives the memory back to the machine.
//
// # Safety
//
// `large` is NULL, or memory that was taken and not freed, and nobody uses it any more.
void hps_large_free(struct hps_large *large);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HPS_H */
