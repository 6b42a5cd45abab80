//! The DaemonSet that the agent belongs to: once that is deleted, nothing of hugepilot stays on the node.
//!
//! Owns: finding out whether it was deleted. Never touches: the run directory, which is the daemon's to empty.

use std::cell::Cell;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client, Error};

/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });
/// A refusal may pass, as while an authorizer starts: only one that is repeated so often counts. The daemon waits longer than that takes.
const REFUSALS: u32 = 4;
/// Between two questions at the end.
const SOON: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 2_000 });
/// Between two questions until the DaemonSet has been seen.
const LATER: Duration = Duration::from_secs(30);

/// The agent's own DaemonSet.
pub struct Installation {
    sets: Api<DaemonSet>,
    name: String,
    /// Whether it could once be read: without that right nothing follows from a refusal.
    was_seen: Cell<bool>,
}

/// What the API server says of the DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Exists,
    Deleted,
    /// The agent has no right to ask, which goes when hugepilot is uninstalled.
    Refused,
    Unknown,
}

impl Installation {
    /// The DaemonSet of this name in the agent's own namespace.
    pub fn of(client: Client, name: String) -> Self {
        Self { sets: Api::default_namespaced(client), name, was_seen: Cell::new(false) }
    }

    /// Asks until the DaemonSet has been seen, and then waits for ever.
    pub async fn see(&self) {
        while !self.is_seen().await {
            tokio::time::sleep(LATER).await;
        }
        std::future::pending().await
    }

    async fn is_seen(&self) -> bool {
        self.was_seen.set(self.ask().await == Answer::Exists);
        self.was_seen.get()
    }

    /// Whether it was deleted since it was seen. The agent's rights may have gone first.
    pub async fn is_deleted(&self) -> bool {
        for _ in 0..if self.was_seen.get() { REFUSALS } else { 0 } {
            match self.ask().await {
                Answer::Deleted => return true,
                Answer::Exists | Answer::Unknown => return false,
                Answer::Refused => tokio::time::sleep(SOON).await,
            }
        }
        self.was_seen.get()
    }

    async fn ask(&self) -> Answer {
        match tokio::time::timeout(ANSWER, self.sets.get_metadata(&self.name)).await {
            Ok(Ok(found)) if found.metadata.deletion_timestamp.is_none() => Answer::Exists,
            Ok(Ok(_)) => Answer::Deleted,
            Ok(Err(Error::Api(status))) if status.code == 404 => Answer::Deleted,
            Ok(Err(Error::Api(status))) if [401, 403].contains(&status.code) => Answer::Refused,
            Ok(Err(_)) | Err(_) => Answer::Unknown,
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

    /// Whether it counts as deleted after these answers, the first of which comes when the agent begins.
    async fn is_deleted(answers: &[(u16, serde_json::Value)]) -> bool {
        let installation = Installation::of(cluster(answers), "hugepilot".to_owned());
        installation.is_seen().await;
        installation.is_deleted().await
    }

    #[tokio::test]
    async fn it_is_deleted_only_where_the_api_server_says_so_or_its_rights_are_gone_for_good() {
        let deleted = found(Some("2026-01-01T00:00:00Z"));
        let refusals = |code| [found(None), refused(code), refused(code), refused(code), refused(code)];
        assert!(is_deleted(&[found(None), deleted.clone()]).await && is_deleted(&[found(None), refused(404)]).await);
        assert!(is_deleted(&refusals(403)).await && is_deleted(&refusals(401)).await);
        assert!(!is_deleted(&[found(None), refused(403), found(None)]).await, "a refusal that passes");
        assert!(!is_deleted(&[refused(403), deleted]).await, "it was never allowed to ask");
        assert!(!is_deleted(&[found(None), found(None)]).await && !is_deleted(&[found(None), refused(500)]).await);
        assert!(!is_deleted(&[found(None)]).await, "an API server that does not answer");
    }
}
