//! The state of the pools: their pages, their users, and the memory that remains for everything else.
//!
//! Owns: one scan of the pools. Never touches: the pools.

use heat::units::Bytes;
use kernel::hugetlb::{self, FileSystem, NodePool, Pool};
use kernel::hugetlb_limits::{self, Limit};
use kernel::memory::Meminfo;
use kernel::{KernelError, Root, mounts, optional};

use crate::users::{User, users};

/// One scan of the pools.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The machine's memory.
    pub memory: Meminfo,
    /// The page size for programs that specify none; `None` on a kernel without hugetlbfs.
    pub default_size: Option<Bytes>,
    /// All pools, by ascending page size.
    pub pools: Vec<Pool>,
    /// Each memory node's share of them.
    pub nodes: Vec<NodePool>,
    /// Processes that hold pages, those with the most first.
    pub users: Vec<User>,
    /// Processes that could not be examined, for lack of rights or because they have too many mappings.
    pub unseen: u64,
    /// Mounts of hugetlbfs.
    pub mounts: Vec<FileSystem>,
    /// The group that may put System V shared memory on huge pages; `None` on a kernel without hugetlbfs.
    pub shared_memory_group: Option<u32>,
    /// Limits of control groups.
    pub limits: Vec<Limit>,
}

impl View {
    /// Scans everything. Takes a moment per process, and longer for those that use the pools.
    ///
    /// Errors: `/proc/meminfo`, a pool, a limit or the mappings of a process cannot be read, or are malformed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let mounts = optional(mounts::read(root))?.unwrap_or_default();
        let (users, unseen) = users(root, &mounts)?;
        Ok(Self {
            memory: Meminfo::read(root)?,
            default_size: hugetlb::default_size(root)?,
            pools: hugetlb::pools(root)?,
            nodes: hugetlb::node_pools(root)?,
            users,
            unseen,
            mounts: mounts.iter().filter_map(FileSystem::of).collect(),
            shared_memory_group: hugetlb::shared_memory_group(root)?,
            limits: hugetlb_limits::read(root)?,
        })
    }

    /// Memory in the pools, used or not.
    pub fn held(&self) -> Bytes {
        self.pools.iter().map(|pool| Bytes(pool.total.saturating_mul(pool.page_size.0))).sum()
    }

    /// Memory that the pools leave for ordinary programs, page cache and the kernel.
    pub fn left(&self) -> Bytes {
        self.memory.total.saturating_sub(self.held())
    }

    /// Memory in the pools that is neither in use nor reserved.
    pub fn idle(&self) -> Bytes {
        self.pools.iter().map(|pool| Bytes(pool.available().saturating_mul(pool.page_size.0))).sum()
    }

    /// Whether ordinary programs are short of memory while the pools have more than that idle.
    pub fn starves_programs(&self) -> bool {
        self.memory.available.0 < self.memory.total.0 / 16 && self.idle() > self.memory.available
    }
}

/// Whether a pool has free pages but none available: all of them are reserved.
pub fn is_all_promised(pool: &Pool) -> bool {
    pool.free > 0 && pool.available() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_pools_hold_is_not_left_for_programs() {
        // A real case: 123 of 128 GiB reserved.
        let pool = Pool { page_size: Bytes(1 << 30), total: 123, free: 120, reserved: 20, surplus: 0, overcommit: 0 };
        let memory = Meminfo { total: Bytes(128 << 30), available: Bytes(4 << 30), ..Meminfo::default() };
        let view = View {
            memory,
            default_size: None,
            pools: vec![pool],
            nodes: Vec::new(),
            users: Vec::new(),
            unseen: 0,
            mounts: Vec::new(),
            shared_memory_group: None,
            limits: Vec::new(),
        };
        assert_eq!([view.held(), view.left(), view.idle()], [123, 5, 100].map(|gib| Bytes(gib << 30)));
        assert!(view.starves_programs());
        let roomy = View { memory: Meminfo { available: Bytes(9 << 30), ..memory }, ..view };
        assert!(!roomy.starves_programs());
    }

    #[test]
    fn free_pages_may_all_be_promised() {
        let pool = Pool { page_size: Bytes(2 << 20), total: 9, free: 4, reserved: 4, surplus: 0, overcommit: 0 };
        assert!(is_all_promised(&pool));
        assert!(!is_all_promised(&Pool { free: 5, ..pool }));
        assert!(!is_all_promised(&Pool { free: 0, reserved: 0, ..pool }), "all are in use, which is no riddle");
    }

    #[test]
    fn this_machine_is_read() {
        let view = View::read(&Root::host()).unwrap();
        assert!(view.left() <= view.memory.total);
    }
}
