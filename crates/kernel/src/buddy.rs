//! Free memory by the size of its contiguous blocks, from `/proc/buddyinfo`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst). Never touches: compaction.

use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE};

use crate::lines::parse_lines;
use crate::{KernelError, Malformed, Root};

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
    ///
    /// Errors: `/proc/buddyinfo` cannot be read, or a line of it is not a zone.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/buddyinfo", Root::LIMIT, Self::parse)
    }

    /// Parses the text of `buddyinfo`.
    ///
    /// Errors: a line is not a zone such as `Node 0, zone DMA 1 0 2`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(Self { zones: parse_lines(text, "a zone such as 'Node 0, zone DMA 1 0 2'", parse_zone)? })
    }

    /// All free memory.
    pub fn free(&self) -> Bytes {
        self.zones.iter().map(|zone| zone.free_from(Bytes(BASE_PAGE))).sum()
    }

    /// Free memory in blocks that hold a huge page: available at once, without compaction.
    pub fn free_huge(&self) -> Bytes {
        self.zones.iter().map(|zone| zone.free_from(Bytes(HUGE_PAGE))).sum()
    }
}

impl Zone {
    /// Free memory in blocks of at least `size`.
    pub fn free_from(&self, size: Bytes) -> Bytes {
        (0..self.free_blocks.len()).filter(|&order| block(order) >= size).map(|order| self.free_in(order)).sum()
    }

    /// The largest free block; `None` if there is none.
    pub fn largest_free(&self) -> Option<Bytes> {
        self.free_blocks.iter().rposition(|&blocks| blocks > 0).map(block)
    }

    fn free_in(&self, order: usize) -> Bytes {
        Bytes(self.free_blocks[order].saturating_mul(block(order).0))
    }
}

/// The fragmentation of free memory for blocks of one order, by the kernel's own formulas (mm/vmstat.c, as in `/sys/kernel/debug/extfrag`, which only
/// root sees and many kernels lack).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fragmentation {
    /// Share of free memory in smaller blocks, 0 to 1 (`unusable_index`).
    pub unusable: f64,
    /// Why a block of that order is not available: towards 0 for lack of memory, towards 1 because free memory is fragmented. None where one is
    /// available (the kernel's -1).
    pub index: Option<f64>,
}

impl Buddy {
    /// The fragmentation of the free memory of all zones, for blocks of a huge page.
    pub fn fragmentation(&self) -> Fragmentation {
        fragmentation(&self.free_blocks(), HUGE_ORDER)
    }

    /// How many blocks of 2^index base pages are free in all zones.
    pub fn free_blocks(&self) -> Vec<u64> {
        let orders = self.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
        let blocks = |order: usize| self.zones.iter().filter_map(|zone| zone.free_blocks.get(order)).fold(0u64, add);
        (0..orders).map(blocks).collect()
    }
}

/// The order of a huge page: 2^9 base pages.
const HUGE_ORDER: u32 = (HUGE_PAGE / BASE_PAGE).trailing_zeros();

fn add(sum: u64, more: &u64) -> u64 {
    sum.saturating_add(*more)
}

fn fragmentation(free_blocks: &[u64], order: u32) -> Fragmentation {
    let pages = |from: usize| -> f64 {
        let blocks = free_blocks.iter().enumerate().skip(from);
        blocks.map(|(order, &count)| count as f64 * (1u64 << order) as f64).sum()
    };
    let (free, suitable) = (pages(0), pages(order as usize));
    let blocks = free_blocks.iter().fold(0u64, add) as f64;
    let index = match (suitable > 0.0, blocks > 0.0) {
        (true, _) => None,
        (false, false) => Some(0.0),
        (false, true) => Some(1.0 - (1.0 + free / (1u64 << order) as f64) / blocks),
    };
    Fragmentation { unusable: if free > 0.0 { ((free - suitable) / free).clamp(0.0, 1.0) } else { 1.0 }, index }
}

/// Bytes in a block of 2^order base pages.
fn block(order: usize) -> Bytes {
    Bytes(BASE_PAGE << order)
}

/// The orders allowed in a line: more than any kernel has, few enough that a block's size cannot overflow.
const ORDERS: std::ops::RangeInclusive<usize> = 1..=32;

/// Parses one line; `pagetypeinfo` contains such lines, too.
pub(super) fn parse_zone(line: &str) -> Option<Zone> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone ")?;
    let mut words = rest.split_ascii_whitespace();
    let name = words.next()?.to_owned();
    let free_blocks: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    ORDERS.contains(&free_blocks.len()).then_some(Zone { node: node.trim().parse().ok()?, name, free_blocks })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
                        Node 1, zone   Normal   1296    738    813    866    619    511    361    296    191    144    669 \n";

    #[test]
    fn blocks_are_counted_by_size() {
        let buddy = Buddy::parse(TEXT).unwrap();
        assert_eq!(buddy.zones.len(), 2);
        assert_eq!((buddy.zones[1].node, buddy.zones[1].name.as_str()), (1, "Normal"));
        assert_eq!(buddy.zones[0].free_from(Bytes(0)), Bytes((1 << 20) + (2 << 20) + 3 * (4 << 20)));
        assert_eq!(buddy.free_huge(), Bytes((1 + 144) * (2 << 20) + (3 + 669) * (4 << 20)));
        assert_eq!(buddy.zones[0].largest_free(), Some(Bytes(4 << 20)));
        let [full, little] =
            ["0 0 0", "9 1 0"].map(|blocks| parse_zone(&format!("Node 0, zone DMA {blocks}")).unwrap());
        assert_eq!((full.largest_free(), little.largest_free()), (None, Some(Bytes(8 << 10))));
    }

    #[test]
    fn fragmentation_is_the_kernels() {
        // 1,000 single pages, none larger: more than the 512 needed, but fragmented.
        let broken = fragmentation(&[1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], HUGE_ORDER);
        assert_eq!(broken.unusable, 1.0);
        assert!((broken.index.unwrap() - (1.0 - (1.0 + 1000.0 / 512.0) / 1000.0)).abs() < 1e-12);
        let few = fragmentation(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], HUGE_ORDER);
        assert!(few.index.unwrap() < 0.0, "4 pages in one block: there is too little, whatever their order");
        let whole = fragmentation(&[512, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], HUGE_ORDER);
        assert_eq!((whole.unusable, whole.index), (0.25, None));
        assert_eq!(fragmentation(&[], HUGE_ORDER), Fragmentation { unusable: 1.0, index: Some(0.0) });
        assert_eq!(Buddy::parse(TEXT).unwrap().fragmentation().index, None);
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
                prop_assert!((0.0..=1.0).contains(&buddy.fragmentation().unusable));
            }
        }
    }
}
