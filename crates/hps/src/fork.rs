//! Locks that a forked child copies: it must not get one while another thread of its parent's holds it, for it would never be free.
//!
//! Owns: one lock more, which threads share while they hold any other that a child will want, and which whoever forks has to itself. Never
//! touches: what those others guard.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hugepilot_os::fork::around;

static FORKING: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held by a thread that forks, and after that by its copy in the child.
    static HELD: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Nobody forks while this is held, which must not be for a second time on one thread.
pub(crate) fn hold_off() -> RwLockReadGuard<'static, ()> {
    static READY: AtomicBool = AtomicBool::new(false);
    if !READY.load(Ordering::Acquire) {
        // Several threads may do it, which is no harm; a lock against that could itself be copied while it is held.
        READY.store(around(before, after).is_ok(), Ordering::Release);
    }
    FORKING.read().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before() {
    // A thread that ends has no variables of its own any more, and forks without.
    let _ = HELD.try_with(|held| {
        held.borrow_mut().get_or_insert_with(|| FORKING.write().unwrap_or_else(PoisonError::into_inner));
    });
}

extern "C" fn after() {
    let _ = HELD.try_with(RefCell::take);
}
