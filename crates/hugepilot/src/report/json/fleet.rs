//! What a trial across replicas has shown.

use super::{ReportKind, document};
use crate::report::FleetTrialReport;

/// The outcome, each replica listed.
pub fn fleet_trial(report: &FleetTrialReport) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let gain = report.gain().map(|gain| {
        object! { estimate: percent(gain.estimate), low: percent(gain.low), high: percent(gain.high), confidence: gain.confidence }
    });
    document(
        ReportKind::FleetTrial,
        &object! {
            namespace: &report.trial.namespace,
            workload: &report.trial.workload,
            metric: &report.trial.metric,
            better: report.trial.better,
            gain_percent: gain,
            replicas: &report.replicas.0,
        },
    )
}
