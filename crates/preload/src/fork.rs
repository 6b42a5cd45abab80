//! Children that a program forks, while it has memory from the pool.
//!
//! Owns: what such a child gets in place of that memory. Never touches: processes that share all memory until exec (vfork,
//! posix_spawn, system), which need nothing.
//!
//! A private page that parent and child share is copied when either of them writes to it. From the pool that takes another huge
//! page, and if there is none, the kernel takes the page from the child, or refuses: the child dies of its next access
//! (SIGBUS). So a copy on ordinary memory is made before the child is forked, and takes the place of the pool's pages there
//! before the program goes on. Until then they are shared, not left out: the C library writes in the child before anybody is
//! called (the locks of its streams and its list of stacks may lie there). The parent keeps its pages, whatever the child does.
//!
//! The copy is read by the kernel, for other threads may protect or unmap meanwhile what they like. It takes time and memory.
//! Where memory is too short for that, parent and child share as the kernel has it: most children write little before they call
//! exec. So they do with the stack that a thread forks on, which changes while it is copied; and with memory that glibc's
//! malloc has taken from the pool by itself (`glibc.malloc.hugetlb=2`), while other threads run: it is in use while a child is
//! forked, and would be missed. Without other threads it becomes ordinary memory before.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::maps::{self, MappingKind};
use crate::pages::unmap_between;
use crate::{count, ordinary, pool, room, settings, system};

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
/// From before a fork until after it: another thread's waits. A handler that ran in the child too early would find nothing to
/// stand on if the parent had written to it.
static BUSY: Lock = Lock::new();
/// What the thread that forks held back before.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// From now on. All other libraries' and the program's own functions for this are registered later, for this library begins
/// first (`build.rs`): what they write before is copied, and what they find in the child is the copy.
pub fn watch() {
    system::at_fork(before, in_parent, in_child);
}

extern "C" fn before() {
    SIGNALS.store(BUSY.take(), Ordering::Relaxed);
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
        let [length, copy] = [&slot.length, &slot.copy].map(|field| field.load(Ordering::Relaxed));
        if copy != 0 {
            unmap_between(copy, copy + length);
        }
    }
    BUSY.release(SIGNALS.load(Ordering::Relaxed));
}

extern "C" fn in_child() {
    for slot in used() {
        let [start, length, copy] = [&slot.start, &slot.length, &slot.copy].map(|field| field.load(Ordering::Relaxed));
        // The program may have kept it from its children (MADV_DONTFORK).
        if copy != 0 && !(system::is_mapped(start) && put(slot)) {
            unmap_between(copy, copy + length);
        }
    }
    BUSY.release(SIGNALS.load(Ordering::Relaxed));
}

/// Puts the copy in the place of the pool's pages, with what the C library has written there in this child.
fn put(slot: &Slot) -> bool {
    let [start, length, rights, copy] =
        [&slot.start, &slot.length, &slot.rights, &slot.copy].map(|field| field.load(Ordering::Relaxed));
    if let Some(size) = settings::get().and_then(|settings| settings.pool) {
        ordinary::refresh(copy, start, length, size.bytes());
    }
    ordinary::give_rights(copy, length, rights as c_int) && system::replace(start, copy, length).is_ok()
}

/// Puts all mappings from the pool in slots, without copies yet.
fn list() {
    SLOTS.iter().for_each(|slot| slot.length.store(0, Ordering::Relaxed));
    let mut slots = SLOTS.iter();
    maps::each(|mapping| {
        if let Some(slot) = (mapping.kind == MappingKind::Pooled).then(|| slots.next()).flatten() {
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
    if !pool::reaches(start, length) {
        return system::is_only_thread() && ordinary::make(start, length, rights as c_int);
    }
    if system::stands_on(start, length) {
        return false;
    }
    let Some(copy) = ordinary::copy(start, length) else { return false };
    slot.copy.store(copy, Ordering::Relaxed);
    count::add(|counts| &counts.fork_copied_bytes, length);
    true
}
