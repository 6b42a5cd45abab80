//! Docker's API, which Podman serves, too.
//!
//! Owns: which containers run there. Never touches: what their labels mean.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::{RunningContainer, update};

/// An engine that does not answer for this long, in seconds, is taken to be away.
const PATIENCE: u64 = 10;

/// A connection to it.
pub(super) struct DockerApi(Docker);

impl DockerApi {
    /// Errors: nobody listens there, or somebody else.
    pub(super) async fn at(socket: &Path) -> anyhow::Result<Self> {
        let path = socket.to_str().with_context(|| format!("{} is no path that an engine takes", socket.display()))?;
        let docker = Docker::connect_with_unix(path, PATIENCE, API_DEFAULT_VERSION)?;
        Ok(Self(docker.negotiate_version().await?))
    }

    /// Asks which containers run; what is new is inspected. Errors: it does not answer.
    pub(super) async fn refresh(&mut self, running: &mut BTreeMap<String, RunningContainer>) -> anyhow::Result<()> {
        // Each time, because an engine that has restarted may be of another version.
        self.0 = self.0.clone().negotiate_version().await.context("it does not tell its version")?;
        let listed = self.0.list_containers(None::<ListContainersOptions>).await;
        let listed = listed.context("it does not list containers")?;
        let with_id = |summary: ContainerSummary| Some((summary.id.clone()?, summary));
        let listed = listed.into_iter().filter_map(with_id).collect();
        update(running, listed, async |summary| container(&self.0, summary).await).await;
        Ok(())
    }
}

async fn container(docker: &Docker, summary: ContainerSummary) -> anyhow::Result<RunningContainer> {
    let id = summary.id.as_deref().context("it has no id")?;
    let state = docker.inspect_container(id, None::<InspectContainerOptions>).await?.state;
    let pid = state.and_then(|state| u32::try_from(state.pid?).ok()).filter(|&pid| pid > 0);
    let pid = pid.context("it does not run")?;
    let labels: BTreeMap<String, String> = summary.labels.unwrap_or_default().into_iter().collect();
    let name = summary.names.and_then(|names| names.into_iter().next());
    let name = name.map_or_else(|| id.to_owned(), |name| name_of(&name));
    RunningContainer::new(id, name, summary.image.unwrap_or_default(), &labels, pid)
}

/// Docker's API writes names with a slash before them.
fn name_of(name: &str) -> String {
    name.trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_users_write_them() {
        assert_eq!([name_of("/db"), name_of("db")], ["db", "db"]);
    }
}
