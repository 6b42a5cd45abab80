//! A long array of zeros, allocated in pieces that each fit on one page of 1 GiB.
//!
//! Owns: the pieces. Never touches: what the numbers mean.
//!
//! In one piece it would need as many pages of 1 GiB as it has GiB, or get none; and with what an allocator puts before it, one more.

use heat::units::GIANT_PAGE;

/// Left of a page of 1 GiB for what an allocator adds.
const SPARE: u64 = 1 << 20;

/// The array.
pub struct Pieces<T>(Vec<Vec<T>>);

impl<T: Copy + Default> Pieces<T> {
    /// Numbers in a piece at most.
    pub const LENGTH: usize = (GIANT_PAGE - SPARE) as usize / size_of::<T>();

    /// So many zeros, which are nowhere in memory before they are written.
    pub fn zeros(length: usize) -> Self {
        let piece = |start| vec![T::default(); Self::LENGTH.min(length - start)];
        Self((0..length).step_by(Self::LENGTH).map(piece).collect())
    }

    /// The place at or after `start` from which so many numbers lie in one piece.
    pub fn place_for(start: usize, length: usize) -> usize {
        match start % Self::LENGTH + length <= Self::LENGTH {
            true => start,
            false => start.next_multiple_of(Self::LENGTH),
        }
    }

    /// So many numbers, which lie in one piece.
    pub fn slice(&self, start: usize, length: usize) -> &[T] {
        match length {
            // No piece begins where the last one ends.
            0 => &[],
            _ => &self.0[start / Self::LENGTH][start % Self::LENGTH..][..length],
        }
    }

    /// A number.
    pub fn at_mut(&mut self, place: usize) -> &mut T {
        &mut self.0[place / Self::LENGTH][place % Self::LENGTH]
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.0.first().map_or(0, |piece| piece.as_ptr().addr() as u64)
    }

    /// Numbers in all pieces.
    pub fn length(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// The pieces, one after the other.
    #[cfg(test)]
    pub fn pieces(&self) -> impl Iterator<Item = &[T]> {
        self.0.iter().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = Pieces::<u32>::LENGTH;

    #[test]
    fn each_piece_fits_on_a_page_and_the_last_is_no_longer_than_needed() {
        let pieces = Pieces::<u32>::zeros(2 * LENGTH + 5);
        let lengths: Vec<usize> = pieces.pieces().map(<[u32]>::len).collect();
        assert_eq!(lengths, [LENGTH, LENGTH, 5]);
        assert!(4 * LENGTH < GIANT_PAGE as usize && 4 * LENGTH > GIANT_PAGE as usize / 1000 * 999);
        assert_eq!(pieces.length(), 2 * LENGTH + 5);
    }

    #[test]
    fn a_number_is_where_it_was_put() {
        let mut pieces = Pieces::<u32>::zeros(LENGTH + 10);
        for place in [0, LENGTH - 1, LENGTH, LENGTH + 9] {
            *pieces.at_mut(place) = place as u32;
            assert_eq!(pieces.slice(place, 1), [place as u32]);
        }
        assert_eq!(pieces.slice(LENGTH + 8, 2), [0, LENGTH as u32 + 9]);
        assert_eq!(pieces.slice(LENGTH + 10, 0), [0; 0]);
    }

    #[test]
    fn nothing_lies_in_two_pieces() {
        assert_eq!(Pieces::<u32>::place_for(LENGTH - 7, 7), LENGTH - 7);
        assert_eq!(Pieces::<u32>::place_for(LENGTH - 7, 8), LENGTH);
        assert_eq!(Pieces::<u32>::place_for(LENGTH + 3, 8), LENGTH + 3);
    }
}
