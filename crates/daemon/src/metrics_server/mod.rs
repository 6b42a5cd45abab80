//! Metrics over HTTP for collectors on this machine.
//!
//! Owns: one thread, its listening socket and its connections, each bounded in bytes and time. Never touches: the contents of metrics; it
//! only reads the shared state.

mod connection;
mod place;
mod request;

use std::io;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use kernel::process::thread_cpu_time;

use crate::metrics_server::connection::Connection;
use crate::metrics_server::place::Listener;
pub use crate::metrics_server::place::MetricsPlace;
pub use crate::metrics_server::request::{MOST_REQUEST, Response, answer_to};
use pilot::engine::shared_state::SharedState;

/// Where all are taken, whoever has waited longest without a whole request makes room for the next.
const MOST_CONNECTIONS: usize = 16;
/// How long to pause after accepting failed, for example because this process has too many files open.
const RECOVERY: Duration = Duration::from_millis(100);

/// Serves `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    place: MetricsPlace,
    /// Closing it ends the thread.
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
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
    #[error("cannot serve metrics on {place}: {cause}; choose a port or a path that nobody else listens on")]
    Listen { place: MetricsPlace, cause: io::Error },
    #[error("cannot start the thread that serves metrics on {place}: {cause}")]
    Thread { place: MetricsPlace, cause: io::Error },
}

impl MetricsServer {
    /// Listens at a place; port 0 picks a free one.
    ///
    /// Errors: the address is not a loopback address, it cannot be listened on, or the thread or its pipe cannot be created.
    pub fn start(shared_state: SharedState, place: &MetricsPlace) -> Result<Self, MetricsError> {
        if let MetricsPlace::Loopback(address) = *place
            && !address.ip().is_loopback()
        {
            return Err(MetricsError::NotLoopback { address });
        }
        let unusable = |cause| MetricsError::Listen { place: place.clone(), cause };
        let (listener, place) = Listener::at(place).map_err(unusable)?;
        let failed = |cause| MetricsError::Thread { place: place.clone(), cause };
        let (ended, end) = io::pipe().map_err(failed)?;
        let serving = std::thread::Builder::new().name("metrics".to_owned());
        let thread = serving.spawn(move || serve(&listener, &ended, &shared_state)).map_err(failed)?;
        Ok(Self { place, end: Some(end), thread: Some(thread) })
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

fn serve(listener: &Listener, ended: &io::PipeReader, shared_state: &SharedState) {
    let mut connections: Vec<Connection> = Vec::new();
    let mut listen_from = Instant::now();
    let mut spent = thread_cpu_time();
    loop {
        let now = Instant::now();
        let has_room = connections.len() < MOST_CONNECTIONS || connections.iter().any(Connection::is_asking);
        let listens = has_room && listen_from <= now;
        let wake = connections.iter().map(Connection::deadline).chain((listen_from > now).then_some(listen_from)).min();
        match wait(ended, listens.then_some(listener), &connections, wake) {
            Ok(Woken::Ended) => return,
            Ok(Woken::Served) => {}
            Err(error) => {
                tracing::error!("metrics are served no longer: cannot wait for connections: {error}");
                return;
            }
        }
        connections.retain_mut(|connection| connection.goes_on(shared_state));
        let own = thread_cpu_time();
        shared_state.serving_time().add(own.saturating_sub(spent));
        spent = own;
        if listens && let Err(error) = accept(listener, &mut connections) {
            tracing::debug!("cannot accept a connection for metrics: {error}");
            listen_from = Instant::now() + RECOVERY;
        }
    }
}

enum Woken {
    /// The server was dropped.
    Ended,
    /// A connection can proceed, or the time is up.
    Served,
}

fn wait(
    ended: &io::PipeReader,
    listener: Option<&Listener>,
    connections: &[Connection],
    wake: Option<Instant>,
) -> io::Result<Woken> {
    // A pipe that nobody writes to becomes readable, or hung up, when its other end closes.
    let mut polled = vec![PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
    polled.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
    polled.extend(connections.iter().map(Connection::awaited));
    let timeout = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
    let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("seconds, not centuries"));
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(if polled[0].revents().is_empty() { Woken::Served } else { Woken::Ended })
}

/// Accepts at most as many as may be there at once.
fn accept(listener: &Listener, connections: &mut Vec<Connection>) -> io::Result<()> {
    for _ in 0..MOST_CONNECTIONS {
        match listener.accept() {
            Ok(_) if !makes_room(connections) => {}
            Ok(stream) => connections.push(Connection::new(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // The client has already left.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether there is room for one more; closes the connection that has waited longest without a whole request if there is none otherwise.
fn makes_room(connections: &mut Vec<Connection>) -> bool {
    if connections.len() < MOST_CONNECTIONS {
        return true;
    }
    // The earliest deadline is the longest wait, and connections are in the order of their beginning.
    let asking = connections.iter().position(Connection::is_asking);
    asking.map(|index| connections.remove(index)).is_some()
}

#[cfg(test)]
mod tests;
