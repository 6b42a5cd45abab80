//! Operations on parts of memory that is on huge pages from the pool: the kernel refuses to unmap, protect or replace a part of
//! such a page.
//!
//! Owns: calls of the program for ranges in the pool's zone. Never touches: any other range, or a call that the kernel carries
//! out by itself.
//!
//! Each call is first made as the program made it. If the kernel refuses because an end of the range falls inside a huge page,
//! the call is carried out for whole huge pages, and at the ends as far as it takes nothing from neighbouring memory. Copies on
//! ordinary pages could be cut anywhere, but a page is never replaced by a copy for that: another thread may be writing to it,
//! or a device that holds it (io_uring, RDMA), which no process can find out about its own pages. So mremap fails where the kernel
//! cannot move the pages themselves: programs expect that and copy, because they know who else uses their memory.
//!
//! Calls for such ranges are serialised: the rights of a huge page must be known to widen them.

use std::ffi::c_int;
use std::ops::Range;

use crate::count;
use crate::lock::Lock;
use crate::maps::{self, MappedRange, MappingKind};
use crate::pages::{self, whole_pages};
use crate::place::{self, has};
use crate::system::{self, MmapRequest, READ_WRITE, SyscallResult};
use crate::{pool, settings};

/// `MADV_DONTNEED_LOCKED` (Linux 5.18).
const DONTNEED_LOCKED: c_int = 24;
/// Advice that nobody can rely on being followed, and exclusions from children or dumps, which get the memory nevertheless.
/// `MADV_WIPEONFORK` must fail, because a program relies on it: a child would get its parent's secrets.
/// Devices that hold memory by its pages (RDMA requests `MADV_DONTFORK` for each piece) need those pages to stay.
const MERE_ADVICE: [c_int; 15] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_FREE,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_KEEPONFORK,
];

/// Mappings that may be on huge pages from the pool.
const HUGE: [MappingKind; 2] = [MappingKind::Pooled, MappingKind::Segment];

static ONE_BY_ONE: Lock = Lock::new();

/// A huge page that contains an end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HugePage {
    start: usize,
    rights: c_int,
    kind: MappingKind,
}

/// A range with one or both ends inside a huge page from the pool or of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    range: (usize, usize),
    /// The size of a huge page.
    size: usize,
    first: Option<HugePage>,
    /// None also if it is the same page as the first.
    last: Option<HugePage>,
}

impl Cut {
    /// None if neither end is inside a huge page.
    fn of(start: usize, length: usize) -> Option<Self> {
        let size = settings::get()?.pool?.bytes();
        let end = start.checked_add(whole_pages(length))?;
        let mut cut = Self { range: (start, end), size, first: None, last: None };
        if pool::reaches(start, length) {
            maps::each(|mapping| cut.check(mapping))?;
        }
        let any = cut.pages().next().is_some();
        any.then_some(cut)
    }

    fn check(&mut self, mapping: &MappedRange) {
        let huge = HUGE.contains(&mapping.kind);
        let inside = |end: usize| {
            let within = huge && mapping.start < end && end < mapping.end && !end.is_multiple_of(self.size);
            let start = end / self.size * self.size;
            within.then_some(HugePage { start, rights: mapping.rights, kind: mapping.kind })
        };
        self.first = self.first.or(inside(self.range.0));
        self.last = self.last.or(inside(self.range.1)).filter(|&last| self.first != Some(last));
    }

    fn pages(&self) -> impl Iterator<Item = HugePage> {
        [self.first, self.last].into_iter().flatten()
    }

    /// The range without these huge pages.
    fn whole(&self) -> Range<usize> {
        let start = self.first.map_or(self.range.0, |page| page.start + self.size);
        let end = match self.last {
            Some(page) => page.start,
            // Or inside the first, if that extends beyond it.
            None => self.range.1,
        };
        start..end.max(start)
    }

    /// Makes a call for the range without them, if that is not empty.
    fn call_for_whole(&self, made: impl FnOnce(usize, usize) -> SyscallResult) -> SyscallResult {
        let whole = self.whole();
        if whole.is_empty() { Ok(0) } else { made(whole.start, whole.len()) }
    }

    /// Bytes of the range inside these huge pages.
    fn cut_off(&self) -> usize {
        (self.range.1 - self.range.0).saturating_sub(self.whole().len())
    }

    /// Adds these rights to those of the huge pages when they were listed.
    fn widen(&self, rights: c_int) -> SyscallResult {
        self.pages().try_fold(0, |_, page| system::mprotect(page.start, self.size, page.rights | rights))
    }

    /// Does so, and makes a call for the rest of the range. If either fails, the huge pages get their own rights back.
    fn widen_around(&self, rights: c_int, made: impl FnOnce(usize, usize) -> SyscallResult) -> SyscallResult {
        self.widen(rights).and_then(|_| self.call_for_whole(made)).inspect_err(|_| {
            let _ = self.widen(0);
        })
    }

    /// Zeroes the bytes of the range inside these huge pages, which must be writable.
    fn zero_cut_off(&self) {
        let ((start, end), whole) = (self.range, self.whole());
        system::zero(start, whole.start.min(end) - start);
        system::zero(whole.end.min(end), end - whole.end.min(end));
    }
}

/// Makes a call; if the kernel refuses it because of a cut, does as `rounded` says.
fn call(
    start: usize,
    length: usize,
    made: impl FnOnce() -> SyscallResult,
    rounded: impl FnOnce(&Cut) -> SyscallResult,
) -> SyscallResult {
    if !pool::reaches(start, length) {
        return made();
    }
    ONE_BY_ONE.during(|| match made() {
        // Before 6.12 mmap returns ENOMEM. An invalid call stays refused.
        Err(error @ (libc::EINVAL | libc::ENOMEM)) if is_range(start, length) => {
            Cut::of(start, length).map_or(Err(error), |cut| rounded(&cut))
        }
        answer => answer,
    })
}

/// Whether a call for it can succeed at all.
fn is_range(start: usize, length: usize) -> bool {
    start.is_multiple_of(pages::PAGE) && length > 0
}

/// The program's munmap.
pub fn unmap(start: usize, length: usize) -> SyscallResult {
    let rounded = |cut: &Cut| {
        count::add(|counts| &counts.kept_bytes, cut.cut_off());
        cut.call_for_whole(system::munmap)
    };
    call(start, length, || system::munmap(start, length), rounded)
}

/// The program's mprotect.
pub fn protect(start: usize, length: usize, rights: c_int) -> SyscallResult {
    let rounded = |cut: &Cut| {
        if cut.pages().any(|page| page.rights & !rights != 0) {
            count::add(|counts| &counts.widened_bytes, cut.cut_off());
        }
        cut.widen_around(rights, |start, length| system::mprotect(start, length, rights))
    };
    call(start, length, || system::mprotect(start, length, rights), rounded)
}

/// The program's mmap.
pub fn map(request: &MmapRequest) -> SyscallResult {
    let replaces = has(request.flags, libc::MAP_FIXED);
    if !replaces || !pool::reaches(request.address, request.length) {
        return place::map(request);
    }
    let rounded = |cut: &Cut| {
        // Files cannot be mapped next to the rest of a huge page, and a segment is not this program's alone.
        let private = cut.pages().all(|page| page.kind == MappingKind::Pooled);
        if !private || !is_private_and_anonymous(request.flags) {
            return Err(libc::EINVAL);
        }
        // This may fail, so nothing is zeroed before.
        let whole = |address, length| MmapRequest { address, length, ..*request }.make();
        cut.widen_around(request.rights | READ_WRITE, whole)?;
        cut.zero_cut_off();
        Ok(request.address)
    };
    call(request.address, request.length, || request.make(), rounded)
}

/// `MAP_SHARED_VALIDATE` has all bits of `MAP_PRIVATE`.
fn is_private_and_anonymous(flags: c_int) -> bool {
    flags & libc::MAP_TYPE == libc::MAP_PRIVATE && has(flags, libc::MAP_ANONYMOUS)
}

/// The program's madvise.
pub fn advise(start: usize, length: usize, advice: c_int) -> SyscallResult {
    let made = || system::madvise(start, length, advice);
    if !pool::reaches(start, length) || !is_range(start, length) {
        return made();
    }
    match advice {
        libc::MADV_DONTNEED | DONTNEED_LOCKED => ONE_BY_ONE.during(|| empty(start, length, advice)),
        _ => match made() {
            Err(libc::EINVAL) if MERE_ADVICE.contains(&advice) && has_any(&HUGE, start, length) => Ok(0),
            answer => answer,
        },
    }
}

/// Discards memory, which reads as zero afterwards. Huge pages stay: the next access would have to find another one in the
/// pool. Segments keep their contents, as usual.
fn empty(start: usize, length: usize, advice: c_int) -> SyscallResult {
    let end = start.saturating_add(whole_pages(length));
    let (mut any, mut last) = (false, Ok(0));
    let listed = maps::each(|mapping| {
        let Some((start, end)) = mapping.part_of(start, end) else { return };
        any |= HUGE.contains(&mapping.kind);
        match mapping.kind {
            MappingKind::Pooled => last = last.and(clear(mapping, start, end)),
            MappingKind::Segment => {}
            _ => last = last.and(system::madvise(start, end - start, advice)),
        }
    });
    if any && listed.is_some() { last } else { system::madvise(start, length, advice) }
}

/// Zeroes a part of a mapping. If it is not writable, its huge pages are made so meanwhile.
fn clear(mapping: &MappedRange, start: usize, end: usize) -> SyscallResult {
    if has(mapping.rights, READ_WRITE) {
        system::zero(start, end - start);
        return Ok(0);
    }
    let size = settings::get().and_then(|settings| settings.pool).ok_or(libc::EINVAL)?.bytes();
    let first = start / size * size;
    let length = end.next_multiple_of(size) - first;
    // Another thread may be executing code in the rest of it.
    system::mprotect(first, length, mapping.rights | READ_WRITE)?;
    system::zero(start, end - start);
    system::mprotect(first, length, mapping.rights)
}

fn has_any(kinds: &[MappingKind], start: usize, length: usize) -> bool {
    let end = start.saturating_add(length);
    let mut any = false;
    maps::each(|mapping| any |= kinds.contains(&mapping.kind) && mapping.part_of(start, end).is_some());
    any
}

/// The program's mremap.
pub fn remap(old: usize, old_length: usize, new_length: usize, flags: c_int, new: usize) -> SyscallResult {
    if !pool::reaches(old, old_length) || !has_any(&[MappingKind::Pooled], old, old_length) {
        return system::mremap(old, old_length, new_length, flags, new);
    }
    let stays = !has(flags, libc::MREMAP_FIXED);
    let (had, wanted) = (whole_pages(old_length), whole_pages(new_length));
    let overlap = !stays && new < old.saturating_add(had) && old < new.saturating_add(wanted);
    let unknown = flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) != 0;
    if unknown || overlap || wanted == 0 || !old.is_multiple_of(pages::PAGE) {
        return Err(libc::EINVAL);
    }
    if stays && wanted <= had {
        return if wanted == had { Ok(old) } else { unmap(old + wanted, had - wanted).map(|_| old) };
    }
    let size = settings::get().and_then(|settings| settings.pool).ok_or(libc::EINVAL)?;
    if !has(flags, libc::MREMAP_MAYMOVE) {
        return Err(libc::ENOMEM);
    }
    let moved = |new| Move { old, new, length: had.min(wanted), size: size.bytes() };
    if stays {
        let room = pool::room(size, wanted).ok_or(libc::ENOMEM)?;
        let carried = moved(room).check().and_then(|()| moved(room).carry());
        return carried.map(|()| room).inspect_err(|_| _ = system::munmap(room, wanted));
    }
    // What the program has at the new address is lost only if the move can succeed.
    moved(new).check()?;
    map(&MmapRequest::anonymous(new, wanted, libc::MAP_FIXED))?;
    moved(new).carry()?;
    if had > wanted {
        unmap(old + wanted, had - wanted)?;
    }
    Ok(new)
}

/// A move of memory with its pages, over a mapping that is in its new place.
#[derive(Clone, Copy, Debug)]
struct Move {
    old: usize,
    new: usize,
    length: usize,
    /// The size of a huge page.
    size: usize,
}

impl Move {
    /// The part of a mapping that moves, its new place and its length.
    fn piece(&self, mapping: &MappedRange) -> Option<(usize, usize, usize)> {
        let (start, end) = mapping.part_of(self.old, self.old.saturating_add(self.length))?;
        Some((start, self.new.wrapping_add(start - self.old), end - start))
    }

    /// Whether the kernel can move that part: of huge pages only whole ones, and only to where they are recognized by their address.
    fn is_possible(&self, mapping: &MappedRange) -> bool {
        self.piece(mapping).is_none_or(|(start, to, length)| {
            let whole = [start, to, length].iter().all(|address| address.is_multiple_of(self.size));
            !HUGE.contains(&mapping.kind) || whole && pool::holds(to, length)
        })
    }

    /// Errors, with nothing changed: EFAULT it is not all mapped; EINVAL it would have to be copied.
    fn check(&self) -> Result<(), c_int> {
        let (mut mapped, mut possible) = (0, true);
        maps::each(|mapping| {
            mapped += self.piece(mapping).map_or(0, |(.., length)| length);
            possible &= self.is_possible(mapping);
        })
        .ok_or(libc::ENOMEM)?;
        match mapped == self.length {
            false => Err(libc::EFAULT),
            true if possible => Ok(()),
            true => Err(libc::EINVAL),
        }
    }

    /// Errors: the kernel refuses, as before Linux 5.16 for huge pages. All is then where it was.
    fn carry(&self) -> Result<(), c_int> {
        let (mut carried, mut refused) = (0, None);
        let listed = maps::each(|mapping| {
            let Some((start, to, length)) = self.piece(mapping).filter(|_| refused.is_none()) else { return };
            match system::replace(to, start, length) {
                Ok(_) => carried = start + length - self.old,
                Err(error) => refused = Some(error),
            }
        });
        match refused.or(listed.is_none().then_some(libc::ENOMEM)) {
            None => Ok(()),
            Some(error) => {
                self.bring_back(carried);
                Err(error)
            }
        }
    }

    /// Moves back the first so many bytes.
    fn bring_back(&self, carried: usize) {
        let back = Move { old: self.new, new: self.old, length: carried, size: self.size };
        maps::each(|mapping| {
            if let Some((start, to, length)) = back.piece(mapping) {
                // The kernel has just moved it the other way.
                let _ = system::replace(to, start, length);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 2 << 20;

    fn cut(start: usize, end: usize, mappings: &[(usize, usize, bool)]) -> Cut {
        let mut cut = Cut { range: (start, end), size: SIZE, first: None, last: None };
        for &(start, end, from_pool) in mappings {
            let kind = if from_pool { MappingKind::Pooled } else { MappingKind::Other };
            cut.check(&MappedRange { start, end, rights: READ_WRITE, kind });
        }
        cut
    }

    #[test]
    fn a_range_is_cut_where_it_ends_inside_a_huge_page() {
        let pooled = [(4 * SIZE, 8 * SIZE, true), (8 * SIZE, 9 * SIZE, false)];
        let page =
            |number: usize| Some(HugePage { start: number * SIZE, rights: READ_WRITE, kind: MappingKind::Pooled });

        let aligned = cut(4 * SIZE, 8 * SIZE, &pooled);
        assert_eq!((aligned.first, aligned.last, aligned.whole()), (None, None, 4 * SIZE..8 * SIZE));
        let both = cut(4 * SIZE + 4096, 8 * SIZE - 4096, &pooled);
        assert_eq!((both.first, both.last, both.whole()), (page(4), page(7), 5 * SIZE..7 * SIZE));
        assert_eq!(both.cut_off(), 2 * SIZE - 8192);
        let same = cut(5 * SIZE + 4096, 5 * SIZE + 8192, &pooled);
        assert_eq!((same.first, same.last, same.cut_off()), (page(5), None, 4096));
        assert!(same.whole().is_empty());
        let at_its_start = cut(5 * SIZE, 5 * SIZE + 4096, &pooled);
        assert_eq!((at_its_start.first, at_its_start.last), (None, page(5)));
        assert!(at_its_start.whole().is_empty() && at_its_start.cut_off() == 4096);
        let behind = cut(7 * SIZE + 4096, 8 * SIZE + 4096, &pooled);
        assert_eq!((behind.first, behind.last, behind.whole()), (page(7), None, 8 * SIZE..8 * SIZE + 4096));
        assert_eq!(cut(8 * SIZE + 4096, 9 * SIZE, &pooled).pages().count(), 0);
    }

    #[test]
    fn huge_pages_are_moved_whole_within_their_zone_and_never_copied() {
        let zone = 0x2000_0000_0000;
        let page = |number: usize| zone + number * SIZE;
        let mapping = |start, end, kind| MappedRange { start, end, rights: READ_WRITE, kind };
        let (pooled, rest) =
            (mapping(page(0), page(4), MappingKind::Pooled), mapping(page(4), page(4) + 8192, MappingKind::Other));
        let possible = |old: usize, new: usize, length: usize| {
            let moved = Move { old, new, length, size: SIZE };
            moved.is_possible(&pooled) && moved.is_possible(&rest)
        };
        assert!(possible(page(0), page(9), 4 * SIZE + 8192), "all of it, with the ordinary memory behind it");
        assert!(possible(page(1), page(9), 2 * SIZE), "whole pages of it");
        assert!(possible(page(4), 4096, 8192), "ordinary memory, to anywhere");
        assert!(!possible(page(0), page(9), SIZE + 4096), "a part of the last page");
        assert!(!possible(page(0) + 4096, page(9), 4 * SIZE), "a part of the first");
        assert!(!possible(page(0), page(9) + 4096, 4 * SIZE), "to within a page");
        assert!(!possible(page(0), 0x7000_0000_0000, 4 * SIZE), "to where nothing recognizes them");
        assert!(!possible(page(0), zone - SIZE, 4 * SIZE), "nor in part");
        let segment = mapping(page(0), page(4), MappingKind::Segment);
        assert!(!Move { old: page(0), new: page(9), length: 4096, size: SIZE }.is_possible(&segment));
    }

    #[test]
    fn a_move_that_the_kernel_refuses_leaves_all_where_it_was() {
        let page = pages::PAGE;
        let memory = MmapRequest::anonymous(0, 12 * page, 0).make().unwrap();
        let (old, length) = (memory + 4 * page, 8 * page);
        let room = MmapRequest::anonymous(0, length, 0).make().unwrap();
        let moved = |new| Move { old, new, length, size: SIZE };
        // Two mappings.
        system::mprotect(old, page, libc::PROT_READ).unwrap();
        moved(room).check().unwrap();
        moved(room).carry().unwrap();
        assert!(!system::is_mapped(old) && system::is_mapped(room));
        assert_eq!(moved(room).check(), Err(libc::EFAULT), "it is no longer there");
        Move { old: room, new: old, length, size: SIZE }.carry().unwrap();
        // The second of the two would overlap itself.
        assert_eq!(moved(memory).carry(), Err(libc::EINVAL));
        assert!((0..length).step_by(page).all(|offset| system::is_mapped(old + offset)));
        system::munmap(memory, 12 * page).unwrap();
    }

    #[test]
    fn shared_memory_is_not_taken_for_private() {
        assert!(is_private_and_anonymous(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED));
        for kind in [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE] {
            assert!(!is_private_and_anonymous(kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED), "{kind}");
        }
        assert!(!is_private_and_anonymous(libc::MAP_PRIVATE | libc::MAP_FIXED), "a file");
    }
}
