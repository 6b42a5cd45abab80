//! The memory node that a region's huge page will come from.
//!
//! Owns: asking where the pages of a region are. Never touches: the pages.
//!
//! A collapse takes its page from the node that has most of the region's pages, and ignores memory policies.

use heat::units::{Address, BASE_PAGE, PAGES_PER_REGION};
use hugepilot_os::PidFd;
use hugepilot_os::nodes::nodes_of_pages;
use kernel::Root;
use kernel::nodes::{self, Node};

/// Pages of a region that are queried first.
const SAMPLE: u64 = 16;
/// Stride between pages of the sample. It is prime, so that a sample of interleaved pages meets every node.
const STRIDE: u64 = 31;

/// Whether the machine has several nodes.
#[derive(Clone, Copy, Debug)]
pub struct RegionNodes {
    /// More than one node has memory, or the kernel does not say.
    several: bool,
}

impl RegionNodes {
    /// For the machine with this root directory.
    pub fn new(root: &Root) -> Self {
        Self { several: nodes::are_several(root).unwrap_or(true) }
    }

    /// The node that has most of a region's pages, by a sample of them. None where all memory is on one node, none of the pages is present, or the
    /// kernel does not tell.
    pub fn of(&self, target: &PidFd, region: Address) -> Option<Node> {
        if !self.several {
            return None;
        }
        let ask = |pages: Vec<u64>| most_frequent(nodes_of_pages(target, &pages).ok()?);
        let page = |number: u64| region.0 + number * BASE_PAGE;
        let sample = (0..SAMPLE).map(|number| page(number * STRIDE)).collect();
        ask(sample).or_else(|| ask((0..PAGES_PER_REGION as u64).map(page).collect()))
    }
}

/// The node with the most pages; in a tie the first, as the kernel chooses.
fn most_frequent(nodes: Vec<Option<Node>>) -> Option<Node> {
    let mut counts = std::collections::BTreeMap::new();
    for node in nodes.into_iter().flatten() {
        *counts.entry(node).or_insert(0u64) += 1;
    }
    counts.into_iter().rev().max_by_key(|&(_, count)| count).map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use heat::units::HUGE_PAGE;
    use hugepilot_os::memory::AlignedMemory;

    use super::*;

    #[test]
    fn the_node_of_most_pages_is_taken() {
        assert_eq!(most_frequent(vec![Some(2), None, Some(1), Some(2)]), Some(2));
        assert_eq!(most_frequent(vec![Some(3), Some(1), Some(1), Some(3)]), Some(1), "the first of equals");
        assert_eq!(most_frequent(vec![None, None]), None);
    }

    #[test]
    fn the_sample_is_within_the_region_and_meets_each_node_of_interleaved_pages() {
        assert!((SAMPLE - 1) * STRIDE < PAGES_PER_REGION as u64);
        for nodes in 2..=8 {
            let met: std::collections::BTreeSet<u64> = (0..SAMPLE).map(|number| number * STRIDE % nodes).collect();
            assert_eq!(met.len() as u64, nodes);
        }
    }

    #[test]
    fn a_page_that_is_alone_is_found() {
        if !Root::host().exists("proc/self/numa_maps").unwrap() {
            return eprintln!("skipped: this kernel knows no memory nodes");
        }
        let mut memory = AlignedMemory::anonymous(2 * HUGE_PAGE as usize).unwrap();
        memory.bytes_mut()[7 * BASE_PAGE as usize] = 1;
        let (target, region) = (PidFd::open(std::process::id()).unwrap(), Address(memory.address()));
        let several = RegionNodes { several: true };
        assert!(several.of(&target, region).is_some());
        assert_eq!(several.of(&target, Address(region.0 + HUGE_PAGE)), None, "nothing is there");
        assert_eq!(RegionNodes { several: false }.of(&target, region), None);
    }
}
