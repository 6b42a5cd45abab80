//! Metrics over HTTP for collectors on this machine.
//!
//! Owns: one thread, its listening socket and its connections, each bounded in bytes and time. Never touches: the contents of metrics; it
//! only reads the shared state.
//!
//! Any process may connect, so whoever connects next finds a place, and the thread rests for what its steps cost.

mod answers;
mod connection;
mod place;
mod request;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heat::units::{CpuShare, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use kernel::process::thread_cpu_time;

use crate::metrics_server::answers::Answers;
use crate::metrics_server::connection::Connection;
use crate::metrics_server::place::Listener;
pub use crate::metrics_server::place::MetricsPlace;
pub use crate::metrics_server::request::{MOST_REQUEST, Response, answer_to};
use crate::rest::Rest;
use crate::unix_socket::Bound;
use pilot::engine::shared_state::{ServingTime, SharedState};

/// Where all are taken, the oldest makes room for the next, even if it has asked: whoever does not read would keep its place.
const MOST_CONNECTIONS: usize = 16;
/// Connections accepted in a step.
const MOST_NEWCOMERS: usize = MOST_CONNECTIONS / 4;
/// The share of a CPU for serving.
const MOST_CPU: CpuShare = CpuShare(0.1);
/// How long to pause after accepting failed, for example because this process has too many files open.
const RECOVERY: Duration = Duration::from_millis(100);

/// Serves `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    place: MetricsPlace,
    /// Closing it ends the thread.
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
    /// The file of the socket, which goes after the thread.
    bound: Option<Bound>,
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum MetricsError {
    #[error(
        "metrics are not served on {address}: names of processes and what they do with their memory would be told to other \
         machines, unencrypted. Use a loopback address such as 127.0.0.1:{port}, and let a collector on this machine, or a \
         proxy with TLS and a password, carry them on", port = address.port()
    )]
    NotLoopback { address: std::net::SocketAddr },
    #[error(
        "cannot serve metrics on {place}: there is no directory {directory}. Create it (for one below /run, tmpfiles.d(5) does so at \
         each boot), or write a path below /run/hugepilot", directory = directory.display()
    )]
    NoDirectory { place: MetricsPlace, directory: PathBuf },
    #[error(
        "cannot serve metrics on {place}: {cause}; choose a port or a path that nobody else listens on (`ss -lptnx` shows who listens where)"
    )]
    Listen { place: MetricsPlace, cause: io::Error },
    #[error("cannot start the thread that serves metrics on {place}: {cause}")]
    Thread { place: MetricsPlace, cause: io::Error },
}

impl MetricsServer {
    /// Listens at a place; port 0 picks a free one.
    ///
    /// Errors: the address is not a loopback address, the directory of the socket is missing, the place cannot be listened on, or the thread or its
    /// pipe cannot be created.
    pub fn start(shared_state: SharedState, place: &MetricsPlace) -> Result<Self, MetricsError> {
        if let MetricsPlace::Loopback(address) = *place
            && !address.ip().is_loopback()
        {
            return Err(MetricsError::NotLoopback { address });
        }
        if let Some(directory) = place.missing_directory() {
            return Err(MetricsError::NoDirectory { place: place.clone(), directory: directory.to_owned() });
        }
        let unusable = |cause| MetricsError::Listen { place: place.clone(), cause };
        let (listener, place, bound) = Listener::at(place).map_err(unusable)?;
        let failed = |cause| MetricsError::Thread { place: place.clone(), cause };
        let (ended, end) = io::pipe().map_err(failed)?;
        let serving = std::thread::Builder::new().name("metrics".to_owned());
        let mut counter = Counter::new(listener, ended, shared_state);
        let thread = serving.spawn(move || counter.serve()).map_err(failed)?;
        Ok(Self { place, end: Some(end), thread: Some(thread), bound })
    }

    /// Serves at another place, or nowhere, in place of `current`, which ends only when the new place is listened on.
    ///
    /// Errors: as [`MetricsServer::start`]; `current` goes on.
    pub fn change(
        current: &mut Option<Self>,
        shared_state: &SharedState,
        place: Option<&MetricsPlace>,
    ) -> Result<(), MetricsError> {
        if let (Some(server), Some(place)) = (&mut *current, place)
            && server.changes_mode(place)
        {
            return Ok(());
        }
        *current = place.map(|place| Self::start(shared_state.clone(), place)).transpose()?;
        Ok(())
    }

    /// Whether the place is the socket that it listens at; the socket then has the mode of that place.
    fn changes_mode(&mut self, to: &MetricsPlace) -> bool {
        let (Some(bound), MetricsPlace::Socket { mode, .. }) = (&self.bound, to) else { return false };
        let is_changed = self.place.is_same_socket(to) && bound.set_mode(*mode).is_ok();
        if is_changed {
            self.place = to.clone();
        }
        is_changed
    }

    /// Where it listens.
    pub fn place(&self) -> &MetricsPlace {
        &self.place
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has already been reported, and metrics are no reason for another.
            let _ = thread.join();
        }
    }
}

/// The state of the server's thread.
struct Counter {
    listener: Listener,
    /// Readable when the server is dropped.
    ended: io::PipeReader,
    answers: Answers,
    serving_time: ServingTime,
    /// Oldest first.
    connections: Vec<Connection>,
    listen_from: Instant,
    rest: Rest,
}

impl Counter {
    fn new(listener: Listener, ended: io::PipeReader, shared_state: SharedState) -> Self {
        let serving_time = shared_state.serving_time().clone();
        let (answers, connections) = (Answers::new(shared_state), Vec::new());
        let (listen_from, rest) = (Instant::now(), Rest::new(MOST_CPU));
        Self { listener, ended, answers, serving_time, connections, listen_from, rest }
    }

    fn serve(&mut self) {
        let mut spent = thread_cpu_time();
        loop {
            match self.wait() {
                Ok(Woken::Ended) => return,
                Ok(Woken::Rested) => continue,
                Ok(Woken::Served) => self.step(),
                Err(error) => {
                    tracing::error!("metrics are served no longer: cannot wait for connections: {error}");
                    return;
                }
            }
            let before = std::mem::replace(&mut spent, thread_cpu_time());
            self.settle(spent.saturating_sub(before));
        }
    }

    /// Serves each connection that can proceed, and then newcomers.
    fn step(&mut self) {
        let answers = &mut self.answers;
        self.connections.retain_mut(|connection| connection.goes_on(answers));
        if self.listen_from <= Instant::now()
            && let Err(error) = self.accept()
        {
            tracing::debug!("cannot accept a connection for metrics: {error}");
            self.listen_from = Instant::now() + RECOVERY;
        }
    }

    /// Accounts for the CPU time of a step.
    fn settle(&mut self, step: Nanos) {
        self.serving_time.add(step);
        let rest = self.rest.add(step, Instant::now());
        // Nobody is late because of this thread.
        self.connections.iter_mut().for_each(|connection| connection.deadline += rest);
    }

    /// Rests if that is due, and waits until something can be done otherwise.
    fn wait(&self) -> io::Result<Woken> {
        let now = Instant::now();
        // A pipe that nobody writes to becomes readable, or hung up, when its other end closes.
        let mut polled = vec![PollFd::from_borrowed_fd(self.ended.as_fd(), PollFlags::IN)];
        let rest = self.rest.left(now);
        if rest.is_none() {
            let listener = (self.listen_from <= now).then_some(&self.listener);
            polled.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
            polled.extend(self.connections.iter().map(Connection::awaited));
        }
        let wakes = self.connections.iter().map(|connection| connection.deadline);
        let wake = wakes.chain((self.listen_from > now).then_some(self.listen_from)).min();
        let timeout = rest.or(wake.map(|wake| wake.saturating_duration_since(now)));
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("seconds, not centuries"));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(match rest {
            _ if !polled[0].revents().is_empty() => Woken::Ended,
            Some(_) => Woken::Rested,
            None => Woken::Served,
        })
    }

    /// Accepts at most so many that each of them has several turns before it has to make room.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..MOST_NEWCOMERS {
            match self.listener.accept() {
                Ok(stream) => {
                    if self.connections.len() >= MOST_CONNECTIONS {
                        self.connections.remove(0);
                    }
                    self.connections.push(Connection::new(stream));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client has already left.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

enum Woken {
    /// The server was dropped.
    Ended,
    /// A part of the rest, or all of it, is over.
    Rested,
    /// A connection can proceed, or the time is up.
    Served,
}

#[cfg(test)]
mod tests;
