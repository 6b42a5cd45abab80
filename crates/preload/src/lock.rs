//! One thread at a time, and nobody who waits for ever.
//!
//! Owns: who waits. Never touches: what is done meanwhile, which must not wait for another thread of the program's.
//!
//! Who holds it is not interrupted by a signal, whose handler could wait for the thread that it interrupted. A child that was
//! forked while another thread held it finds its parent named there, and takes it.

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

    /// The signals that were held back before, for [`Self::release`].
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
