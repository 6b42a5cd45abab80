//! One connection: one request and its response.
//!
//! Owns: its socket, its bytes and its time limit. Never touches: other connections; it never waits.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use pilot::engine::shared_state::SharedState;
use rustix::event::{PollFd, PollFlags};

use crate::metrics;
use crate::metrics_server::request::{MOST_REQUEST, Response, answer_to};
use crate::nonblocking::{read_more, write_more};

/// A connection that takes longer is closed: a collector on this machine takes milliseconds.
const MOST_TIME: Duration = Duration::from_secs(2);

pub(super) struct Connection {
    /// A socket is read and written like a file.
    stream: File,
    deadline: Instant,
    phase: Phase,
}

enum Phase {
    Reading { request: Vec<u8> },
    Writing { answer: Vec<u8>, written: usize },
}

impl Connection {
    /// A connection that never blocks.
    pub(super) fn new(stream: OwnedFd) -> Self {
        let phase = Phase::Reading { request: Vec::new() };
        Self { stream: File::from(stream), deadline: Instant::now() + MOST_TIME, phase }
    }

    /// Whether its request is not whole yet.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
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
    pub(super) fn goes_on(&mut self, shared_state: &SharedState) -> bool {
        if self.deadline <= Instant::now() {
            return false;
        }
        let done = match &mut self.phase {
            Phase::Reading { request } => read(&mut self.stream, request).map(|answer| {
                if let Some(answer) = answer {
                    self.phase = Phase::Writing { answer: written_out(answer, shared_state), written: 0 };
                }
                false
            }),
            Phase::Writing { answer, written } => write_more(&mut self.stream, answer, written),
        };
        // Nothing is left to do for a peer that has disconnected.
        done.is_ok_and(|done| !done)
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

fn written_out(answer: Response, shared_state: &SharedState) -> Vec<u8> {
    let (content_type, body) = match answer {
        Response::Metrics => (metrics::CONTENT_TYPE, metrics::open_metrics(shared_state.state())),
        other => ("text/plain; charset=utf-8", other.error_body().to_owned()),
    };
    let mut bytes = answer.head(content_type, body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}
