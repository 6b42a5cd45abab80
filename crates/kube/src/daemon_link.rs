//! The way to the daemon: its control socket.
//!
//! Owns: telling it the targets, and saying once that it cannot be reached, or which limits it caps. Never touches: what the targets are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::control::ControlClient;
use daemon::control::capped::CappedLimit;
use daemon::control::target_set::TargetSet;

use crate::gauges::AgentGauges;

/// Tells the daemon of targets.
#[derive(Debug)]
pub struct DaemonLink {
    socket: PathBuf,
    gauges: Arc<AgentGauges>,
    /// What was last said of a daemon that cannot be reached.
    complaint: Option<String>,
    /// What was last said of limits that it caps.
    capped: BTreeSet<String>,
}

impl DaemonLink {
    /// To the daemon at this control socket.
    pub fn to(socket: PathBuf, gauges: Arc<AgentGauges>) -> Self {
        Self { socket, gauges, complaint: None, capped: BTreeSet::new() }
    }

    /// Tells it; returns whether it took them.
    pub async fn tell(&mut self, set: TargetSet) -> bool {
        let reached = set_targets(self.socket.clone(), set).await;
        self.gauges.daemon_reached.set(reached.is_ok().into());
        if let Ok(capped) = &reached {
            capped.difference(&self.capped).for_each(|each| tracing::warn!("{each}"));
            self.capped.clone_from(capped);
        }
        let complaint = reached.err().map(|error| format!("the daemon is not told of targets: {error:#}"));
        if complaint != self.complaint {
            tracing::warn!("{}", complaint.as_deref().unwrap_or("the daemon is told of targets again"));
        }
        self.complaint = complaint;
        self.complaint.is_none()
    }
}

/// Returns what is to be said of limits that the daemon caps.
async fn set_targets(socket: PathBuf, set: TargetSet) -> anyhow::Result<BTreeSet<String>> {
    let tell = move || {
        let capped = ControlClient::at(Path::new(&socket)).set_targets(set.clone())?;
        anyhow::Ok(capped.iter().map(|each| said(each, &set)).collect())
    };
    tokio::task::spawn_blocking(tell).await?
}

/// A limit that the daemon caps, by the container that it was asked for.
fn said(capped: &CappedLimit, set: &TargetSet) -> String {
    let CappedLimit { target, limit, asked, to, why } = capped;
    let target = usize::try_from(*target).ok().and_then(|number| set.targets.get(number.checked_sub(1)?));
    let label = |name: &str| target?.labels.get(name).map(String::as_str);
    let place: Vec<&str> = ["namespace", "pod", "container"].into_iter().filter_map(label).collect();
    format!("{} of container {} is {to}, not {asked} as it asks for: {why}", limit.key(), place.join("/"))
}

#[cfg(test)]
mod tests {
    use daemon::control::ControlServer;
    use daemon::control::target_set::{GroupMode, GroupTarget};
    use pilot::engine::shared_state::{SharedState, State};

    use super::*;

    #[tokio::test]
    async fn a_limit_that_the_daemon_caps_is_said_with_its_container() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root may set targets");
        }
        let (folder, shared_state) = (tempfile::tempdir().unwrap(), SharedState::default());
        shared_state.show(State { max_slowdown: 0.01, ..State::default() });
        let socket = folder.path().join("control.sock");
        let _server = ControlServer::start(shared_state, &socket).unwrap();
        let mut link = DaemonLink::to(socket, Arc::default());
        let labels = [("namespace", "shop"), ("pod", "web-0"), ("container", "app")];
        let set = |max_slowdown: &str| TargetSet {
            owner: "kubernetes".to_owned(),
            targets: vec![GroupTarget {
                cgroups: vec!["/a".to_owned()],
                mode: GroupMode::Promote,
                max_slowdown: Some(max_slowdown.to_owned()),
                labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
                ..GroupTarget::default()
            }],
        };
        assert!(link.tell(set("5%")).await);
        let [said] = &link.capped.iter().collect::<Vec<_>>()[..] else { panic!("one is capped: {:?}", link.capped) };
        let expected = "max-slowdown of container shop/web-0/app is 1%, not 5% as it asks for: ";
        assert!(said.starts_with(expected) && said.contains("raise it there"), "{said}");
        assert!(link.tell(set("1%")).await);
        assert!(link.capped.is_empty(), "{:?}", link.capped);
    }
}
