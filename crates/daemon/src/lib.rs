//! The daemon `hugepilotd`, and what surrounds the pilot in it: configuration, control socket, metrics, and systemd.
//!
//! Owns: these interfaces and the process: its lock, its rights, its signals. Never touches: decisions, or drawing: what runs as root all
//! day draws nothing.
#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod control;
pub mod health;
mod lock;
pub mod log;
pub mod metrics;
pub mod metrics_server;
mod nonblocking;
pub mod piloting;
mod rest;
pub mod service;
mod unix_socket;
