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
    warning_of_another(socket, Path::new(SOCKET)).iter().for_each(say);
    // For the message of a daemon that is refused; the lock itself needs no contents.
    let _unsaid = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(file))
}

/// What to say if another daemon serves the usual socket. It is not refused: the two may pilot different programs.
fn warning_of_another(socket: &Path, usual: &Path) -> Option<String> {
    let runs = socket != usual && UnixStream::connect(usual).is_ok();
    runs.then(|| {
        format!(
            "another hugepilot daemon serves {}. Each keeps to its own limits only, so together they may take twice as much. Where both \
             observe a program, each sees too few page walks, and one may give back what the other promotes. Stop one (systemctl stop \
             hugepilot), or exclude each daemon's programs by [[never]] in the other's configuration; `hugepilot status --socket {}` \
             shows this one",
            usual.display(),
            socket.display()
        )
    })
}

fn another(path: &Path) -> String {
    let pid = fs::read_to_string(path).unwrap_or_default();
    let pid = if pid.is_empty() { String::new() } else { format!(" (process {pid})") };
    format!(
        "another hugepilot daemon runs{pid}; `hugepilot status` shows it, and SIGHUP makes it read its configuration anew"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_beside_another_says_what_that_costs_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let (own, usual) = (folder.path().join("own.sock"), folder.path().join("usual.sock"));
        assert_eq!(warning_of_another(&own, &usual), None, "nobody listens there");
        let _listener = UnixListener::bind(&usual).unwrap();
        assert_eq!(warning_of_another(&usual, &usual), None, "the lock tells that");
        let said = warning_of_another(&own, &usual).expect("another one listens");
        for part in ["usual.sock. ", "twice as much", "[[never]]", "systemctl stop hugepilot", "own.sock` shows"] {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    }
}
