//! `/run/hugepilot`: state that lasts until the machine is shut down.
//!
//! Owns: the directory, its rights, how a file there is replaced, and how all of them go. Never touches: what the files mean.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The path.
pub const RUN_DIRECTORY: &str = "/run/hugepilot";

/// Creates the run directory (or the given substitute) if it does not exist. All users may traverse it to reach the control socket,
/// whatever the umask.
///
/// Errors: the directory cannot be created, or its mode cannot be set (`EACCES`, `EROFS`, `ENOSPC`).
pub fn ensure(directory: &Path) -> io::Result<()> {
    if directory.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

/// Writes a file atomically: readers see either the previous contents or all of the new. It gets this mode, whatever the umask.
///
/// Errors: a temporary file next to it cannot be written or renamed (`EACCES`, `EROFS`, `ENOSPC`).
pub fn replace_file(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    // Private until it has its final mode.
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(contents)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    fs::rename(unfinished, path)
}

/// Removes all files in it. What other programs promoted by these records can then no longer be given back by record.
///
/// Errors: somebody holds a lock on one of them, as a daemon and a trial do (`EWOULDBLOCK`), and then nothing is removed; or a file cannot be opened or
/// removed (`EACCES`, `EROFS`).
pub fn clear(directory: &Path) -> io::Result<()> {
    let files: Vec<PathBuf> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    // Held until all are removed.
    let _locks: Vec<Option<File>> = files.iter().map(|path| lock_to_remove(path)).collect::<io::Result<_>>()?;
    files.iter().try_for_each(fs::remove_file)
}

/// None: a socket, which nobody can open.
fn lock_to_remove(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Some(file))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        for (mode, contents) in [(0o644, "a longer text"), (0o600, "short")] {
            replace_file(&path, mode, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(replace_file(&directory.path().join("missing/state.json"), 0o600, b"").is_err());
    }

    #[test]
    fn all_of_it_goes_unless_somebody_works_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("control.sock")).unwrap();
        fs::write(directory.path().join("promoted-1-2.json"), "{}").unwrap();
        let lock = File::create(directory.path().join("daemon.lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(clear(directory.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        drop(lock);
        clear(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn everybody_may_read_it_and_what_is_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let mode = || fs::metadata(&directory).unwrap().permissions().mode() & 0o777;
        ensure(&directory).unwrap();
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        ensure(&directory).unwrap();
        assert_eq!(mode(), 0o700);
    }
}
