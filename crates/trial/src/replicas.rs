//! A trial across replicas: some of them are promoted, the others only observed, and one number of each is compared.
//!
//! Owns: the expressions that a Prometheus server is asked, and the comparison. Never touches: which replicas are promoted; the agent of the cluster
//! draws them by the hash of a pod's uid, so that they do not differ in anything else.
//!
//! A replica counts once, however long it was watched: replicas differ from each other by the node that they are on and by the requests that they
//! get, and watching for longer does not even that out. So the interval is that of so many replicas, and more of them make it narrower.

use std::collections::{BTreeMap, BTreeSet};

use heat::statistics::{Interval, unpaired_ratio};
use heat::units::Nanos;
use serde::Serialize;

use crate::Arm;
use crate::meter::{MeasuredSeries, MeterError, PrometheusServer};

/// The label in the daemon's metrics that says which arm a replica is in, and its values.
pub const ARM_LABEL: &str = "arm";
/// The replicas that are promoted.
pub const PROMOTED: &str = "promoted";
/// The replicas that are only observed.
pub const OBSERVED: &str = "observed";
/// Replicas of one arm that are compared; each has a ratio with each of the other.
const MOST: usize = 500;
/// From so many on in each arm, an interval has a confidence of 95 %.
pub const FEWEST: usize = 4;

/// Which of two numbers is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Such as CPU time for each request, or latency.
    #[default]
    Lower,
    /// Such as requests a second.
    Higher,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaTrial {
    /// The namespace of the workload.
    pub namespace: String,
    /// Its name, such as a Deployment's.
    pub workload: String,
    /// An expression of PromQL with one series for each pod, labelled `namespace` and `pod`.
    pub metric: String,
    /// Which numbers of it are better.
    pub better: Better,
    /// How long a replica must have been on trial to be compared: while it starts, and while its memory is promoted, its numbers say little.
    pub min_age: Nanos,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replica {
    /// Its name.
    pub pod: String,
    /// What its memory lies on.
    pub arm: Arm,
    /// Whether it has been on trial for too short a time to be compared.
    pub young: bool,
    /// Its number; None where the metric has none for it.
    pub value: Option<f64>,
}

/// The replicas of a workload, each with its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas(pub Vec<Replica>);

impl ReplicaTrial {
    /// Asks for the replicas and their numbers, as they are now. Errors: the server does not answer.
    pub fn ask(&self, server: &PrometheusServer) -> Result<Replicas, MeterError> {
        let arms = server.query(&self.arms_expression(Nanos(0)))?;
        let old = server.query(&self.arms_expression(self.min_age))?;
        let values = server.query(&self.metric)?;
        Ok(self.join(&arms, &old, &values))
    }

    /// The arm of each pod so long ago, as its daemon's metrics say it.
    fn arms_expression(&self, ago: Nanos) -> String {
        let [namespace, workload] = [&self.namespace, &self.workload].map(|text| quoted(text));
        let milliseconds = ago.0 / 1_000_000;
        // Prometheus 2 refuses an offset of zero.
        let offset = if milliseconds > 0 { format!(" offset {milliseconds}ms") } else { String::new() };
        format!(
            "max by (namespace, pod, {ARM_LABEL}) (hugepilot_target_promoting{{{ARM_LABEL}!=\"\",namespace={namespace},workload={workload}}}{offset})"
        )
    }

    fn join(&self, arms: &[MeasuredSeries], old: &[MeasuredSeries], values: &[MeasuredSeries]) -> Replicas {
        let label = |series: &MeasuredSeries, name: &str| series.labels.get(name).cloned().unwrap_or_default();
        let of_ours = |series: &&MeasuredSeries| label(series, "namespace") == self.namespace;
        let old: BTreeSet<String> = old.iter().filter(of_ours).map(|series| label(series, "pod")).collect();
        let numbers: BTreeMap<String, f64> =
            values.iter().filter(of_ours).map(|series| (label(series, "pod"), series.value)).collect();
        let replica = |series: &MeasuredSeries| {
            let arm = match label(series, ARM_LABEL).as_str() {
                PROMOTED => Arm::Huge,
                OBSERVED => Arm::Base,
                _ => return None,
            };
            let pod = label(series, "pod");
            let value = numbers.get(&pod).copied().filter(|value| value.is_finite() && *value > 0.0);
            Some(Replica { young: !old.contains(&pod), pod, arm, value })
        };
        Replicas(arms.iter().filter(of_ours).filter_map(replica).collect())
    }
}

impl Replicas {
    /// The numbers of one arm that are compared.
    pub fn values(&self, arm: Arm) -> Vec<f64> {
        let compared = self.0.iter().filter(|replica| replica.arm == arm && !replica.young);
        compared.filter_map(|replica| replica.value).take(MOST).collect()
    }

    /// How many times as good the promoted ones are as the others: 1.1 is a gain of 10 %. None if an arm has no number.
    pub fn gain(&self, better: Better) -> Option<Interval> {
        let (huge, base) = (self.values(Arm::Huge), self.values(Arm::Base));
        match better {
            Better::Higher => unpaired_ratio(&huge, &base),
            Better::Lower => unpaired_ratio(&base, &huge),
        }
    }
}

/// A string of PromQL.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> ReplicaTrial {
        ReplicaTrial {
            namespace: "shop".to_owned(),
            workload: "web".to_owned(),
            metric: "cpu_per_request".to_owned(),
            better: Better::Lower,
            min_age: Nanos(600_000_000_000),
        }
    }

    fn series(labels: &[(&str, &str)], value: f64) -> MeasuredSeries {
        let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        MeasuredSeries { labels, value }
    }

    fn arm(pod: &str, arm: &str) -> MeasuredSeries {
        series(&[("namespace", "shop"), ("pod", pod), ("arm", arm)], 1.0)
    }

    fn number(pod: &str, value: f64) -> MeasuredSeries {
        series(&[("namespace", "shop"), ("pod", pod)], value)
    }

    #[test]
    fn replicas_are_joined_by_namespace_and_pod() {
        let arms = [arm("a", "promoted"), arm("b", "observed"), arm("c", "observed"), arm("d", "neither")];
        let elsewhere = series(&[("namespace", "other"), ("pod", "b")], 9.0);
        let values = [number("a", 8.0), number("b", 10.0), number("c", f64::NAN), elsewhere];
        let found = trial().join(&arms, &arms[..2], &values);
        let told: Vec<_> = found.0.iter().map(|replica| (replica.pod.as_str(), replica.arm, replica.value)).collect();
        assert_eq!(told, [("a", Arm::Huge, Some(8.0)), ("b", Arm::Base, Some(10.0)), ("c", Arm::Base, None)]);
        assert_eq!(found.0.iter().map(|replica| replica.young).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_replica_that_has_just_started_is_not_compared() {
        let arms = [arm("a", "promoted"), arm("b", "promoted"), arm("c", "observed")];
        let numbers = [number("a", 8.0), number("b", 80.0), number("c", 10.0)];
        let found = trial().join(&arms, &[arm("a", "promoted"), arm("c", "observed")], &numbers);
        assert_eq!([Arm::Huge, Arm::Base].map(|arm| found.values(arm)), [vec![8.0], vec![10.0]]);
        assert!(trial().arms_expression(trial().min_age).ends_with(" offset 600000ms)"));
        assert!(trial().arms_expression(Nanos(0)).ends_with("})"), "Prometheus 2 refuses an offset of zero");
    }

    #[test]
    fn less_time_for_each_request_is_a_gain() {
        let names: Vec<String> = (0..12).map(|number| format!("web-{number}")).collect();
        let arms: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| arm(name, if at < 6 { "promoted" } else { "observed" }))
            .collect();
        let numbers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| number(name, (if at < 6 { 8.0 } else { 10.0 }) * (1.0 + 0.01 * (at % 6) as f64)))
            .collect();
        let replicas = trial().join(&arms, &arms, &numbers);
        let gain = replicas.gain(Better::Lower).unwrap();
        assert!((gain.estimate - 1.25).abs() < 0.01 && gain.low > 1.2 && gain.confidence >= 0.95, "{gain:?}");
        assert!(replicas.gain(Better::Higher).unwrap().high < 0.85, "the other way round it is a loss");
        assert_eq!(Replicas::default().gain(Better::Lower), None);
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let odd = ReplicaTrial { workload: "a\"} or up{\\".to_owned(), ..trial() };
        let asked = odd.arms_expression(Nanos(0));
        assert!(asked.contains(r#"workload="a\"} or up{\\""#), "{asked}");
    }
}
