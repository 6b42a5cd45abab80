//! A client of the control socket.
//!
//! Owns: one connection per request. Never touches: what callers do with the answer.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hugepilot_os::socket::connect;
use pilot::engine::shared_state::{RecordsAtEnd, State};

use crate::control::ControlError;
use crate::control::capped::CappedLimit;
use crate::control::protocol::{LONGEST_REPLY, Reply, Request};
use crate::control::target_set::TargetSet;

/// Time for a daemon to accept and to take a request.
const CONNECTING: Duration = Duration::from_secs(2);
/// Time for an answer that the daemon has at hand.
const SOON: Duration = Duration::from_secs(10);
/// Time for memory to be given back; the daemon answers within a minute, finished or not.
const LATER: Duration = Duration::from_secs(70);

/// Sends requests to the daemon that listens at a path.
#[derive(Clone, Debug)]
pub struct ControlClient {
    path: PathBuf,
}

impl ControlClient {
    /// A client of the daemon that listens there; sends nothing yet.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The pilot's state; users other than root see their own targets only.
    ///
    /// Errors: no daemon listens, it does not answer in time, it refuses, or its answer cannot be parsed.
    pub fn status(&self) -> Result<State, ControlError> {
        match self.ask(Request::Status)? {
            Reply::State(state) => Ok(*state),
            other => Err(self.unexpected(other)),
        }
    }

    /// Pauses piloting of a process, or of all.
    ///
    /// Errors: as [`ControlClient::status`].
    pub fn pause(&self, pid: Option<u32>) -> Result<(), ControlError> {
        match self.ask(Request::Pause(pid))? {
            Reply::Paused { .. } => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Ends the pause of a process, or of all. Returns whether the process stays paused because everything is.
    ///
    /// Errors: as [`ControlClient::status`].
    pub fn resume(&self, pid: Option<u32>) -> Result<bool, ControlError> {
        match self.ask(Request::Resume(pid))? {
            Reply::Resumed { all_paused, .. } => Ok(all_paused),
            other => Err(self.unexpected(other)),
        }
    }

    /// Makes the daemon give back what it promoted in a process and pause that process. Returns the number of regions.
    ///
    /// Errors: as [`ControlClient::status`].
    pub fn give_back(&self, pid: u32) -> Result<u64, ControlError> {
        match self.ask(Request::GiveBack(pid))? {
            Reply::GivenBack { regions, .. } => Ok(regions),
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the daemon pilot these control groups, in place of those that the same owner set before. Returns the limits that do not hold as they were
    /// asked for.
    ///
    /// Errors: as [`ControlClient::status`]; only root may set targets.
    pub fn set_targets(&self, set: TargetSet) -> Result<Vec<CappedLimit>, ControlError> {
        match self.ask(Request::SetTargets(set))? {
            Reply::TargetsSet { capped, .. } => Ok(capped),
            other => Err(self.unexpected(other)),
        }
    }

    /// Tells the daemon what becomes of the records of promotions when it ends.
    ///
    /// Errors: as [`ControlClient::status`]; only root may say so.
    pub fn set_records_at_end(&self, records: RecordsAtEnd) -> Result<(), ControlError> {
        match self.ask(Request::AtEnd(records))? {
            Reply::AtEnd { .. } => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        let path = || self.path.clone();
        let mut stream = connect(&self.path, CONNECTING).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ControlError::NoDaemon { path: path() },
            _ => ControlError::Ask { path: path(), cause },
        })?;
        let patience = if matches!(request, Request::GiveBack(_)) { LATER } else { SOON };
        let line =
            exchange(&mut stream, request, patience).map_err(|cause| ControlError::Ask { path: path(), cause })?;
        Reply::parse(&line).map_err(|why| ControlError::Reply { path: path(), why })
    }

    fn unexpected(&self, reply: Reply) -> ControlError {
        match reply {
            Reply::Error(why) => ControlError::Refused { why },
            _ => ControlError::Reply { path: self.path.clone(), why: "it answers another question".to_owned() },
        }
    }
}

fn exchange(stream: &mut UnixStream, request: Request, patience: Duration) -> io::Result<Vec<u8>> {
    // A client that is refused on connecting cannot send any more, but can still read the reason.
    let sent = stream.write_all(&request.line());
    stream.set_read_timeout(Some(patience))?;
    let mut reply = Vec::new();
    let read = (&*stream).take(LONGEST_REPLY as u64).read_to_end(&mut reply);
    match (sent, read) {
        _ if reply.ends_with(b"\n") => Ok(reply),
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::TimedOut, "it does not answer in time"))
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(()), Ok(_)) => {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "it ended the connection without a whole answer"))
        }
    }
}
