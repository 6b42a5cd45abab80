//! One connection: one request and its response.
//!
//! Owns: its socket, its request and its time limit. Never touches: other connections; it never waits.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::metrics_server::answers::Answers;
use crate::metrics_server::request::{MOST_REQUEST, Response, answer_to};
use crate::nonblocking::{read_more, write_more};

/// A connection that takes longer is closed: a collector on this machine takes milliseconds.
const MOST_TIME: Duration = Duration::from_secs(2);

pub(super) struct Connection {
    /// A socket is read and written like a file.
    stream: File,
    pub(super) deadline: Instant,
    phase: Phase,
}

enum Phase {
    Reading { request: Vec<u8> },
    Writing { answer: Arc<[u8]>, written: usize },
}

impl Connection {
    /// A connection that never blocks.
    pub(super) fn new(stream: OwnedFd) -> Self {
        let phase = Phase::Reading { request: Vec::new() };
        Self { stream: File::from(stream), deadline: Instant::now() + MOST_TIME, phase }
    }

    /// The event that it waits for.
    pub(super) fn awaited(&self) -> PollFd<'_> {
        let flags = match self.phase {
            Phase::Reading { .. } => PollFlags::IN,
            Phase::Writing { .. } => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Does what is possible without waiting; false when it is done or took too long.
    pub(super) fn goes_on(&mut self, answers: &mut Answers) -> bool {
        if self.deadline <= Instant::now() {
            return false;
        }
        // Nothing is left to do for a peer that has disconnected.
        self.proceed(answers).is_ok_and(|done| !done)
    }

    /// Returns whether it is done.
    fn proceed(&mut self, answers: &mut Answers) -> io::Result<bool> {
        if let Phase::Reading { request } = &mut self.phase {
            let Some(response) = read(&mut self.stream, request)? else { return Ok(false) };
            self.phase = Phase::Writing { answer: answers.written_out(response), written: 0 };
        }
        // At once: it may have to make room before its next turn.
        match &mut self.phase {
            Phase::Reading { .. } => Ok(false),
            Phase::Writing { answer, written } => write_more(&mut self.stream, answer, written),
        }
    }
}

/// Reads once. None: more is to come.
fn read(stream: &mut File, request: &mut Vec<u8>) -> io::Result<Option<Response>> {
    let new_from = request.len();
    match read_more(stream, request, MOST_REQUEST - new_from)? {
        Some(0) => Err(ErrorKind::UnexpectedEof.into()),
        Some(_) => Ok(answer_to(request, new_from)),
        None => Ok(None),
    }
}
