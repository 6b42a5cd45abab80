//! The answer to a request, and whether the client is allowed to make it. Any process may be tracked, because it learns only about
//! itself.
//!
//! Owns: users' rights. Never touches: sockets; clients are identified by user id.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use hugepilot_os::PidFd;
use kernel::Root;
use kernel::process::ProcessStatus;
use kernel::target::Process;
use pilot::clients::Place;
use pilot::engine::shared_state::{SharedState, State, TargetState};

use crate::control::capped::capped;
use crate::control::protocol::{Reply, Request};
use crate::control::target_set::TargetSet;

/// The user at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) uid: u32,
    /// The process that connected.
    pub(super) pid: u32,
}

/// The result of a request.
pub(super) enum Answer {
    Now(Reply),
    /// The loop has to act first.
    Later {
        pid: u32,
        given_back: Receiver<Result<u64, String>>,
    },
    /// The connection stays open, and this descriptor is sent with the reply.
    Tracked {
        place: Place,
        list: OwnedFd,
    },
}

impl Peer {
    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Whether this process lives and this user may control it. Only root controls a process with the ids of two users.
    fn commands(self, process: Process) -> bool {
        // While the pidfd is held and the process lives, its id is not reused.
        let Ok(held) = PidFd::open(process.pid) else { return false };
        let root = Root::host();
        let same = Process::of(&root, process.pid) == Some(process);
        let own = || ProcessStatus::read(&root, process.pid).is_ok_and(|status| self.owns(&status));
        same && (self.is_root() || own()) && !held.has_exited()
    }

    fn owns(self, status: &ProcessStatus) -> bool {
        [status.uid, status.effective_uid, status.saved_uid] == [self.uid; 3]
    }
}

/// Answers, or asks the loop to act first. Errors say why not, for the client.
pub(super) fn answer(request: Request, peer: Peer, shared_state: &SharedState) -> Result<Answer, String> {
    match request {
        Request::Status => {
            let state = visible(shared_state.state(), peer, |process| peer.commands(process));
            Ok(Answer::Now(Reply::State(Box::new(state))))
        }
        Request::Pause(pid) => {
            shared_state.pause(one_or_all(pid, peer, shared_state)?);
            Ok(Answer::Now(Reply::Paused { pid }))
        }
        Request::Resume(pid) => {
            let process = one_or_all(pid, peer, shared_state)?;
            shared_state.resume(process);
            let all_paused = process.is_some_and(|process| shared_state.is_paused(process));
            Ok(Answer::Now(Reply::Resumed { pid, all_paused }))
        }
        Request::GiveBack(pid) => match shared_state.request_give_back(target(pid, peer, shared_state)?) {
            Some(given_back) => Ok(Answer::Later { pid, given_back }),
            None => Err("too many others wait for memory to be given back; try again in a few seconds".to_owned()),
        },
        Request::Track(track) => match shared_state.clients().enter(peer.pid, peer.uid, track) {
            Ok((place, list)) => Ok(Answer::Tracked { place, list }),
            Err(error) => Err(error.to_string()),
        },
        Request::SetTargets(set) => set_targets(set, peer, shared_state).map(Answer::Now),
        Request::AtEnd(_) if !peer.is_root() => Err("only root says what becomes of records".to_owned()),
        Request::AtEnd(records) => {
            shared_state.set_records_at_end(records);
            Ok(Answer::Now(Reply::AtEnd { records }))
        }
    }
}

/// Only root: a target may be any user's process.
fn set_targets(set: TargetSet, peer: Peer, shared_state: &SharedState) -> Result<Reply, String> {
    if !peer.is_root() {
        return Err("only root may set targets; an agent that sets them runs as root, and needs no capability for it"
            .to_owned());
    }
    let assignments = set.assignments().map_err(|error| error.to_string())?;
    let capped = capped(&set, &assignments, &shared_state.state());
    if !shared_state.assign(&set.owner, assignments) {
        return Err(format!(
            "too many owners of targets; end one of them, or restart the daemon, before {} sets some",
            set.owner
        ));
    }
    Ok(Reply::TargetsSet { targets: set.targets.len() as u64, owner: set.owner, capped })
}

fn one_or_all(pid: Option<u32>, peer: Peer, shared_state: &SharedState) -> Result<Option<Process>, String> {
    match pid {
        Some(pid) => target(pid, peer, shared_state).map(Some),
        None if peer.is_root() => Ok(None),
        None => {
            Err("only root may pause and resume everything; name a process of yours, such as `hugepilot pause 4242`"
                .to_owned())
        }
    }
}

/// The target with this id, if this user may control it.
fn target(pid: u32, peer: Peer, shared_state: &SharedState) -> Result<Process, String> {
    let state = shared_state.state();
    let mut named = state.targets.iter().filter(|target| target.pid == pid).map(TargetState::process);
    // The same refusal in every case, so nobody learns about other users' processes.
    named.find(|process| peer.commands(*process)).ok_or_else(|| {
        format!(
            "process {pid} is no target of yours here; `hugepilot status` shows those that are. Nothing was changed"
        )
    })
}

/// The part of the state that this user may see: all machine-wide figures, but only the user's own targets. Verifying reads several files of
/// /proc, so only those are verified that were the user's at the last scan.
fn visible(mut state: State, peer: Peer, commands: impl Fn(Process) -> bool) -> State {
    if !peer.is_root() {
        state.targets.retain(|target| target.uid == peer.uid && commands(target.process()));
        state.clients.retain(|client| client.uid == peer.uid);
    }
    state
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn only_what_may_be_the_users_is_verified_and_all_of_that_is() {
        let target = |pid, uid| TargetState { pid, uid, ..TargetState::default() };
        let targets: Vec<TargetState> =
            (1..500).map(|pid| target(pid, 8)).chain([target(500, 7), target(501, 7)]).collect();
        let state = || State { targets: targets.clone(), ..State::default() };
        let verified = RefCell::new(Vec::new());
        let commands = |process: Process| {
            verified.borrow_mut().push(process.pid);
            process.pid == 500
        };
        let seen = visible(state(), Peer { uid: 7, pid: 1 }, commands);
        assert_eq!(seen.targets.iter().map(|target| target.pid).collect::<Vec<_>>(), [500]);
        assert_eq!(verified.take(), [500, 501]);
        assert_eq!(visible(state(), Peer { uid: 0, pid: 1 }, commands).targets.len(), 501);
        assert!(verified.take().is_empty());
    }

    #[test]
    fn a_process_is_owned_by_whoever_has_all_its_ids() {
        let status =
            |uid, effective_uid, saved_uid| ProcessStatus { uid, effective_uid, saved_uid, ..ProcessStatus::default() };
        let peer = Peer { uid: 7, pid: 1 };
        assert!(peer.owns(&status(7, 7, 7)));
        for other in [status(0, 7, 7), status(7, 0, 7), status(7, 7, 0), status(8, 8, 8)] {
            assert!(!peer.owns(&other), "{other:?}");
        }
    }
}
