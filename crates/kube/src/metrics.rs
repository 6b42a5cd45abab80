//! Metrics for the cluster: the daemon's, which it serves on a Unix socket, and the agent's own.
//!
//! Owns: the address, TLS, and the token. Never touches: what the metrics say.
//!
//! The agent faces the network so that the daemon, which has rights over every process of the node, need not: it has no capability, and whoever takes
//! it over gets what it may do, which is to set targets. Certificate and token are read at each connection, because they are replaced now and then.

mod answer;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::args::MetricsArgs;
use crate::gauges::AgentGauges;
use crate::metrics::answer::Answers;
use crate::metrics::tls::Certificate;

/// Connections at any time; others wait until one has ended.
const MOST_CONNECTIONS: usize = 16;
/// A connection that takes longer is closed: a collector takes milliseconds.
const MOST_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// How long to pause after accepting failed.
const RECOVERY: Duration = Duration::from_millis(100);

/// Serves metrics beside everything else, if an address is given; returns where it listens.
///
/// Errors: nobody says who may read them, the address cannot be listened on, or the certificate or the token cannot be read.
pub async fn serve(args: &MetricsArgs, gauges: Arc<AgentGauges>) -> anyhow::Result<Option<SocketAddr>> {
    let Some(address) = args.metrics_address else { return Ok(None) };
    let server = Arc::new(Server::new(args, gauges)?);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot serve metrics on {address}"))?;
    let address = listener.local_addr()?;
    tokio::spawn(accept(listener, server));
    Ok(Some(address))
}

struct Server {
    certificate: Option<Certificate>,
    answers: Answers,
}

impl Server {
    fn new(args: &MetricsArgs, gauges: Arc<AgentGauges>) -> anyhow::Result<Self> {
        if args.metrics_token_file.is_none() && !args.metrics_without_token {
            bail!(
                "metrics would be told to everyone who reaches the address: give --metrics-token-file, or --metrics-without-token where a \
                 network policy restricts who does"
            );
        }
        let both = args.metrics_tls_certificate.clone().zip(args.metrics_tls_key.clone());
        let certificate = both.map(|(certificate, key)| Certificate { certificate, key });
        if let Some(certificate) = &certificate {
            certificate.acceptor()?;
        }
        let answers = Answers {
            token_file: args.metrics_token_file.clone(),
            daemon: PathBuf::from(&args.daemon_metrics),
            gauges,
        };
        answers.token()?;
        Ok(Self { certificate, answers })
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        match &self.certificate {
            Some(certificate) => self.serve_http(certificate.acceptor()?.accept(stream).await?).await,
            None => self.serve_http(stream).await,
        }
    }

    async fn serve_http(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
        let answers = service_fn(|request| async move { Ok::<_, Infallible>(self.answers.of(&request).await) });
        let mut http = http1::Builder::new();
        http.keep_alive(false).max_buf_size(16 << 10).timer(TokioTimer::new()).header_read_timeout(MOST_TIME);
        Ok(http.serve_connection(TokioIo::new(stream), answers).await?)
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("cannot accept a connection for metrics: {error}");
                tokio::time::sleep(RECOVERY).await;
                continue;
            }
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let served = tokio::time::timeout(MOST_TIME, server.serve(stream)).await;
            if let Ok(Err(error)) = served {
                tracing::debug!("a connection for metrics failed: {error:#}");
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests;
