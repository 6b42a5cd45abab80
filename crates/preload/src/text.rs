//! Program text on huge pages: the executable's, and that of libraries that are loaded with it and have whole, aligned 2 MiB.
//!
//! Owns: text, once, before the program begins. Never touches: its contents and addresses.
//!
//! The kernel's own way comes first (`MADV_COLLAPSE`): the memory stays the file's, so that whatever asks by name or by file
//! (profilers, uprobes, debuggers) finds what it found before, and processes share it. It needs a file system that has huge
//! pages (tmpfs, or `CONFIG_READ_ONLY_THP_FOR_FS`) and text that is aligned alike in file and memory. Where it cannot and a
//! copy was asked for, the text becomes private memory without a name. Unwinding goes on working, since that needs addresses
//! only; profilers that look up symbols by the file in `/proc/PID/maps` find none.

use crate::count;
use crate::maps::{self, MappedRange, MappingKind};
use crate::pages::{REGION, unmap_between};
use crate::place::for_copy;
use crate::settings::Text;
use crate::system;

/// Programs and libraries; what is beyond is left.
const MOST: usize = 64;
const TEXT: i32 = libc::PROT_READ | libc::PROT_EXEC;

/// All text that is mapped now.
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

/// The copy is complete and may be run before it takes the place of the text, and takes it in one step: this may itself run
/// there.
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
