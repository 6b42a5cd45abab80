//! The requests to a server of items: which items exist, and how many clients read them.
//!
//! Owns: these numbers. Never touches: when requests are sent.

use super::wire::Wire;
use super::zipfian::Popularity;

/// A server's items and the requests for them.
#[derive(Clone, Copy, Debug)]
pub struct RequestLoad {
    /// The protocol.
    pub wire: Wire,
    /// The number of items that the server holds.
    pub items: u64,
    /// Bytes per value.
    pub value_size: usize,
    /// The number of connections, which take turns.
    pub connections: usize,
    /// Outstanding reads per connection, if clients wait for answers.
    pub depth: usize,
    /// The distribution of reads over items.
    pub popularity: Popularity,
    /// The seed of random numbers.
    pub seed: u64,
}
