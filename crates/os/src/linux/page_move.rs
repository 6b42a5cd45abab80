//! Moving physical pages, with their contents, to other addresses of this process: `UFFDIO_MOVE` (Linux 6.8,
//! Documentation/admin-guide/mm/userfaultfd.rst), which splits no mapping; and `mremap(2)`, which turns each run of pages into a mapping of
//! its own.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::mm::{MremapFlags, mremap_fixed};

use crate::faults;
use crate::memory::AlignedMemory;

const PAGE: usize = 4096;
/// Entries of pagemap read in one call.
const ENTRIES: usize = 8192;
const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// `struct uffdio_move`
#[repr(C)]
struct Move {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    /// Result: bytes moved, or a negative errno.
    moved: i64,
}

const UFFDIO_MOVE: libc::Ioctl = 0xC028_AA05_u32 as libc::Ioctl;
const FEATURE_MOVE: u64 = 1 << 16;
/// The kernel answers EAGAIN while something holds a page for a moment, such as a batch on its way to the LRU lists.
const TRIES: u32 = 1000;

/// Moves pages into one mapping. While this lives, an access to a page missing from that mapping would wait forever: only touch what was
/// moved, which the exclusive borrow enforces.
#[derive(Debug)]
pub struct PageMover<'a> {
    faults: OwnedFd,
    into: &'a mut AlignedMemory,
}

/// Source and destination, in bytes, multiples of 4 KiB. The kernel, too, must see each side as one mapping: all of it with the same
/// advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMove {
    /// Offset in the source mapping.
    pub from: usize,
    /// Offset in the destination mapping.
    pub to: usize,
    /// Total length.
    pub len: usize,
}

impl PageMove {
    /// Errors: `EINVAL` it exceeds either mapping, is empty or unaligned, or a mapping is not private.
    fn check(self, from: &AlignedMemory, into: &AlignedMemory) -> io::Result<()> {
        let aligned = [self.from, self.to, self.len].iter().all(|bytes| bytes.is_multiple_of(PAGE));
        let within = |start: usize, mapping: &AlignedMemory| {
            start.checked_add(self.len).is_some_and(|end| end <= mapping.len().next_multiple_of(PAGE))
        };
        let private = from.is_private() && into.is_private();
        if private && aligned && self.len > 0 && within(self.from, from) && within(self.to, into) {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }
}

impl<'a> PageMover<'a> {
    /// Prepares to move pages into this mapping, all of which is registered until this value is dropped.
    ///
    /// Errors: `EINVAL` the kernel is older than 6.8, or the mapping is not private; `ENOSYS` it has no userfaultfd; `EPERM` forbidden
    /// (seccomp); `EBUSY` another userfaultfd has it.
    pub fn into(into: &'a mut AlignedMemory) -> io::Result<Self> {
        let faults = faults::open(FEATURE_MOVE)?;
        faults::register(
            &faults,
            into.address(),
            into.len().next_multiple_of(PAGE) as u64,
            faults::REGISTER_MODE_MISSING,
        )?;
        Ok(Self { faults, into })
    }

    /// Moves pages, leaving holes that read as zeros.
    ///
    /// Errors: `EINVAL` beyond a mapping, unaligned, advised differently from one page to the next, or not private memory with the same
    /// rights; `EEXIST` the destination has pages; `ENOENT` a source page is missing; `EBUSY` a page is shared with a child, or held by a
    /// device; `EAGAIN` a page was still held after retries. Pages moved before the error stay moved.
    pub fn bring(&mut self, from: &mut AlignedMemory, run: PageMove) -> io::Result<()> {
        run.check(from, self.into)?;
        let (mut done, mut tries) = (0, 0);
        while done < run.len {
            match self.bring_some(from, PageMove { from: run.from + done, to: run.to + done, len: run.len - done }) {
                Ok(moved) => done += moved,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes moved, for a run that lies within both mappings.
    fn bring_some(&mut self, from: &mut AlignedMemory, run: PageMove) -> io::Result<usize> {
        let (to, len) = (self.into.address() + run.to as u64, run.len as u64);
        let mut argument = Move { to, from: from.address() + run.from as u64, len, mode: 0, moved: 0 };
        // SAFETY: the argument has the layout that this request expects and lives through the call. Both ranges lie inside exclusively
        // borrowed mappings, so nobody refers to either; each byte of both has a value before and after.
        let answer = unsafe { libc::ioctl(self.faults.as_raw_fd(), UFFDIO_MOVE, &raw mut argument) };
        match usize::try_from(argument.moved) {
            _ if answer == 0 => Ok(run.len),
            Ok(moved) if moved > 0 => Ok(moved),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for PageMover<'_> {
    fn drop(&mut self) {
        // A touched hole must read as zeros again instead of waiting; closing the descriptor would also ensure that.
        let _ = faults::unregister(&self.faults, self.into.address(), self.into.len().next_multiple_of(PAGE) as u64);
    }
}

/// Moves pages like [`PageMover::bring`], on any kernel since 5.7, but turns them into a mapping that does not merge with its neighbours: a
/// process may have at most `vm.max_map_count` of those.
///
/// Errors: `EINVAL` beyond a mapping, unaligned, or not private memory; `EFAULT` advised differently from one page to the next (before
/// Linux 6.17); `ENOMEM` too many mappings. The destination's contents may then be lost, and read as zero.
pub fn remap(from: &mut AlignedMemory, into: &mut AlignedMemory, run: PageMove) -> io::Result<()> {
    run.check(from, into)?;
    let start = (from.address() as usize + run.from) as *mut libc::c_void;
    let place = (into.address() as usize + run.to) as *mut libc::c_void;
    let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
    // SAFETY: both ranges lie inside exclusively borrowed mappings, so nobody refers to either. The replaced memory was private, like its
    // replacement; the source stays mapped and reads as zero, so no page is in both.
    let moved = unsafe { mremap_fixed(start, run.len, run.len, flags, place) };
    moved.map(drop).map_err(|error| {
        fill_hole(place, run.len);
        error.into()
    })
}

/// Maps zeros where nothing is mapped. The kernel unmaps the destination of a move before everything that can fail has been done. A hole
/// would break the mapping's invariants: it must stay mapped, and must not contain anybody else's memory when it is unmapped.
fn fill_hole(place: *mut libc::c_void, len: usize) {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel maps only what is not mapped, so nothing that anyone refers to is replaced.
    unsafe { libc::mmap(place, len, rights, flags, -1, 0) };
}

/// The page frames of this process's own memory from `start`, a multiple of 4 KiB: one per base page, 0 if the page is not present, and
/// always 0 without CAP_SYS_ADMIN. Errors: as `open(2)` and `pread(2)` of `/proc/self/pagemap`.
pub fn own_frames(start: u64, pages: usize) -> io::Result<Vec<u64>> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut frames = Vec::with_capacity(pages);
    let mut bytes = vec![0; pages.min(ENTRIES) * 8];
    while frames.len() < pages {
        let wanted = (pages - frames.len()).min(ENTRIES) * 8;
        pagemap.read_exact_at(&mut bytes[..wanted], (start / PAGE as u64 + frames.len() as u64) * 8)?;
        let entries = bytes[..wanted].as_chunks::<8>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        frames.extend(entries.map(|entry| if entry & PRESENT == 0 { 0 } else { entry & FRAME }));
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::OwnAdvice;

    /// Base pages, each holding its number, counted from 1. Another test may fork at any time, and a page shared with a child cannot be
    /// moved: children do not inherit these.
    fn numbered(pages: usize) -> AlignedMemory {
        let mut memory = empty(pages);
        memory.advise(0, pages * PAGE, OwnAdvice::NotForChildren).unwrap();
        number(&mut memory);
        memory
    }

    fn number(memory: &mut AlignedMemory) {
        memory.bytes_mut().chunks_mut(PAGE).zip(1..).for_each(|(page, number)| page[0] = number);
    }

    fn empty(pages: usize) -> AlignedMemory {
        let mut memory = AlignedMemory::anonymous(pages * PAGE).unwrap();
        memory.advise(0, pages * PAGE, OwnAdvice::NoHugePage).unwrap();
        memory
    }

    fn run(from: usize, to: usize, pages: usize) -> PageMove {
        PageMove { from: from * PAGE, to: to * PAGE, len: pages * PAGE }
    }

    fn numbers(memory: &AlignedMemory) -> Vec<u8> {
        memory.bytes().iter().step_by(PAGE).copied().collect()
    }

    /// None where the kernel is too old.
    fn mover(into: &mut AlignedMemory) -> Option<PageMover<'_>> {
        match PageMover::into(into) {
            Err(error) if [libc::EINVAL, libc::ENOSYS].contains(&error.raw_os_error().unwrap_or(0)) => {
                eprintln!("skipped: this kernel has no UFFDIO_MOVE ({error})");
                None
            }
            mover => Some(mover.expect("it is offered")),
        }
    }

    #[test]
    fn pages_move_with_their_contents_and_frames_and_leave_zeros() {
        let (mut from, mut into) = (numbered(8), empty(4));
        let before = own_frames(from.address(), 8).unwrap();
        let Some(mut mover) = mover(&mut into) else { return };
        mover.bring(&mut from, run(6, 0, 2)).unwrap();
        mover.bring(&mut from, run(1, 3, 1)).unwrap();
        drop(mover);
        assert_eq!(own_frames(into.address(), 4).unwrap(), [before[6], before[7], 0, before[1]]);
        assert_eq!(numbers(&into), [7, 8, 0, 2], "the hole is read without waiting");
        assert_eq!(numbers(&from), [1, 0, 3, 4, 5, 6, 0, 0]);
    }

    #[test]
    fn what_cannot_be_moved_is_told() {
        let (mut from, mut into) = (numbered(4), empty(4));
        from.advise(3 * PAGE, PAGE, OwnAdvice::DontNeed).unwrap();
        let Some(mut mover) = mover(&mut into) else { return };
        mover.bring(&mut from, run(0, 0, 1)).unwrap();
        let mut refused = |run| mover.bring(&mut from, run).unwrap_err().raw_os_error();
        assert_eq!(refused(run(1, 0, 1)), Some(libc::EEXIST));
        assert_eq!(refused(run(3, 1, 1)), Some(libc::ENOENT));
        for wrong in [
            run(0, 4, 1),
            run(3, 0, 2),
            run(0, 0, 0),
            PageMove { from: 1, ..run(0, 1, 1) },
            run(usize::MAX / PAGE, 0, 1),
        ] {
            assert_eq!(refused(wrong), Some(libc::EINVAL), "{wrong:?}");
        }
    }

    #[test]
    fn a_run_that_was_advised_differently_is_refused() {
        let (mut from, mut into) = (numbered(4), empty(4));
        from.advise(2 * PAGE, 2 * PAGE, OwnAdvice::HugePage).unwrap();
        let Some(mut mover) = mover(&mut into) else { return };
        assert_eq!(mover.bring(&mut from, run(1, 0, 2)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        mover.bring(&mut from, run(1, 0, 1)).unwrap();
        mover.bring(&mut from, run(2, 1, 2)).unwrap();
        drop(mover);
        assert_eq!(numbers(&into), [2, 3, 4, 0]);
    }

    /// Whether this holds in a child, where no other thread maps anything meanwhile. It may only make async-signal-safe calls.
    fn holds_in_a_child(check: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes only async-signal-safe calls, and ends without returning to Rust code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it takes a number, and does not return.
            unsafe { libc::_exit(i32::from(!check())) };
        }
        let mut status = -1;
        // SAFETY: the status lives through the call.
        unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
    }

    #[test]
    fn a_hole_is_filled_and_nothing_is_replaced() {
        let mut memory = empty(3);
        number(&mut memory);
        let page = |number: usize| (memory.address() as usize + number * PAGE) as *mut libc::c_void;
        assert!(holds_in_a_child(|| {
            // SAFETY: nobody refers to this page of the child until it is mapped again.
            let unmapped = unsafe { libc::munmap(page(1), PAGE) } == 0;
            (0..3).for_each(|number| fill_hole(page(number), PAGE));
            unmapped && [1, 0, 3].iter().enumerate().all(|(number, &says)| memory.bytes()[number * PAGE] == says)
        }));
    }

    #[test]
    fn remapped_pages_arrive_too() {
        let (mut from, mut into) = (numbered(4), empty(4));
        let before = own_frames(from.address(), 4).unwrap();
        for (page, place) in [(3, 0), (0, 1), (2, 2)] {
            remap(&mut from, &mut into, run(page, place, 1)).unwrap();
        }
        assert_eq!(own_frames(into.address(), 3).unwrap(), [before[3], before[0], before[2]]);
        assert_eq!((numbers(&into), numbers(&from)), (vec![4, 1, 3, 0], vec![0, 2, 0, 0]));
        let beyond = remap(&mut from, &mut into, run(1, 4, 1)).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EINVAL));
        let mut shared = AlignedMemory::shared(PAGE).unwrap();
        let twice = remap(&mut shared, &mut into, run(0, 0, 1)).unwrap_err();
        assert_eq!(twice.raw_os_error(), Some(libc::EINVAL), "its page would be in both");
    }
}
