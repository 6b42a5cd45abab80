//! A request to stop, made by a signal and honoured between steps.
//!
//! Owns: the flag and sleeping that it can end. Never touches: what stopping means to the one who is asked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shared by everything that should end early when the user asks.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A stop that SIGINT, SIGTERM and SIGHUP request from now on. A second signal of the same kind ends the process.
    pub fn on_signals() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&came))?;
            signal_hook::flag::register(signal, came)?;
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Asks everyone to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until the deadline, or until stopping is requested (noticed within 20 ms).
    pub fn sleep_until(&self, deadline: Instant) {
        while !self.requested() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            std::thread::sleep(rest.min(Duration::from_millis(20)));
        }
    }
}
