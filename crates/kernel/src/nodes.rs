//! Memory nodes (NUMA), from `/sys/devices/system/node` (Documentation/ABI/stable/sysfs-devices-node).
//!
//! Owns: which nodes have memory, and which processors belong to a node. Never touches: where memory is placed.

use crate::cpu::{MOST_CPUS, list};
use crate::{KernelError, Root, optional};

/// The number of a memory node.
pub type Node = u32;

/// The most nodes that Linux supports (`CONFIG_NODES_SHIFT` of 10).
pub const MOST_NODES: u32 = 1024;

const FOLDER: &str = "sys/devices/system/node";

/// The nodes that have memory. Only node 0 on a kernel built without NUMA, which lacks the file.
///
/// Errors: `has_memory` exists but cannot be read, or is not a list such as `0-3,8`.
pub fn with_memory(root: &Root) -> Result<Vec<Node>, KernelError> {
    Ok(optional(list(root, &format!("{FOLDER}/has_memory"), MOST_NODES))?.unwrap_or_else(|| vec![0]))
}

/// Whether more than one node has memory.
///
/// Errors: as [`with_memory`].
pub fn are_several(root: &Root) -> Result<bool, KernelError> {
    Ok(with_memory(root)?.len() > 1)
}

/// The processors of a node; none if it has only memory. Errors: there is no such node.
pub fn processors(root: &Root, node: Node) -> Result<Vec<u32>, KernelError> {
    list(root, &format!("{FOLDER}/node{node}/cpulist"), MOST_CPUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = tree.path().join(FOLDER).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn nodes_have_memory_and_processors() {
        let tree = tree(&[("has_memory", "0,2-3\n"), ("node0/cpulist", "0-1,8\n"), ("node2/cpulist", "\n")]);
        let root = Root::at(tree.path());
        assert_eq!((with_memory(&root).unwrap(), are_several(&root).unwrap()), (vec![0, 2, 3], true));
        assert_eq!((processors(&root, 0).unwrap(), processors(&root, 2).unwrap()), (vec![0, 1, 8], vec![]));
        assert!(processors(&root, 3).unwrap_err().is_absent());
    }

    #[test]
    fn a_kernel_without_nodes_has_one() {
        let tree = tree(&[]);
        assert!(!are_several(&Root::at(tree.path())).unwrap());
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for text in ["0-", "0-1024", "one"] {
            let tree = tree(&[("has_memory", text)]);
            assert!(with_memory(&Root::at(tree.path())).is_err(), "{text}");
        }
    }

    #[test]
    fn this_machine_is_read() {
        assert!(!with_memory(&Root::host()).unwrap().is_empty());
    }
}
