//! What stands in the way of a larger pool.
//!
//! Owns: what is read about free memory, and the conclusions. Never touches: memory.

use super::is_giant;
use crate::kernel::buddy::Buddy;
use crate::kernel::memory::Memory;
use crate::kernel::page_types::PageTypes;
use crate::kernel::{KernelError, Root};
use crate::units::Bytes;

/// What was found when pages could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacles {
    /// Bytes in each page.
    pub page_size: Bytes,
    /// Memory that was wanted and not to be had.
    pub missing: Bytes,
    /// Memory that programs could still get without swapping.
    pub available: Bytes,
    /// Zones that the pages could come from.
    pub zones: Vec<ZoneObstacles>,
}

/// How one zone of memory is broken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneObstacles {
    /// The memory node.
    pub node: u32,
    /// `DMA32`, `Normal`, `Movable`.
    pub name: String,
    /// Free memory.
    pub free: Bytes,
    /// The largest free block; `None` where nothing is free.
    pub largest_free: Option<Bytes>,
    /// Memory in blocks that hold pages of the kernel's own, which cannot be moved; `None` where that may not be read.
    pub unmovable: Option<Bytes>,
}

/// A reason for which pages were not to be had, with its own next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// Programs use the memory: less is available than is missing.
    TooLittleMemory,
    /// Such a page is larger than any block that the kernel keeps, and needs one piece of memory in which everything can be moved.
    Giant,
    /// Enough memory is available, but not in blocks of that size: what the kernel cannot move or page cache lies between.
    BrokenUp,
}

impl Obstacles {
    /// Reads what there is to know on one node, or on all.
    pub fn read(root: &Root, page_size: Bytes, node: Option<u32>, missing: Bytes) -> Result<Self, KernelError> {
        let (memory, buddy) = (Memory::read(root)?, Buddy::read(root)?);
        // Only root may read it, and no kernel must have it.
        let types = PageTypes::read(root).ok();
        Ok(Self::of(page_size, node, missing, &memory, &buddy, types.as_ref()))
    }

    fn of(
        page_size: Bytes,
        node: Option<u32>,
        missing: Bytes,
        memory: &Memory,
        buddy: &Buddy,
        types: Option<&PageTypes>,
    ) -> Self {
        let zones = buddy.zones.iter().filter(|zone| node.is_none_or(|node| node == zone.node));
        let zones = zones.map(|zone| {
            let blocks = types.and_then(|types| Some((types.block, types.zone(zone.node, &zone.name)?)));
            ZoneObstacles {
                node: zone.node,
                name: zone.name.clone(),
                free: zone.free_from(Bytes(0)),
                largest_free: zone.largest_free(),
                unmovable: blocks.map(|(block, zone)| Bytes(block.0.saturating_mul(zone.unmovable))),
            }
        });
        Self { page_size, missing, available: memory.available, zones: zones.collect() }
    }

    /// The reasons, that with the most effect first.
    pub fn hindrances(&self) -> Vec<Hindrance> {
        let mut hindrances = Vec::new();
        if self.available < self.missing {
            hindrances.push(Hindrance::TooLittleMemory);
        }
        if is_giant(self.page_size) {
            hindrances.push(Hindrance::Giant);
        } else if hindrances.is_empty() {
            hindrances.push(Hindrance::BrokenUp);
        }
        hindrances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacles(page_size: u64, missing: u64, node: Option<u32>) -> Obstacles {
        let memory = Memory { available: Bytes(3 << 30), ..Memory::default() };
        let buddy = "Node 0, zone   Normal 10 5 0\nNode 1, zone   Normal 0 0 0\n";
        let types = "Pages per block: 512\nNumber of blocks type Unmovable Movable\nNode 0, zone Normal 7 9\n";
        let (buddy, types) = (Buddy::parse(buddy).unwrap(), PageTypes::parse(types).unwrap());
        Obstacles::of(Bytes(page_size), node, Bytes(missing), &memory, &buddy, Some(&types))
    }

    #[test]
    fn each_zone_is_described() {
        let zones = obstacles(2 << 20, 1, None).zones;
        let expected = ZoneObstacles {
            node: 0,
            name: "Normal".into(),
            free: Bytes(80 << 10),
            largest_free: Some(Bytes(8 << 10)),
            unmovable: Some(Bytes(14 << 20)),
        };
        assert_eq!(zones[0], expected);
        assert_eq!((zones[1].largest_free, zones[1].unmovable), (None, None));
        assert_eq!(obstacles(2 << 20, 1, Some(1)).zones, zones[1..]);
    }

    #[test]
    fn every_shortage_has_a_reason() {
        let of = |page_size, missing| obstacles(page_size, missing, None).hindrances();
        assert_eq!(of(2 << 20, 4 << 30), [Hindrance::TooLittleMemory]);
        assert_eq!(of(2 << 20, 1 << 30), [Hindrance::BrokenUp]);
        assert_eq!(of(1 << 30, 4 << 30), [Hindrance::TooLittleMemory, Hindrance::Giant]);
        assert_eq!(of(1 << 30, 1 << 30), [Hindrance::Giant]);
    }

    #[test]
    fn this_machine_is_read() {
        let obstacles = Obstacles::read(&Root::host(), Bytes(1 << 30), None, Bytes(1)).unwrap();
        assert!(!obstacles.zones.is_empty() && obstacles.available > Bytes(0));
    }
}
