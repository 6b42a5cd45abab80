//! Clients that stay connected from turn to turn, so that their server processes have faulted everything in long before.
//!
//! Owns: one pgbench, which is stopped between turns, and reading its progress lines. Never touches: the server.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hugepilot_os::PidFd;
use hugepilot_os::stop::Stop;
use rustix::process::Signal;

use super::load::{Load, progress};
use super::server::PostgresServer;

/// Longer than any run.
const FOR_EVER: u32 = 1_000_000;
/// The time limit for all to connect and for the first line to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two checks of the size of page tables while they grow.
const POLL: Duration = Duration::from_secs(5);
/// If page tables grow by less than this share between two checks, they map everything that clients use.
const STILL_GROWS: f64 = 0.01;
/// The time limit for that.
const WARMING: Duration = Duration::from_secs(150);

/// When each line arrived, and the transactions a second that it reports for the second before.
type Seen = Arc<Mutex<Vec<(Instant, f64)>>>;

/// Connected clients, which pause unless they are resumed.
pub struct PgbenchClients {
    pgbench: Child,
    handle: PidFd,
    seen: Seen,
}

impl PgbenchClients {
    /// Connects them, and lets them work until the server's page tables stop growing. Errors: pgbench fails.
    pub fn warm(server: &PostgresServer<'_>, load: &Load, stop: &Stop) -> Result<Self> {
        let mut pgbench = server.load(&Load { seconds: FOR_EVER, progress: true, ..*load })?;
        let seen = Seen::default();
        let said = pgbench.stderr.take().expect("it is piped");
        std::thread::spawn({
            let seen = Arc::clone(&seen);
            move || read(said, &seen)
        });
        let handle = PidFd::open(pgbench.id())?;
        let clients = Self { pgbench, handle, seen };
        let started = Instant::now();
        while clients.lines().is_empty() {
            ensure!(started.elapsed() < PATIENCE, "pgbench told nothing for {} s", PATIENCE.as_secs());
            stop.sleep_until(Instant::now() + Duration::from_secs(1))?;
        }
        let mut before = server.page_tables()?;
        while started.elapsed() < WARMING {
            stop.sleep_until(Instant::now() + POLL)?;
            let now = server.page_tables()?;
            if (now.0 as f64) < before.0 as f64 * (1.0 + STILL_GROWS) {
                break;
            }
            before = now;
        }
        clients.pause()?;
        Ok(clients)
    }

    /// Resumes them.
    pub fn go_on(&self) -> Result<()> {
        Ok(self.handle.signal(Signal::CONT)?)
    }

    /// Pauses them.
    pub fn pause(&self) -> Result<()> {
        Ok(self.handle.signal(Signal::STOP)?)
    }

    /// Transactions a second between two times, from lines about seconds that lie entirely between them. Errors: there is none.
    pub fn between(&self, from: Instant, to: Instant) -> Result<f64> {
        mean_between(&self.lines(), from, to).context("pgbench told nothing meanwhile; take longer turns")
    }

    fn lines(&self) -> Vec<(Instant, f64)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for PgbenchClients {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.pgbench.kill();
        let _ = self.pgbench.wait();
    }
}

fn read(said: ChildStderr, seen: &Seen) {
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        if let Some(per_second) = progress(&line) {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), per_second));
        }
    }
}

/// A line covers the time since the one before.
fn mean_between(lines: &[(Instant, f64)], from: Instant, to: Instant) -> Option<f64> {
    let is_within = |pair: &&[(Instant, f64)]| pair[0].0 >= from && pair[1].0 <= to;
    let rates: Vec<f64> = lines.windows(2).filter(is_within).map(|pair| pair[1].1).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_seconds_of_a_turn_count() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        // The third line covers the time in which they were stopped.
        let lines = [(at(900), 50.0), (at(1900), 60.0), (at(9000), 7.0), (at(10_000), 100.0), (at(11_000), 110.0)];
        assert_eq!(mean_between(&lines, at(8500), at(11_500)), Some(105.0));
        assert_eq!(mean_between(&lines, at(800), at(2000)), Some(60.0));
        assert_eq!(mean_between(&lines, at(2000), at(8900)), None);
    }
}
