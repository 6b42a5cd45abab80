//! What a program loses for each page that it walks again after its accessed bit was cleared: the price of being watched.
//!
//! Owns: measuring it, on memory of our own. Never touches: the target.
//!
//! The first walk to a page after clearing writes to the page table, where all later ones only read. Programs lost 140 ns by it on one
//! machine (AMD Zen 4) and 410 to 480 on another (Intel Emerald Rapids, random reads), both virtual, so it is measured.

use std::fs;
use std::hint::black_box;
use std::io;
use std::time::Instant;

use hugepilot_os::memory::{Mapping, OwnAdvice};

use crate::kernel::Root;
use crate::units::{BASE_PAGE, Bytes, Nanos};

/// More than any TLB holds: 16,384 base pages.
const MEMORY: Bytes = Bytes(64 << 20);
/// Whatever interrupts a pass only makes it longer, so the shortest of some counts.
const PASSES: usize = 4;
/// Where it cannot be measured.
const UNKNOWN: Nanos = Nanos(400);

/// Measures it within some tens of milliseconds, which for that long takes 64 MiB; the worse of what two machines showed, where that fails.
pub(super) fn price(root: &Root) -> Nanos {
    measure(root).unwrap_or_else(|error| {
        tracing::warn!("what the first walk to a page takes could not be measured ({error}); {UNKNOWN} is assumed");
        UNKNOWN
    })
}

fn measure(root: &Root) -> io::Result<Nanos> {
    let mut memory = Mapping::anonymous(MEMORY.0 as usize)?;
    memory.advise(0, MEMORY.0 as usize, OwnAdvice::NoHugePage)?;
    memory.bytes_mut().fill(1);
    let mut shortest = [Nanos(u64::MAX); 2];
    for pass in 0..2 * PASSES {
        let cleared = pass % 2;
        if cleared == 1 {
            fs::write(root.path("proc/self/clear_refs"), "1")?;
        }
        shortest[cleared] = shortest[cleared].min(pass_over(memory.bytes()));
    }
    let [with_bits, without_bits] = shortest;
    Ok(Nanos(without_bits.0.saturating_sub(with_bits.0) / (MEMORY.0 / BASE_PAGE)))
}

/// One read of each page, in an order that looks random: a linear congruential sequence that comes to each (Hull and Dobell).
fn pass_over(memory: &[u8]) -> Nanos {
    let pages = memory.len() / BASE_PAGE as usize;
    let (started, mut page) = (Instant::now(), 0);
    for _ in 0..pages {
        page = (page * 5_821 + 7_919) % pages;
        black_box(memory[page * BASE_PAGE as usize + page % 64 * 64]);
    }
    Nanos::from_duration(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_walk_takes_some_time() {
        let price = measure(&Root::host()).unwrap();
        assert!((1..20_000).contains(&price.0), "{price}");
    }
}
