//! Forked children of a program that has memory from the pool.
//!
//! Owns: what such a child gets in place of that memory. Never touches: processes that share all memory until exec (vfork,
//! posix_spawn, system), which need nothing.
//!
//! A private page that parent and child share is copied when either of them writes to it. For pool memory that takes another
//! huge page. If there is none, the kernel takes the page from the child, or refuses: the child dies at its next access
//! (SIGBUS). So a copy on ordinary memory is made before the child is forked, and replaces the pool pages in the child before
//! the program continues. Until then they are shared and not left out: in the child the C library writes before it calls any
//! handler (the locks of its streams and its list of stacks may be there). The parent keeps its pages, whatever the child does.
//!
//! The kernel reads the memory for the copy, because other threads may protect or unmap it meanwhile. Copying takes time and
//! memory. If memory is too short, parent and child share pages as the kernel does by default: most children write little
//! before they call exec. The same applies to the stack that a thread forks on, which changes while it is copied.
//!
//! Pool memory that this library did not map, such as that of glibc's malloc (`glibc.malloc.hugetlb=2`), is copied likewise while
//! no other thread runs. With other threads it stays shared: the C library lets them go on allocating until after the copy, and
//! the child's heap would be half old and half new.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::maps::{self, MappingKind};
use crate::pages::unmap_between;
use crate::{count, ordinary, pool, room, system};

/// Each is one mmap call, for 32 MiB or more if this library made it. Any further ones are shared.
const MOST: usize = 256;

/// One mapping from the pool; [`BUSY`] guards all fields.
struct Slot {
    start: AtomicUsize,
    length: AtomicUsize,
    rights: AtomicUsize,
    /// The address of its copy; 0: none.
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
/// Held from before a fork until after it; forks by other threads wait. A signal handler that ran in the child too early would
/// lose its stack if the parent had written to it.
static BUSY: Lock = Lock::new();
/// The signal mask of the forking thread before.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Registers the fork handlers. Handlers of the program and of other libraries are registered later, because this library is
/// initialised first (`build.rs`): so what they write before the fork is copied, and in the child they find the copy.
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
        // The program may have excluded it from children (MADV_DONTFORK).
        if copy != 0 && !(system::is_mapped(start) && put(slot)) {
            unmap_between(copy, copy + length);
        }
    }
    BUSY.release(SIGNALS.load(Ordering::Relaxed));
}

/// Replaces the pool pages with the copy, including what the C library has written there in this child.
fn put(slot: &Slot) -> bool {
    let [start, length, rights, copy] =
        [&slot.start, &slot.length, &slot.rights, &slot.copy].map(|field| field.load(Ordering::Relaxed));
    ordinary::refresh(copy, start, length);
    ordinary::give_rights(copy, length, rights as c_int) && system::replace(start, copy, length).is_ok()
}

/// Fills the slots with all mappings from the pool, without copies yet.
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

/// Copies this memory for a child; false if it stays shared.
fn prepare(slot: &Slot) -> bool {
    let [start, length] = [&slot.start, &slot.length].map(|field| field.load(Ordering::Relaxed));
    let may_be_in_use = !pool::reaches(start, length) && !system::is_only_thread();
    if may_be_in_use || system::stands_on(start, length) {
        return false;
    }
    let Some(copy) = ordinary::copy(start, length) else { return false };
    slot.copy.store(copy, Ordering::Relaxed);
    count::add(|counts| &counts.fork_copied_bytes, length);
    true
}
