//! Keeps reclaim's state for `hugepilot reclaim --status`, and ensures that only one process on a machine reclaims.
//!
//! Owns: two small files in the run directory. Never touches: the daemon's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugepilot_os::run_directory::{self, RUN_DIRECTORY, replace_file};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::ReclaimState;
use crate::mechanism::ReclaimError;

const STATE: &str = "reclaim.json";
/// A state has at most some 200 KiB; anything larger was not written by hugepilot.
const LARGEST: u64 = 4 << 20;
/// The interval between writes.
const INTERVAL: Duration = Duration::from_secs(2);

/// The location of a state, and the right to write it.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// Held as long as this lives.
    _lock: File,
    next: Instant,
}

impl Store {
    /// Takes the lock. None if this user may not write there: then nobody else is excluded.
    ///
    /// Errors: another hugepilot reclaims memory.
    pub fn take() -> Result<Option<Self>, ReclaimError> {
        Self::take_in(Path::new(RUN_DIRECTORY))
    }

    fn take_in(directory: &Path) -> Result<Option<Self>, ReclaimError> {
        let path = directory.join("reclaim.lock");
        let failed = |cause: io::Error| ReclaimError::State { doing: "lock", path: path.clone(), cause };
        let opened = run_directory::ensure(directory).and_then(|()| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)
        });
        let mut lock = match opened {
            Ok(lock) => lock,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = fs::read_to_string(&path).unwrap_or_default();
                return Err(ReclaimError::Another { pid });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // For the message of a process that is refused; the lock itself needs no contents.
        let _unsaid = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(Some(Self { path: directory.join(STATE), _lock: lock, next: Instant::now() }))
    }

    /// Writes the state if the interval has passed.
    pub fn keep(&mut self, state: impl FnOnce() -> ReclaimState) {
        if Instant::now() >= self.next {
            self.write(&state());
        }
    }

    /// Writes the state atomically.
    pub fn write(&mut self, state: &ReclaimState) {
        self.next = Instant::now() + INTERVAL;
        // It contains only sizes, so everybody may read it.
        let written = serde_json::to_vec(state).map_err(io::Error::from);
        let written = written.and_then(|bytes| replace_file(&self.path, 0o644, &bytes));
        if let Err(error) = written {
            tracing::warn!("cannot write {}: {error}", self.path.display());
        }
    }

    /// The state that was written last; None if there is none.
    ///
    /// Errors: the file exists but cannot be read, is larger than 4 MiB, or contains no state.
    pub fn read() -> Result<Option<ReclaimState>, ReclaimError> {
        Self::read_in(Path::new(RUN_DIRECTORY))
    }

    fn read_in(directory: &Path) -> Result<Option<ReclaimState>, ReclaimError> {
        let path = directory.join(STATE);
        let read = || match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(file) if file.len() > LARGEST => Err(io::Error::other("larger than hugepilot writes")),
            Ok(_) => Ok(Some(serde_json::from_slice(&fs::read(&path)?)?)),
        };
        read().map_err(|cause| ReclaimError::State { doing: "read", path: path.clone(), cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("run");
        let mut store = Store::take_in(&directory).unwrap().expect("it may be written");
        assert_eq!(Store::read_in(&directory).unwrap(), None);
        let error = Store::take_in(&directory).unwrap_err().to_string();
        assert!(error.contains(&format!("(process {})", std::process::id())) && error.contains("--status"), "{error}");
        let state = ReclaimState { version: 1, mapped_page_cost: 7, ..ReclaimState::default() };
        store.keep(|| state.clone());
        store.keep(|| panic!("not yet"));
        assert_eq!(Store::read_in(&directory).unwrap(), Some(state));
        drop(store);
        assert!(Store::take_in(&directory).unwrap().is_some());
        fs::write(directory.join(STATE), "{").unwrap();
        assert!(Store::read_in(&directory).unwrap_err().to_string().contains("reclaim.json"));
    }
}
