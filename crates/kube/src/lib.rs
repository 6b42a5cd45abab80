//! The agent `hugepilot-kube`: tells the daemon of its node which pods to pilot, by their annotations; or which containers of Docker, Podman
//! or containerd, by their labels.
//!
//! Owns: what is known of the node's pods or containers, events about wrong annotations, and metrics for the cluster. Never touches: processes or
//! memory. The daemon knows nothing of Kubernetes and of engines; in a pod the agent has no rights on the node but to send the daemon sets of targets.
#![forbid(unsafe_code)]

pub mod agent;
pub mod annotations;
pub mod args;
pub mod cgroup_names;
pub mod daemon_link;
pub mod engine;
pub mod gauges;
pub mod installation;
pub mod metrics;
pub mod node;
pub mod pod;
pub mod pod_events;
