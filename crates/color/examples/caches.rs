//! Prints how many page colors this machine's caches have: `cargo run -p color --example caches`; `hugepilot color` finds out whether they
//! are real.

use kernel::{KernelError, Root, cache};

fn main() -> Result<(), KernelError> {
    for cache in cache::data_caches(&Root::host(), 0)? {
        println!("level {}: {}, {} colors", cache.level, cache.size, cache.colors());
    }
    Ok(())
}
