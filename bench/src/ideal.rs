//! The ceiling: every populated region of a program is collapsed directly, however much memory that costs.
//!
//! Owns: finding those regions and collapsing them. Never touches: stacks, files, special mappings.

use std::time::Instant;

use anyhow::{Context, Result};
use heat::units::{Address, AddressRange, HUGE_PAGE, PAGES_PER_REGION};
use hugepilot_os::stop::Stop;
use hugepilot_os::{Advice, PidFd, advise};
use kernel::pagemap::{Entry, Pagemap};
use kernel::{Root, maps};

use crate::record::ToolRun;

/// How often a region is tried if the kernel answers "try again".
const ATTEMPTS: u32 = 3;

/// Collapses every region with at least one resident page.
pub fn collapse_all(pid: u32, stop: &Stop) -> Result<ToolRun> {
    let started = Instant::now();
    let run = collapse(pid, populated_regions(pid)?, stop)?;
    Ok(ToolRun { seconds: started.elapsed().as_secs_f64(), ..run })
}

/// Collapses these regions, in this order.
pub fn collapse(pid: u32, regions: Vec<Address>, stop: &Stop) -> Result<ToolRun> {
    let started = Instant::now();
    let target = PidFd::open(pid).with_context(|| format!("cannot open process {pid}"))?;
    let (mut tried, mut applied) = (0u64, 0u64);
    for region in regions {
        stop.check()?;
        tried += 1;
        applied += u64::from(collapse_region(&target, region));
    }
    let output = serde_json::json!({ "tried": tried, "applied": applied });
    Ok(ToolRun { seconds: started.elapsed().as_secs_f64(), output })
}

fn collapse_region(target: &PidFd, region: Address) -> bool {
    (0..ATTEMPTS).any(|_| advise::advise(target, region.0, HUGE_PAGE, Advice::Collapse).is_ok())
}

fn populated_regions(pid: u32) -> Result<Vec<Address>> {
    let root = Root::host();
    let (pagemap, mut populated) = (Pagemap::open(&root, pid)?, Vec::new());
    let mappings = maps::read(&root, pid)?.into_iter().filter(|mapping| is_collapsible(&mapping.name));
    for region in mappings.flat_map(|mapping| whole_regions(mapping.range)) {
        if is_populated(&pagemap, region)? {
            populated.push(region);
        }
    }
    Ok(populated)
}

/// Whether a mapping of that name is anonymous or shared memory.
fn is_collapsible(name: &str) -> bool {
    let anonymous = name.is_empty() || name == "[heap]" || name.starts_with("[anon");
    anonymous || ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"].iter().any(|prefix| name.starts_with(prefix))
}

fn whole_regions(range: AddressRange) -> impl Iterator<Item = Address> {
    let starts = (range.start.region_up().0..).step_by(HUGE_PAGE as usize);
    starts.take_while(move |start| start + HUGE_PAGE <= range.end.0).map(Address)
}

fn is_populated(pagemap: &Pagemap, region: Address) -> Result<bool> {
    let mut entries = [Entry(0); PAGES_PER_REGION];
    pagemap.read(region, &mut entries)?;
    Ok(entries.iter().any(|entry| entry.is_present()))
}

#[cfg(test)]
mod tests {
    use heat::units::BASE_PAGE;
    use hugepilot_os::memory::AlignedMemory;

    use super::*;

    #[test]
    fn only_anonymous_and_shared_memory_is_collapsible() {
        for name in ["", "[heap]", "[anon:jit]", "/memfd:cache (deleted)", "/dev/shm/x"] {
            assert!(is_collapsible(name), "{name}");
        }
        for name in ["[stack]", "[vdso]", "/usr/lib/x.so"] {
            assert!(!is_collapsible(name), "{name}");
        }
    }

    #[test]
    fn regions_lie_wholly_inside_their_range() {
        let range = AddressRange { start: Address(HUGE_PAGE - 1), end: Address(4 * HUGE_PAGE - 1) };
        let regions: Vec<Address> = whole_regions(range).collect();
        assert_eq!(regions, [Address(HUGE_PAGE), Address(2 * HUGE_PAGE)]);
    }

    #[test]
    fn one_touched_page_makes_a_region_populated() {
        let mut mapping = AlignedMemory::anonymous(2 * HUGE_PAGE as usize).unwrap();
        mapping.bytes_mut()[HUGE_PAGE as usize + 5 * BASE_PAGE as usize] = 1;
        let pagemap = Pagemap::open(&Root::host(), std::process::id()).unwrap();
        let first = Address(mapping.address());
        assert!(!is_populated(&pagemap, first).unwrap());
        assert!(is_populated(&pagemap, Address(first.0 + HUGE_PAGE)).unwrap());
    }
}
