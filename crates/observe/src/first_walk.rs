//! What a program loses for each page that it walks again after its accessed bit was cleared: the price of being watched.
//!
//! Owns: measuring it, on memory of our own. Never touches: the target.
//!
//! The first walk to a page after clearing writes to the page table, where all later ones only read. Programs lost 140 ns by it on one
//! machine (AMD Zen 4) and 410 to 480 on another (Intel Emerald Rapids, random reads), both virtual, so it is measured.

use std::hint::black_box;
use std::time::Instant;
use std::{fs, io};

use heat::units::{BASE_PAGE, Nanos};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use kernel::Root;

/// 8 MiB of memory, so little that nobody notices.
const PAGES: usize = 2048;
/// From one page to the next, in base pages: each has a page table of its own, and their entries lie 4 KiB apart, so that the caches next to
/// the core hold them no better than those of a large program. In dense page tables a first walk took 50 ns, in these 190, and of 3 GiB
/// that a program read at random 260 (AMD Zen 4).
const STRIDE: usize = 512;
/// Whatever interrupts a pass only makes it longer, so the shortest of some counts.
const PASSES: usize = 6;
/// Where it cannot be measured.
const UNKNOWN: Nanos = Nanos(400);

/// Measures it within some tens of milliseconds; the worse of what two machines showed, where that fails.
pub(super) fn price(root: &Root) -> Nanos {
    measure(root).unwrap_or_else(|error| {
        tracing::warn!("what the first walk to a page takes could not be measured ({error}); {UNKNOWN} is assumed");
        UNKNOWN
    })
}

fn measure(root: &Root) -> io::Result<Nanos> {
    let len = PAGES * STRIDE * BASE_PAGE as usize;
    let mut memory = AlignedMemory::anonymous(len)?;
    memory.advise(0, len, OwnAdvice::NoHugePage)?;
    (0..PAGES).for_each(|page| memory.bytes_mut()[place(page)] = 1);
    let mut shortest = [Nanos(u64::MAX); 2];
    for pass in 0..2 * PASSES {
        let cleared = pass % 2;
        if cleared == 1 {
            fs::write(root.path("proc/self/clear_refs"), "1")?;
        }
        // The TLB may hold all of it, and then nothing would be walked.
        memory.flush_translations()?;
        shortest[cleared] = shortest[cleared].min(pass_over(memory.bytes()));
    }
    let [with_bits, without_bits] = shortest;
    Ok(Nanos(without_bits.saturating_sub(with_bits).0 / PAGES as u64))
}

/// One read of each page, in an order that seems random.
fn pass_over(memory: &[u8]) -> Nanos {
    let (started, mut page) = (Instant::now(), 0);
    for _ in 0..PAGES {
        page = next(page);
        black_box(memory[place(page)]);
    }
    Nanos::since(started)
}

/// A linear congruential sequence that comes to each page (Hull and Dobell).
fn next(page: usize) -> usize {
    (page * 5_821 + 7_919) % PAGES
}

/// The byte that is read of a page: in other cache lines from page to page.
fn place(page: usize) -> usize {
    page * STRIDE * BASE_PAGE as usize + page % 64 * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_read() {
        let mut page = 0;
        let read: std::collections::BTreeSet<usize> = (0..PAGES)
            .map(|_| {
                page = next(page);
                page
            })
            .collect();
        assert_eq!(read.len(), PAGES);
    }

    #[test]
    fn a_first_walk_takes_some_time() {
        let price = measure(&Root::host()).unwrap();
        assert!((1..20_000).contains(&price.0), "{price}");
    }
}
