//! The control socket of a running pilot.
//!
//! Owns: what can be asked there ([`protocol`]), who may ask for what, the server beside the pilot's loop and its clients. Never
//! touches: the loop; state, pauses and requests pass over the [`SharedState`](pilot::engine::shared_state::SharedState).
//!
//! Anybody may connect. What is answered depends on the user id that the kernel gives for the other end, and the pilot never waits
//! for a client.

mod answer;
mod client;
mod connection;
mod error;
pub mod protocol;
mod server;

pub use client::ControlClient;
pub use error::ControlError;
pub use server::ControlServer;

/// Where the daemon listens.
pub use hps::wire::SOCKET;

#[cfg(test)]
mod tests;
