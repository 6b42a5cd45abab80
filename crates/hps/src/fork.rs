//! Locks that a forked child copies: the child must not inherit one that another thread of its parent holds, because it would never be
//! released.
//!
//! Owns: one more lock. Threads share it while they hold any other lock that a child will need; a thread that forks takes it exclusively.
//! Never touches: what those other locks guard.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hugepilot_os::fork::around;

static FORKING: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held by a thread that forks, and after that by its copy in the child.
    static HELD: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// No thread forks while this is held. A thread must not take it twice.
pub(crate) fn hold_off() -> RwLockReadGuard<'static, ()> {
    static READY: AtomicBool = AtomicBool::new(false);
    if !READY.load(Ordering::Acquire) {
        // Several threads may do this at once, which is harmless; a lock against that could itself be copied while held.
        READY.store(around(before, after).is_ok(), Ordering::Release);
    }
    FORKING.read().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before() {
    // The thread-locals of an exiting thread are gone; it forks without the lock.
    let _ = HELD.try_with(|held| {
        held.borrow_mut().get_or_insert_with(|| FORKING.write().unwrap_or_else(PoisonError::into_inner));
    });
}

extern "C" fn after() {
    let _ = HELD.try_with(RefCell::take);
}
