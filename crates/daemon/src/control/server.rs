//! The server: one thread and one poll loop, beside the pilot's own loop.
//!
//! Owns: the listening socket, and the order in which clients are served. Never touches: the messages (see
//! [`crate::control::protocol`]), or users' rights.
//!
//! Any process may connect, so everything is bounded: connections, connections per user, memory for replies, and the time for each
//! step. Some connections are reserved for root.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugepilot_os::run_directory;
use hugepilot_os::socket::connect;
use pilot::engine::shared_state::SharedState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::ControlError;
use crate::control::client::CONNECTING;
use crate::control::connection::{Bounds, Connection, Going};

/// Connections at any time.
pub(super) const MOST_CONNECTIONS: usize = 64;
/// Of these, connections of all users except root.
pub(super) const MOST_OF_OTHERS: usize = 48;
/// Of these, connections of one user.
pub(super) const MOST_OF_ONE: usize = 8;
/// How often the loop's answers are polled while a client waits for one.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the control socket until it is dropped.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    /// The socket's inode, so dropping does not remove another daemon's socket.
    inode: u64,
    /// The thread ends when this closes.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the server's thread.
struct Desk {
    listener: UnixListener,
    /// Readable when the server is dropped.
    end: UnixStream,
    shared_state: SharedState,
    bounds: Bounds,
    connections: Vec<Connection>,
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
        let (listener, inode) = listen(path).map_err(unusable)?;
        let (alive, end) = UnixStream::pair().map_err(unusable)?;
        let mut server = Self { path: path.to_owned(), inode, alive: Some(alive), thread: None };
        let mut desk = Desk { listener, end, shared_state, bounds, connections: Vec::new() };
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
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            // The next daemon replaces it anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Errors: something other than a dead daemon's socket is there.
fn ensure_free(path: &Path) -> Result<(), ControlError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(ControlError::Listen { path: path.to_owned(), cause }),
        Ok(file) if !file.file_type().is_socket() => return Err(ControlError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match connect(path, CONNECTING).map_err(|error| (error.kind(), error)) {
        Err((ErrorKind::ConnectionRefused | ErrorKind::NotFound, _)) => Ok(()),
        // A daemon that does not accept in time is alive, too.
        Ok(_) | Err((ErrorKind::WouldBlock, _)) => Err(ControlError::Taken { path: path.to_owned() }),
        Err((_, cause)) => Err(ControlError::Listen { path: path.to_owned(), cause }),
    }
}

/// Binds to a temporary name and renames it, so the socket never has other rights, and a stale one is replaced without a gap.
fn listen(path: &Path) -> io::Result<(UnixListener, u64)> {
    path.parent().map_or(Ok(()), run_directory::ensure)?;
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let bound = bind(&unfinished).and_then(|bound| fs::rename(&unfinished, path).map(|()| bound));
    if bound.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&unfinished);
    }
    bound
}

fn bind(path: &Path) -> io::Result<(UnixListener, u64)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    // The peer's user id decides what a client may do.
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok((listener, fs::symlink_metadata(path)?.ino()))
}

impl Desk {
    fn serve(&mut self) {
        while let Some(ready) = self.wait() {
            self.go_on(&ready);
            self.admit();
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
        if self.has_place(&connection) {
            self.connections.push(connection);
        } else {
            connection.refuse("too many connections at once; try again in a few seconds");
        }
    }

    fn has_place(&self, newcomer: &Connection) -> bool {
        // Tracked clients stay connected, and have slots of their own.
        let asking = || self.connections.iter().filter(|each| !each.is_tracked());
        let others = asking().filter(|each| !each.peer.is_root()).count();
        let own = asking().filter(|each| each.peer.uid == newcomer.peer.uid).count();
        asking().count() < MOST_CONNECTIONS && (newcomer.peer.is_root() || others < MOST_OF_OTHERS && own < MOST_OF_ONE)
    }
}
