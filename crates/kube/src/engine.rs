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

/// Follows the containers of an engine, for ever. While it is away, they stay as they were.
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
    let (running, told) = (BTreeMap::new(), BTreeSet::new());
    let follower = Follower { docker, defaults: args.defaults.settings(), gauges, daemon, running, told };
    Ok(follower.go_on())
}

struct Follower {
    docker: Docker,
    defaults: PodSettings,
    gauges: Arc<AgentGauges>,
    daemon: DaemonLink,
    /// By id. Labels and group of a container never change.
    running: BTreeMap<String, RunningContainer>,
    /// Labels that were said to be wrong, by container.
    told: BTreeSet<(String, String)>,
}

impl Follower {
    async fn go_on(mut self) {
        let (mut is_known, mut was_reached) = (false, true);
        loop {
            let refreshed = self.refresh().await;
            self.gauges.watching.set(refreshed.is_ok().into());
            if let (Err(error), true) = (&refreshed, was_reached) {
                tracing::warn!("the engine cannot be asked, and containers stay as they were: {error:#}");
            }
            was_reached = refreshed.is_ok();
            is_known |= was_reached;
            // Again and again: a daemon that has restarted knows no targets.
            if is_known {
                self.tell().await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Asks the engine which containers run; what is new is inspected.
    async fn refresh(&mut self) -> anyhow::Result<()> {
        // Each time, because an engine that has restarted may be of another version.
        self.docker = self.docker.clone().negotiate_version().await.context("it does not tell its version")?;
        let listed = self.docker.list_containers(None::<ListContainersOptions>).await;
        let listed = listed.context("it does not list containers")?;
        let mut known = std::mem::take(&mut self.running);
        for summary in listed {
            let Some(id) = summary.id.clone() else { continue };
            let container = match known.remove(&id) {
                Some(container) => Ok(container),
                None => container(&self.docker, &id, summary).await,
            };
            match container {
                Ok(container) => drop(self.running.insert(id, container)),
                // Most likely it has ended; if not, it is asked about again.
                Err(error) => tracing::debug!("container {id} is left out: {error:#}"),
            }
        }
        Ok(())
    }

    async fn tell(&mut self) {
        let (set, wrong) = targets(self.running.values(), &self.defaults);
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
fn targets<'a>(
    running: impl IntoIterator<Item = &'a RunningContainer>,
    defaults: &PodSettings,
) -> (TargetSet, BTreeSet<(String, String)>) {
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
        // Rules and dashboards rank workloads; here that is what runs the same image.
        let own = [("container", self.name.as_str()), ("image", &self.image), ("workload", &self.image)];
        let labels = own.into_iter().chain([("workload_kind", "image")]).chain(arm);
        let labels: BTreeMap<_, _> = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        settings.target(vec![self.cgroup.clone()], settings.mode_of(&self.id), labels)
    }
}

async fn container(docker: &Docker, id: &str, summary: ContainerSummary) -> anyhow::Result<RunningContainer> {
    let state = docker.inspect_container(id, None::<InspectContainerOptions>).await?.state;
    let pid = state.and_then(|state| u32::try_from(state.pid?).ok()).filter(|&pid| pid > 0);
    let pid = pid.context("it does not run")?;
    let labels: BTreeMap<String, String> = summary.labels.unwrap_or_default().into_iter().collect();
    let name = summary.names.and_then(|names| names.into_iter().next());
    Ok(RunningContainer {
        id: id.to_owned(),
        name: name.map_or_else(|| id.to_owned(), |name| name_of(&name)),
        image: summary.image.unwrap_or_default(),
        labels: ours(Some(&labels)),
        cgroup: group_of(cgroup::groups(&Root::host(), pid)?, id)?,
    })
}

/// Docker's API writes names with a slash before them.
fn name_of(name: &str) -> String {
    name.trim_start_matches('/').to_owned()
}

/// The container's own group among those of its first process, which may be in one below it, as under systemd.
///
/// Errors: it has none.
fn group_of(groups: BTreeSet<String>, id: &str) -> anyhow::Result<String> {
    let own = |group: String| {
        let at = group.find(id)?;
        let end = group[at..].find('/').map_or(group.len(), |length| at + length);
        Some(group[..end].to_owned())
    };
    groups.into_iter().find_map(own).ok_or_else(|| anyhow!("it has no control group of its own (--cgroups=disabled)"))
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
        assert_eq!((db.labels["workload"].as_str(), db.labels["workload_kind"].as_str()), ("redis:7", "image"));
        assert!(set.assignments().is_ok() && set.owner == OWNER);
        let [(container, problem)] = &wrong.into_iter().collect::<Vec<_>>()[..] else { panic!("one is wrong") };
        assert!(container == "typo" && problem.contains("'promot' is not a mode"), "{problem}");
    }

    #[test]
    fn names_are_told_as_users_write_them() {
        assert_eq!([name_of("/db"), name_of("db")], ["db", "db"]);
    }

    #[test]
    fn a_container_is_all_that_is_in_its_group_and_below() {
        let of = |groups: &[&str]| group_of(groups.iter().map(|group| (*group).to_owned()).collect(), "4f66d7e3");
        assert!(of(&["/", "/system.slice"]).is_err());
        let scope = "/system.slice/docker-4f66d7e3.scope";
        assert_eq!(of(&["/", &format!("{scope}/init.scope")]).unwrap(), scope, "systemd runs in it");
        assert_eq!(of(&["/libpod_parent/libpod-4f66d7e3"]).unwrap(), "/libpod_parent/libpod-4f66d7e3");
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
