//! The answer to a request for metrics.
//!
//! Owns: who may read them, and asking the daemon. Never touches: sockets of collectors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;

use crate::gauges::AgentGauges;

/// The most that the daemon may answer: its thousand targets take less.
const LONGEST_ANSWER: usize = 16 << 20;
/// A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;
/// The longest token file.
const LONGEST_TOKEN: u64 = 4 << 10;

/// What answers follow from.
pub(super) struct Answers {
    /// None: everybody may read.
    pub(super) token_file: Option<PathBuf>,
    /// The daemon's socket for metrics.
    pub(super) daemon: PathBuf,
    pub(super) gauges: Arc<AgentGauges>,
}

impl Answers {
    pub(super) async fn of(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        }
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read, with GET\n");
        }
        match self.token() {
            Err(error) => {
                tracing::warn!("nobody may read metrics: {error:#}");
                plain(StatusCode::SERVICE_UNAVAILABLE, "the token cannot be read\n")
            }
            Ok(Some(token)) if !has(&token, request.headers()) => unauthorized(),
            Ok(_) => self.metrics().await,
        }
    }

    /// None where none is asked for. Errors: its file cannot be read, or holds too little.
    pub(super) fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let of = || format!("cannot use the token in {}", path.display());
        let length = std::fs::metadata(path).with_context(of)?.len();
        ensure!(length <= LONGEST_TOKEN, "{} is too long for a token", path.display());
        let token = std::fs::read_to_string(path).with_context(of)?.trim().to_owned();
        ensure!(
            token.len() >= SHORTEST_TOKEN,
            "the token in {} can be guessed: it needs {SHORTEST_TOKEN} characters (openssl rand -hex 32)",
            path.display()
        );
        Ok(Some(token))
    }

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let of_daemon = of_daemon(&self.daemon).await;
        if let Err(error) = &of_daemon {
            tracing::debug!("the daemon's metrics cannot be read: {error:#}");
        }
        let text = self.gauges.after(&of_daemon.unwrap_or_default());
        let mut response = Response::new(Full::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(daemon::metrics::CONTENT_TYPE));
        response
    }
}

fn has(token: &str, headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    given.ct_eq(token.as_bytes()).into()
}

/// The daemon's own text. Errors: it cannot be reached, or answers something else.
async fn of_daemon(socket: &Path) -> anyhow::Result<String> {
    let (mut sender, connection) = handshake(TokioIo::new(UnixStream::connect(socket).await?)).await?;
    // It drops the sender, which ends the connection.
    let ask = async move {
        let request = Request::get("/metrics").header(HOST, "localhost").body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        ensure!(response.status() == StatusCode::OK, "it answers {}", response.status());
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        Ok(String::from_utf8(body.to_vec())?)
    };
    let (answer, _closed) = tokio::join!(ask, connection);
    answer
}

fn unauthorized() -> Response<Full<Bytes>> {
    let mut response = plain(StatusCode::UNAUTHORIZED, "a token is needed\n");
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
