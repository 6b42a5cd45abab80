//! What is asked of a server of items: which items there are, and by how many clients they are read.
//!
//! Owns: these numbers. Never touches: when requests are sent.

use super::wire::Wire;
use super::zipfian::Popularity;

/// What a server holds, and how it is asked for it.
#[derive(Clone, Copy, Debug)]
pub struct RequestLoad {
    /// The protocol.
    pub wire: Wire,
    /// How many items the server holds.
    pub items: u64,
    /// Bytes in each value.
    pub value_size: usize,
    /// Connections that take turns.
    pub connections: usize,
    /// Reads under way on each connection, where clients wait for answers.
    pub depth: usize,
    /// Which items are read most.
    pub popularity: Popularity,
    /// Where the random numbers start.
    pub seed: u64,
}
