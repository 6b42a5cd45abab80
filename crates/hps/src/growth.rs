//! How much memory a huge page would add: pages of its region that are not populated yet.
//!
//! Owns: reading this process's own pagemap. Never touches: memory, or the decision.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::judge::{PAGES, REGION};

const PAGE: u64 = REGION / PAGES;
const ENTRY: u64 = 8;
/// A page that is present or swapped out (bits 63 and 62, `admin-guide/mm/pagemap.rst`).
const POPULATED: u64 = 0b11 << 62;

/// Bytes of the region at this address that have no memory yet.
///
/// Errors: `/proc/self/pagemap` cannot be read.
pub(crate) fn missing_bytes(region: u64) -> io::Result<u64> {
    let mut entries = [0; (PAGES * ENTRY) as usize];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, region / PAGE * ENTRY)?;
    let (entries, _) = entries.as_chunks::<{ ENTRY as usize }>();
    let missing = entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & POPULATED == 0).count();
    Ok(missing as u64 * PAGE)
}

/// The resident memory of this process.
///
/// Errors: `/proc/self/statm` cannot be read.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * PAGE)
}

#[cfg(test)]
mod tests {
    use hugepilot_os::memory::{AlignedMemory, OwnAdvice};

    use super::*;

    #[test]
    fn pages_never_written_are_missing() {
        let mut memory = AlignedMemory::anonymous(2 * REGION as usize).unwrap();
        memory.advise(0, 2 * REGION as usize, OwnAdvice::NoHugePage).unwrap();
        let start = memory.address();
        assert_eq!(missing_bytes(start).unwrap(), REGION);
        for page in [0, 7, 511] {
            memory.words_mut()[page * PAGE as usize / 8] = 1;
        }
        assert_eq!(missing_bytes(start).unwrap(), REGION - 3 * PAGE);
        assert_eq!(missing_bytes(start + REGION).unwrap(), REGION);
        assert!(resident_bytes().unwrap() > 3 * PAGE);
    }
}
