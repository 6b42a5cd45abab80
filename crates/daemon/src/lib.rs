//! The daemon `hugepilotd`, and what surrounds the pilot in it: its configuration, its control socket, its metrics, and systemd.
//!
//! Owns: these edges, and the process they make: its lock, its rights, its signals. Never touches: any decision, or a picture: what runs as root all day draws nothing.
#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod control;
mod lock;
pub mod metrics;
pub mod metrics_server;
mod nonblocking;
pub mod piloting;
pub mod service;
