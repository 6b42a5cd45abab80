//! What can go wrong at either end of the control socket; each error says the next step.

use std::io;
use std::path::PathBuf;

/// Why the control socket could not be served or reached.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ControlError {
    #[error(
        "cannot make the control socket {path}: {cause}. Its directory must be writable for the daemon (systemd: \
         RuntimeDirectory=hugepilot) and have space left; without it `hugepilot status`, `pause` and `resume` do not work",
        path = path.display()
    )]
    Listen { path: PathBuf, cause: io::Error },
    #[error("{path} is in the way of the control socket and is no socket itself; move it away", path = path.display())]
    NotASocket { path: PathBuf },
    #[error("another hugepilot daemon listens at {path}; stop it first (systemctl stop hugepilot)", path = path.display())]
    Taken { path: PathBuf },
    #[error("cannot start the thread that serves the control socket: {cause}; raise the limit on threads (TasksMax=)")]
    Thread { cause: io::Error },
    #[error(
        "no hugepilot daemon listens at {path}; start it with `systemctl start hugepilot`, or run `hugepilotd`",
        path = path.display()
    )]
    NoDaemon { path: PathBuf },
    #[error(
        "cannot ask the hugepilot daemon at {path}: {cause}; `systemctl status hugepilot` shows how it is",
        path = path.display()
    )]
    Ask { path: PathBuf, cause: io::Error },
    #[error(
        "the answer of the hugepilot daemon at {path} cannot be understood: {why}. If it is of another version than this \
         command, restart it (systemctl restart hugepilot)",
        path = path.display()
    )]
    Reply { path: PathBuf, why: String },
    #[error("the hugepilot daemon refused: {why}")]
    Refused { why: String },
}
