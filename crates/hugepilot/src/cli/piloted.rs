//! Whether a daemon pilots a process, too.
//!
//! Owns: the question to the daemon. Never touches: what a command does about it.

use daemon::control::{ControlClient, ControlError};
use kernel::target::Process;
use pilot::engine::shared_state::TargetState;

/// The process among the daemon's targets; None if no daemon listens, or it has no such target.
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
