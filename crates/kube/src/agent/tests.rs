//! The agent between a cluster that is played, and a real control socket.

use std::path::PathBuf;

use clap::Parser;
use daemon::control::ControlServer;
use futures_util::stream::{self, pending};
use pilot::engine::shared_state::SharedState;
use tempfile::TempDir;

use super::*;
use crate::pod::tests::{pod, pod_json};

/// Patience for what must happen; a test that succeeds waits for none of it.
const LATEST: Duration = Duration::from_secs(60);

struct Stage {
    folder: TempDir,
    gauges: Arc<AgentGauges>,
}

impl Stage {
    /// None where nobody may set targets.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root may set targets");
            return None;
        }
        Some(Self { folder: tempfile::tempdir().unwrap(), gauges: Arc::default() })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    fn daemon(&self) -> (SharedState, ControlServer) {
        let shared_state = SharedState::default();
        let server = ControlServer::start(shared_state.clone(), &self.socket()).unwrap();
        (shared_state, server)
    }

    fn agent(&self) -> Agent {
        // Nobody listens there, and nobody is asked.
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let mut args = AgentArgs::parse_from(["hugepilot-kube", "--node", "n"]);
        args.socket = self.socket();
        Agent::new(&args, client, Arc::clone(&self.gauges))
    }
}

fn listed<T>(objects: Vec<T>) -> Vec<Watched<T>> {
    let all = [Event::Init].into_iter().chain(objects.into_iter().map(Event::InitApply)).chain([Event::InitDone]);
    all.map(Ok).collect()
}

fn then_silent<T: 'static>(events: Vec<T>) -> impl Stream<Item = T> + Unpin {
    stream::iter(events).chain(pending()).boxed_local()
}

/// Plays these events until `holds`.
async fn play(
    stage: &Stage,
    pods: Vec<Watched<Pod>>,
    namespaces: Vec<Watched<(String, Annotations)>>,
    holds: impl Fn() -> bool,
) {
    let waits = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let plays = stage.agent().go_on(then_silent(pods), then_silent(namespaces));
    tokio::select! {
        () = waits => {}
        () = plays => unreachable!("it goes on"),
        () = tokio::time::sleep(LATEST) => panic!("it does not come about"),
    }
}

fn has_web(shared_state: &SharedState) -> bool {
    let group = "/kubepods/burstable/pod12345678-1234-1234-1234-123456789abc/abc".to_owned();
    shared_state.take_assignments().is_some_and(|assigned| assigned.of([&group]).is_some_and(|web| web.mode.is_some()))
}

fn namespaces_of_shop() -> Vec<Watched<(String, Annotations)>> {
    listed(vec![("shop".to_owned(), Annotations::new())])
}

#[tokio::test]
async fn pods_become_targets_and_a_daemon_that_restarts_is_told_again() {
    let Some(stage) = Stage::new() else { return };
    for _ in 0..2 {
        let (shared_state, _server) = stage.daemon();
        play(&stage, listed(vec![pod(pod_json())]), namespaces_of_shop(), || has_web(&shared_state)).await;
    }
}

#[tokio::test]
async fn without_an_api_server_it_goes_on_with_what_it_knew() {
    let Some(stage) = Stage::new() else { return };
    let mut pods = listed(vec![pod(pod_json())]);
    pods.extend([Err(watcher::Error::NoResourceVersion), Ok(Event::Init), Err(watcher::Error::NoResourceVersion)]);
    // The daemon is there only after the API server has gone.
    let gone = || stage.gauges.watching.get() == 0 && stage.gauges.pods.get() == 1;
    let late = std::cell::RefCell::new(None);
    let is_told = || {
        let daemon = &mut *late.borrow_mut();
        if daemon.is_none() && gone() {
            *daemon = Some(stage.daemon());
        }
        daemon.as_ref().is_some_and(|(shared_state, _)| has_web(shared_state))
    };
    play(&stage, pods, namespaces_of_shop(), is_told).await;
    assert_eq!(stage.gauges.targets.get(), 1);
}
