//! The way to the daemon: its control socket.
//!
//! Owns: telling it the targets, and saying once that it cannot be reached. Never touches: what the targets are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::control::ControlClient;
use daemon::control::target_set::TargetSet;

use crate::gauges::AgentGauges;

/// Tells the daemon of targets.
#[derive(Debug)]
pub struct DaemonLink {
    socket: PathBuf,
    gauges: Arc<AgentGauges>,
    /// What was last said of a daemon that cannot be reached.
    complaint: Option<String>,
}

impl DaemonLink {
    /// To the daemon at this control socket.
    pub fn to(socket: PathBuf, gauges: Arc<AgentGauges>) -> Self {
        Self { socket, gauges, complaint: None }
    }

    /// Tells it; returns whether it took them.
    pub async fn tell(&mut self, set: TargetSet) -> bool {
        let reached = set_targets(self.socket.clone(), set).await;
        self.gauges.daemon_reached.set(reached.is_ok().into());
        let complaint = reached.err().map(|error| format!("the daemon is not told of targets: {error:#}"));
        if complaint != self.complaint {
            tracing::warn!("{}", complaint.as_deref().unwrap_or("the daemon is told of targets again"));
        }
        self.complaint = complaint;
        self.complaint.is_none()
    }
}

async fn set_targets(socket: PathBuf, set: TargetSet) -> anyhow::Result<()> {
    let tell = move || ControlClient::at(Path::new(&socket)).set_targets(set);
    Ok(tokio::task::spawn_blocking(tell).await??)
}
