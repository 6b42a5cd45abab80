//! The pools of reserved huge pages, from `/sys/kernel/mm/hugepages`.
//!
//! Owns: those files (Documentation/admin-guide/mm/hugetlbpage.rst). Never touches: the pools' sizes.

use super::root::optional;
use super::{KernelError, Root};
use crate::units::Bytes;

/// Where the pools are, one directory a page size.
pub const DIRECTORY: &str = "sys/kernel/mm/hugepages";

/// The pool of one page size; counts are in pages of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes in one page of this pool.
    pub page_size: Bytes,
    /// Pages in the pool, in use or not.
    pub total: u64,
    /// Pages not in use, promised ones included.
    pub free: u64,
    /// Pages not in use yet but promised to a mapping.
    pub reserved: u64,
    /// Pages beyond the pool's size, taken on demand.
    pub surplus: u64,
    /// How many such pages may be taken.
    pub overcommit: u64,
}

impl Pool {
    /// Pages that can still be given out: the free ones that are promised to nobody.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// The directory of a page size's pool, named from the top of the tree.
    pub fn directory(page_size: Bytes) -> String {
        format!("{DIRECTORY}/hugepages-{}kB", page_size.0 >> 10)
    }
}

/// All pools, by ascending page size; none on a kernel without hugetlbfs.
pub fn pools(root: &Root) -> Result<Vec<Pool>, KernelError> {
    let names = optional(root.entries(DIRECTORY))?.unwrap_or_default();
    let mut sizes: Vec<Bytes> = names.iter().filter_map(|name| page_size(name)).collect();
    sizes.sort();
    sizes.into_iter().map(|size| read(root, size)).collect()
}

fn read(root: &Root, page_size: Bytes) -> Result<Pool, KernelError> {
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

/// The page size that a directory's name states: 2 MiB for `hugepages-2048kB`.
pub fn page_size(directory: &str) -> Option<Bytes> {
    let digits = directory.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    let kilobytes: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    kilobytes.checked_mul(1 << 10).filter(|&bytes| bytes > 0).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

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
        assert_eq!(pools[0].available(), 4);
        // The counts are read one after the other, so the promised pages can exceed the free ones for a moment.
        assert_eq!(Pool { free: 3, reserved: 5, ..expected }.available(), 0);
    }

    #[test]
    fn a_kernel_without_pools_has_none_and_a_bad_count_is_an_error() {
        assert_eq!(pools(&Root::at(tempfile::tempdir().unwrap().path())).unwrap(), []);
        let tree = tree_with(["123", "", "0", "0", "0"]);
        assert!(pools(&Root::at(tree.path())).unwrap_err().to_string().contains("free_hugepages"));
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
