//! A request to stop, made by a signal and honoured between steps.
//!
//! Owns: the flag and sleeping that it can end. Never touches: what stopping means to the one who is asked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::signals::is_ignored;

/// Longest time between two polls of the flag.
const POLL: Duration = Duration::from_millis(20);

/// Somebody asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request")]
pub struct Stopped;

/// What a second signal of the same kind does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondSignal {
    /// Ends the process at once: nothing has to be put back.
    Ends,
    /// Nothing more than the first: settings of the machine must be put back.
    Waits,
}

/// Shared by everything that should end early when the user asks.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    /// Another one that this one obeys, too.
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
    /// Errors: the kernel takes no handler for one of the signals (`sigaction(2)`).
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

    /// Asks everyone to stop.
    pub fn request(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Takes the request back; whoever has stopped by then has stopped.
    pub fn withdraw(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }

    /// One that is requested as soon as either of the two is.
    pub fn or(&self, other: &Stop) -> Stop {
        Stop { flag: Arc::clone(&self.flag), other: Some(Arc::clone(&other.flag)) }
    }

    /// Whether someone asked.
    pub fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.other.as_ref().is_some_and(|other| other.load(Ordering::Relaxed))
    }

    /// Lets the caller go on unless someone asked to stop.
    ///
    /// Errors: someone asked to stop.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.requested() { Err(Stopped) } else { Ok(()) }
    }

    /// Sleeps until the deadline, or until stopping is requested, which is noticed within 20 ms.
    ///
    /// Errors: someone asked to stop, before or during the sleep.
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
