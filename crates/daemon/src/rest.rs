//! The rests of a thread that serves anybody: it keeps to a share of a CPU, whoever asks how often.
//!
//! Owns: how long is to be rested still. Never touches: the waiting, or who must not wait that long.

use std::time::{Duration, Instant};

use heat::units::{CpuShare, Nanos};

/// What is left to rest for the CPU time spent.
#[derive(Debug)]
pub(crate) struct Rest {
    share: CpuShare,
    until: Instant,
}

impl Rest {
    /// Nothing has been spent yet.
    pub(crate) fn new(share: CpuShare) -> Self {
        Self { share, until: Instant::now() }
    }

    /// Adds what was spent until now; returns the rest for it. It has no cap: a long step would otherwise exceed the share.
    pub(crate) fn add(&mut self, spent: Nanos, now: Instant) -> Duration {
        let rest = self.share.rest_after(spent);
        self.until = self.until.max(now) + rest;
        rest
    }

    /// How long to rest still; None if it is over.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        Some(self.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_add_up_and_end() {
        let (mut rest, now) = (Rest::new(CpuShare(0.1)), Instant::now());
        assert_eq!(rest.left(now), None);
        let second = Duration::from_secs(1);
        assert_eq!(rest.add(Nanos::from_duration(second), now), 10 * second);
        rest.add(Nanos::from_duration(second), now);
        assert_eq!(rest.left(now), Some(20 * second));
        assert_eq!(rest.left(now + 15 * second), Some(5 * second));
        assert_eq!(rest.left(now + 20 * second), None);
        rest.add(Nanos::from_duration(second), now + 60 * second);
        assert_eq!(rest.left(now + 60 * second), Some(10 * second), "time without work is not saved up");
    }
}
