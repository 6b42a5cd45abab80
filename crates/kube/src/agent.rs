//! The agent: watches the cluster, and tells the daemon.
//!
//! Owns: when the daemon is told, and what happens while the API server or the daemon is away. Never touches: what follows from a pod.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use daemon::control::ControlClient;
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use pilot::engine::shared_state::RecordsAtEnd;
use tokio::signal::unix::{SignalKind, signal};

use crate::annotations::{Annotations, ours};
use crate::args::AgentArgs;
use crate::daemon_link::DaemonLink;
use crate::engine;
use crate::gauges::AgentGauges;
use crate::installation::Installation;
use crate::metrics;
use crate::node::{NodePlan, NodePods};
use crate::pod_events::{PodEvents, event};

/// The daemon is told of changes after this time, together with others that come meanwhile.
const SOON: Duration = Duration::from_millis(300);
/// A daemon that has restarted knows no targets, so it is told again and again.
pub(super) const AGAIN: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });
/// A daemon that cannot be reached is tried again after this time.
const RETRY: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 2_000 });

/// What a watch said, or why it did not.
type Watched<T> = Result<Event<T>, watcher::Error>;

/// Runs until SIGTERM or SIGINT. What the daemon was told stays so afterwards; it also learns whether the agent's DaemonSet was deleted, and records of
/// promotions go, too.
///
/// Errors: there is no way to the API server in the environment, or to the engine; or metrics cannot be served.
pub async fn run(args: AgentArgs) -> anyhow::Result<()> {
    let gauges = Arc::new(AgentGauges::default());
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut installation = None;
    let followed: LocalBoxFuture<'_, ()> = match &args.engine {
        Some(engine) => engine::follow(engine, &args, Arc::clone(&gauges))?.boxed_local(),
        None => {
            let client = cluster().await?;
            installation = args.daemon_set.as_ref().map(|name| Installation::of(client.clone(), name.clone()));
            watch_cluster(&args, client, Arc::clone(&gauges)).boxed_local()
        }
    };
    metrics::serve(&args.metrics, gauges).await?;
    tokio::select! {
        () = followed => {},
        () = see(installation.as_ref()) => {},
        _ = end.recv() => {},
        _ = interrupt.recv() => {},
    }
    match installation {
        Some(installation) => say_what_becomes_of_records(&installation, args.socket).await,
        None => Ok(()),
    }
}

async fn see(installation: Option<&Installation>) {
    match installation {
        Some(installation) => installation.see().await,
        None => std::future::pending().await,
    }
}

/// The daemon, which is told to end at the same moment, waits for it.
async fn say_what_becomes_of_records(installation: &Installation, socket: PathBuf) -> anyhow::Result<()> {
    let records = if installation.is_deleted().await { RecordsAtEnd::Remove } else { RecordsAtEnd::Keep };
    let say = move || ControlClient::at(&socket).set_records_at_end(records);
    match (tokio::task::spawn_blocking(say).await?, records) {
        (Err(error), RecordsAtEnd::Remove) => Err(error).context("records of promotions stay on this node"),
        // Without a daemon there is nobody to be told that they stay.
        _ => Ok(()),
    }
}

async fn cluster() -> anyhow::Result<Client> {
    let config = kube::Config::infer().await.context(
        "there is no API server to watch: run hugepilot-kube in a pod with a service account, or with KUBECONFIG; or without Kubernetes with --engine",
    )?;
    Ok(Client::try_from(config)?)
}

/// Follows the pods of the node, for ever.
fn watch_cluster(args: &AgentArgs, client: Client, gauges: Arc<AgentGauges>) -> impl Future<Output = ()> + use<> {
    let node = args.node.as_deref().unwrap_or_default();
    let (pods, namespaces) = (pods(&client, node), namespaces(&client));
    Agent::new(args, client, gauges).go_on(pods, namespaces)
}

/// The pods of one node, from the API server's cache: with thousands of nodes each list from storage counts.
fn pods(client: &Client, node: &str) -> impl Stream<Item = Watched<Pod>> + Unpin + use<> {
    let of_node = Config::default().any_semantic().fields(&format!("spec.nodeName={node}"));
    watcher(Api::all(client.clone()), of_node).default_backoff().boxed()
}

/// Namespaces, without what they contain.
fn namespaces(client: &Client) -> impl Stream<Item = Watched<(String, Annotations)>> + Unpin + use<> {
    let all = watcher(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), Config::default().any_semantic());
    let of = |object: PartialObjectMeta<Namespace>| {
        (object.metadata.name.unwrap_or_default(), ours(object.metadata.annotations.as_ref()))
    };
    let each = move |event| match event {
        Event::Apply(object) => Event::Apply(of(object)),
        Event::Delete(object) => Event::Delete(of(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(of(object)),
        Event::InitDone => Event::InitDone,
    };
    all.default_backoff().map(move |watched| watched.map(each)).boxed()
}

/// Which watches worked when they were last tried.
#[derive(Default)]
struct Watching {
    pods: bool,
    namespaces: bool,
}

struct Agent {
    args: AgentArgs,
    node: NodePods,
    watching: Watching,
    gauges: Arc<AgentGauges>,
    recorder: Recorder,
    told: PodEvents,
    daemon: DaemonLink,
    /// When the daemon is told next.
    next: Instant,
}

impl Agent {
    fn new(args: &AgentArgs, client: Client, gauges: Arc<AgentGauges>) -> Self {
        let reporter = Reporter { controller: "hugepilot".to_owned(), instance: args.node.clone() };
        let recorder = Recorder::new(client, reporter);
        let (node, watching, told) = (NodePods::default(), Watching::default(), PodEvents::default());
        let daemon = DaemonLink::to(args.socket.clone(), Arc::clone(&gauges));
        Self { args: args.clone(), node, watching, gauges, recorder, told, daemon, next: Instant::now() }
    }

    async fn go_on(
        mut self,
        mut pods: impl Stream<Item = Watched<Pod>> + Unpin,
        mut namespaces: impl Stream<Item = Watched<(String, Annotations)>> + Unpin,
    ) {
        loop {
            tokio::select! {
                Some(watched) = pods.next() => {
                    self.watching.pods = watched.is_ok();
                    self.note(watched, NodePods::note_pod);
                }
                Some(watched) = namespaces.next() => {
                    self.watching.namespaces = watched.is_ok();
                    self.note(watched, NodePods::note_namespace);
                }
                () = tokio::time::sleep_until(self.next.into()) => self.tell().await,
            }
        }
    }

    /// Without an API server the agent goes on with what it knew; the streams try again, ever more rarely.
    fn note<T>(&mut self, watched: Watched<T>, note: impl FnOnce(&mut NodePods, Event<T>)) {
        self.gauges.watching.set((self.watching.pods && self.watching.namespaces).into());
        match watched {
            Ok(event) => {
                note(&mut self.node, event);
                self.next = self.next.min(Instant::now() + SOON);
            }
            Err(error) => tracing::warn!("the API server cannot be watched, and pods stay as they were: {error}"),
        }
    }

    /// Tells the daemon the targets, and pods what is new.
    async fn tell(&mut self) {
        let now = Instant::now();
        self.next = now + AGAIN;
        let Some(plan) = self.node.plan(&self.args.defaults.settings(), &self.args.cgroup_root) else { return };
        self.show(&plan);
        if !self.daemon.tell(plan.set).await {
            self.next = Instant::now() + RETRY;
        }
        for (pod, notice) in self.told.news(&plan.notices, now) {
            let (event, about) = event(&pod, &notice);
            // Nothing else waits for the API server.
            let recorder = self.recorder.clone();
            tokio::spawn(async move {
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::warn!("cannot tell of pod {}/{}: {error}", pod.namespace, pod.name);
                }
            });
        }
    }

    fn show(&self, plan: &NodePlan) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.gauges.pods.set(count(plan.pods));
        self.gauges.targets.set(count(plan.set.targets.len()));
        self.gauges.noticed.set(count(plan.notices.len()));
    }
}

#[cfg(test)]
mod tests;
