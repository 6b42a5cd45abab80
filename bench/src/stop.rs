//! The wish to stop: Ctrl-C and SIGTERM, seen by every loop of the harness.
//!
//! Owns: the flag and waiting that notices it. Never touches: children and settings; their owners put them right on
//! drop, which an early return brings about.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Longest time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(20);

/// A flag that SIGINT and SIGTERM raise.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The user asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request; what was measured so far is kept")]
pub struct Interrupted;

impl Stop {
    /// Raises the flag from now on instead of ending the process.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Raises the flag by hand: a workload that is done tells its threads so.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is up.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error when the flag is up.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.requested() { Err(Interrupted) } else { Ok(()) }
    }

    /// Sleeps until `end`, less when the flag goes up.
    pub fn sleep_until(&self, end: Instant) -> Result<(), Interrupted> {
        loop {
            self.check()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_ends_a_sleep_at_once() {
        let stop = Stop::default();
        stop.request();
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!(stop.sleep_until(far), Err(Interrupted));
    }
}
