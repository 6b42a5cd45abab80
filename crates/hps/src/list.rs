//! A list of active pages, in memory that goes back to the machine with it: an allocator would keep it, and it may be large.
//!
//! Owns: that memory. Never touches: where lists come from.

use std::io;
use std::ops::Deref;

use hugepilot_os::memory::AlignedMemory;

use crate::wire::Page;

/// Active pages, ascending by address.
#[derive(Debug)]
pub(crate) struct List {
    memory: AlignedMemory,
    pages: usize,
}

impl List {
    /// So many pages, of which `read` writes the bytes as they stand in a list's file. Errors: its own, `ENOMEM`.
    pub(crate) fn read(pages: usize, read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Self> {
        // A mapping of nothing cannot be had.
        let mut memory = AlignedMemory::anonymous((pages * Page::LEN).max(1))?;
        read(&mut memory.bytes_mut()[..pages * Page::LEN])?;
        Ok(Self { memory, pages })
    }

    /// The first so many of these. Errors: `ENOMEM`.
    pub(crate) fn of(count: usize, pages: impl Iterator<Item = Page>) -> io::Result<Self> {
        Self::read(count, |bytes| {
            bytemuck::cast_slice_mut(bytes).iter_mut().zip(pages).for_each(|(place, page)| *place = page);
            Ok(())
        })
    }
}

impl Deref for List {
    type Target = [Page];

    fn deref(&self) -> &[Page] {
        bytemuck::cast_slice(&self.memory.bytes()[..self.pages * Page::LEN])
    }
}
