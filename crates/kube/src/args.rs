//! Arguments of `hugepilot-kube`; parsing has no side effects.
//!
//! Owns: its options, their defaults and their help. Never touches: the system, or the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser};
use daemon::config::parse_weight;
use daemon::control::SOCKET;
use daemon::control::target_set::{GroupMode, parse_own_limit};
use heat::units::Slowdown;

use crate::annotations::{PodSettings, parse_pod_mode};

/// Tells hugepilotd which pods of a Kubernetes node to pilot, by annotations such as hugepilot.io/mode: promote; or which containers of Docker,
/// Podman or containerd, by labels
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "hugepilot-kube", version)]
pub struct AgentArgs {
    /// The node whose pods are piloted
    #[arg(long, value_name = "NAME", env = "NODE_NAME", required_unless_present = "engine")]
    pub node: Option<String>,
    /// Without Kubernetes: the socket of Docker, Podman or containerd, such as /run/docker.sock, whose containers are piloted
    /// by labels such as hugepilot.io/mode=promote
    #[arg(long, value_name = "PATH")]
    pub engine: Option<PathBuf>,
    /// The DaemonSet of this agent, in its own namespace: at its end the agent tells the daemon whether that was deleted, and
    /// records of promotions go, too
    #[arg(long, value_name = "NAME", conflicts_with = "engine")]
    pub daemon_set: Option<String>,
    /// The daemon's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// The control group below which kubelet keeps its pods (kubelet's cgroupRoot)
    #[arg(long, value_name = "GROUP", default_value = "/")]
    pub cgroup_root: String,
    /// What holds for pods without annotations.
    #[command(flatten)]
    pub defaults: Defaults,
    /// Where the cluster collects metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// What holds for pods without annotations.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Defaults {
    /// What is done to pods without hugepilot.io/mode: off, observe or promote
    #[arg(long, value_name = "MODE", default_value = "observe", value_parser = parse_pod_mode)]
    pub default_mode: GroupMode,
    /// Their memory growth: a share of each process, or a size for each container
    #[arg(long, value_name = "SIZE|SHARE", value_parser = limit)]
    pub default_max_growth: Option<String>,
    /// Their memory on huge pages: a share of each process, or a size for each container
    #[arg(long, value_name = "SIZE|SHARE", value_parser = limit)]
    pub default_max_huge: Option<String>,
    /// How much promoting may slow them down, at most as the daemon allows
    #[arg(long, value_name = "SHARE", value_parser = slowdown)]
    pub default_max_slowdown: Option<String>,
    /// Their weight against others where the daemon shares huge pages by weight
    #[arg(long, value_name = "NUMBER", value_parser = weight)]
    pub default_weight: Option<String>,
}

impl Defaults {
    /// As settings of a pod.
    pub fn settings(&self) -> PodSettings {
        PodSettings {
            mode: self.default_mode,
            weight: self.default_weight.clone(),
            max_growth: self.default_max_growth.clone(),
            max_huge: self.default_max_huge.clone(),
            max_slowdown: self.default_max_slowdown.clone(),
            trial: None,
        }
    }
}

/// Where the cluster collects metrics.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct MetricsArgs {
    /// Serves the daemon's metrics and the agent's own to the cluster at this address, such as 0.0.0.0:9472
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_address: Option<SocketAddr>,
    /// Only to those who send this file's token (Authorization: Bearer)
    #[arg(long, value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
    /// To everyone who reaches the address, where a network policy restricts who does
    #[arg(long, conflicts_with = "metrics_token_file")]
    pub metrics_without_token: bool,
    /// Over TLS, with this certificate and those that sign it (PEM); read at each connection
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key")]
    pub metrics_tls_certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "metrics_tls_certificate")]
    pub metrics_tls_key: Option<PathBuf>,
    /// The Unix socket at which the daemon serves its metrics
    #[arg(long, value_name = "PATH", default_value = "/run/hugepilot/metrics.sock")]
    pub daemon_metrics: PathBuf,
}

/// The text is kept as it is, because the daemon reads it.
fn checked<T, E: std::fmt::Display>(text: &str, read: Result<T, E>) -> Result<String, String> {
    read.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn limit(text: &str) -> Result<String, String> {
    checked(text, parse_own_limit(text))
}

fn slowdown(text: &str) -> Result<String, String> {
    checked(text, text.parse::<Slowdown>())
}

fn weight(text: &str) -> Result<String, String> {
    checked(text, parse_weight(text))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<AgentArgs, clap::Error> {
        AgentArgs::try_parse_from(["hugepilot-kube", "--node", "n"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_holds_together() {
        AgentArgs::command().debug_assert();
    }

    #[test]
    fn either_a_node_or_an_engine_is_named() {
        let of = |words: &[&str]| AgentArgs::try_parse_from([&["hugepilot-kube"], words].concat());
        assert!(of(&[]).is_err() && of(&["--node", "n"]).is_ok());
        let engine = of(&["--engine", "/run/docker.sock"]).unwrap();
        assert_eq!((engine.node, engine.engine), (None, Some(PathBuf::from("/run/docker.sock"))));
    }

    #[test]
    fn pods_are_observed_and_metrics_served_nowhere_unless_asked_for() {
        let args = parse("").unwrap();
        assert_eq!(args.defaults.settings(), PodSettings::default());
        assert_eq!((args.defaults.default_mode, args.metrics.metrics_address), (GroupMode::Observe, None));
    }

    #[test]
    fn defaults_are_checked_and_kept_as_written() {
        let line = "--default-mode promote --default-max-growth 64M --default-max-huge 50% --default-max-slowdown 0.5% --default-weight 2";
        let settings = parse(line).unwrap().defaults.settings();
        assert_eq!((settings.mode, settings.max_growth.as_deref()), (GroupMode::Promote, Some("64M")));
        let rest = [settings.max_huge, settings.max_slowdown, settings.weight].map(Option::unwrap);
        assert_eq!(rest, ["50%", "0.5%", "2"]);
        for wrong in ["mode on", "max-growth 5%ram", "max-huge x", "max-slowdown 90%", "weight 0"] {
            assert!(parse(&format!("--default-{wrong}")).is_err(), "{wrong}");
        }
        assert!(parse("--metrics-tls-key k").is_err() && parse("--metrics-tls-certificate c").is_err());
        assert!(parse("--metrics-without-token --metrics-token-file t").is_err());
    }
}
