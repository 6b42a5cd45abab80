//! Tests over real sockets on the loopback interface.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use daemon::metrics_server::MetricsServer;
use pilot::engine::shared_state::{Counts, SharedState, State};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const TOKEN: &str = "0123456789abcdef0123";

fn args(folder: &TempDir) -> MetricsArgs {
    let path = |name: &str| folder.path().join(name);
    fs::write(path("token"), format!("{TOKEN}\n")).unwrap();
    MetricsArgs {
        metrics_address: Some((Ipv4Addr::LOCALHOST, 0).into()),
        metrics_token_file: Some(path("token")),
        metrics_without_token: false,
        metrics_tls_certificate: None,
        metrics_tls_key: None,
        daemon_metrics: path("metrics.sock"),
    }
}

async fn serving(args: &MetricsArgs) -> SocketAddr {
    serve(args, Arc::default()).await.unwrap().expect("an address")
}

async fn ask(address: SocketAddr, method: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: node1:9472\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn who_has_the_token_reads_the_daemons_metrics_and_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder);
    let address = serving(&args).await;
    let alone = ask(address, "GET", "/metrics", TOKEN).await;
    assert!(alone.starts_with("HTTP/1.1 200 ") && alone.contains("\nhugepilot_agent_pods 0\n"), "{alone}");
    let shared_state = SharedState::default();
    shared_state.show(State { counts: Counts { scans: 7, ..Counts::default() }, ..State::default() });
    let place = args.daemon_metrics.to_str().unwrap().parse().unwrap();
    let _server = MetricsServer::start(shared_state, &place).unwrap();
    let both = ask(address, "GET", "/metrics?name[]=up", TOKEN).await;
    assert!(both.contains("\nhugepilot_scans_total 7.0\n") && both.contains("\nhugepilot_agent_pods 0\n"), "{both}");
    assert!(both.contains("content-type: application/openmetrics-text") && both.ends_with("# EOF\n"), "{both}");
}

#[tokio::test]
async fn nobody_else_does_and_a_new_token_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&folder);
    let address = serving(&args).await;
    for token in ["", "x", &TOKEN[1..], &format!("{TOKEN}0")] {
        let answer = ask(address, "GET", "/metrics", token).await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("hugepilot_"), "{token}: {answer}");
    }
    for (method, path, status) in [("POST", "/metrics", "405"), ("GET", "/", "404"), ("GET", "/metrics/", "404")] {
        assert!(ask(address, method, path, TOKEN).await.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}");
    }
    let new = TOKEN.replace('0', "f");
    fs::write(args.metrics_token_file.as_ref().unwrap(), &new).unwrap();
    assert!(ask(address, "GET", "/metrics", TOKEN).await.starts_with("HTTP/1.1 401 "));
    assert!(ask(address, "GET", "/metrics", &new).await.starts_with("HTTP/1.1 200 "));
    fs::write(args.metrics_token_file.unwrap(), "").unwrap();
    assert!(ask(address, "GET", "/metrics", "").await.starts_with("HTTP/1.1 503 "), "an empty token opens nothing");
}

#[tokio::test]
async fn nothing_is_served_without_a_token_or_with_one_that_can_be_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let refused = async |args: MetricsArgs| format!("{:#}", serve(&args, Arc::default()).await.unwrap_err());
    let open = MetricsArgs { metrics_token_file: None, ..args(&folder) };
    assert!(refused(open.clone()).await.contains("--metrics-token-file"));
    serving(&MetricsArgs { metrics_without_token: true, ..open.clone() }).await;
    assert_eq!(serve(&MetricsArgs { metrics_address: None, ..open }, Arc::default()).await.unwrap(), None);
    let short = args(&folder);
    fs::write(short.metrics_token_file.as_ref().unwrap(), "secret").unwrap();
    assert!(refused(short.clone()).await.contains("can be guessed"));
    assert!(refused(MetricsArgs { metrics_token_file: Some("/none".into()), ..short }).await.contains("/none"));
    let missing = Some(PathBuf::from("/none.pem"));
    let tls = MetricsArgs { metrics_tls_certificate: missing.clone(), metrics_tls_key: missing, ..args(&folder) };
    assert!(refused(tls).await.contains("/none.pem"));
}

#[tokio::test]
async fn clients_that_say_nothing_leave_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let address = serving(&args(&folder)).await;
    let mut silent = Vec::new();
    for _ in 0..MOST_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(ask(address, "GET", "/metrics", TOKEN).await.starts_with("HTTP/1.1 200 "), "after they were sent away");
}

#[tokio::test]
async fn with_a_certificate_it_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=node1",
            "-days",
            "2",
        ])
        .args(["-addext", "subjectAltName=DNS:node1", "-keyout", &key, "-out", &certificate])
        .output();
    if made.is_err() {
        return eprintln!("skipped: there is no openssl here");
    }
    let tls = MetricsArgs {
        metrics_tls_certificate: Some(certificate.clone().into()),
        metrics_tls_key: Some(key.into()),
        ..args(&folder)
    };
    let address = serving(&tls).await;
    let answer = tokio::task::spawn_blocking(move || speak_tls(address, &certificate)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("hugepilot_agent_pods"), "{answer}");
}

/// Asks with the client of OpenSSL, which is not what the server is made of.
fn speak_tls(address: SocketAddr, certificate: &str) -> String {
    use std::io::Write;
    let mut client = Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-servername",
            "node1",
            "-CAfile",
            certificate,
            "-connect",
        ])
        .arg(address.to_string())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().expect("a pipe");
    write!(input, "GET /metrics HTTP/1.1\r\nHost: node1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").unwrap();
    let output = client.wait_with_output().unwrap();
    drop(input);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
