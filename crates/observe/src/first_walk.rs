//! What a program loses for each page that it walks again after its accessed bit was cleared: the cost of being observed.
//!
//! Owns: measuring it, on our own memory. Never touches: the target.
//!
//! The first walk to a page after clearing writes to the page table; later ones only read it. Programs lost 140 ns on one machine (AMD Zen 4) and 410
//! to 480 on another (Intel Emerald Rapids, random reads), both virtual, so it is measured.

use std::hint::black_box;
use std::time::Instant;
use std::{fs, io};

use heat::units::{BASE_PAGE, Nanos};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use kernel::Root;

/// 8 MiB of memory, too little for anyone to notice.
const PAGES: usize = 2048;
/// The distance between pages, in base pages: each has its own page table, and their entries are 4 KiB apart, so the caches next to the core hold
/// them no better than those of a large program. A first walk took 50 ns in dense page tables, 190 in these, and 260 in a program that read 3 GiB at
/// random (AMD Zen 4).
const STRIDE: usize = 512;
/// Interruptions only make a pass longer, so the shortest of several counts.
const PASSES: usize = 6;
/// Used where it cannot be measured.
const UNKNOWN: Nanos = Nanos(400);

/// Measures it within some tens of milliseconds; if that fails, returns the worse result of two machines.
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

/// Reads each page once, in a seemingly random order.
fn pass_over(memory: &[u8]) -> Nanos {
    let (started, mut page) = (Instant::now(), 0);
    for _ in 0..PAGES {
        page = next(page);
        black_box(memory[place(page)]);
    }
    Nanos::since(started)
}

/// A linear congruential sequence that visits every page (Hull and Dobell).
fn next(page: usize) -> usize {
    (page * 5_821 + 7_919) % PAGES
}

/// The byte to read in a page: in a different cache line from page to page.
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
