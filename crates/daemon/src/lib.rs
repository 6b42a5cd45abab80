//! What surrounds the pilot in a daemon: its configuration, its control socket, its metrics, and systemd.
//!
//! Owns: these edges; they translate. Never touches: any decision.
#![forbid(unsafe_code)]

pub mod config;
pub mod control;
pub mod metrics;
pub mod metrics_server;
pub mod service;
