//! `/proc/self/pagemap`: the page frames behind memory of our own (Documentation/admin-guide/mm/pagemap.rst).
//!
//! Owns: reading frame numbers. Never touches: other processes; their page tables are read in `observe`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::units::{Address, BASE_PAGE};

/// Bits 0 to 54 of an entry: the page frame number.
const FRAME: u64 = (1 << 55) - 1;

/// The page frame of each base page from `start`; 0 where no page is present, and everywhere without CAP_SYS_ADMIN.
pub fn own_frames(start: Address, pages: usize) -> io::Result<Vec<u64>> {
    let mut entries = vec![0; pages * 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, start.0 / BASE_PAGE * 8)?;
    let frame = |entry: &[u8]| u64::from_ne_bytes(entry.try_into().expect("8 bytes")) & FRAME;
    Ok(entries.chunks_exact(8).map(frame).collect())
}
