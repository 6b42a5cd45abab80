//! Why a call failed, as a message and as the errno that C gets.

use std::io;
use std::path::PathBuf;

use crate::color::ColorError;
use crate::wire::WireError;

/// Why a call failed, usually one about tracking.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TrackError {
    #[error("no daemon listens at {path}; start it with `hugepilotd`", path = path.display())]
    NoDaemon { path: PathBuf },
    #[error("the daemon at {path} does not answer as it should: {cause}", path = path.display())]
    Daemon { path: PathBuf, cause: io::Error },
    #[error("the daemon at {path} is of another release; update it or this library", path = path.display())]
    Release { path: PathBuf },
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
    #[error("another thread waits already")]
    Busy,
    #[error("nothing came within the time given")]
    TimedOut,
    #[error("tracking was ended")]
    Ended,
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
            TrackError::SignalTaken { .. } | TrackError::Busy => libc::EBUSY,
            TrackError::Color(error) => error.errno(),
            TrackError::System { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
            TrackError::TimedOut => libc::ETIMEDOUT,
            TrackError::Ended => libc::ECANCELED,
        }
    }
}
