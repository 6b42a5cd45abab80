//! Arguments of `hugepilot fleet`.

use clap::{Args, Subcommand, ValueEnum};
use heat::units::Nanos;
use trial::replicas::Better;

const EXAMPLES: &str = "\
Examples:
  hugepilot fleet trial shop/web --prometheus http://prometheus:9090 --metric 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{namespace=\"shop\"}[1h])) / sum by (namespace, pod) (rate(http_requests_total{namespace=\"shop\"}[1h]))'
  hugepilot fleet trial shop/web --prometheus http://prometheus:9090 --better higher --metric 'avg_over_time(requests_per_cpu_second[6h])'

The pods of the workload carry `hugepilot.io/trial: \"50%\"`: half of them are promoted, the others only observed. Any expression will do
that has one series for each pod, labelled namespace and pod. Replicas are compared, not moments: each counts once, and at least four in
each arm are needed. Ask again after an hour or a day; an answer that one waits for until it pleases is no answer.";

/// `hugepilot fleet`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct FleetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// What can be asked of many hosts at once.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum FleetCommand {
    /// Compare the replicas of a workload that are promoted with those that are only observed
    Trial(FleetTrialArgs),
}

/// `hugepilot fleet trial`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = EXAMPLES)]
pub struct FleetTrialArgs {
    /// The workload, such as a Deployment, as NAMESPACE/NAME
    #[arg(value_name = "WORKLOAD", value_parser = parse_workload)]
    pub workload: WorkloadName,
    /// The Prometheus server that has the daemons' metrics and the workload's, over plain HTTP
    #[arg(long, value_name = "URL")]
    pub prometheus: String,
    /// What to compare: an expression with one series for each pod
    #[arg(long, value_name = "EXPRESSION")]
    pub metric: String,
    /// Which numbers of it are better
    #[arg(long, value_name = "WHICH", default_value = "lower", value_enum)]
    pub better: BetterNumber,
    /// Leaves out replicas that have been on trial for less than this: they still start, or are being promoted
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub min_age: Nanos,
    /// Print JSON with every replica
    #[arg(long)]
    pub json: bool,
}

/// The name of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    /// Its namespace.
    pub namespace: String,
    /// Its own name.
    pub name: String,
}

/// Which of two numbers is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BetterNumber {
    /// CPU time for each request, latency
    Lower,
    /// Requests a second
    Higher,
}

impl From<BetterNumber> for Better {
    fn from(which: BetterNumber) -> Self {
        match which {
            BetterNumber::Lower => Better::Lower,
            BetterNumber::Higher => Better::Higher,
        }
    }
}

fn parse_workload(text: &str) -> Result<WorkloadName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(WorkloadName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("a workload is written as NAMESPACE/NAME, such as shop/web".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_a_namespace_and_a_name() {
        let workload = parse_workload("shop/web").unwrap();
        assert_eq!((workload.namespace.as_str(), workload.name.as_str()), ("shop", "web"));
        for wrong in ["web", "/web", "shop/", "a/b/c", ""] {
            assert!(parse_workload(wrong).is_err(), "{wrong}");
        }
    }
}
