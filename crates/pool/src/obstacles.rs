//! What prevents a larger pool.
//!
//! Owns: what is read about free memory, and the conclusions. Never touches: memory.

use heat::units::Bytes;
use kernel::buddy::Buddy;
use kernel::memory::Meminfo;
use kernel::page_types::PageTypes;
use kernel::{KernelError, Root};
use serde::Serialize;

use crate::{Change, Ended, is_giant};

/// Findings after pages were not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacles {
    /// The change that was attempted.
    pub change: Change,
    /// Why it stopped short.
    pub ended: Ended,
    /// Whether clean page cache was dropped for it.
    pub made_room: bool,
    /// Memory that could not be obtained.
    pub missing: Bytes,
    /// Memory that programs could still get without swapping; for a single node, its free memory.
    pub available: Bytes,
    /// Zones that could provide the pages.
    pub zones: Vec<ZoneObstacles>,
}

/// The fragmentation of one memory zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneObstacles {
    /// The memory node.
    pub node: u32,
    /// `DMA32`, `Normal`, `Movable`.
    #[serde(rename = "zone")]
    pub name: String,
    /// Free memory.
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
    /// The largest free block; `None` if nothing is free.
    #[serde(rename = "largest_free_bytes")]
    pub largest_free: Option<Bytes>,
    /// Memory in blocks with unmovable kernel pages; `None` if that is unreadable.
    #[serde(rename = "unmovable_bytes")]
    pub unmovable: Option<Bytes>,
}

/// A reason why pages were not available, each with its own next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// Programs use the memory: less is available than missing.
    TooLittleMemory,
    /// Time ran out before the reason was known.
    TimeUp,
    /// Such a page is larger than any block that the kernel keeps, and needs a contiguous range in which everything can be moved.
    Giant,
    /// Enough memory is available, but not in blocks of that size: pages that the kernel cannot move, or page cache, are in
    /// between.
    BrokenUp,
}

impl Obstacles {
    /// Reads what prevents the pool from growing from its current pages to the change.
    ///
    /// Errors: `/proc/meminfo` or `/proc/buddyinfo` cannot be read, or is malformed.
    pub fn read(root: &Root, change: &Change, pages: u64, ended: Ended, made_room: bool) -> Result<Self, KernelError> {
        let (memory, buddy) = (Meminfo::read(root)?, Buddy::read(root)?);
        // Only root may read it, and not every kernel has it.
        let types = PageTypes::read(root).ok();
        let zones = zones(change.node, &buddy, types.as_ref());
        Ok(Self {
            change: *change,
            ended,
            made_room,
            missing: Bytes(change.to.saturating_sub(pages).saturating_mul(change.page_size.0)),
            available: match change.node {
                None => memory.available,
                Some(_) => zones.iter().map(|zone| zone.free).sum(),
            },
            zones,
        })
    }

    /// The reasons, most important first.
    pub fn hindrances(&self) -> Vec<Hindrance> {
        let mut hindrances = Vec::new();
        if self.available < self.missing {
            hindrances.push(Hindrance::TooLittleMemory);
        } else if self.ended == Ended::TimeUp {
            hindrances.push(Hindrance::TimeUp);
        }
        if is_giant(self.change.page_size) {
            hindrances.push(Hindrance::Giant);
        } else if hindrances.is_empty() {
            hindrances.push(Hindrance::BrokenUp);
        }
        hindrances
    }
}

/// The zones of one node, or of all nodes.
fn zones(node: Option<u32>, buddy: &Buddy, types: Option<&PageTypes>) -> Vec<ZoneObstacles> {
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
    zones.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with 3 GiB available on two nodes; the second has nothing free.
    fn tree() -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("proc")).unwrap();
        for (name, text) in [
            ("meminfo", "MemTotal: 4194304 kB\nMemAvailable: 3145728 kB\n"),
            ("buddyinfo", "Node 0, zone   Normal 10 5 0\nNode 1, zone   Normal 0 0 0\n"),
            (
                "pagetypeinfo",
                "Pages per block: 512\nNumber of blocks type Unmovable Movable\nNode 0, zone Normal 7 9\n",
            ),
        ] {
            fs::write(tree.path().join("proc").join(name), text).unwrap();
        }
        let root = Root::at(tree.path());
        (tree, root)
    }

    fn obstacles(page_size: u64, to: u64, node: Option<u32>, ended: Ended) -> Obstacles {
        let (_tree, root) = tree();
        let change = Change { page_size: Bytes(page_size), node, from: 1, to, most: None };
        Obstacles::read(&root, &change, 2, ended, false).unwrap()
    }

    #[test]
    fn each_zone_is_described() {
        let all = obstacles(2 << 20, 3, None, Ended::NoMore);
        let expected = ZoneObstacles {
            node: 0,
            name: "Normal".into(),
            free: Bytes(80 << 10),
            largest_free: Some(Bytes(8 << 10)),
            unmovable: Some(Bytes(14 << 20)),
        };
        assert_eq!(all.zones[0], expected);
        assert_eq!((all.zones[1].largest_free, all.zones[1].unmovable), (None, None));
        assert_eq!((all.missing, all.available), (Bytes(2 << 20), Bytes(3 << 30)));
        let of_one = obstacles(2 << 20, 3, Some(1), Ended::NoMore);
        assert_eq!((&of_one.zones[..], of_one.available), (&all.zones[1..], Bytes(0)));
    }

    #[test]
    fn every_shortage_has_a_reason() {
        use Hindrance::*;
        let of = |page_size, to, ended| obstacles(page_size, to, None, ended).hindrances();
        assert_eq!(of(2 << 20, 2050, Ended::NoMore), [TooLittleMemory]);
        assert_eq!(of(2 << 20, 514, Ended::NoMore), [BrokenUp]);
        assert_eq!(of(2 << 20, 514, Ended::TimeUp), [TimeUp], "nobody knows whether it is broken up");
        assert_eq!(of(2 << 20, 2050, Ended::TimeUp), [TooLittleMemory], "more time would not help");
        assert_eq!(of(1 << 30, 6, Ended::NoMore), [TooLittleMemory, Giant]);
        assert_eq!(of(1 << 30, 3, Ended::NoMore), [Giant]);
        assert_eq!(of(1 << 30, 3, Ended::TimeUp), [TimeUp, Giant]);
        let on_node = |node| obstacles(2 << 20, 3, Some(node), Ended::NoMore).hindrances();
        assert_eq!(on_node(0), [TooLittleMemory], "what other nodes have is no help");
    }

    #[test]
    fn this_machine_is_read() {
        let change = Change { page_size: Bytes(1 << 30), node: None, from: 0, to: 1, most: None };
        let obstacles = Obstacles::read(&Root::host(), &change, 0, Ended::NoMore, false).unwrap();
        assert!(!obstacles.zones.is_empty() && obstacles.available > Bytes(0));
    }
}
