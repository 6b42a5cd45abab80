//! Hot arenas: memory on huge pages for objects that the application moves together.
//!
//! Owns: the backing of an arena, 2 MiB at a time, and pieces of it. Never touches: tracking's limit on huge pages; to limit arenas, too,
//! make them no larger than allowed.
//!
//! Reserved huge pages are used only if the pool has enough for the whole arena, and they are reserved at once, so no access can fail
//! later (SIGBUS). Children do not inherit that memory, because an access to a child's copy could fail. An arena for children uses none.

use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use hugepilot_os::advise::collapse_own;
use hugepilot_os::heap::Heap;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};

use crate::fork;
use crate::judge::REGION;

/// What backs an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaBacking {
    /// Huge pages that were reserved in the machine's pool.
    Pool,
    /// Huge pages that the kernel made on request (THP).
    HugePages,
    /// Ordinary pages, at least in part: no contiguous memory is left, or huge pages are switched off.
    BasePages,
}

/// An arena's size and backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its address.
    pub address: u64,
    /// Maximum size in bytes.
    pub bytes: u64,
    /// Bytes that it has taken from the machine so far.
    pub backed_bytes: u64,
    /// Of these, bytes on huge pages.
    pub huge_bytes: u64,
}

/// Memory for hot objects.
pub struct Arena {
    state: Mutex<State>,
    pool: bool,
}

struct State {
    heap: Heap,
    huge_bytes: u64,
}

impl Arena {
    /// Reserves address space for `bytes`, rounded up to 2 MiB. `for_children`: forked children may use it, too.
    ///
    /// Errors: `EINVAL` for 0 bytes, `ENOMEM` no room in the address space.
    pub fn create(bytes: u64, for_children: bool) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(REGION as usize));
        let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let pooled = if for_children { None } else { pooled(bytes) };
        let pool = pooled.is_some();
        let memory = pooled.map_or_else(|| AlignedMemory::anonymous(bytes), Ok)?;
        Ok(Self { state: Mutex::new(State { heap: Heap::of(memory), huge_bytes: 0 }), pool })
    }

    /// A piece of this size, aligned to 16. None if there is no room.
    pub fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.with_state(|state| state.take(bytes, self.pool))
    }

    /// Takes a piece back; nobody may use it any more. Returns false, and does nothing, if no live piece of this arena begins there.
    pub fn give_back(&self, address: usize) -> bool {
        self.with_state(|state| state.heap.give_back(address))
    }

    /// What backs the memory taken from the machine so far.
    pub fn backing(&self) -> ArenaBacking {
        let extent = self.extent();
        match self.pool {
            true => ArenaBacking::Pool,
            false if extent.huge_bytes == extent.backed_bytes => ArenaBacking::HugePages,
            false => ArenaBacking::BasePages,
        }
    }

    /// Size and backing.
    pub fn extent(&self) -> Extent {
        self.with_state(|State { heap, huge_bytes }| {
            let (address, bytes) = heap.place();
            Extent { address, bytes: bytes as u64, backed_bytes: heap.used() as u64, huge_bytes: *huge_bytes }
        })
    }

    fn with_state<T>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        let _no_fork = fork::hold_off();
        // No critical section panics half-way.
        call(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn take(&mut self, bytes: usize, pool: bool) -> Option<NonNull<u8>> {
        if bytes > self.heap.place().1 {
            return None;
        }
        loop {
            if let Some(piece) = self.heap.take(bytes) {
                return Some(piece);
            }
            // Enough that the heap is certain to find room; free space at the end merges with what is added.
            let wanted = bytes.checked_add(bytes / 16 + 256)?.checked_next_multiple_of(REGION as usize)?;
            self.grow(wanted, pool).ok()?;
        }
    }

    fn grow(&mut self, bytes: usize, pool: bool) -> io::Result<()> {
        let mut huge = 0;
        self.heap.grow(bytes, |memory, offset, bytes| {
            for offset in (offset..offset + bytes).step_by(REGION as usize) {
                // Now and not at the first access, so a shortage is an error and does not kill the program.
                huge += u64::from(back(memory, offset, pool)?) * REGION;
            }
            Ok(())
        })?;
        self.huge_bytes += huge;
        Ok(())
    }
}

/// Backs 2 MiB with memory; returns whether with a huge page.
pub(crate) fn back(memory: &mut AlignedMemory, offset: usize, pool: bool) -> io::Result<bool> {
    if !pool {
        // In the mode `madvise` this makes a huge page; in the mode `never` collapsing may still do it.
        let _ = memory.advise(offset, REGION as usize, OwnAdvice::HugePage);
    }
    memory.advise(offset, REGION as usize, OwnAdvice::Populate)?;
    Ok(pool || collapse_own(memory.address() + offset as u64, REGION).is_ok())
}

/// All of it from the machine's pool, if that has enough free pages.
fn pooled(bytes: usize) -> Option<AlignedMemory> {
    let mut memory = AlignedMemory::pooled(bytes).ok()?;
    // The kernel has reserved the pages; a child that inherited the memory could use them up.
    memory.advise(0, bytes, OwnAdvice::NotForChildren).ok().map(|()| memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_as_it_is_needed_and_says_what_it_is() {
        let arena = Arena::create(7 << 20, true).unwrap();
        assert_eq!((arena.extent().bytes, arena.extent().backed_bytes), (8 << 20, 0));
        let piece = arena.take(1000).unwrap();
        assert_eq!(piece.as_ptr() as usize % 16, 0);
        assert_eq!(arena.extent().backed_bytes, 2 << 20);
        assert_ne!(arena.backing(), ArenaBacking::Pool);
        assert_eq!(arena.backing() == ArenaBacking::HugePages, arena.extent().huge_bytes == 2 << 20);
        assert!(arena.take(9 << 20).is_none() && arena.extent().backed_bytes == 2 << 20, "it can never have so much");
        let large = arena.take(5 << 20).unwrap();
        assert_eq!(arena.extent().backed_bytes, 8 << 20);
        assert!(arena.take(3 << 20).is_none());
        for piece in [piece, large] {
            assert!(arena.give_back(piece.as_ptr() as usize));
        }
        assert!(arena.take(7 << 20).is_some(), "what came back is whole");
        assert!(!arena.give_back(64));
        assert!(Arena::create(0, true).is_err() && Arena::create(u64::MAX, true).is_err());
    }
}
