//! The agent's own metrics.
//!
//! Owns: their names. Never touches: the daemon's metrics, or a connection.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A gauge of whole numbers.
pub type Number = Gauge<i64, AtomicI64>;

/// What the agent says of itself.
#[derive(Debug)]
pub struct AgentGauges {
    registry: Registry,
    /// Whether the API server could be watched when that was last tried.
    pub watching: Number,
    /// Whether the daemon took the targets when that was last tried.
    pub daemon_reached: Number,
    /// Pods on the node.
    pub pods: Number,
    /// Targets, one for each running container.
    pub targets: Number,
    /// Pods with wrong annotations, or not promoted any more for lack of memory.
    pub noticed: Number,
}

impl Default for AgentGauges {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut gauge = |name: &str, help: &str| {
            let gauge = Number::default();
            // The library ends the help with a period.
            registry.register(format!("hugepilot_agent_{name}"), help, gauge.clone());
            gauge
        };
        Self {
            watching: gauge("watching", "1 if the API server could be watched when that was last tried"),
            daemon_reached: gauge("daemon_reached", "1 if the daemon took the targets when that was last tried"),
            pods: gauge("pods", "Pods on the node"),
            targets: gauge("targets", "Running containers that the daemon was told of"),
            noticed: gauge(
                "noticed_pods",
                "Pods with wrong annotations, or with a container killed for lack of memory",
            ),
            registry,
        }
    }
}

impl AgentGauges {
    /// The daemon's metrics and the agent's, as OpenMetrics text. `of_daemon` is empty where the daemon cannot be reached.
    pub fn after(&self, of_daemon: &str) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes any text");
        let of_daemon = of_daemon.strip_suffix("# EOF\n").unwrap_or_default();
        format!("{of_daemon}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_both_end_once() {
        let gauges = AgentGauges::default();
        gauges.pods.set(3);
        let text = gauges.after("# HELP a A\n# TYPE a gauge\na 1\n# EOF\n");
        assert!(text.starts_with("# HELP a A\n") && text.contains("\nhugepilot_agent_pods 3\n"), "{text}");
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
        let alone = gauges.after("half an answ");
        assert!(alone.starts_with("# HELP hugepilot_agent_watching") && !alone.contains("half"), "{alone}");
    }
}
