//! How much contiguous memory is left: takes and gives back large pages of growing size until an allocation is refused.
//!
//! Owns: the steps. Never touches: memory; the caller takes it.

use hugepilot_os::large_pages::LargePagesError;

/// A realistic size for a program; more would page out other programs' memory just for a test.
const MOST_BYTES: usize = 1 << 30;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contiguous {
    /// The largest size that was available at once; 0: none.
    pub largest_bytes: usize,
    /// The step that was refused, and why; None if all succeeded.
    pub refused: Option<(usize, LargePagesError)>,
}

/// Starts with one page and doubles the size each time; `take` must give the memory back at once.
pub fn probe(page_bytes: usize, mut take: impl FnMut(usize) -> Result<(), LargePagesError>) -> Contiguous {
    let mut largest_bytes = 0;
    let steps = std::iter::successors(Some(page_bytes), |bytes| bytes.checked_mul(2));
    for bytes in steps.take_while(|&bytes| bytes > 0 && bytes <= MOST_BYTES) {
        match take(bytes) {
            Ok(()) => largest_bytes = bytes,
            Err(error) => return Contiguous { largest_bytes, refused: Some((bytes, error)) },
        }
    }
    Contiguous { largest_bytes, refused: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 2 << 20;

    #[test]
    fn steps_grow_until_one_is_refused() {
        let mut taken = Vec::new();
        let found = probe(LARGE, |bytes| {
            taken.push(bytes >> 20);
            if bytes <= 10 << 20 {
                Ok(())
            } else {
                Err(LargePagesError::NoContiguousMemory { bytes, page_bytes: LARGE, code: Some(1450) })
            }
        });
        assert_eq!(taken, [2, 4, 8, 16]);
        let refused = LargePagesError::NoContiguousMemory { bytes: 16 << 20, page_bytes: LARGE, code: Some(1450) };
        assert_eq!(found, Contiguous { largest_bytes: 8 << 20, refused: Some((16 << 20, refused)) });
    }

    #[test]
    fn it_ends_where_all_is_to_be_had() {
        assert_eq!(probe(LARGE, |_| Ok(())), Contiguous { largest_bytes: MOST_BYTES, refused: None });
        assert_eq!(probe(0, |_| Ok(())).largest_bytes, 0, "there are no large pages to take");
    }
}
