//! Listening on a Unix socket with a mode.
//!
//! Owns: its file, from its first moment until it is removed. Never touches: connections.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hugepilot_os::run_directory;
use hugepilot_os::socket::connect;

/// Connections that wait to be accepted; with the kernel's 4,096, root would wait behind a flood of others.
const MOST_WAITING: i32 = 128;
/// Time for whoever listens to accept.
const CONNECTING: Duration = Duration::from_secs(2);

/// What is found at the path of a socket.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing, or the socket of a daemon that is gone.
    Free,
    /// Somebody listens.
    Taken,
    /// No socket.
    SomethingElse,
}

/// What is at this path. Errors: it cannot be told.
pub(crate) fn found_at(path: &Path) -> io::Result<Found> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Free),
        Err(cause) => return Err(cause),
        Ok(file) if !file.file_type().is_socket() => return Ok(Found::SomethingElse),
        Ok(_) => {}
    }
    match connect(path, CONNECTING).map_err(|error| (error.kind(), error)) {
        Err((ErrorKind::ConnectionRefused | ErrorKind::NotFound, _)) => Ok(Found::Free),
        // A daemon that does not accept in time is alive, too.
        Ok(_) | Err((ErrorKind::WouldBlock, _)) => Ok(Found::Taken),
        Err((_, cause)) => Err(cause),
    }
}

/// The file of a listening socket; dropping this removes it, unless another daemon has replaced it.
#[derive(Debug)]
pub(crate) struct Bound {
    path: PathBuf,
    inode: u64,
}

impl Bound {
    /// Gives it another mode. Errors: another file has taken its place, or the kernel refuses.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if !self.is_there() {
            return Err(ErrorKind::NotFound.into());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }

    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.is_there() {
            // The next daemon replaces it anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens without ever blocking, and creates the directory if it is missing. The socket is bound to a temporary name and renamed, so it never has
/// other rights, and a stale one is replaced without a gap.
///
/// Errors: something else is there, somebody listens (`AddrInUse` both), or the socket cannot be made.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, Bound)> {
    if !matches!(found_at(path)?, Found::Free) {
        return Err(ErrorKind::AddrInUse.into());
    }
    path.parent().map_or(Ok(()), run_directory::ensure)?;
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let bound = bind(&unfinished, mode).and_then(|bound| fs::rename(&unfinished, path).map(|()| bound));
    if bound.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&unfinished);
    }
    let (listener, inode) = bound?;
    Ok((listener, Bound { path: path.to_owned(), inode }))
}

fn bind(path: &Path, mode: u32) -> io::Result<(UnixListener, u64)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, MOST_WAITING)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok((listener, fs::symlink_metadata(path)?.ino()))
}
