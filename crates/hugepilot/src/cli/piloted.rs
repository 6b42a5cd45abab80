//! Whether a daemon pilots a process, too.
//!
//! Owns: the question to the daemon. Never touches: what a command does about it.

use daemon::control::{ControlClient, ControlError};
use kernel::target::Process;
use pilot::engine::shared_state::TargetState;
use pilot::scope::PilotMode;

/// Whether the daemon moves its memory: it does not while it only observes or is paused.
pub(super) fn acts_on(target: &TargetState) -> bool {
    !target.paused && target.mode != PilotMode::Observe
}

/// The process among the daemon's targets, paused also if everything is; None if no daemon listens, or it has no such target.
///
/// Errors: the daemon does not answer.
pub(super) fn target_of(daemon: &ControlClient, process: Process) -> Result<Option<TargetState>, ControlError> {
    let state = match daemon.status() {
        Err(ControlError::NoDaemon { .. }) => return Ok(None),
        told => told?,
    };
    let all_paused = state.paused;
    let target = state.targets.into_iter().find(|target| target.process() == process);
    Ok(target.map(|target| TargetState { paused: target.paused || all_paused, ..target }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_observes_or_rests_moves_nothing() {
        let target = |mode, paused| TargetState { mode, paused, ..TargetState::default() };
        assert!(acts_on(&target(PilotMode::Promote, false)) && acts_on(&target(PilotMode::Guest, false)));
        assert!(!acts_on(&target(PilotMode::Observe, false)) && !acts_on(&target(PilotMode::Promote, true)));
    }
}
