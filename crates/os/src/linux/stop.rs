//! A request to stop, made by a signal and honoured between steps.
//!
//! Owns: the flag, and sleeps that it interrupts. Never touches: what a caller does when it stops.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::signals::is_ignored;

/// Longest time between two polls of the flag.
const POLL: Duration = Duration::from_millis(20);

/// A stop was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request")]
pub struct Stopped;

/// What a second signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondSignal {
    /// Ends the process at once: nothing has to be restored.
    Ends,
    /// Nothing more than the first: the machine's settings must be restored.
    Waits,
}

/// Shared by everything that should end early when the user asks.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    /// Another stop that this one obeys, too.
    other: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// A stop that SIGINT, SIGTERM and SIGHUP request from now on, unless they are ignored (nohup).
    ///
    /// Errors: as [`Stop::on`].
    pub fn on_signals(second: SecondSignal) -> io::Result<Self> {
        Self::on(&[Signal::INT, Signal::TERM, Signal::HUP], second)
    }

    /// A stop that these signals request from now on, unless they are ignored.
    ///
    /// Errors: the kernel refuses a handler for one of the signals (`sigaction(2)`).
    pub fn on(signals: &[Signal], second: SecondSignal) -> io::Result<Self> {
        let stop = Stop::default();
        let obeyed = signals.iter().copied().filter(|&signal| !is_ignored(signal));
        for signal in obeyed.map(Signal::as_raw) {
            if second == SecondSignal::Ends {
                let came = Arc::new(AtomicBool::new(false));
                signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&came))?;
                signal_hook::flag::register(signal, came)?;
            }
            signal_hook::flag::register(signal, Arc::clone(&stop.flag))?;
        }
        Ok(stop)
    }

    /// Requests a stop from everyone.
    pub fn request(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Withdraws the request; work that has stopped by then stays stopped.
    pub fn withdraw(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }

    /// A stop that is requested as soon as either of the two is.
    pub fn or(&self, other: &Stop) -> Stop {
        Stop { flag: Arc::clone(&self.flag), other: Some(Arc::clone(&other.flag)) }
    }

    /// Whether a stop is requested.
    pub fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.other.as_ref().is_some_and(|other| other.load(Ordering::Relaxed))
    }

    /// Lets the caller continue unless a stop is requested.
    ///
    /// Errors: a stop is requested.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.requested() { Err(Stopped) } else { Ok(()) }
    }

    /// Sleeps until the deadline or until a stop is requested, noticed within 20 ms.
    ///
    /// Errors: a stop was requested before or during the sleep.
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), Stopped> {
        loop {
            self.check()?;
            match deadline.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(POLL)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_of_two_stops() {
        let (one, other) = (Stop::default(), Stop::default());
        let either = one.or(&other);
        assert!(!either.requested());
        other.request();
        assert!(either.requested() && !one.requested());
        other.withdraw();
        assert!(!either.requested());
        one.request();
        assert!(either.sleep_until(Instant::now() + Duration::from_secs(60)).is_err());
    }
}
