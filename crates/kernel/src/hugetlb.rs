//! The pools of reserved huge pages, from `/sys/kernel/mm/hugepages`, and the file systems that provide their pages.
//!
//! Owns: those files and those of each memory node (Documentation/admin-guide/mm/hugetlbpage.rst). Never touches: the pools' sizes.

use heat::units::Bytes;
use serde::{Serialize, Serializer};

use crate::memory::Meminfo;
use crate::mounts::Mount;
use crate::root::optional;
use crate::{KernelError, Root};

/// The directory of the pools, with one directory per page size.
pub const DIRECTORY: &str = "sys/kernel/mm/hugepages";
/// The directory of the memory nodes.
const NODES: &str = "sys/devices/system/node";

/// The pool of one page size; counts are in pages of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes in one page of this pool.
    pub page_size: Bytes,
    /// Pages in the pool, in use or not.
    pub total: u64,
    /// Pages not in use, including reserved ones.
    pub free: u64,
    /// Pages not in use yet but reserved for a mapping.
    pub reserved: u64,
    /// Pages beyond the pool's size, taken on demand.
    pub surplus: u64,
    /// The most such pages that may be taken.
    pub overcommit: u64,
}

impl Pool {
    /// Pages that can still be allocated: free and not reserved.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Pages that stay in the pool when they are not used: all but the surplus.
    pub fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }

    /// Pages that programs hold.
    pub fn in_use(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// The directory of a page size's pool, from the top of the tree.
    pub fn directory(page_size: Bytes) -> String {
        format!("{DIRECTORY}/hugepages-{}kB", page_size.0 >> 10)
    }
}

/// The part of a pool on one memory node; counts are in pages, as in [`Pool`]. Reservations are not counted by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodePool {
    /// The memory node.
    pub node: u32,
    /// Bytes in one page.
    #[serde(skip)]
    pub page_size: Bytes,
    /// Pages on this node, in use or not.
    pub total: u64,
    /// Pages not in use, including reserved ones.
    pub free: u64,
    /// Pages beyond the pool's size.
    pub surplus: u64,
}

impl NodePool {
    /// Pages that stay on this node when they are not used.
    pub fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }

    /// The directory of a page size's pool on a node, from the top of the tree.
    pub fn directory(node: u32, page_size: Bytes) -> String {
        format!("{NODES}/node{node}/hugepages/hugepages-{}kB", page_size.0 >> 10)
    }
}

/// A mounted hugetlbfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Where it is mounted.
    #[serde(rename = "path")]
    pub point: String,
    /// Bytes in each of its pages.
    #[serde(rename = "page_size_bytes")]
    pub page_size: Bytes,
    /// The most that its files may hold; `None` if only the pool limits them.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<Bytes>,
    /// Memory reserved for it as long as it is mounted.
    #[serde(rename = "least_bytes")]
    pub least: Option<Bytes>,
    /// User id of the top directory's owner.
    pub uid: u32,
    /// Group id of the top directory.
    pub gid: u32,
    /// Permissions of the top directory: 0o755.
    #[serde(serialize_with = "in_octal")]
    pub mode: u32,
}

fn in_octal<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:o}"))
}

impl FileSystem {
    /// From its mount; `None` for any other file system.
    pub fn of(mount: &Mount) -> Option<Self> {
        let size = |name| mount.option(name).and_then(|value| value.parse().ok());
        let id = |name| mount.option(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        let mode = mount.option("mode").and_then(|octal| u32::from_str_radix(octal, 8).ok());
        (mount.kind == "hugetlbfs").then_some(Self {
            point: mount.point.clone(),
            page_size: size("pagesize")?,
            limit: size("size"),
            least: size("min_size"),
            uid: id("uid"),
            gid: id("gid"),
            mode: mode.unwrap_or(0o755),
        })
    }
}

/// The memory nodes, ascending; none on a kernel without NUMA.
///
/// Errors: `/sys/devices/system/node` exists but cannot be listed.
pub fn nodes(root: &Root) -> Result<Vec<u32>, KernelError> {
    let names = optional(root.entries(NODES))?.unwrap_or_default();
    let mut nodes: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    nodes.sort_unstable();
    Ok(nodes)
}

/// Each node's part of each pool, by page size, then by node. A node without memory has no pools.
///
/// Errors: a node's directory cannot be listed, or one of its counts is missing or not a number.
pub fn node_pools(root: &Root) -> Result<Vec<NodePool>, KernelError> {
    let mut pools = Vec::new();
    for node in nodes(root)? {
        let names = optional(root.entries(&format!("{NODES}/node{node}/hugepages")))?.unwrap_or_default();
        for page_size in names.iter().filter_map(|name| page_size(name)) {
            let directory = NodePool::directory(node, page_size);
            let number = |name: &str| root.number::<u64>(&format!("{directory}/{name}"));
            let (total, free, surplus) =
                (number("nr_hugepages")?, number("free_hugepages")?, number("surplus_hugepages")?);
            pools.push(NodePool { node, page_size, total, free, surplus });
        }
    }
    pools.sort_unstable_by_key(|pool| (pool.page_size, pool.node));
    Ok(pools)
}

/// The page size for programs that name none, to which `vm.nr_hugepages` applies; `None` on a kernel without hugetlbfs.
///
/// Errors: `/proc/meminfo` cannot be read, or its line `Hugepagesize:` is malformed.
pub fn default_size(root: &Root) -> Result<Option<Bytes>, KernelError> {
    let size = Meminfo::read(root)?.default_huge_page;
    Ok((size > Bytes(0)).then_some(size))
}

/// The group whose members may put System V shared memory on huge pages without CAP_IPC_LOCK; `None` on a kernel without hugetlbfs. To the kernel, 0
/// means nobody.
///
/// Errors: `/proc/sys/vm/hugetlb_shm_group` exists but cannot be read, or holds no number.
pub fn shared_memory_group(root: &Root) -> Result<Option<u32>, KernelError> {
    optional(root.number("proc/sys/vm/hugetlb_shm_group"))
}

/// `2M`, `1G`: a page size in the format of `hugepagesz=`.
pub fn size_name(size: Bytes) -> String {
    match size.0 >> 20 {
        0 => format!("{}K", size.0 >> 10),
        megabytes if megabytes.is_multiple_of(1 << 10) => format!("{}G", megabytes >> 10),
        megabytes => format!("{megabytes}M"),
    }
}

/// All pools, by ascending page size; none on a kernel without hugetlbfs.
///
/// Errors: `/sys/kernel/mm/hugepages` exists but cannot be listed, or a pool's count is missing or not a number.
pub fn pools(root: &Root) -> Result<Vec<Pool>, KernelError> {
    let names = optional(root.entries(DIRECTORY))?.unwrap_or_default();
    let mut sizes: Vec<Bytes> = names.iter().filter_map(|name| page_size(name)).collect();
    sizes.sort();
    sizes.into_iter().map(|size| pool(root, size)).collect()
}

/// The pool of one page size. Errors: there is none of that size (`is_absent`), a count that is not a number.
pub fn pool(root: &Root, page_size: Bytes) -> Result<Pool, KernelError> {
    let directory = Pool::directory(page_size);
    let number = |name: &str| root.number::<u64>(&format!("{directory}/{name}"));
    Ok(Pool {
        page_size,
        total: number("nr_hugepages")?,
        free: number("free_hugepages")?,
        reserved: number("resv_hugepages")?,
        surplus: number("surplus_hugepages")?,
        overcommit: number("nr_overcommit_hugepages")?,
    })
}

/// The page size in a directory's name: 2 MiB for `hugepages-2048kB`.
pub fn page_size(directory: &str) -> Option<Bytes> {
    let digits = directory.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    let kilobytes: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    kilobytes.checked_mul(1 << 10).filter(|&bytes| bytes > 0).map(Bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn tree_with(counts: [&str; 5]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let pool = tree.path().join(Pool::directory(Bytes(2 << 20)));
        fs::create_dir_all(&pool).unwrap();
        let names =
            ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages", "nr_overcommit_hugepages"];
        for (name, count) in names.into_iter().zip(counts) {
            fs::write(pool.join(name), count).unwrap();
        }
        tree
    }

    #[test]
    fn promised_pages_are_not_available() {
        let tree = tree_with(["123\n", "40\n", "36\n", "0\n", "5\n"]);
        let pools = pools(&Root::at(tree.path())).unwrap();
        let expected =
            Pool { page_size: Bytes(2 << 20), total: 123, free: 40, reserved: 36, surplus: 0, overcommit: 5 };
        assert_eq!(pools, [expected]);
        assert_eq!((pools[0].available(), pools[0].in_use()), (4, 83));
        assert_eq!(Pool { surplus: 3, ..expected }.persistent(), 120);
        // The counts are read one after the other, so the reserved pages can exceed the free ones for a moment.
        assert_eq!(Pool { free: 3, reserved: 5, ..expected }.available(), 0);
    }

    #[test]
    fn a_kernel_without_pools_has_none_and_a_bad_count_is_an_error() {
        assert_eq!(pools(&Root::at(tempfile::tempdir().unwrap().path())).unwrap(), []);
        let tree = tree_with(["123", "", "0", "0", "0"]);
        assert!(pools(&Root::at(tree.path())).unwrap_err().to_string().contains("free_hugepages"));
    }

    #[test]
    fn each_node_has_its_part() {
        let tree = tempfile::tempdir().unwrap();
        for (node, counts) in [(1, ["9", "4", "1"]), (0, ["7", "0", "0"])] {
            let pool = tree.path().join(NodePool::directory(node, Bytes(2 << 20)));
            fs::create_dir_all(&pool).unwrap();
            for (name, count) in ["nr_hugepages", "free_hugepages", "surplus_hugepages"].into_iter().zip(counts) {
                fs::write(pool.join(name), count).unwrap();
            }
        }
        fs::create_dir_all(tree.path().join("sys/devices/system/node/node2")).unwrap();
        let root = Root::at(tree.path());
        let pools = node_pools(&root).unwrap();
        let counts: Vec<_> = pools.iter().map(|pool| (pool.node, pool.total, pool.free, pool.persistent())).collect();
        assert_eq!(counts, [(0, 7, 0, 7), (1, 9, 4, 8)]);
        assert_eq!(nodes(&root).unwrap(), [0, 1, 2], "a node without memory is a node");
        assert_eq!(nodes(&Root::at(tree.path().join("none"))).unwrap(), [0; 0]);
    }

    #[test]
    fn the_default_size_and_the_group_are_read() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        fs::create_dir_all(tree.path().join("proc/sys/vm")).unwrap();
        fs::write(tree.path().join("proc/meminfo"), "MemTotal: 1 kB\n").unwrap();
        assert_eq!((default_size(&root).unwrap(), shared_memory_group(&root).unwrap()), (None, None));
        fs::write(tree.path().join("proc/meminfo"), "MemTotal: 1 kB\nHugepagesize:       2048 kB\n").unwrap();
        fs::write(tree.path().join("proc/sys/vm/hugetlb_shm_group"), "27\n").unwrap();
        assert_eq!(
            (default_size(&root).unwrap(), shared_memory_group(&root).unwrap()),
            (Some(Bytes(2 << 20)), Some(27))
        );
        fs::write(tree.path().join("proc/meminfo"), "Hugepagesize: x kB\n").unwrap();
        assert!(default_size(&root).unwrap_err().to_string().contains("Hugepagesize: x kB"));
    }

    #[test]
    fn a_file_system_is_known_by_its_options() {
        let of = |line: &str| FileSystem::of(&Mount::parse(line).unwrap());
        let full = of(
            "61 23 0:54 / /h rw - hugetlbfs none rw,uid=7,gid=27,mode=1770,pagesize=1024M,size=4294967296,min_size=1073741824",
        );
        let expected = FileSystem {
            point: "/h".into(),
            page_size: Bytes(1 << 30),
            limit: Some(Bytes(4 << 30)),
            least: Some(Bytes(1 << 30)),
            uid: 7,
            gid: 27,
            mode: 0o1770,
        };
        assert_eq!(full, Some(expected));
        let plain = of("30 23 0:27 / /dev/hugepages rw shared:9 - hugetlbfs hugetlbfs rw,pagesize=2M").unwrap();
        assert_eq!((plain.page_size, plain.limit, plain.uid, plain.mode), (Bytes(2 << 20), None, 0, 0o755));
        assert_eq!(of("30 23 0:27 / /t rw - tmpfs t rw,pagesize=2M"), None);
    }

    #[test]
    fn page_sizes_are_spelt_for_the_boot_loader() {
        assert_eq!([2 << 20, 1 << 30, 64 << 10].map(|size| size_name(Bytes(size))), ["2M", "1G", "64K"]);
    }

    #[test]
    fn names_state_sizes() {
        assert_eq!(page_size("hugepages-1048576kB"), Some(Bytes(1 << 30)));
        for name in ["hugepages-kB", "hugepages-+4kB", "hugepages-0kB", "hugepages-18446744073709551615kB", "2048kB"] {
            assert_eq!(page_size(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_parsed_or_refused(name in "hugepages-.{0,22}kB|.{0,20}") {
            if let Some(size) = page_size(&name) {
                prop_assert_eq!(size.0 % 1024, 0);
            }
        }
    }
}
