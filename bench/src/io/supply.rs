//! Memory that a program could get: free memory, and page cache that is already on disk.
//!
//! Owns: reading it. Never touches: memory.

use anyhow::Result;
use heat::units::{BASE_PAGE, Bytes};
use kernel::Root;
use kernel::memory::Meminfo;
use kernel::page_types::PageTypes;
use kernel::zones::free_in_cpu_lists;
use observe::{Census, Spare};
use serde::{Deserialize, Serialize};

/// The supply at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Supply {
    /// Memory that nothing uses.
    pub free: Bytes,
    /// Page cache that is neither dirty, nor being written, nor mapped, nor shared memory.
    pub clean_cache: Bytes,
    /// The part of free memory that the kernel gives to no program: below the min watermark, and reserved in low zones.
    pub reserve: Bytes,
    /// Mapped file pages, which the kernel may also reclaim when memory is requested.
    #[serde(default)]
    pub mapped: Bytes,
}

impl Supply {
    /// Free memory and clean page cache.
    pub fn all(&self) -> Bytes {
        self.free + self.clean_cache
    }

    /// The part of it that programs may have.
    pub fn within_reach(&self) -> Bytes {
        self.all().saturating_sub(self.reserve)
    }

    /// The supply now.
    pub fn now() -> Result<Self> {
        let root = Root::host();
        Ok(Self::of(&Meminfo::read(&root)?, &root.text("proc/zoneinfo")?))
    }

    fn of(memory: &Meminfo, zones: &str) -> Self {
        let reserve: u64 = zones.split("Node ").map(reserve_of_zone).sum();
        let others = memory.dirty + memory.writeback + memory.mapped + memory.shared;
        Self {
            free: memory.free,
            clean_cache: (memory.cached + memory.buffers).saturating_sub(others),
            reserve: Bytes(reserve * BASE_PAGE),
            mapped: memory.mapped,
        }
    }
}

/// What shares blocks of 2 MiB with the supply, and so keeps huge pages from being made of it. All but the counts of blocks are projected from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SupplyBlocks {
    #[serde(flatten)]
    pub spare: Spare,
    /// Free pages in per-CPU lists, which the kernel does not count as free.
    pub in_cpu_lists: Bytes,
    /// Blocks that the kernel uses for its own immovable memory, and all blocks.
    pub unmovable_blocks: u64,
    pub all_blocks: u64,
}

impl SupplyBlocks {
    /// The blocks now.
    pub fn now() -> Result<Self> {
        let root = Root::host();
        let zones = PageTypes::read(&root)?.zones;
        Ok(Self {
            spare: Census::take(&root)?.spare,
            in_cpu_lists: free_in_cpu_lists(&root)?,
            unmovable_blocks: zones.iter().map(|zone| zone.unmovable).sum(),
            all_blocks: zones.iter().map(|zone| zone.blocks).sum(),
        })
    }
}

/// Free pages of a zone of `/proc/zoneinfo` that no program gets. If the zone is protected from requests that other zones could meet, `protection`
/// says how much for each kind of request.
fn reserve_of_zone(text: &str) -> u64 {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|rest| rest.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let protection = text.lines().find_map(|line| line.trim_start().strip_prefix("protection: ("));
    let kept_back = protection.map_or(0, |list| {
        list.trim_end_matches(')').split(", ").filter_map(|number| number.parse::<u64>().ok()).max().unwrap_or(0)
    });
    value("pages free").min(value("min") + kept_back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_dropped_is_supply() {
        let text = "MemTotal: 900 kB\nMemFree: 100 kB\nBuffers: 5 kB\nCached: 95 kB\nDirty: 10 kB\nWriteback: 20 kB\nMapped: 30 kB\nShmem: 10 kB\n";
        let supply = Supply::of(&Meminfo::parse(text).unwrap(), "");
        let of = |kibibytes: u64| Bytes(kibibytes << 10);
        assert_eq!(supply, Supply { free: of(100), clean_cache: of(30), reserve: of(0), mapped: of(30) });
    }

    #[test]
    fn what_the_kernel_keeps_is_out_of_reach() {
        let zones = "Node 0, zone      DMA\n  pages free     3840\n        min      12\n        protection: (0, 3019, 20939)\n\
                     Node 0, zone   Normal\n  pages free     99999\n        min      14449\n        protection: (0, 0, 0)\n  pagesets\n\
                     Node 0, zone   Device\n  pages free     0\n        min      0\n";
        let supply = Supply::of(&Meminfo { free: Bytes(1_000_000 << 10), ..Meminfo::default() }, zones);
        assert_eq!(supply.reserve, Bytes((3840 + 14_449) * BASE_PAGE));
        assert_eq!(supply.within_reach(), Bytes((1_000_000 << 10) - (3840 + 14_449) * BASE_PAGE));
    }

    #[test]
    fn this_machine_has_some() {
        let supply = Supply::now().unwrap();
        assert!(supply.free > Bytes(0) && supply.reserve > Bytes(0) && supply.reserve < supply.free, "{supply:?}");
    }
}
