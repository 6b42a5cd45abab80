//! Children that a program forks, while it has memory from the pool.
//!
//! Owns: what such a child gets in place of that memory. Never touches: processes that share all memory until exec (vfork,
//! posix_spawn, system), which need nothing.
//!
//! A private page that parent and child share is copied when either of them writes to it. From the pool that takes another huge
//! page, and if there is none, the kernel takes the page from the child, or refuses: the child dies of its next access
//! (SIGBUS). So the child gets a copy on ordinary memory, made before it is forked, and not the pool's pages (`MADV_DONTFORK`);
//! the parent keeps them, as its own alone, and never needs another.
//!
//! This takes the time and the memory of a copy. Where memory is too short for that, parent and child share as the kernel has
//! it: most children write little before they call exec. So they do with memory that glibc's malloc has taken from the pool by
//! itself (`glibc.malloc.hugetlb=2`), while other threads run; it is in use while a child is forked, and would be missed.
//! Without other threads it becomes ordinary memory before.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::place::unmap_between;
use crate::{count, maps, ordinary, pool, room, system};

/// Each is one call of mmap for 32 MiB or more. What is beyond is shared.
const MOST: usize = 256;

/// One mapping from the pool; all fields are guarded by [`BUSY`].
struct Slot {
    start: AtomicUsize,
    length: AtomicUsize,
    rights: AtomicUsize,
    /// Where its copy is; 0: it has none.
    copy: AtomicUsize,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        rights: AtomicUsize::new(0),
        copy: AtomicUsize::new(0),
    }
}; MOST];
/// From before a fork until after it: another thread's waits.
static BUSY: AtomicBool = AtomicBool::new(false);
/// What the thread that forks held back before.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// From now on. The program's own functions for this are registered later, and so find its memory as it was.
pub fn watch() {
    system::at_fork(before, in_parent, in_child);
}

extern "C" fn before() {
    // A handler that ran in the child too early would find nothing there.
    let signals = system::hold_signals();
    while BUSY.swap(true, Ordering::Acquire) {
        system::give_way();
    }
    SIGNALS.store(signals, Ordering::Relaxed);
    list();
    let mut available = room::available_bytes();
    for slot in used() {
        let length = slot.length.load(Ordering::Relaxed);
        if length <= available && prepare(slot) {
            available -= length;
        } else {
            count::add(|counts| &counts.fork_shared_bytes, length);
        }
    }
}

extern "C" fn in_parent() {
    for slot in used() {
        let [start, length, copy] = [&slot.start, &slot.length, &slot.copy].map(|field| field.load(Ordering::Relaxed));
        if copy != 0 {
            unmap_between(copy, copy + length);
            let _ = system::madvise(start, length, libc::MADV_DOFORK);
        }
    }
    end();
}

extern "C" fn in_child() {
    for slot in used() {
        let [start, length, copy] = [&slot.start, &slot.length, &slot.copy].map(|field| field.load(Ordering::Relaxed));
        if copy != 0 {
            ordinary::give_rights(copy, length, slot.rights.load(Ordering::Relaxed) as c_int);
            let _ = system::replace(start, copy, length);
        }
    }
    end();
}

fn end() {
    let signals = SIGNALS.load(Ordering::Relaxed);
    BUSY.store(false, Ordering::Release);
    system::release_signals(signals);
}

/// Puts all mappings from the pool in slots, without copies yet.
fn list() {
    SLOTS.iter().for_each(|slot| slot.length.store(0, Ordering::Relaxed));
    let mut slots = SLOTS.iter();
    maps::each(|mapping| {
        if let Some(slot) = mapping.from_pool.then(|| slots.next()).flatten() {
            slot.start.store(mapping.start, Ordering::Relaxed);
            slot.length.store(mapping.end - mapping.start, Ordering::Relaxed);
            slot.rights.store(mapping.rights as usize, Ordering::Relaxed);
            slot.copy.store(0, Ordering::Relaxed);
        }
    });
}

fn used() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take_while(|slot| slot.length.load(Ordering::Relaxed) != 0)
}

/// Whether a child can do with this memory what it likes.
fn prepare(slot: &Slot) -> bool {
    let [start, length, rights] = [&slot.start, &slot.length, &slot.rights].map(|field| field.load(Ordering::Relaxed));
    let rights = rights as c_int;
    if !pool::reaches(start, length) {
        return system::is_only_thread() && ordinary::make(start, length, rights);
    }
    let Some(copy) = ordinary::copy(start, length, rights) else { return false };
    if system::madvise(start, length, libc::MADV_DONTFORK).is_err() {
        unmap_between(copy, copy + length);
        return false;
    }
    slot.copy.store(copy, Ordering::Relaxed);
    count::add(|counts| &counts.fork_copied_bytes, length);
    true
}
