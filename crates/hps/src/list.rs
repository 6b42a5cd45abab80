//! A list of active pages, in memory of its own that is freed with it: an allocator would retain it, and it may be large.
//!
//! Owns: that memory. Never touches: the source of lists.

use std::io;
use std::ops::Deref;

use hugepilot_os::memory::AlignedMemory;

use crate::wire::{Page, WalkedRun, WireError};

/// Active pages, ascending by address.
#[derive(Debug)]
pub(crate) struct List {
    memory: AlignedMemory,
    pages: usize,
    /// Active pages for which the daemon's list had no room: those walked least.
    pub(crate) left_out: u64,
}

impl List {
    /// The first `count` of these pages. Errors: `ENOMEM`.
    pub(crate) fn of(count: usize, pages: impl Iterator<Item = Page>) -> io::Result<Self> {
        let mut memory = room(count * Page::LEN)?;
        let places: &mut [Page] = bytemuck::cast_slice_mut(&mut memory.bytes_mut()[..count * Page::LEN]);
        places.iter_mut().zip(pages).for_each(|(place, page)| *place = page);
        Ok(Self { memory, pages: count, left_out: 0 })
    }

    /// The pages of a file's runs, of which `active_pages` are active; `read` writes the runs' bytes as in the file.
    ///
    /// Errors: those of `read`, `ENOMEM`, and `InvalidData` no daemon writes such runs.
    pub(crate) fn read(
        runs: usize,
        active_pages: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut memory = room(runs * WalkedRun::LEN)?;
        read(&mut memory.bytes_mut()[..runs * WalkedRun::LEN])?;
        let runs: &[WalkedRun] = bytemuck::cast_slice(&memory.bytes()[..runs * WalkedRun::LEN]);
        let invalid = |error: WireError| io::Error::new(io::ErrorKind::InvalidData, error);
        let count: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
        let list = Self::of(count as usize, WalkedRun::pages(runs).map_err(invalid)?)?;
        Ok(Self { left_out: active_pages.saturating_sub(count), ..list })
    }
}

/// An empty mapping is not possible.
fn room(bytes: usize) -> io::Result<AlignedMemory> {
    AlignedMemory::anonymous(bytes.max(1))
}

impl Deref for List {
    type Target = [Page];

    fn deref(&self) -> &[Page] {
        bytemuck::cast_slice(&self.memory.bytes()[..self.pages * Page::LEN])
    }
}
