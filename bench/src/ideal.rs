//! The ceiling: every populated region of a program collapsed by hand, whatever it costs in memory.
//!
//! Owns: finding those regions and collapsing them. Never touches: stacks, files, special mappings.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::{Context, Result};
use heat::units::{Address, AddressRange, BASE_PAGE, HUGE_PAGE, PAGES_PER_REGION};
use hugepilot_os::stop::Stop;
use hugepilot_os::{Advice, PidFd, advise};

use crate::record::ToolRun;

/// How often a region that the kernel says to try again is tried.
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
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).with_context(|| format!("cannot read maps of {pid}"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).with_context(|| format!("cannot read pages of {pid}"))?;
    let mut populated = Vec::new();
    for region in maps.lines().filter_map(collapsible).flat_map(whole_regions) {
        if is_populated(&pagemap, region)? {
            populated.push(region);
        }
    }
    Ok(populated)
}

/// The range of a line of `/proc/PID/maps` that is anonymous or shared memory.
fn collapsible(line: &str) -> Option<AddressRange> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let name = words.nth(4).unwrap_or("");
    let anonymous = name.is_empty() || name == "[heap]" || name.starts_with("[anon");
    let shared = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"].iter().any(|prefix| name.starts_with(prefix));
    let address = |text| u64::from_str_radix(text, 16).ok().map(Address);
    (anonymous || shared).then_some(AddressRange { start: address(start)?, end: address(end)? })
}

fn whole_regions(range: AddressRange) -> impl Iterator<Item = Address> {
    let starts = (range.start.region_up().0..).step_by(HUGE_PAGE as usize);
    starts.take_while(move |start| start + HUGE_PAGE <= range.end.0).map(Address)
}

fn is_populated(pagemap: &File, region: Address) -> Result<bool> {
    const PRESENT: u8 = 1 << 7;
    let mut entries = [0u8; PAGES_PER_REGION * 8];
    let offset = region.0 / BASE_PAGE * 8;
    pagemap.read_exact_at(&mut entries, offset).with_context(|| format!("cannot read the pages at {region}"))?;
    Ok(entries.iter().skip(7).step_by(8).any(|top| top & PRESENT != 0))
}

#[cfg(test)]
mod tests {
    use hugepilot_os::memory::AlignedMemory;

    use super::*;

    #[test]
    fn only_anonymous_and_shared_memory_is_collapsible() {
        let kept = |name: &str| collapsible(&format!("7f0000001000-7f0000a00000 rw-p 0 00:00 0 {name}")).is_some();
        for name in ["", "[heap]", "[anon:jit]", "/memfd:cache (deleted)", "/dev/shm/x"] {
            assert!(kept(name), "{name}");
        }
        for name in ["[stack]", "[vdso]", "/usr/lib/x.so"] {
            assert!(!kept(name), "{name}");
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
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let first = Address(mapping.address());
        assert!(!is_populated(&pagemap, first).unwrap());
        assert!(is_populated(&pagemap, Address(first.0 + HUGE_PAGE)).unwrap());
    }
}
