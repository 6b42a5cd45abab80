//! Containers of Docker, Podman or containerd on a host without Kubernetes: labels take the place of annotations.
//!
//! Owns: what containers' labels mean. Never touches: the engine's state; it is only asked.

mod containerd;
mod docker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use daemon::control::target_set::{GroupTarget, TargetSet};
use kernel::{Root, cgroup};

use crate::agent::AGAIN;
use crate::annotations::{ARM_LABEL, Annotations, PodSettings, ours, settings};
use crate::args::AgentArgs;
use crate::daemon_link::DaemonLink;
use crate::engine::containerd::Containerd;
use crate::engine::docker::DockerApi;
use crate::gauges::AgentGauges;
use crate::node::acceptable;

/// The owner of the sets.
const OWNER: &str = "containers";

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

/// Who is asked for containers.
enum Engine {
    /// Docker or Podman, which serves Docker's API, too.
    Docker(DockerApi),
    Containerd(Containerd),
}

impl Engine {
    /// Whoever listens there. Errors: it answers neither as Docker does nor as containerd.
    async fn at(socket: &Path) -> anyhow::Result<Self> {
        match DockerApi::at(socket).await {
            Ok(docker) => Ok(Self::Docker(docker)),
            Err(of_docker) => match Containerd::at(socket).await {
                Ok(containerd) => Ok(Self::Containerd(containerd)),
                Err(error) => {
                    Err(error.context(format!("it does not answer as Docker does ({of_docker:#}), or as containerd")))
                }
            },
        }
    }

    /// Running containers by id. Errors: it does not answer.
    async fn refresh(&mut self, running: &mut BTreeMap<String, RunningContainer>) -> anyhow::Result<()> {
        match self {
            Self::Docker(docker) => docker.refresh(running).await,
            Self::Containerd(containerd) => containerd.refresh(running).await,
        }
    }
}

/// Keeps what is known of the containers listed, and inspects the others.
async fn update<T>(
    running: &mut BTreeMap<String, RunningContainer>,
    listed: Vec<(String, T)>,
    inspect: impl AsyncFn(T) -> anyhow::Result<RunningContainer>,
) {
    let mut known = std::mem::take(running);
    for (key, listed) in listed {
        let container = match known.remove(&key) {
            Some(container) => Ok(container),
            None => inspect(listed).await,
        };
        match container {
            Ok(container) => drop(running.insert(key, container)),
            // Most likely it has ended; if not, it is asked about again.
            Err(error) => tracing::debug!("container {key} is left out: {error:#}"),
        }
    }
}

/// Follows the containers of an engine, for ever. While it is away, they stay as they were.
///
/// Errors: there is no such socket.
pub fn follow(
    socket: &Path,
    args: &AgentArgs,
    gauges: Arc<AgentGauges>,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    ensure!(
        socket.exists(),
        "there is no engine at {}; name its socket: --engine /run/docker.sock, /run/podman/podman.sock or /run/containerd/containerd.sock",
        socket.display()
    );
    let daemon = DaemonLink::to(args.socket.clone(), Arc::clone(&gauges));
    let (running, told) = (BTreeMap::new(), BTreeSet::new());
    let follower = Follower {
        socket: socket.to_owned(),
        engine: None,
        defaults: args.defaults.settings(),
        gauges,
        daemon,
        running,
        told,
    };
    Ok(follower.go_on())
}

struct Follower {
    socket: PathBuf,
    /// None until it has answered.
    engine: Option<Engine>,
    defaults: PodSettings,
    gauges: Arc<AgentGauges>,
    daemon: DaemonLink,
    /// By what is one container's alone. Its labels and group never change.
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

    async fn refresh(&mut self) -> anyhow::Result<()> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            None => self.engine.insert(Engine::at(&self.socket).await?),
        };
        engine.refresh(&mut self.running).await
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

impl RunningContainer {
    /// Errors: its first process is gone, or is in no control group of the container's own.
    fn new(id: &str, name: String, image: String, labels: &Annotations, pid: u32) -> anyhow::Result<Self> {
        let groups = cgroup::groups(&Root::host(), pid)?;
        let cgroup = group_of(groups, id).context("it has no control group of its own (--cgroups=disabled)")?;
        Ok(Self { id: id.to_owned(), name, image, labels: ours(Some(labels)), cgroup })
    }
}

/// What engines write before an id.
fn is_engine(word: &str) -> bool {
    ["docker", "libpod", "nerdctl", "cri-containerd"].contains(&word)
}

/// The container's own group among those of its first process, which may be in one below it, as under systemd. None: it has none.
fn group_of(groups: BTreeSet<String>, id: &str) -> Option<String> {
    // `docker-ID.scope`, `libpod-ID`, `nerdctl-ID.scope`, or just the id, which under containerd may be any word.
    let is_own = |part: &str| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        part == id || part.strip_suffix(id).and_then(|before| before.strip_suffix('-')).is_some_and(is_engine)
    };
    let own = |group: String| {
        let parts: Vec<&str> = group.split('/').collect();
        let last = parts.iter().rposition(|part| is_own(part))?;
        Some(parts[..=last].join("/"))
    };
    groups.into_iter().find_map(own)
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
    fn a_container_is_all_that_is_in_its_group_and_below() {
        let of = |groups: &[&str], id| group_of(groups.iter().map(|group| (*group).to_owned()).collect(), id);
        assert_eq!(of(&["/", "/system.slice"], "4f66d7e3"), None);
        let scope = "/system.slice/docker-4f66d7e3.scope";
        assert_eq!(
            of(&["/", &format!("{scope}/init.scope")], "4f66d7e3").as_deref(),
            Some(scope),
            "systemd runs in it"
        );
        let below = "/libpod_parent/libpod-4f66d7e3";
        assert_eq!(of(&["/libpod_parent", below], "4f66d7e3").as_deref(), Some(below));
        assert_eq!(of(&["/default/db"], "db").as_deref(), Some("/default/db"), "an id of containerd may be any word");
        assert_eq!(of(&["/prod-db/default/db"], "db").as_deref(), Some("/prod-db/default/db"), "no stranger's group");
        assert_eq!(of(&["/db-tools/mydb", "/prod-db"], "db"), None);
    }

    #[tokio::test]
    async fn what_is_known_is_not_asked_about_again_and_what_ended_is_forgotten() {
        let mut all = BTreeMap::new();
        let listed = |keys: &[&str]| keys.iter().map(|&key| (key.to_owned(), key.to_owned())).collect::<Vec<_>>();
        let known = async |name: String| Ok(running(&name, &[]));
        update(&mut all, listed(&["shop/db/7", "shop/web/8"]), known).await;
        let refused = async |name: String| anyhow::bail!("{name} has ended");
        update(&mut all, listed(&["shop/db/7", "shop/web/9"]), refused).await;
        assert_eq!(all.into_keys().collect::<Vec<_>>(), ["shop/db/7"]);
    }

    #[test]
    fn an_engine_that_is_not_there_is_told() {
        use clap::Parser;
        let args = AgentArgs::parse_from(["hugepilot-kube", "--engine", "/nowhere/docker.sock"]);
        let refused =
            follow(Path::new("/nowhere/docker.sock"), &args, Arc::default()).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|told| told.contains("/nowhere/docker.sock") && told.contains("--engine")));
    }
}
