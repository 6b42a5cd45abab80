//! Sizes of pages, and lengths in whole ones.
//!
//! Owns: these figures. Never touches: settings, or what a call asks for.

use crate::system;

pub const PAGE: usize = 4096;
/// What one transparent huge page holds.
pub const REGION: usize = 2 << 20;

/// Unmaps what lies between, if anything does.
pub fn unmap_between(start: usize, end: usize) {
    if start < end {
        let _ = system::munmap(start, end - start);
    }
}

/// As many bytes as the kernel maps for so many. Lengths that it would refuse stay as they are.
pub fn whole_pages(length: usize) -> usize {
    length.checked_next_multiple_of(PAGE).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_cannot_be_rounded_stay_as_they_are() {
        assert_eq!(whole_pages(usize::MAX), usize::MAX);
        assert_eq!((whole_pages(1), whole_pages(4096)), (4096, 4096));
    }
}
