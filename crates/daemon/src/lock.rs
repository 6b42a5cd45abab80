//! Ensures that only one daemon runs at a control socket, and notices one at the usual socket.
//!
//! Owns: the lock file next to the control socket. Never touches: the socket.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail};
use hugepilot_os::run_directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::control::SOCKET;
use crate::piloting::say;

/// Held as long as this daemon lives: two daemons would undo each other's work. If the file cannot be written, there is no
/// protection.
pub(crate) fn only_one(socket: &Path) -> anyhow::Result<Option<File>> {
    let path = socket.with_extension("lock");
    let opened = path.parent().map_or(Ok(()), run_directory::ensure).and_then(|()| {
        let mut options = File::options();
        // Any user who can open it can hold it, and would keep every daemon from starting.
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600)).map(|()| file)
    });
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => {
            say(format_args!("cannot make sure that no other daemon runs: {}: {error}", path.display()));
            return Ok(None);
        }
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => bail!("{}", another(&path)),
        Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
    if socket != Path::new(SOCKET) && UnixStream::connect(SOCKET).is_ok() {
        say(format_args!(
            "another hugepilot daemon serves {SOCKET}; where both pilot a program, they undo each other's work"
        ));
    }
    // For the message of a daemon that is refused; the lock itself needs no contents.
    let _unsaid = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(file))
}

fn another(path: &Path) -> String {
    let pid = fs::read_to_string(path).unwrap_or_default();
    let pid = if pid.is_empty() { String::new() } else { format!(" (process {pid})") };
    format!(
        "another hugepilot daemon runs{pid}; `hugepilot status` shows it, and SIGHUP makes it read its configuration anew"
    )
}
