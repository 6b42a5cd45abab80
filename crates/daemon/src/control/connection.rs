//! One client: its request is read, answered when the answer is ready, and the reply written, each step within its time limit.
//!
//! Owns: a connection and its buffers. Never touches: other connections; it never waits, but proceeds as far as it can.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hps::wire::Notice;
use hugepilot_os::socket::send_with;
use pilot::clients::Place;
use pilot::engine::shared_state::SharedState;
use rustix::event::PollFlags;
use rustix::net::sockopt::socket_peercred;

use crate::control::answer::{Answer, Peer, answer};
use crate::control::protocol::{LONGEST_REPLY, LONGEST_REQUEST, LONGEST_SET, Reply, Request, RequestError};
use crate::nonblocking::{read_more, write_more};

/// The notices that a tracked client may send within a second; lists come ten times a second at most.
const MOST_NOTICES: u32 = 64;
/// How long a tracked client may stay: a hundred years.
const A_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Time limits for a client and for the loop, and the memory kept for clients meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// To send its request.
    pub(super) request: Duration,
    /// For the loop to give back, which it does between two scans.
    pub(super) answer: Duration,
    /// To read the reply.
    pub(super) reply: Duration,
    /// Bytes of all unread replies, root's counted separately.
    pub(super) unread: usize,
}

/// A client being served.
pub(super) struct Connection {
    stream: UnixStream,
    pub(super) peer: Peer,
    stage: Stage,
    pub(super) deadline: Instant,
    /// The step in which it was last served.
    pub(super) served_in: u64,
}

enum Stage {
    Asked(Vec<u8>),
    Waiting {
        pid: u32,
        given_back: Receiver<Result<u64, String>>,
    },
    Replying {
        reply: Vec<u8>,
        written: usize,
    },
    /// Until the client disconnects.
    Tracked(Tracked),
    Over,
}

/// A tracked client, and its input.
struct Tracked {
    place: Place,
    /// The beginning of a line.
    said: Vec<u8>,
    /// Start of the current second, and notices in it.
    counted_since: Instant,
    notices: u32,
}

/// Whether a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    On,
    Over,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(2),
            answer: Duration::from_secs(60),
            reply: Duration::from_secs(5),
            unread: LONGEST_REPLY,
        }
    }
}

impl Connection {
    /// A client that has just connected.
    pub(super) fn new(stream: UnixStream, bounds: &Bounds) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let credentials = socket_peercred(&stream)?;
        let peer = Peer { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_nonzero().get() as u32 };
        let deadline = Instant::now() + bounds.request;
        Ok(Self { stream, peer, stage: Stage::Asked(Vec::new()), deadline, served_in: 0 })
    }

    /// Tells the client, in one attempt, why it will not be served.
    pub(super) fn refuse(self, why: &str) {
        // If the client does not read it, it learns from the closed connection.
        let _ = (&self.stream).write(&Reply::Error(why.to_owned()).line());
    }

    /// Which events to poll for. None while the loop has to answer: a client that leaves meanwhile keeps its slot, so nobody can
    /// have more requests pending than there are slots.
    pub(super) fn awaits(&self) -> Option<PollFlags> {
        match self.stage {
            Stage::Asked(_) | Stage::Tracked(_) => Some(PollFlags::IN),
            Stage::Waiting { .. } | Stage::Over => None,
            Stage::Replying { .. } => Some(PollFlags::OUT),
        }
    }

    /// Bytes buffered for the client.
    pub(super) fn unread(&self) -> usize {
        match &self.stage {
            Stage::Replying { reply, .. } => reply.len(),
            Stage::Asked(_) | Stage::Waiting { .. } | Stage::Tracked(_) | Stage::Over => 0,
        }
    }

    /// Does what is possible without waiting; a reply longer than `room` becomes an error.
    pub(super) fn go_on(&mut self, shared_state: &SharedState, bounds: &Bounds, room: usize) -> Going {
        let going = self.proceed(shared_state, bounds, room);
        if going == Going::Over {
            // Frees its reply.
            self.stage = Stage::Over;
        }
        going
    }

    fn proceed(&mut self, shared_state: &SharedState, bounds: &Bounds, room: usize) -> Going {
        let late = self.deadline <= Instant::now();
        match &mut self.stage {
            Stage::Over => Going::Over,
            Stage::Waiting { pid, given_back } => match reply_of(*pid, given_back, late) {
                Some(reply) => self.reply(reply, bounds, room),
                None => Going::On,
            },
            Stage::Tracked(tracked) => tracked.read_notices(&mut self.stream),
            // Who is late may be the daemon, on a busy machine: a request that is there counts.
            Stage::Asked(text) => match read_line(&mut self.stream, text, self.peer) {
                Ok(None) if !late => Going::On,
                Ok(None) | Err(_) => Going::Over,
                Ok(Some(request)) => self.answer(request, shared_state, bounds, room),
            },
            Stage::Replying { .. } if late => Going::Over,
            Stage::Replying { .. } => self.write(),
        }
    }

    fn answer(
        &mut self,
        request: Result<Request, RequestError>,
        shared_state: &SharedState,
        bounds: &Bounds,
        room: usize,
    ) -> Going {
        let answered =
            request.map_err(|error| error.to_string()).and_then(|request| answer(request, self.peer, shared_state));
        match answered {
            Ok(Answer::Now(reply)) => self.reply(reply, bounds, room),
            Err(why) => self.reply(Reply::Error(why), bounds, room),
            Ok(Answer::Tracked { place, list }) => self.track(place, &list),
            Ok(Answer::Later { pid, given_back }) => {
                self.stage = Stage::Waiting { pid, given_back };
                self.deadline = Instant::now() + bounds.answer;
                Going::On
            }
        }
    }

    /// Replies with the descriptor, in one attempt: nothing was written to this client before, so there is room.
    fn track(&mut self, place: Place, list: &OwnedFd) -> Going {
        let reply = Reply::Tracked {}.line();
        match send_with(&self.stream, &reply, list.as_fd()) {
            Ok(count) if count == reply.len() => {
                self.stage =
                    Stage::Tracked(Tracked { place, said: Vec::new(), counted_since: Instant::now(), notices: 0 });
                self.deadline = Instant::now() + A_LIFE;
                Going::On
            }
            _ => Going::Over,
        }
    }

    /// Whether nothing is left to do. A client that has lost its place is not waited for: a child that it forked may keep the connection open.
    pub(super) fn is_over(&self) -> bool {
        match &self.stage {
            Stage::Over => true,
            Stage::Tracked(tracked) => !tracked.place.is_held(),
            Stage::Asked(_) | Stage::Waiting { .. } | Stage::Replying { .. } => false,
        }
    }

    /// Whether the connection belongs to a tracked client.
    pub(super) fn is_tracked(&self) -> bool {
        matches!(self.stage, Stage::Tracked(_))
    }

    fn reply(&mut self, reply: Reply, bounds: &Bounds, room: usize) -> Going {
        let mut reply = reply.line();
        if reply.len() > room {
            let why = "the reply is too long, alone or with others that were not read yet; try again in a few seconds";
            reply = Reply::Error(why.to_owned()).line();
        }
        self.stage = Stage::Replying { reply, written: 0 };
        self.deadline = Instant::now() + bounds.reply;
        self.write()
    }

    /// Writes once, so a client that reads fast does not hold up the others.
    fn write(&mut self) -> Going {
        let Stage::Replying { reply, written } = &mut self.stage else { return Going::On };
        match write_more(&mut self.stream, reply, written) {
            Ok(false) => Going::On,
            Ok(true) | Err(_) => Going::Over,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Reads once; None if more is to come. A line ends with its line break, or when the client shuts down its side; anything after it
/// is ignored.
///
/// Errors: the client has disconnected, or sent nothing.
fn read_line(
    stream: &mut UnixStream,
    text: &mut Vec<u8>,
    peer: Peer,
) -> io::Result<Option<Result<Request, RequestError>>> {
    let Some(count) = read_more(stream, text, LONGEST_SET)? else { return Ok(None) };
    let longest = if peer.is_root() && may_set_targets(text) { LONGEST_SET } else { LONGEST_REQUEST };
    let read_before = text.len() - count;
    match text[read_before..].iter().position(|&byte| byte == b'\n') {
        _ if text.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        Some(end) => Ok(Some(Request::parse(&text[..read_before + end]))),
        None if count == 0 || text.len() > longest => Ok(Some(Request::parse(text))),
        None => Ok(None),
    }
}

/// Whether the beginning of a request names the only command that may be long.
fn may_set_targets(text: &[u8]) -> bool {
    let command = b"set-targets";
    text.len() <= LONGEST_REQUEST || text[..LONGEST_REQUEST].windows(command.len()).any(|bytes| bytes == command)
}

impl Tracked {
    /// Reads once from a tracked client. Anything but a notice ends its tracking, and so do too many notices.
    fn read_notices(&mut self, stream: &mut UnixStream) -> Going {
        match read_more(stream, &mut self.said, LONGEST_REQUEST) {
            Ok(None) => return Going::On,
            Ok(Some(0)) | Err(_) => return Going::Over,
            Ok(Some(_)) => {}
        }
        while let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            let Ok(notice) = Notice::parse(&line[..end]) else { return Going::Over };
            if !self.may_say_more() {
                return Going::Over;
            }
            self.place.note(notice);
        }
        if self.said.len() > LONGEST_REQUEST { Going::Over } else { Going::On }
    }

    fn may_say_more(&mut self) -> bool {
        if self.counted_since.elapsed() >= Duration::from_secs(1) {
            (self.counted_since, self.notices) = (Instant::now(), 0);
        }
        self.notices += 1;
        self.notices <= MOST_NOTICES
    }
}

/// The reply to a request once the loop has answered it or has taken too long.
fn reply_of(pid: u32, given_back: &Receiver<Result<u64, String>>, late: bool) -> Option<Reply> {
    match given_back.try_recv() {
        Ok(Ok(regions)) => Some(Reply::GivenBack { pid, regions }),
        Ok(Err(why)) => Some(Reply::Error(why)),
        Err(TryRecvError::Disconnected) => {
            Some(Reply::Error(format!("the pilot ended before the memory of process {pid} was given back")))
        }
        Err(TryRecvError::Empty) if late => Some(Reply::Error(format!(
            "the pilot is busy; it gives the memory of process {pid} back as soon as it can, and has paused the process: \
             `hugepilot status` shows it"
        ))),
        Err(TryRecvError::Empty) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_the_daemon_came_to_late_is_answered() {
        let bounds = Bounds { request: Duration::ZERO, ..Bounds::default() };
        let go_on = |said: &[u8]| {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(said).unwrap();
            let mut connection = Connection::new(server, &bounds).unwrap();
            assert_eq!(connection.go_on(&SharedState::default(), &bounds, LONGEST_REPLY), Going::Over);
            drop(connection);
            let mut reply = [0; 1];
            std::io::Read::read(&mut client, &mut reply).is_ok_and(|count| count == 1)
        };
        assert!(go_on(b"{\"version\":1,\"command\":\"status\"}\n"));
        assert!(!go_on(b"{\"version\":1,"), "half a request");
    }
}
