//! Metrics over HTTP for collectors on this machine.
//!
//! Owns: one thread, its listening socket and its connections, each bounded in bytes and time. Never touches: the contents of metrics; it
//! only reads the shared state.

mod connection;
mod request;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::metrics_server::connection::Connection;
pub use crate::metrics_server::request::{MOST_REQUEST, Response, answer_to};
use pilot::engine::shared_state::SharedState;

/// Further clients wait in the kernel's queue; each connection ends within its time limit.
const MOST_CONNECTIONS: usize = 16;
/// How long to pause after accepting failed, for example because this process has too many files open.
const RECOVERY: Duration = Duration::from_millis(100);

/// Serves `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
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
    NotLoopback { address: SocketAddr },
    #[error("cannot serve metrics on {address}: {cause}; choose a port that nobody else listens on")]
    Listen { address: SocketAddr, cause: io::Error },
    #[error("cannot start the thread that serves metrics on {address}: {cause}")]
    Thread { address: SocketAddr, cause: io::Error },
}

impl MetricsServer {
    /// Listens on a loopback address; port 0 picks a free one.
    ///
    /// Errors: the address is not a loopback address, it cannot be listened on, or the thread or its pipe cannot be created.
    pub fn start(shared_state: SharedState, address: SocketAddr) -> Result<Self, MetricsError> {
        if !address.ip().is_loopback() {
            return Err(MetricsError::NotLoopback { address });
        }
        let (listener, address) = listen(address).map_err(|cause| MetricsError::Listen { address, cause })?;
        let failed = |cause| MetricsError::Thread { address, cause };
        let (ended, end) = io::pipe().map_err(failed)?;
        let serving = std::thread::Builder::new().name("metrics".to_owned());
        let thread = serving.spawn(move || serve(&listener, &ended, &shared_state)).map_err(failed)?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.address
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

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn serve(listener: &TcpListener, ended: &io::PipeReader, shared_state: &SharedState) {
    let mut connections: Vec<Connection> = Vec::new();
    let mut listen_from = Instant::now();
    loop {
        let now = Instant::now();
        let listens = connections.len() < MOST_CONNECTIONS && listen_from <= now;
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
    listener: Option<&TcpListener>,
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

fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> io::Result<()> {
    while connections.len() < MOST_CONNECTIONS {
        match listener.accept() {
            Ok((stream, _)) => connections.push(Connection::new(stream)?),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // The client has already left.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
