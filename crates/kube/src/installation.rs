//! The DaemonSet that the agent belongs to: once that is deleted, nothing of hugepilot stays on the node.
//!
//! Owns: finding out that it was deleted, and emptying the run directory then. Never touches: huge pages, which go with their programs.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hugepilot_os::run_directory;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client, Error};

/// How long the API server may take to answer an agent that ends.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the daemon, which is told to end at the same moment, may take; less than the kubelet's grace.
const DAEMON_ENDS: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_millis(100);

/// The agent's own DaemonSet.
pub struct Installation {
    sets: Api<DaemonSet>,
    name: String,
    /// Whether it could be read when the agent began: without that right nothing follows from an answer.
    was_seen: bool,
}

impl Installation {
    /// The DaemonSet of this name in the agent's own namespace.
    pub async fn of(client: Client, name: String) -> Self {
        let sets = Api::default_namespaced(client);
        let was_seen = answer(&sets, &name).await.is_ok_and(|is_deleted| !is_deleted);
        Self { sets, name, was_seen }
    }

    /// Whether it was deleted since. Its rights may have gone first.
    pub async fn is_deleted(&self) -> bool {
        let is_gone = |error: Error| matches!(error, Error::Api(status) if [401, 403, 404].contains(&status.code));
        self.was_seen && answer(&self.sets, &self.name).await.unwrap_or_else(|error| error.is_some_and(is_gone))
    }
}

/// Whether the DaemonSet is being deleted. Errors: the API server refuses to say; None: it does not answer.
async fn answer(sets: &Api<DaemonSet>, name: &str) -> Result<bool, Option<Error>> {
    let found = tokio::time::timeout(ANSWER, sets.get_metadata(name)).await.map_err(|_| None)??;
    Ok(found.metadata.deletion_timestamp.is_some())
}

/// Empties the run directory once the daemon has ended.
///
/// Errors: the daemon, or whoever else uses the directory, does not end; or something in it cannot be removed.
pub async fn clear(directory: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + DAEMON_ENDS;
    loop {
        match run_directory::clear(directory) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                tokio::time::sleep(RETRY).await;
            }
            cleared => return cleared.with_context(|| format!("records stay in {}", directory.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    /// A cluster whose API server answers so, one request after the other, and then no longer.
    fn cluster(answers: &[(u16, serde_json::Value)]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = answers.to_vec();
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut connection, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(&connection).lines().map(Result::unwrap);
                assert!(
                    lines.next().unwrap().starts_with("GET /apis/apps/v1/namespaces/default/daemonsets/hugepilot ")
                );
                lines.find(String::is_empty).unwrap();
                let (body, head) = (body.to_string(), "content-type: application/json\r\nconnection: close");
                let length = body.len();
                write!(connection, "HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
            }
        });
        Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
    }

    fn found(deleted_at: Option<&str>) -> (u16, serde_json::Value) {
        let metadata = json!({"name": "hugepilot", "deletionTimestamp": deleted_at});
        (200, json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}))
    }

    fn refused(code: u16) -> (u16, serde_json::Value) {
        (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code}))
    }

    async fn is_deleted(answers: &[(u16, serde_json::Value)]) -> bool {
        Installation::of(cluster(answers), "hugepilot".to_owned()).await.is_deleted().await
    }

    #[tokio::test]
    async fn it_is_deleted_only_where_the_api_server_says_so_or_its_rights_have_gone_with_it() {
        let deleted = found(Some("2026-01-01T00:00:00Z"));
        for last in [deleted.clone(), refused(404), refused(403), refused(401)] {
            assert!(is_deleted(&[found(None), last.clone()]).await, "{last:?}");
            assert!(
                !is_deleted(&[refused(403), last.clone()]).await,
                "{last:?} says nothing: it was never allowed to ask"
            );
        }
        for last in [found(None), refused(500)] {
            assert!(!is_deleted(&[found(None), last.clone()]).await, "{last:?}");
        }
        assert!(!is_deleted(&[found(None)]).await, "an API server that does not answer");
    }

    #[tokio::test]
    async fn what_the_daemon_holds_goes_once_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("promoted-1-2.json");
        std::fs::write(&record, "{}").unwrap();
        let lock = std::fs::File::create(folder.path().join("daemon.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let ends = async {
            tokio::time::sleep(3 * RETRY).await;
            assert!(record.exists());
            drop(lock);
        };
        let (cleared, ()) = tokio::join!(clear(folder.path()), ends);
        cleared.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
