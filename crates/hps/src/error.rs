//! Why a call failed, as a message and as the errno that C gets.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::{fmt, io};

use crate::color::ColorError;
use crate::wire::{VERSION, WireError};

/// Why a call failed, usually one about tracking.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TrackError {
    #[error("no daemon listens at {path}; start it with `hugepilotd`", path = path.display())]
    NoDaemon { path: PathBuf },
    #[error("the daemon at {path} does not answer as it should: {cause}", path = path.display())]
    Daemon { path: PathBuf, cause: io::Error },
    #[error("the daemon at {path} is of another release; update {outdated}", path = path.display())]
    Release { path: PathBuf, outdated: Outdated },
    #[error("the daemon refuses: {why}")]
    Refused { why: String },
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Color(#[from] ColorError),
    #[error("signal {signal} has a handler already, or is ignored; choose another")]
    SignalTaken { signal: i32 },
    #[error("cannot {doing}: {cause}")]
    System { doing: &'static str, cause: io::Error },
    #[error("without a daemon this library sees only memory that it is told of; name ranges of interest")]
    NoRanges,
    #[error("this process is not tracked; call hps_enable_track first")]
    NotTracked,
    #[error("this process is tracked already; call hps_disable_track first")]
    Tracked,
    #[error("another thread waits already, or one of the library's own does (HPS_HANDLE)")]
    Busy,
    #[error("nothing came within the time given")]
    TimedOut,
    #[error("tracking was ended")]
    Ended,
}

/// What is older than the other, and has to be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Outdated {
    Daemon,
    Library,
    Unknown,
}

impl Outdated {
    /// Of a daemon that speaks another version.
    pub(crate) fn by(version: u32) -> Self {
        match version.cmp(&VERSION) {
            Ordering::Less => Outdated::Daemon,
            Ordering::Greater => Outdated::Library,
            Ordering::Equal => Outdated::Unknown,
        }
    }
}

impl fmt::Display for Outdated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Outdated::Daemon => "it and restart it",
            Outdated::Library => "this program's libhps and restart the program",
            Outdated::Unknown => "it or this program's libhps",
        })
    }
}

impl TrackError {
    /// The errno for C, positive.
    pub fn errno(&self) -> i32 {
        match self {
            TrackError::NoDaemon { .. } => libc::ECONNREFUSED,
            TrackError::Daemon { .. } => libc::EIO,
            TrackError::Release { .. } => libc::EPROTO,
            TrackError::Refused { .. } => libc::EPERM,
            TrackError::Wire(WireError::List) => libc::EPROTO,
            TrackError::Wire(_) | TrackError::NoRanges => libc::EINVAL,
            TrackError::NotTracked => libc::ESRCH,
            TrackError::SignalTaken { .. } | TrackError::Tracked | TrackError::Busy => libc::EBUSY,
            TrackError::Color(error) => error.errno(),
            TrackError::System { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
            TrackError::TimedOut => libc::ETIMEDOUT,
            TrackError::Ended => libc::ECANCELED,
        }
    }
}
