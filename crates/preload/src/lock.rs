//! A lock for one thread at a time, on which no thread waits forever.
//!
//! Owns: which threads wait. Never touches: the critical section, which must not wait for another thread of the program.
//!
//! The holder is not interrupted by signals, because a handler could wait for the very thread that it interrupted. If another
//! thread held the lock during a fork, the child finds its parent's id there, and takes the lock over.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::system::{self, SignalMask};

pub struct Lock {
    /// The process whose thread holds it; 0: none.
    holder: AtomicI32,
}

impl Lock {
    pub const fn new() -> Self {
        Self { holder: AtomicI32::new(0) }
    }

    /// Takes the lock; returns the previous signal mask, for [`Self::release`].
    pub fn take(&self) -> SignalMask {
        let signals = system::hold_signals();
        let process = system::process();
        let free = |holder: c_int| (holder != process).then_some(process);
        while self.holder.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_err() {
            system::give_way();
        }
        signals
    }

    pub fn release(&self, signals: SignalMask) {
        self.holder.store(0, Ordering::Release);
        system::release_signals(signals);
    }

    pub fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let signals = self.take();
        let done = act();
        self.release(signals);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_it() {
        static LOCK: Lock = Lock::new();
        static COUNT: AtomicI32 = AtomicI32::new(0);
        let count = || {
            for _ in 0..200 {
                LOCK.during(|| {
                    let before = COUNT.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    COUNT.store(before + 1, Ordering::Relaxed);
                });
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
        assert_eq!(COUNT.load(Ordering::Relaxed), 800);
    }

    #[test]
    fn what_another_process_held_is_free() {
        let lock = Lock { holder: AtomicI32::new(system::process() + 1) };
        assert!(lock.during(|| lock.holder.load(Ordering::Relaxed) == system::process()));
        assert_eq!(lock.holder.load(Ordering::Relaxed), 0);
    }
}
