//! containerd's own API, for containers of `ctr` and nerdctl.
//!
//! Owns: which containers run there. Never touches: what their labels mean, or containers of Kubernetes and Docker, which have their own ways.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::namespaces_client::NamespacesClient;
use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::version_client::VersionClient;
use containerd_client::services::v1::{GetContainerRequest, ListNamespacesRequest, ListTasksRequest};
use containerd_client::tonic::Request;
use containerd_client::tonic::transport::Channel;
use containerd_client::types::v1::{Process, Status};
use tokio::time::timeout;

use crate::engine::{RunningContainer, update};

/// An engine that does not answer for this long is taken to be away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Namespaces of engines that are asked themselves.
const OF_OTHERS: [&str; 2] = ["k8s.io", "moby"];
/// nerdctl's label for what its users call a container.
const NAME: &str = "nerdctl/name";

/// A connection to it, which is made anew when it is lost.
pub(super) struct Containerd(Channel);

impl Containerd {
    /// Errors: nobody listens there, or not containerd.
    pub(super) async fn at(socket: &Path) -> anyhow::Result<Self> {
        let channel = timeout(PATIENCE, containerd_client::connect(socket)).await??;
        timeout(PATIENCE, VersionClient::new(channel.clone()).version(())).await??;
        Ok(Self(channel))
    }

    /// Asks which containers run. Errors: it does not answer.
    pub(super) async fn refresh(&mut self, running: &mut BTreeMap<String, RunningContainer>) -> anyhow::Result<()> {
        let mut tasks = Vec::new();
        for namespace in timeout(PATIENCE, self.namespaces()).await.context("it does not answer in time")?? {
            let listed =
                timeout(PATIENCE, self.running_in(&namespace)).await.context("it does not answer in time")??;
            // The next container may have the same id.
            let key = |task: &Process| format!("{namespace}/{}/{}", task.id, task.pid);
            tasks.extend(listed.into_iter().map(|task| (key(&task), (namespace.clone(), task))));
        }
        update(running, tasks, async |(namespace, task)| self.container(&namespace, task).await).await;
        Ok(())
    }

    async fn namespaces(&self) -> anyhow::Result<Vec<String>> {
        let request = ListNamespacesRequest::default();
        let listed =
            NamespacesClient::new(self.0.clone()).list(request).await.context("it does not list namespaces")?;
        let names = listed.into_inner().namespaces.into_iter().map(|namespace| namespace.name);
        Ok(names.filter(|name| !OF_OTHERS.contains(&name.as_str())).collect())
    }

    /// The first process of each container.
    async fn running_in(&self, namespace: &str) -> anyhow::Result<Vec<Process>> {
        let request = of(namespace, ListTasksRequest::default())?;
        let listed = TasksClient::new(self.0.clone()).list(request).await.context("it does not list tasks")?;
        let mut tasks = listed.into_inner().tasks;
        tasks.retain(|task| task.status() == Status::Running);
        Ok(tasks)
    }

    async fn container(&self, namespace: &str, task: Process) -> anyhow::Result<RunningContainer> {
        let request = of(namespace, GetContainerRequest { id: task.id.clone() })?;
        let got = timeout(PATIENCE, ContainersClient::new(self.0.clone()).get(request)).await??;
        let container = got.into_inner().container.context("it is not known")?;
        let labels: BTreeMap<String, String> = container.labels.into_iter().collect();
        let name = labels.get(NAME).unwrap_or(&task.id).clone();
        RunningContainer::new(&task.id, name, container.image, &labels, task.pid)
    }
}

/// A request in a namespace.
fn of<T>(namespace: &str, request: T) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(request);
    request.metadata_mut().insert("containerd-namespace", namespace.parse()?);
    Ok(request)
}
