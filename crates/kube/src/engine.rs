//! Containers of Docker or Podman on a host without Kubernetes: labels take the place of annotations.
//!
//! Owns: which containers run, and what their labels mean. Never touches: the engine's state; it is only asked, by Docker's API, which Podman serves,
//! too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use bollard::models::ContainerSummary;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use daemon::control::target_set::{GroupTarget, TargetSet};
use kernel::{Root, cgroup};

use crate::agent::AGAIN;
use crate::annotations::{ARM_LABEL, Annotations, PodSettings, ours, settings};
use crate::args::AgentArgs;
use crate::daemon_link::DaemonLink;
use crate::gauges::AgentGauges;
use crate::node::acceptable;

/// The owner of the sets.
const OWNER: &str = "containers";
/// An engine that does not answer for this long, in seconds, is taken to be away.
const PATIENCE: u64 = 10;

/// A running container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunningContainer {
    id: String,
    name: String,
    image: String,
    /// Ours among its labels.
    labels: Annotations,
    /// Its control group, as the host names it.
    cgroup: String,
}

/// Follows the containers of an engine, for ever. While it is away, the daemon keeps what it was told.
///
/// Errors: there is no such socket.
pub fn follow(
    socket: &Path,
    args: &AgentArgs,
    gauges: Arc<AgentGauges>,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let path = socket.to_str().with_context(|| format!("{} is no path that an engine takes", socket.display()))?;
    let docker = Docker::connect_with_unix(path, PATIENCE, API_DEFAULT_VERSION).with_context(|| {
        format!("there is no engine at {path}; name its socket: --engine /run/docker.sock, or /run/podman/podman.sock")
    })?;
    let daemon = DaemonLink::to(args.socket.clone(), Arc::clone(&gauges));
    let follower = Follower { docker, defaults: args.defaults.settings(), gauges, daemon, told: BTreeSet::new() };
    Ok(follower.go_on())
}

struct Follower {
    docker: Docker,
    defaults: PodSettings,
    gauges: Arc<AgentGauges>,
    daemon: DaemonLink,
    /// Labels that were said to be wrong, by container.
    told: BTreeSet<(String, String)>,
}

impl Follower {
    async fn go_on(mut self) {
        let mut was_away = false;
        loop {
            let running = running(&self.docker).await;
            self.gauges.watching.set(running.is_ok().into());
            match running {
                Ok(running) => {
                    was_away = false;
                    self.tell(&running).await;
                }
                Err(error) if !was_away => {
                    was_away = true;
                    tracing::warn!("the engine cannot be asked, and containers stay as they were: {error:#}");
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn tell(&mut self, running: &[RunningContainer]) {
        let (set, wrong) = targets(running, &self.defaults);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.gauges.targets.set(count(set.targets.len()));
        self.gauges.noticed.set(count(wrong.len()));
        for each in wrong.difference(&self.told) {
            tracing::warn!("container {}: {}", each.0, each.1);
        }
        self.told = wrong;
        self.daemon.tell(set).await;
    }
}

/// What follows from the containers, and what is wrong with their labels, by container.
fn targets(running: &[RunningContainer], defaults: &PodSettings) -> (TargetSet, BTreeSet<(String, String)>) {
    let (mut targets, mut all_wrong, of_no_namespace) = (Vec::new(), BTreeSet::new(), Annotations::new());
    for container in running {
        let (settings, wrong) = settings(defaults, &of_no_namespace, &container.labels);
        all_wrong.extend(wrong.iter().map(|wrong| (container.name.clone(), wrong.to_string())));
        targets.push(container.target(&settings));
    }
    (acceptable(OWNER, targets), all_wrong)
}

impl RunningContainer {
    fn target(&self, settings: &PodSettings) -> GroupTarget {
        let arm = settings.arm_of(&self.id).map(|arm| (ARM_LABEL, arm.word()));
        let labels = [("container", self.name.as_str()), ("image", &self.image)].into_iter().chain(arm);
        let labels: BTreeMap<_, _> = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        settings.target(vec![self.cgroup.clone()], settings.mode_of(&self.id), labels)
    }
}

/// All that run. A container that ends meanwhile is left out.
async fn running(docker: &Docker) -> anyhow::Result<Vec<RunningContainer>> {
    let listed = docker.list_containers(None::<ListContainersOptions>).await.context("it does not list containers")?;
    let mut running = Vec::new();
    for summary in listed {
        match container(docker, summary).await {
            Ok(container) => running.push(container),
            Err(error) => tracing::debug!("a container is left out: {error:#}"),
        }
    }
    Ok(running)
}

async fn container(docker: &Docker, summary: ContainerSummary) -> anyhow::Result<RunningContainer> {
    let id = summary.id.context("it has no id")?;
    let state = docker.inspect_container(&id, None::<InspectContainerOptions>).await?.state;
    let pid = state.and_then(|state| u32::try_from(state.pid?).ok()).filter(|&pid| pid > 0);
    let pid = pid.with_context(|| format!("{id} does not run"))?;
    let labels: BTreeMap<String, String> = summary.labels.unwrap_or_default().into_iter().collect();
    Ok(RunningContainer {
        name: summary
            .names
            .and_then(|names| names.into_iter().next())
            .map_or_else(|| id.clone(), |name| name_of(&name)),
        image: summary.image.unwrap_or_default(),
        labels: ours(Some(&labels)),
        cgroup: group_of(pid, &id)?,
        id,
    })
}

/// Docker's API writes names with a slash before them.
fn name_of(name: &str) -> String {
    name.trim_start_matches('/').to_owned()
}

/// The longest of a process's groups that carries the container's id: in one without it are others, too.
///
/// Errors: the process has ended, or is in no such group.
fn group_of(pid: u32, id: &str) -> anyhow::Result<String> {
    let groups = cgroup::groups(&Root::host(), pid)?;
    let of_container = groups.into_iter().filter(|group| group.contains(id));
    of_container.max_by_key(String::len).ok_or_else(|| {
        anyhow!(
            "process {pid} of container {id} is in no control group of its own, as without cgroups (--cgroups=disabled)"
        )
    })
}

#[cfg(test)]
mod tests {
    use daemon::control::target_set::GroupMode;

    use super::*;

    fn running(name: &str, labels: &[(&str, &str)]) -> RunningContainer {
        let labels = labels.iter().map(|(name, value)| (format!("hugepilot.io/{name}"), (*value).to_owned())).collect();
        let cgroup = format!("/system.slice/docker-{name}.scope");
        RunningContainer { id: name.repeat(8), name: name.to_owned(), image: "redis:7".to_owned(), labels, cgroup }
    }

    #[test]
    fn labels_say_what_is_done_to_a_container() {
        let all = [
            running("db", &[("mode", "promote"), ("max-growth", "64M")]),
            running("batch", &[("mode", "off")]),
            running("web", &[]),
            running("typo", &[("mode", "promot")]),
        ];
        let (set, wrong) = targets(&all, &PodSettings::default());
        let modes: Vec<_> = set.targets.iter().map(|target| target.mode).collect();
        assert_eq!(modes, [GroupMode::Promote, GroupMode::Off, GroupMode::Observe, GroupMode::Observe]);
        let db = &set.targets[0];
        assert_eq!(
            (db.max_growth.as_deref(), db.labels["container"].as_str(), db.labels["image"].as_str()),
            (Some("64M"), "db", "redis:7")
        );
        assert!(set.assignments().is_ok() && set.owner == OWNER);
        let [(container, problem)] = &wrong.into_iter().collect::<Vec<_>>()[..] else { panic!("one is wrong") };
        assert!(container == "typo" && problem.contains("'promot' is no mode"), "{problem}");
    }

    #[test]
    fn names_are_told_as_users_write_them() {
        assert_eq!([name_of("/db"), name_of("db")], ["db", "db"]);
    }

    #[test]
    fn a_process_outside_of_containers_is_in_no_group_of_one() {
        let refused = group_of(std::process::id(), "4f66d7e3").unwrap_err().to_string();
        assert!(refused.contains("4f66d7e3") && refused.contains("no control group of its own"), "{refused}");
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_told() {
        use clap::Parser;
        let args = AgentArgs::parse_from(["hugepilot-kube", "--engine", "/nowhere/docker.sock"]);
        let refused =
            follow(Path::new("/nowhere/docker.sock"), &args, Arc::default()).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|told| told.contains("/nowhere/docker.sock") && told.contains("--engine")));
    }
}
