//! A heap in one mapping that the caller provides, using the allocator rlsf (two-level segregated fit).
//!
//! Owns: which bytes are in use. Never touches: memory outside the mapping, or the kind of pages that back it. rlsf keeps its
//! bookkeeping for each piece in the mapping itself, before the piece.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;

use rlsf::Tlsf;

use crate::memory::AlignedMemory;

/// Like malloc's: enough for every type in C.
const ALIGNMENT: usize = 16;
/// No two pieces begin within the same grain: rlsf's granularity.
const GRAIN: usize = 4 * size_of::<usize>();

/// The powers of two into which rlsf sorts free blocks. With fewer than all of them it does not merge added memory with the block before
/// it.
const CLASSES: usize = (usize::BITS - GRAIN.ilog2()) as usize;

/// A heap in one mapping, of which so far only the beginning is in use.
pub struct Heap {
    blocks: Tlsf<'static, u64, u32, CLASSES, 32>,
    /// Dropped after the pointers into it.
    memory: AlignedMemory,
    /// Bytes from the start that may be given out.
    used: usize,
    /// One bit per grain: whether a live piece begins there. It catches double frees and frees of addresses that were never a piece.
    out: Vec<u64>,
}

impl Heap {
    /// A heap over all of this memory, none of which is touched before [`Heap::grow`].
    pub fn of(memory: AlignedMemory) -> Self {
        Self { blocks: Tlsf::new(), memory, used: 0, out: Vec::new() }
    }

    /// Address and length in bytes.
    pub fn place(&self) -> (u64, usize) {
        (self.memory.address(), self.memory.len())
    }

    /// Bytes from the start that may be given out.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Makes the next `bytes` of the mapping available, or fewer at its end. Before anything is written there, `ready` is called with
    /// their offset and length.
    ///
    /// Errors: those of `ready`; `ENOMEM` nothing is left.
    pub fn grow(
        &mut self,
        bytes: usize,
        ready: impl FnOnce(&mut AlignedMemory, usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = bytes.min(self.memory.len() - self.used);
        if bytes == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        ready(&mut self.memory, self.used, bytes)?;
        let start = (self.memory.address() as usize + self.used) as *mut u8;
        let block = NonNull::slice_from_raw_parts(NonNull::new(start).expect("nothing is mapped at 0"), bytes);
        // SAFETY: these bytes are mapped for as long as `memory` lives, which outlives `blocks`; nobody else refers to them, and they
        // follow the block that was added last.
        unsafe {
            if self.used == 0 {
                self.blocks.insert_free_block_ptr(block);
            } else {
                self.blocks.append_free_block_ptr(block);
            }
        }
        self.used += bytes;
        self.out.resize(self.used.div_ceil(GRAIN * 64), 0);
        Ok(())
    }

    /// A piece of this size, aligned to 16. None if there is no room: free blocks are sorted by size in steps of 1/32, so only a block
    /// larger by that much is certain to be found.
    pub fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
        let piece = self.blocks.allocate(layout)?;
        let (word, bit) = self.mark(piece.as_ptr() as usize)?;
        self.out[word] |= bit;
        Some(piece)
    }

    /// Takes a piece back; nobody may use it any more. Returns false, and does nothing, if no live piece begins there.
    pub fn give_back(&mut self, address: usize) -> bool {
        let Some((word, bit)) = self.mark(address).filter(|&(word, bit)| self.out[word] & bit != 0) else {
            return false;
        };
        let Some(piece) = NonNull::new(address as *mut u8).filter(|_| address.is_multiple_of(ALIGNMENT)) else {
            return false;
        };
        self.out[word] &= !bit;
        // SAFETY: the mark says that this heap gave it out and has not taken it back, and all pieces have this alignment.
        unsafe { self.blocks.deallocate(piece, ALIGNMENT) };
        true
    }

    /// The position of the mark for a piece that begins there. None outside the part in use.
    fn mark(&self, address: usize) -> Option<(usize, u64)> {
        let offset = address.checked_sub(self.memory.address() as usize).filter(|&offset| offset < self.used)?;
        let grain = offset / GRAIN;
        // The first half of a grain is rlsf's header, so no piece begins there.
        (offset % GRAIN == GRAIN / 2).then_some((grain / 64, 1 << (grain % 64)))
    }
}

// SAFETY: what points into the mapping is this value's own, like a Vec's buffer; it is tied to no thread.
unsafe impl Send for Heap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_aligned_and_come_back() {
        let mut heap = Heap::of(AlignedMemory::anonymous(8 << 20).unwrap());
        assert!(heap.take(1).is_none(), "nothing is ready yet");
        let mut ready = Vec::new();
        let mut note = |_: &mut AlignedMemory, offset, bytes| {
            ready.push((offset, bytes));
            Ok(())
        };
        heap.grow(2 << 20, &mut note).unwrap();
        let mut pieces = Vec::new();
        while let Some(piece) = heap.take(1000) {
            // SAFETY: the piece has this many bytes, and is ours.
            unsafe { std::ptr::write_bytes(piece.as_ptr(), pieces.len() as u8, 1000) };
            pieces.push(piece);
        }
        assert!(pieces.len() > 1900, "{}", pieces.len());
        for (number, piece) in pieces.iter().enumerate() {
            // SAFETY: the piece is ours, written above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), 1000) };
            assert!(bytes.iter().all(|&byte| byte == number as u8), "{number}");
        }
        let addresses: Vec<usize> = pieces.iter().map(|piece| piece.as_ptr() as usize).collect();
        for &address in &addresses {
            let others = [address - 16, address + 8, address + 16, address + 32];
            assert!(others.iter().all(|other| !heap.give_back(*other)), "no piece begins there");
            assert!(heap.give_back(address) && !heap.give_back(address), "it comes back once");
        }
        let all = heap.take(31 << 16).expect("it is whole again");
        assert!(heap.give_back(all.as_ptr() as usize));
        heap.grow(100 << 20, &mut note).unwrap();
        assert_eq!(ready, [(0, 2 << 20), (2 << 20, 6 << 20)]);
        assert!(heap.take(31 << 18).is_some(), "what was added joins what was there");
        assert!(heap.grow(1, |_, _, _| Ok(())).is_err() && heap.used() == 8 << 20);
        assert!(!heap.give_back(0) && !heap.give_back(usize::MAX));
    }

    #[test]
    fn what_is_not_made_ready_is_not_given_out() {
        let mut heap = Heap::of(AlignedMemory::anonymous(4 << 20).unwrap());
        let refused = |_: &mut AlignedMemory, _, _| Err(io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(heap.grow(2 << 20, refused).is_err());
        assert!(heap.used() == 0 && heap.take(1).is_none());
    }
}
