//! Whether the running daemon is well, for whoever restarts one that hangs (a liveness probe of Kubernetes).
//!
//! Owns: what counts as hanging. Never touches: the daemon, beyond asking for its state. systemd needs none of this: it is told of each step
//! ([`crate::service`]).

use std::path::Path;

use heat::units::Nanos;
use pilot::engine::shared_state::State;
use pilot::words::duration;

use crate::control::{ControlClient, ControlError};

/// As `WatchdogSec=` of the systemd unit: a scan of a process of a terabyte takes a minute.
const MOST_BETWEEN_STEPS: Nanos = Nanos(300_000_000_000);

/// Why the running daemon is not well.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Unwell {
    #[error(transparent)]
    Silent(#[from] ControlError),
    #[error("the daemon answers, but has done nothing for {}; restart it: what it promoted stays, and is on record", duration(*idle))]
    Hangs { idle: Nanos },
    #[error("the daemon does not say when it last did something: it is of another version; restart it")]
    Unknown,
}

/// Asks the daemon that listens at this socket.
///
/// Errors: no daemon answers there, or its loop has not moved for five minutes.
pub fn check(socket: &Path) -> Result<(), Unwell> {
    judge(&ControlClient::at(socket).status()?)
}

fn judge(state: &State) -> Result<(), Unwell> {
    match state.last_step_ns_ago {
        None => Err(Unwell::Unknown),
        Some(idle) if idle > MOST_BETWEEN_STEPS => Err(Unwell::Hangs { idle }),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_answers_and_does_nothing_hangs() {
        let judged = |last_step_ns_ago| judge(&State { last_step_ns_ago, ..State::default() });
        assert!(judged(Some(Nanos(0))).is_ok() && judged(Some(MOST_BETWEEN_STEPS)).is_ok());
        let hangs = judged(Some(Nanos(600_000_000_000))).unwrap_err();
        assert!(hangs.to_string().contains("has done nothing for 10 min"), "{hangs}");
        assert!(matches!(judged(None), Err(Unwell::Unknown)));
    }

    #[test]
    fn nobody_who_listens_is_not_well() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(check(&folder.path().join("none")), Err(Unwell::Silent(ControlError::NoDaemon { .. }))));
    }
}
