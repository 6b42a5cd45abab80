//! A list of active pages, in memory of its own that is freed with it: an allocator would retain it, and it may be large.
//!
//! Owns: that memory. Never touches: the source of lists.

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
    /// A list of `pages` pages; `read` writes their bytes as in a list's file. Errors: those of `read`, `ENOMEM`.
    pub(crate) fn read(pages: usize, read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Self> {
        // An empty mapping is not possible.
        let mut memory = AlignedMemory::anonymous((pages * Page::LEN).max(1))?;
        read(&mut memory.bytes_mut()[..pages * Page::LEN])?;
        Ok(Self { memory, pages })
    }

    /// The first `count` of these pages. Errors: `ENOMEM`.
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
