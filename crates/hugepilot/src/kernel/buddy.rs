//! Free memory by the size of its contiguous blocks, from `/proc/buddyinfo`.
//!
//! Owns: the shape of that file (Documentation/filesystems/proc.rst). Never touches: compaction.

use super::{KernelError, Malformed, Root};
use crate::units::{BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE};

/// Free blocks of every zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buddy {
    /// In the kernel's order.
    pub zones: Vec<Zone>,
}

/// Free blocks of one zone of one memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: String,
    /// How many blocks of 2^index base pages are free.
    pub free_blocks: Vec<u64>,
}

impl Buddy {
    /// Reads `/proc/buddyinfo`.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/buddyinfo", Root::LIMIT, Self::parse)
    }

    /// Understands the text of `buddyinfo`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let zones = text.lines().enumerate().map(|(index, line)| {
            parse_zone(line).ok_or_else(|| Malformed::new(index + 1, "a zone such as 'Node 0, zone DMA 1 0 2'", line))
        });
        Ok(Self { zones: zones.collect::<Result<_, _>>()? })
    }

    /// All free memory.
    pub fn free(&self) -> Bytes {
        self.zones.iter().map(|zone| zone.free_from(Bytes(BASE_PAGE))).sum()
    }

    /// Free memory in blocks that a huge page fits in: to be had at once, without compaction.
    pub fn free_huge(&self) -> Bytes {
        self.zones.iter().map(|zone| zone.free_from(Bytes(HUGE_PAGE))).sum()
    }

    /// An estimate of the free memory from which pages of 1 GiB can be made: whole GiBs in blocks of the largest order,
    /// zone by zone. The kernel's largest block is 4 MiB, so whether they lie side by side cannot be seen here; but it
    /// can move what lies between.
    pub fn free_giant_estimate(&self) -> Bytes {
        let whole = |zone: &Zone| Bytes(zone.free_in_largest_blocks().0 / GIANT_PAGE * GIANT_PAGE);
        self.zones.iter().map(whole).sum()
    }
}

impl Zone {
    /// Free memory in blocks of at least `size`.
    pub fn free_from(&self, size: Bytes) -> Bytes {
        (0..self.free_blocks.len()).filter(|&order| block(order) >= size).map(|order| self.free_in(order)).sum()
    }

    /// The largest block that is free; `None` where none is.
    pub fn largest_free(&self) -> Option<Bytes> {
        self.free_blocks.iter().rposition(|&blocks| blocks > 0).map(block)
    }

    fn free_in_largest_blocks(&self) -> Bytes {
        self.free_blocks.len().checked_sub(1).map_or(Bytes(0), |order| self.free_in(order))
    }

    fn free_in(&self, order: usize) -> Bytes {
        Bytes(self.free_blocks[order].saturating_mul(block(order).0))
    }
}

/// Bytes in a block of 2^order base pages.
fn block(order: usize) -> Bytes {
    Bytes(BASE_PAGE << order)
}

/// Orders that a line may have: more than any kernel has, few enough that a block's size cannot overflow.
const ORDERS: std::ops::RangeInclusive<usize> = 1..=32;

/// Understands one line, of which `pagetypeinfo` has some as well.
pub(super) fn parse_zone(line: &str) -> Option<Zone> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone ")?;
    let mut words = rest.split_ascii_whitespace();
    let name = words.next()?.to_owned();
    let free_blocks: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    ORDERS.contains(&free_blocks.len()).then_some(Zone { node: node.trim().parse().ok()?, name, free_blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
                        Node 1, zone   Normal   1296    738    813    866    619    511    361    296    191    144    669 \n";

    #[test]
    fn blocks_are_counted_by_size() {
        let buddy = Buddy::parse(TEXT).unwrap();
        assert_eq!(buddy.zones.len(), 2);
        assert_eq!((buddy.zones[1].node, buddy.zones[1].name.as_str()), (1, "Normal"));
        assert_eq!(buddy.zones[0].free_from(Bytes(0)), Bytes((1 << 20) + (2 << 20) + 3 * (4 << 20)));
        assert_eq!(buddy.free_huge(), Bytes((1 + 144) * (2 << 20) + (3 + 669) * (4 << 20)));
        assert_eq!(buddy.free_giant_estimate(), Bytes(2 << 30), "669 blocks of 4 MiB hold two whole GiB");
        assert_eq!(buddy.zones[0].largest_free(), Some(Bytes(4 << 20)));
        let [full, little] =
            ["0 0 0", "9 1 0"].map(|blocks| parse_zone(&format!("Node 0, zone DMA {blocks}")).unwrap());
        assert_eq!((full.largest_free(), little.largest_free()), (None, Some(Bytes(8 << 10))));
    }

    #[test]
    fn a_malformed_line_is_named() {
        for line in ["Node x, zone DMA 1 2", "Node 0, zone", "Node 0, zone DMA", "Node 0, zone DMA 1 -2", "DMA 1 2", ""]
        {
            assert_eq!(Buddy::parse(&format!("Node 0, zone DMA 1\n{line}\n\n")).expect_err(line).line, 2);
        }
    }

    #[test]
    fn this_machine_is_read() {
        let buddy = Buddy::read(&Root::host()).unwrap();
        assert!(buddy.free_huge() <= buddy.free() && buddy.free() > Bytes(0));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(Node [0-9], zone [a-z]{0,4}( {1,3}[0-9]{1,20}){0,40}\n|.{0,20}\n){0,4}") {
            if let Ok(buddy) = Buddy::parse(&text) {
                prop_assert!(buddy.free_huge() <= buddy.free());
                prop_assert!(buddy.free_giant_estimate() <= buddy.free_huge().max(buddy.free()));
            }
        }
    }
}
