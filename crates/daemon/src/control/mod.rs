//! The control socket of a running pilot.
//!
//! Owns: the requests ([`protocol`]), who may make them, the server beside the pilot's loop, and its clients. Never touches: the
//! loop; state, pauses and requests pass through the [`SharedState`](pilot::engine::shared_state::SharedState).
//!
//! Any process may connect. The answer depends on the peer's user id, which the kernel provides, and the pilot never waits for a
//! client.

mod answer;
pub mod capped;
mod client;
mod connection;
mod error;
pub mod protocol;
mod server;
pub mod target_set;

pub use client::ControlClient;
pub use error::ControlError;
pub use server::ControlServer;

/// Where the daemon listens.
pub use hps::wire::SOCKET;

#[cfg(test)]
mod tests;
