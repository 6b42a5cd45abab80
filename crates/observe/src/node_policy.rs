//! Which mappings are deliberately spread over memory nodes.
//!
//! Owns: joining mappings with their memory policies. Never touches: a policy, or its consequences.

use heat::Mapping;
use kernel::numa_maps::{self, NumaLine};
use kernel::{KernelError, Root, nodes};

/// Marks the mappings whose policy spreads pages over several nodes. Does nothing on a machine with one node.
///
/// Errors: as [`numa_maps::read`].
pub(super) fn mark_spread(root: &Root, pid: u32, mappings: &mut [Mapping]) -> Result<(), KernelError> {
    if nodes::are_several(root)? {
        mark(mappings, &numa_maps::read(root, pid)?);
    }
    Ok(())
}

/// Both ascend. The policy of a mapping that appeared in between is unknown, so it is left alone until the next observation.
fn mark(mappings: &mut [Mapping], lines: &[NumaLine]) {
    for mapping in mappings {
        let found = lines.binary_search_by_key(&mapping.range.start, |line| line.start);
        mapping.spread_over_nodes = found.map_or(true, |index| lines[index].policy.spreads_pages());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heat::samples::heat_of;
    use heat::units::{Address, AddressRange};

    use super::*;

    fn mappings(starts: &[u64]) -> Vec<Mapping> {
        let like = heat_of(Vec::new()).mappings.remove(0);
        let range = |start| AddressRange { start: Address(start), end: Address(start + 0x1000) };
        starts.iter().map(|&start| Mapping { range: range(start), ..like.clone() }).collect()
    }

    fn spread(mappings: &[Mapping]) -> Vec<bool> {
        mappings.iter().map(|mapping| mapping.spread_over_nodes).collect()
    }

    #[test]
    fn mappings_are_joined_with_their_policies() {
        let lines = numa_maps::parse("1000 default\n2000 interleave:0-1 anon=1 N0=1\n5000 bind:1\n").unwrap();
        let mut mappings = mappings(&[0x1000, 0x2000, 0x3000, 0x5000]);
        mark(&mut mappings, &lines);
        assert_eq!(spread(&mappings), [false, true, true, false], "what came meanwhile is not known");
    }

    #[test]
    fn only_a_machine_with_several_nodes_is_asked() {
        let tree = tempfile::tempdir().unwrap();
        let (root, node) = (Root::at(tree.path()), tree.path().join("sys/devices/system/node"));
        fs::create_dir_all(&node).unwrap();
        let mut mappings = mappings(&[0x1000]);
        for one_node in [None, Some("0\n")] {
            one_node.into_iter().for_each(|text| fs::write(node.join("has_memory"), text).unwrap());
            mark_spread(&root, 7, &mut mappings).expect("there is no numa_maps, and none is wanted");
        }
        fs::write(node.join("has_memory"), "0-1\n").unwrap();
        assert!(mark_spread(&root, 7, &mut mappings).unwrap_err().is_gone());
        fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        fs::write(tree.path().join("proc/7/numa_maps"), "1000 interleave:0-1\n").unwrap();
        mark_spread(&root, 7, &mut mappings).unwrap();
        assert_eq!(spread(&mappings), [true]);
    }
}
