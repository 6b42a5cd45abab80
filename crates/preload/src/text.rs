//! Program text on huge pages: text in whole, aligned 2 MiB, of the executable and the libraries loaded with it.
//!
//! Owns: text, once, before the program begins. Never touches: its contents and addresses.
//!
//! The kernel's own way comes first (`MADV_COLLAPSE`): the memory still belongs to the file, so profilers, uprobes and
//! debuggers find it by name or file as before, and processes share it. It needs a file system with huge pages (tmpfs, or
//! `CONFIG_READ_ONLY_THP_FOR_FS`), and text that is aligned alike in file and memory. If that fails and a copy was requested,
//! the text becomes anonymous private memory. Unwinding still works, since it needs only addresses; profilers that resolve
//! symbols by the file in `/proc/PID/maps` find none.

use crate::count;
use crate::maps::{self, MappedRange, MappingKind};
use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::settings::Text;
use crate::system;

/// Maximum number of programs and libraries; any more are left alone.
const MOST: usize = 64;
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
            if system::madvise(region, REGION, libc::MADV_COLLAPSE).is_ok() {
                count::add(|counts| &counts.text_collapsed_bytes, REGION);
            } else if how == Text::Copied && copy(region, REGION) {
                count::add(|counts| &counts.text_copied_bytes, REGION);
            }
        }
    }
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
