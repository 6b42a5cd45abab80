//! Page sizes, and rounding to whole pages.
//!
//! Owns: these figures. Never touches: settings, or the arguments of a call.

use crate::system;

pub const PAGE: usize = 4096;
/// The size of one transparent huge page.
pub const REGION: usize = 2 << 20;

/// Unmaps the range, if it is not empty.
pub fn unmap_between(start: usize, end: usize) {
    if start < end {
        let _ = system::munmap(start, end - start);
    }
}

/// The number of bytes that the kernel maps for this length. A length that it would refuse stays as it is.
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
