//! Ensures that only one daemon runs at a control socket, and notices one that pilots the same machine at another.
//!
//! Owns: the lock file next to the control socket, and the machine's in the run directory. Never touches: the socket.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hugepilot_os::run_directory;
use pilot::engine::shared_state::OtherDaemon;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::piloting::say;

/// The machine's lock. It contains the process and the socket of the daemon that holds it.
const OF_MACHINE: &str = "daemon.lock";
/// What it contains is no longer.
const LONGEST: u64 = 8 << 10;

/// Held as long as this daemon lives: two daemons at one socket would undo each other's work. If the file cannot be written, there is no
/// protection.
pub(crate) fn only_one(socket: &Path) -> anyhow::Result<Option<File>> {
    let path = socket.with_extension("lock");
    let mut file = match open(&path) {
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
    // For the message of a daemon that is refused; the lock itself needs no contents.
    let _unsaid = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Some(file))
}

/// Opens a file to be locked; it is made if it is missing, and so is its directory.
fn open(path: &Path) -> io::Result<File> {
    path.parent().map_or(Ok(()), run_directory::ensure)?;
    let mut options = File::options();
    // Any user who can open it can hold it, and would keep every daemon from starting.
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The machine's lock, which one of its daemons holds, wherever that listens; the others know by it that they are not alone. They are not refused: each
/// may pilot other programs.
#[derive(Debug)]
pub(crate) struct MachineLock {
    /// None where it cannot be opened: then nobody knows.
    file: Option<File>,
    is_held: bool,
    socket: PathBuf,
}

impl MachineLock {
    /// The lock in this directory, for a daemon that listens at this socket; not held yet.
    pub(crate) fn within(directory: &Path, socket: &Path) -> Self {
        let path = directory.join(OF_MACHINE);
        let file = open(&path).inspect_err(|error| {
            say(format_args!("cannot tell whether another daemon runs: {}: {error}", path.display()));
        });
        Self { file: file.ok(), is_held: false, socket: socket.to_owned() }
    }

    /// Holds the lock from now on, unless another daemon does: returns that one.
    pub(crate) fn take(&mut self) -> Option<OtherDaemon> {
        let file = self.file.as_mut().filter(|_| !self.is_held)?;
        match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return holder(file),
            Err(_) => return None,
        }
        self.is_held = true;
        let text = format!("{} {}", std::process::id(), self.socket.display());
        // Whoever reads half of it, or nothing, reads it again.
        let _unsaid = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{text}"));
        None
    }
}

/// The daemon that wrote this. None while it does not say.
fn holder(file: &mut File) -> Option<OtherDaemon> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(LONGEST).read_to_string(&mut text)).ok()?;
    let (pid, socket) = text.strip_suffix('\n')?.split_once(' ')?;
    Some(OtherDaemon { pid: pid.parse().ok()?, socket: socket.to_owned() })
}

/// What to say of another daemon that pilots this machine; `socket`: of this one.
pub(crate) fn beside(other: &OtherDaemon, socket: &Path) -> String {
    format!(
        "another hugepilot daemon (process {}) serves {}. Each keeps to its own limits only, so together they may take twice as much. Where both \
         observe a program, each sees too few page walks, and one may give back what the other promotes. Stop one (`systemctl stop hugepilot`, or \
         SIGTERM), or exclude each daemon's programs by [[never]] in the other's configuration; `hugepilot status --socket {}` shows this one",
        other.pid,
        other.socket,
        socket.display()
    )
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
    use super::*;

    #[test]
    fn whoever_comes_later_learns_of_the_first_wherever_it_listens_and_follows_it() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |socket: &str| MachineLock::within(folder.path(), Path::new(socket));
        let (mut first, mut second) = (lock("/somewhere/own.sock"), lock("/run/hugepilot/control.sock"));
        assert_eq!((first.take(), first.take()), (None, None));
        let expected = OtherDaemon { pid: std::process::id(), socket: "/somewhere/own.sock".to_owned() };
        assert_eq!([second.take(), second.take()], [Some(expected.clone()), Some(expected)]);
        drop(first);
        assert_eq!(second.take(), None);
        let third = lock("/c").take().expect("the second holds it now");
        assert_eq!(third.socket, "/run/hugepilot/control.sock");
    }

    #[test]
    fn where_the_directory_cannot_be_written_nobody_is_told() {
        assert_eq!(MachineLock::within(Path::new("/proc/hugepilot"), Path::new("/a")).take(), None);
    }

    #[test]
    fn a_daemon_beside_another_says_what_that_costs_and_what_to_do() {
        let other = OtherDaemon { pid: 7, socket: "/usual.sock".to_owned() };
        let said = beside(&other, Path::new("/own.sock"));
        for part in [
            "(process 7) serves /usual.sock. ",
            "twice as much",
            "[[never]]",
            "systemctl stop hugepilot",
            "own.sock` shows",
        ] {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    }
}
