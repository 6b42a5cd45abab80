//! The kinds of pages that share the blocks of which huge pages are made, from `/proc/pagetypeinfo`.
//!
//! Owns: the part of that file that counts blocks (Documentation/filesystems/proc.rst). Never touches: compaction. Only root may read it.

use heat::units::{BASE_PAGE, Bytes};

use crate::{KernelError, Malformed, Root, buddy};

/// Blocks of every zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTypes {
    /// Bytes in a block.
    pub block: Bytes,
    /// In the kernel's order.
    pub zones: Vec<ZoneBlocks>,
}

/// Blocks of one zone of one memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneBlocks {
    /// The NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`.
    pub name: String,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that the kernel reserves for pages that cannot be moved: its own.
    pub unmovable: u64,
}

const KIND: &str = "Unmovable";
const HEADING: &str = "Number of blocks type";

impl PageTypes {
    /// Reads `/proc/pagetypeinfo`.
    ///
    /// Errors: `/proc/pagetypeinfo` is missing (`is_absent`), readable only by root (`is_denied`), or malformed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/pagetypeinfo", Root::LIMIT, Self::parse)
    }

    /// The blocks of a zone; `None` if the kernel does not list it.
    pub fn zone(&self, node: u32, name: &str) -> Option<&ZoneBlocks> {
        self.zones.iter().find(|zone| zone.node == node && zone.name == name)
    }

    /// Parses the text of `pagetypeinfo`.
    ///
    /// Errors: `Pages per block:`, `Number of blocks type` or the column `Unmovable` is missing, or a zone is malformed.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let pages = text.lines().find_map(|line| line.strip_prefix("Pages per block:")?.trim().parse::<u64>().ok());
        let pages = pages.ok_or_else(|| Malformed::missing(text, "a line 'Pages per block:'"))?;
        let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(HEADING));
        let (_, heading) = lines.next().ok_or_else(|| Malformed::missing(text, "a line 'Number of blocks type'"))?;
        let kind =
            heading.strip_prefix(HEADING).and_then(|kinds| kinds.split_whitespace().position(|each| each == KIND));
        let kind = kind.ok_or_else(|| Malformed::missing(text, "a column 'Unmovable'"))?;
        let zones = lines.take_while(|(_, line)| line.starts_with("Node ")).map(|(index, line)| {
            let zone = buddy::parse_zone(line).and_then(|zone| ZoneBlocks::of(zone, kind));
            zone.ok_or_else(|| Malformed::new(index + 1, "a zone such as 'Node 0, zone DMA 1 0 2'", line))
        });
        Ok(Self { block: Bytes(pages.saturating_mul(BASE_PAGE)), zones: zones.collect::<Result<_, _>>()? })
    }
}

impl ZoneBlocks {
    /// From a line that counts blocks; column `unmovable` has the unmovable ones.
    fn of(zone: buddy::Zone, unmovable: usize) -> Option<Self> {
        let blocks = zone.free_blocks.iter().fold(0u64, |sum, &blocks| sum.saturating_add(blocks));
        Some(Self { node: zone.node, blocks, unmovable: *zone.free_blocks.get(unmovable)?, name: zone.name })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2
Node    0, zone      DMA, type    Unmovable      0      0      0

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate
Node 0, zone      DMA            1            7            0            0            0
Node 1, zone   Normal          153         7295          168            0            0

Number of mixed blocks    Unmovable      Movable
Node 0, zone      DMA            9            9
";

    #[test]
    fn blocks_are_counted_by_kind() {
        let types = PageTypes::parse(TEXT).unwrap();
        assert_eq!((types.block, types.zones.len()), (Bytes(2 << 20), 2));
        let normal = types.zone(1, "Normal").unwrap();
        assert_eq!((normal.blocks, normal.unmovable), (7616, 153));
        assert_eq!(types.zone(0, "Normal"), None);
    }

    #[test]
    fn what_is_not_shaped_so_is_refused() {
        for (line, text) in [
            (1, String::new()),
            (3, "Page block order: 9\nPages per block:  512\n".to_owned()),
            (8, TEXT.replace("zone      DMA            1", "zone      DMA            x")),
            (13, TEXT.replace("type     Unmovable      Movable  R", "type     Movable  R")),
        ] {
            assert_eq!(PageTypes::parse(&text).expect_err(&text).line, line, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(Pages per block: [0-9]{1,21}\n)?(Number of blocks type( Unmovable| Movable){0,3}\n)?(Node [0-9], zone [a-z]{1,4}( [0-9]{1,20}){0,4}\n){0,4}"
        ) {
            if let Ok(types) = PageTypes::parse(&text) {
                prop_assert!(types.zones.iter().all(|zone| zone.unmovable <= zone.blocks));
            }
        }
    }
}
