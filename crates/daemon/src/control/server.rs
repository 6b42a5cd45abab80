//! The server: one thread and one poll loop, beside the pilot's own loop.
//!
//! Owns: the listening socket, and the order in which clients are served. Never touches: the messages (see
//! [`crate::control::protocol`]), or users' rights.
//!
//! Any process may connect, so everything is bounded: connections, connections per user, memory for replies, the time for each
//! step, each user's requests a second, and the CPU time for all of this. Some connections are reserved for root.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heat::units::CpuShare;
use kernel::process::thread_cpu_time;
use pilot::engine::shared_state::SharedState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::ControlError;
use crate::control::answer::Peer;
use crate::control::connection::{Bounds, Connection, Going};
use crate::unix_socket::{self, Bound, Found, found_at};

/// Connections at any time.
pub(super) const MOST_CONNECTIONS: usize = 64;
/// Of these, connections of all users except root.
pub(super) const MOST_OF_OTHERS: usize = 48;
/// Of these, connections of one user.
pub(super) const MOST_OF_ONE: usize = 8;
/// Requests of one user within a second.
pub(super) const MOST_REQUESTS: u32 = 50;
/// The share of a CPU for answering.
const MOST_CPU: CpuShare = CpuShare(0.1);
/// The longest rest for its sake, so that nobody waits long for an answer.
const LONGEST_REST: Duration = Duration::from_millis(20);
/// How often places of clients are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the loop's answers are polled while a client waits for one.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the control socket until it is dropped.
#[derive(Debug)]
pub struct ControlServer {
    /// The thread ends when this closes.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Dropped after the thread has ended.
    _bound: Bound,
}

/// The state of the server's thread.
struct Desk {
    listener: UnixListener,
    /// Readable when the server is dropped.
    end: UnixStream,
    shared_state: SharedState,
    bounds: Bounds,
    connections: Vec<Connection>,
    /// Each user's requests since then.
    requests: BTreeMap<u32, u32>,
    counted_since: Instant,
}

impl ControlServer {
    /// Listens at `path`, and creates its directory if missing. It replaces a socket that a dead daemon left behind, but not one that
    /// answers.
    ///
    /// Errors: a daemon answers at `path`, something other than a socket is there, or the socket or its thread cannot be created.
    pub fn start(shared_state: SharedState, path: &Path) -> Result<Self, ControlError> {
        Self::start_with(shared_state, path, Bounds::default())
    }

    pub(super) fn start_with(shared_state: SharedState, path: &Path, bounds: Bounds) -> Result<Self, ControlError> {
        ensure_free(path)?;
        let unusable = |cause| ControlError::Listen { path: path.to_owned(), cause };
        // The peer's user id decides what a client may do.
        let (listener, bound) = unix_socket::listen(path, 0o666).map_err(unusable)?;
        let (alive, end) = UnixStream::pair().map_err(unusable)?;
        let mut server = Self { _bound: bound, alive: Some(alive), thread: None };
        let (requests, counted_since) = (BTreeMap::new(), Instant::now());
        let mut desk = Desk { listener, end, shared_state, bounds, connections: Vec::new(), requests, counted_since };
        let thread = std::thread::Builder::new().name("control".to_owned());
        let started = thread.spawn(move || desk.serve());
        server.thread = Some(started.map_err(|cause| ControlError::Thread { cause })?);
        Ok(server)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

/// Errors: something other than a dead daemon's socket is there.
fn ensure_free(path: &Path) -> Result<(), ControlError> {
    let path = path.to_owned();
    match found_at(&path) {
        Ok(Found::Free) => Ok(()),
        Ok(Found::Taken) => Err(ControlError::Taken { path }),
        Ok(Found::SomethingElse) => Err(ControlError::NotASocket { path }),
        Err(cause) => Err(ControlError::Listen { path, cause }),
    }
}

impl Desk {
    fn serve(&mut self) {
        let mut spent = thread_cpu_time();
        while let Some(ready) = self.wait() {
            self.go_on(&ready);
            self.connections.retain(|connection| !connection.is_left());
            self.admit();
            let now = thread_cpu_time();
            let step = now.saturating_sub(spent);
            self.shared_state.serving_time().add(step);
            spent = now;
            std::thread::sleep(MOST_CPU.rest_after(step).min(LONGEST_REST));
        }
    }

    /// Waits until something can be done; says for each connection whether it can proceed. None once the server is dropped.
    fn wait(&self) -> Option<Vec<bool>> {
        let mut polled = vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for connection in &self.connections {
            // A client that waits for the loop is not polled at all, or its hang-up would wake this thread over and over.
            let awaited = connection.awaits().map(|flags| PollFd::new(connection, flags));
            polled.extend(awaited);
        }
        if poll(&mut polled, self.longest_wait().as_ref()).is_err() {
            // Interrupted, or short of memory: do not spin.
            std::thread::sleep(POLL_INTERVAL);
        }
        if !polled[0].revents().is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut events = polled[2..].iter().map(|polled| !polled.revents().is_empty());
        let ready = self.connections.iter().map(|connection| match connection.awaits() {
            Some(_) => events.next() == Some(true) || connection.deadline <= now,
            None => true,
        });
        Some(ready.collect())
    }

    /// Time to the next deadline, or to the next check of the loop's answers; None to wait indefinitely.
    fn longest_wait(&self) -> Option<Timespec> {
        let now = Instant::now();
        let waits = self.connections.iter().map(|connection| match connection.awaits() {
            Some(_) if connection.is_tracked() => CHECK_INTERVAL,
            Some(_) => connection.deadline.saturating_duration_since(now),
            None => POLL_INTERVAL,
        });
        waits.min().and_then(|wait| Timespec::try_from(wait).ok())
    }

    fn go_on(&mut self, ready: &[bool]) {
        for (index, _) in ready.iter().enumerate().filter(|(_, ready)| **ready).rev() {
            let room = self.room_for_replies(self.connections[index].peer.is_root());
            let going = self.connections[index].go_on(&self.shared_state, &self.bounds, room);
            if going == Going::Over {
                self.connections.swap_remove(index);
            }
        }
    }

    /// The space left for a reply within the bound on all replies.
    fn room_for_replies(&self, root: bool) -> usize {
        let unread = self.connections.iter().filter(|each| each.peer.is_root() == root).map(Connection::unread);
        self.bounds.unread.saturating_sub(unread.sum())
    }

    /// Accepts new connections, at most as many as can be queued.
    fn admit(&mut self) {
        for _ in 0..MOST_CONNECTIONS {
            match self.listener.accept() {
                Ok((stream, _)) => self.receive(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // For example, no file descriptors are left until other clients finish; do not spin until then.
                    std::thread::sleep(POLL_INTERVAL);
                    return;
                }
            }
        }
    }

    /// Refuses a client at once if there is no slot: nobody stays in the kernel's queue, where root could not overtake them.
    fn receive(&mut self, stream: UnixStream) {
        let Ok(connection) = Connection::new(stream, &self.bounds) else { return };
        if !self.may_ask(connection.peer) {
            connection.refuse("too many requests within a second; wait until the next");
        } else if self.has_place(&connection) {
            self.connections.push(connection);
        } else {
            connection.refuse("too many connections at once; try again in a few seconds");
        }
    }

    /// Counts a request of this user; false if these are too many.
    fn may_ask(&mut self, peer: Peer) -> bool {
        if self.counted_since.elapsed() >= Duration::from_secs(1) {
            self.requests.clear();
            self.counted_since = Instant::now();
        }
        let requests = self.requests.entry(peer.uid).or_default();
        *requests += 1;
        peer.is_root() || *requests <= MOST_REQUESTS
    }

    fn has_place(&self, newcomer: &Connection) -> bool {
        // Tracked clients stay connected, and have slots of their own.
        let asking = || self.connections.iter().filter(|each| !each.is_tracked());
        let others = asking().filter(|each| !each.peer.is_root()).count();
        let own = asking().filter(|each| each.peer.uid == newcomer.peer.uid).count();
        asking().count() < MOST_CONNECTIONS && (newcomer.peer.is_root() || others < MOST_OF_OTHERS && own < MOST_OF_ONE)
    }
}
