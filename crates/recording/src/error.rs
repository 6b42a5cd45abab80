//! What can be wrong with a recording, each with the next step.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum RecordingError {
    #[error("cannot write the recording {path}: {cause}", path = path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("cannot read the recording {path}: {cause}", path = path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{path} is not a recording of hugepilot's; `hugepilot record -o FILE PID` makes one", path = path.display())]
    Foreign { path: PathBuf },
    #[error("the recording {path} has version {version} of its format, this hugepilot reads version {known}: \
             use the hugepilot that recorded it", path = path.display(), known = super::format::VERSION)]
    Version { path: PathBuf, version: u64 },
    #[error("the recording {path} holds no observation: recording ended before the first one was over", path = path.display())]
    Empty { path: PathBuf },
    #[error("the recording {path} ends early, after {observations} observations: {why}", path = path.display())]
    CutOff { path: PathBuf, observations: usize, why: String },
    #[error("the recording {path} is damaged before its first observation ends: {why}", path = path.display())]
    Damaged { path: PathBuf, why: String },
}
