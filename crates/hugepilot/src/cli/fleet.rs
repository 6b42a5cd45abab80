//! `hugepilot fleet`: what a Prometheus server knows of many hosts.
//!
//! Owns: the requests. Never touches: any host.

use anyhow::ensure;
use trial::meter::PrometheusServer;
use trial::replicas::ReplicaTrial;

use super::args::{FleetArgs, FleetCommand, FleetTrialArgs};
use super::terminal;
use crate::report::{FleetTrialReport, json, text};

pub(super) fn fleet(args: &FleetArgs) -> anyhow::Result<()> {
    match &args.command {
        FleetCommand::Trial(args) => trial_of_replicas(args),
    }
}

fn trial_of_replicas(args: &FleetTrialArgs) -> anyhow::Result<()> {
    let trial = ReplicaTrial {
        namespace: args.workload.namespace.clone(),
        workload: args.workload.name.clone(),
        metric: args.metric.clone(),
        better: args.better.into(),
        min_age: args.min_age,
    };
    let replicas = trial.ask(&PrometheusServer { url: args.prometheus.clone() })?;
    ensure!(
        !replicas.0.is_empty(),
        "{} knows no replica of {}/{} that is on trial: its pods need the annotation hugepilot.io/trial, such as \"50%\", and Prometheus the \
         daemons' metrics with the labels of hugepilot-kube",
        args.prometheus,
        trial.namespace,
        trial.workload
    );
    let report = FleetTrialReport { trial: &trial, replicas: &replicas };
    terminal::print(&if args.json { json::fleet_trial(&report) } else { text::fleet_trial(&report) })
}
