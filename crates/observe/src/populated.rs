//! The populated part of shared memory, including what only other processes touched: a process's own page tables show only what it touched itself.
//!
//! Owns: querying the kernel about the object behind a mapping. Never touches: the object's contents.
//!
//! A collapse of shared memory takes the pages of the object, whether or not they are in the process's page tables. A database server that has just
//! started maps nothing of the buffers that others have filled, and can still have all of them put on huge pages.
//!
//! *Cost*: 10 us for 2 MiB of base pages, less for huge ones.

use std::fs::File;
use std::io;

use heat::units::{Address, HUGE_PAGE, PAGES_PER_REGION};
use heat::{Growth, Heat, Mapping, Region};
use hugepilot_os::file_cache::cache_state;
use kernel::Root;

/// Adds the regions of shared memory that only others have populated, and corrects what promoting the other regions would take. Where the kernel does
/// not tell (before Linux 6.5, or without CAP_SYS_ADMIN), everything stays as the page tables have it.
pub fn complete(root: &Root, heat: &mut Heat) {
    let Heat { pid, mappings, regions, .. } = heat;
    let mut untouched = Vec::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let starts = regions_of(mapping);
        if starts.is_empty() {
            continue;
        }
        let backing = match Backing::open(root, *pid, mapping) {
            Ok(backing) => backing,
            Err(error) => {
                tracing::debug!(pid, "what is populated of {} is not seen: {error}", mapping.name);
                continue;
            }
        };
        for start in starts {
            let Some(populated) = backing.populated(start) else { continue };
            let unpopulated = PAGES - populated;
            match regions.binary_search_by_key(&start, |region| region.start) {
                Ok(known) => regions[known].growth.unpopulated = regions[known].growth.unpopulated.min(unpopulated),
                Err(_) if populated > 0 => {
                    let growth = Growth { unpopulated, ..Growth::default() };
                    untouched.push(Region {
                        growth,
                        obstacle: mapping.obstacle,
                        ..Region::blank(start, Some(index as u32))
                    });
                }
                Err(_) => {}
            }
        }
    }
    if !untouched.is_empty() {
        regions.extend(untouched);
        regions.sort_by_key(|region| region.start);
    }
}

const PAGES: u16 = PAGES_PER_REGION as u16;

/// The whole regions of a shared mapping that can be promoted, or could be if it were aligned; none for other mappings.
fn regions_of(mapping: &Mapping) -> Vec<Address> {
    if mapping.shared.is_none() || !mapping.would_fit() {
        return Vec::new();
    }
    let (first, end) = (mapping.range.start.region_up().0, mapping.range.end.region().0);
    (first..end.max(first)).step_by(HUGE_PAGE as usize).map(Address).collect()
}

/// The object behind a mapping.
struct Backing {
    file: File,
    /// Added to an address it gives the offset in the object; wraps.
    shift: u64,
}

impl Backing {
    fn open(root: &Root, pid: u32, mapping: &Mapping) -> io::Result<Self> {
        let (range, offset) = (mapping.range, mapping.shared.map_or(0, |shared| shared.offset));
        let file = File::open(root.path(&format!("proc/{pid}/map_files/{:x}-{:x}", range.start.0, range.end.0)))?;
        let backing = Self { file, shift: offset.wrapping_sub(range.start.0) };
        cache_state(&backing.file, offset, HUGE_PAGE).map(|_| backing)
    }

    /// How many base pages of the region are in memory.
    fn populated(&self, start: Address) -> Option<u16> {
        let state = cache_state(&self.file, start.0.wrapping_add(self.shift), HUGE_PAGE).ok()?;
        Some(state.cached.min(u64::from(PAGES)) as u16)
    }
}

#[cfg(test)]
mod tests {
    use heat::Obstacle;
    use heat::samples::{MEMFD, at, heat_of, region};
    use heat::units::AddressRange;

    use super::*;

    #[test]
    fn only_whole_regions_of_shared_memory_are_asked_about() {
        let range = AddressRange { start: Address(at(0).0 + 4096), end: Address(at(3).0 + 4096) };
        let shared = Mapping { range, shared: Some(MEMFD), ..heat_of(vec![region(0, 0.0, 0)]).mappings[0].clone() };
        assert_eq!(regions_of(&shared), [at(1), at(2)]);
        assert_eq!(regions_of(&Mapping { obstacle: Some(Obstacle::Misaligned), ..shared.clone() }), [at(1), at(2)]);
        assert_eq!(regions_of(&Mapping { obstacle: Some(Obstacle::NoHugePage), ..shared.clone() }), []);
        assert_eq!(regions_of(&Mapping { shared: None, ..shared.clone() }), []);
        assert_eq!(regions_of(&Mapping { range: AddressRange { end: at(1), ..range }, ..shared }), []);
    }
}
