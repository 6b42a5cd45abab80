//! Program text on huge pages: text in whole, aligned 2 MiB, of the executable and the libraries loaded with it.
//!
//! Owns: text, once, before the program begins. Never touches: its contents and addresses.
//!
//! The file's own pages come first: profilers, uprobes and debuggers find the text by name or file as before, and processes
//! share it. They are huge where the launcher read them so into the page cache, or where the kernel collapses them
//! (`MADV_COLLAPSE` on tmpfs, or with `CONFIG_READ_ONLY_THP_FOR_FS`); both need text that is aligned alike in file and memory.
//! If neither works and a copy was requested, the text becomes anonymous private memory. Unwinding still works, since it needs
//! only addresses; profilers that resolve symbols by the file in `/proc/PID/maps` find none.

use hugepilot_os::page_scan::any_huge_here;

use crate::count;
use crate::maps::{self, MappedRange, MappingKind};
use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::settings::Text;
use crate::system;

/// Maximum number of programs and libraries; any more are left alone.
const MOST: usize = 64;
/// A base page.
const PAGE: usize = 4096;
const TEXT: i32 = libc::PROT_READ | libc::PROT_EXEC;

/// Handles all text that is mapped now.
pub fn place(how: Text) {
    if how == Text::Left {
        return;
    }
    let mut found = [(0, 0); MOST];
    let mut places = found.iter_mut();
    maps::each(|mapping| {
        if let Some(place) = whole_regions(mapping).and_then(|_| places.next()) {
            *place = (mapping.start, mapping.end);
        }
    });
    for (start, end) in found.into_iter().filter_map(|(start, end)| regions(start, end)) {
        count::add(|counts| &counts.text_eligible_bytes, end - start);
        for region in (start..end).step_by(REGION) {
            if is_huge(region) || system::madvise(region, REGION, libc::MADV_COLLAPSE).is_ok() {
                count::add(|counts| &counts.text_of_file_bytes, REGION);
            } else if how == Text::OrCopied && copy(region, REGION) {
                count::add(|counts| &counts.text_copied_bytes, REGION);
            }
        }
    }
}

/// Whether the page cache has it on a huge page; where the kernel does not tell, no.
fn is_huge(region: usize) -> bool {
    // The kernel maps a huge page of a file only once it is touched; advice touches it even if the file has become shorter.
    system::madvise(region, PAGE, libc::MADV_POPULATE_READ).is_ok()
        && any_huge_here(region as u64, (region + REGION) as u64).unwrap_or(false)
}

fn whole_regions(mapping: &MappedRange) -> Option<(usize, usize)> {
    if mapping.kind == MappingKind::File && mapping.rights == TEXT { regions(mapping.start, mapping.end) } else { None }
}

fn regions(start: usize, end: usize) -> Option<(usize, usize)> {
    let (start, end) = (start.checked_next_multiple_of(REGION)?, end / REGION * REGION);
    (start < end).then_some((start, end))
}

/// The copy is complete and executable before it replaces the text, in a single step: this function may itself run there.
fn copy(start: usize, length: usize) -> bool {
    let Ok(copy) = for_copy(length) else { return false };
    let placed = system::copy(start, copy, length)
        && system::mprotect(copy, length, TEXT).is_ok()
        && system::replace(start, copy, length).is_ok();
    if !placed {
        unmap_between(copy, copy + length);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_files_with_a_whole_region_counts() {
        let text = MappedRange { start: REGION - 4096, end: 3 * REGION + 4096, rights: TEXT, kind: MappingKind::File };
        assert_eq!(whole_regions(&text), Some((REGION, 3 * REGION)));
        let others = [
            MappedRange { kind: MappingKind::Other, ..text },
            MappedRange { rights: libc::PROT_READ, ..text },
            MappedRange { rights: TEXT | libc::PROT_WRITE, ..text },
            MappedRange { end: 2 * REGION - 1, ..text },
        ];
        assert!(others.iter().all(|mapping| whole_regions(mapping).is_none()));
    }
}
