//! The server: one thread and one poll loop, beside the pilot's own loop.
//!
//! Owns: the listening socket, and the order in which clients are served. Never touches: the messages (see
//! [`crate::control::protocol`]), or users' rights.
//!
//! Any process may connect, so everything is bounded: connections, connections per user, memory for replies, the time for each
//! step, each user's requests a second, and the CPU time for all of this. Some connections are reserved for root.
//!
//! Other users wait for as long as their requests cost, and root does not wait for them: half of the CPU time is for the other users'
//! requests, and half for what must not wait, which is root's requests and whoever connects, for that may be root.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heat::units::{CpuShare, Nanos};
use kernel::process::thread_cpu_time;
use pilot::engine::shared_state::SharedState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::ControlError;
use crate::control::answer::Peer;
use crate::control::connection::{Bounds, Connection};
use crate::rest::Rest;
use crate::unix_socket::{self, Bound, Found, found_at};

/// Connections at any time.
pub(super) const MOST_CONNECTIONS: usize = 64;
/// Of these, connections of all users except root.
pub(super) const MOST_OF_OTHERS: usize = 48;
/// Of these, connections of one user.
pub(super) const MOST_OF_ONE: usize = 8;
/// Requests of one user within a second.
pub(super) const MOST_REQUESTS: u32 = 50;
/// The share of a CPU for answering all users except root.
const CPU_FOR_OTHERS: CpuShare = CpuShare(0.05);
/// The share of a CPU for connecting and for root.
const CPU_FOR_URGENT: CpuShare = CpuShare(0.05);
/// The longest rest from what is urgent. Newcomers never cost so much.
const LONGEST_URGENT_REST: Duration = Duration::from_millis(100);
/// The same after a step for root, who gets answers soon however many root asks for.
const LONGEST_REST_OF_ROOT: Duration = Duration::from_millis(20);
/// Once a step has answered other users for this long, the rest of them wait for the next: root may wait, too.
const MOST_OF_A_STEP: Nanos = Nanos(20_000_000);
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
    steps: u64,
    rest_from_others: Rest,
}

/// Who was served in a step.
struct Served {
    root: bool,
    /// The CPU time for all users except root.
    others: Nanos,
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
        let mut desk = Desk::new(listener, end, shared_state, bounds);
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
    fn new(listener: UnixListener, end: UnixStream, shared_state: SharedState, bounds: Bounds) -> Self {
        Self {
            listener,
            end,
            shared_state,
            bounds,
            connections: Vec::new(),
            requests: BTreeMap::new(),
            counted_since: Instant::now(),
            steps: 0,
            rest_from_others: Rest::new(CPU_FOR_OTHERS),
        }
    }

    fn serve(&mut self) {
        let mut spent = thread_cpu_time();
        while let Some(ready) = self.wait() {
            let served = self.go_on(&ready);
            self.connections.retain(|connection| !connection.is_over());
            self.admit();
            let before = std::mem::replace(&mut spent, thread_cpu_time());
            std::thread::sleep(self.settle(spent.saturating_sub(before), &served));
        }
    }

    /// Accounts for the CPU time of a step. Returns how long everybody must wait for it.
    fn settle(&mut self, step: Nanos, served: &Served) -> Duration {
        self.shared_state.serving_time().add(step);
        let rest = self.rest_from_others.add(served.others, Instant::now());
        // Nobody is late because of this thread.
        let others = self.connections.iter_mut().filter(|connection| !connection.peer.is_root());
        others.filter(|connection| connection.awaits().is_some()).for_each(|connection| connection.deadline += rest);
        let longest = if served.root { LONGEST_REST_OF_ROOT } else { LONGEST_URGENT_REST };
        CPU_FOR_URGENT.rest_after(step.saturating_sub(served.others)).min(longest)
    }

    /// Waits until something can be done; says for each connection whether it can proceed. None once the server is dropped.
    fn wait(&self) -> Option<Vec<bool>> {
        let rest = self.rest_from_others.left(Instant::now());
        let has_turn = |connection: &Connection| rest.is_none() || connection.peer.is_root();
        let mut polled = vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for connection in self.connections.iter().filter(|connection| has_turn(connection)) {
            // A client that waits for the loop is not polled at all, or its hang-up would wake this thread over and over.
            let awaited = connection.awaits().map(|flags| PollFd::new(connection, flags));
            polled.extend(awaited);
        }
        let waits = self.connections.iter().map(|connection| match rest {
            Some(rest) if !has_turn(connection) => rest,
            _ => longest_wait(connection),
        });
        let wait = waits.min().and_then(|wait| Timespec::try_from(wait).ok());
        if poll(&mut polled, wait.as_ref()).is_err() {
            // Interrupted, or short of memory: do not spin.
            std::thread::sleep(POLL_INTERVAL);
        }
        if !polled[0].revents().is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut events = polled[2..].iter().map(|polled| !polled.revents().is_empty());
        let ready = self.connections.iter().map(|connection| match connection.awaits() {
            _ if !has_turn(connection) => false,
            Some(_) => events.next() == Some(true) || connection.deadline <= now,
            None => true,
        });
        Some(ready.collect())
    }

    /// Serves those whose turn it is, root's first.
    fn go_on(&mut self, ready: &[bool]) -> Served {
        self.steps += 1;
        let (of_root, of_others) = self.turns(ready);
        let root = !of_root.is_empty();
        of_root.into_iter().for_each(|index| self.go_on_with(index));
        let begun = thread_cpu_time();
        for index in of_others {
            if thread_cpu_time().saturating_sub(begun) >= MOST_OF_A_STEP {
                break;
            }
            self.go_on_with(index);
        }
        Served { root, others: thread_cpu_time().saturating_sub(begun) }
    }

    /// The connections that proceed in this step: all of root's that can, and one of each other user, the one that has waited longest.
    fn turns(&self, ready: &[bool]) -> (Vec<usize>, Vec<usize>) {
        let can = (0..ready.len()).filter(|&index| ready[index]);
        let (of_root, mut of_others): (Vec<_>, Vec<_>) = can.partition(|&index| self.connections[index].peer.is_root());
        of_others.sort_by_key(|&index| self.connections[index].served_in);
        let mut users = BTreeSet::new();
        of_others.retain(|&index| users.insert(self.connections[index].peer.uid));
        (of_root, of_others)
    }

    fn go_on_with(&mut self, index: usize) {
        let room = self.room_for_replies(self.connections[index].peer.is_root());
        let connection = &mut self.connections[index];
        connection.served_in = self.steps;
        connection.go_on(&self.shared_state, &self.bounds, room);
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

/// Time to the connection's deadline, or to the next check of the loop's answer.
fn longest_wait(connection: &Connection) -> Duration {
    match connection.awaits() {
        Some(_) if connection.is_tracked() => CHECK_INTERVAL,
        Some(_) => connection.deadline.saturating_duration_since(Instant::now()),
        None => POLL_INTERVAL,
    }
}

#[cfg(test)]
mod tests;
