//! The machine's memory, from `/proc/meminfo`.
//!
//! Owns: the lines needed from that file (Documentation/filesystems/proc.rst). Never touches: settings.

use heat::units::Bytes;

use crate::lines::{kilobytes, take_fields};
use crate::{KernelError, Malformed, Root};

/// The lines needed of `meminfo`; 0 for a line that the kernel does not print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    /// Usable memory.
    pub total: Bytes,
    /// Memory that nothing uses.
    pub free: Bytes,
    /// Memory that programs could get without swapping (the kernel's estimate).
    pub available: Bytes,
    /// Swap space.
    pub swap_total: Bytes,
    /// Unused swap space.
    pub swap_free: Bytes,
    /// Anonymous memory on transparent huge pages.
    pub anon_huge: Bytes,
    /// Shared memory on transparent huge pages.
    pub shmem_huge: Bytes,
    /// File memory on transparent huge pages.
    pub file_huge: Bytes,
    /// Memory in hugetlb pools of all sizes, used or not.
    pub hugetlb: Bytes,
    /// The huge page size that a program gets from a pool without naming one.
    pub default_huge_page: Bytes,
    /// Memory in page tables.
    pub page_tables: Bytes,
    /// Memory of processes that belongs to no file.
    pub anonymous: Bytes,
    /// Files in memory that some process maps, including mapped shared memory.
    pub mapped: Bytes,
    /// Shared memory and tmpfs.
    pub shared: Bytes,
    /// Files in memory, shared memory included.
    pub cached: Bytes,
    /// Block devices in memory.
    pub buffers: Bytes,
    /// Written file memory for which write-back has not begun.
    pub dirty: Bytes,
    /// File memory being written back.
    pub writeback: Bytes,
    /// File memory, including block devices, that the kernel may reclaim: neither shared memory nor locked.
    pub takeable_files: Bytes,
}

impl Meminfo {
    /// File memory that some process maps. The kernel does not say how much of it is shared memory; `shared_part`, 0 to 1, does.
    pub fn mapped_files(&self, shared_part: f64) -> Bytes {
        self.mapped.saturating_sub(self.mapped.share(shared_part).min(self.shared))
    }

    /// A lower bound of the file memory that no process maps and that is reclaimable.
    pub fn unmapped_cache(&self, shared_part: f64) -> Bytes {
        self.takeable_files.saturating_sub(self.mapped_files(shared_part))
    }

    /// Reads `/proc/meminfo`.
    ///
    /// Errors: `/proc/meminfo` cannot be read, holds a malformed size, or lacks `MemTotal`.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/meminfo", Root::LIMIT, Self::parse)
    }

    /// Parses the text of `meminfo`.
    ///
    /// Errors: a needed line has no size such as `12 kB`, or `MemTotal` is missing.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut memory = Self::default();
        take_fields(text, |key, value| {
            let field = match key {
                "MemTotal" => &mut memory.total,
                "MemFree" => &mut memory.free,
                "MemAvailable" => &mut memory.available,
                "SwapTotal" => &mut memory.swap_total,
                "SwapFree" => &mut memory.swap_free,
                "AnonHugePages" => &mut memory.anon_huge,
                "ShmemHugePages" => &mut memory.shmem_huge,
                "FileHugePages" => &mut memory.file_huge,
                "Hugetlb" => &mut memory.hugetlb,
                "Hugepagesize" => &mut memory.default_huge_page,
                "PageTables" => &mut memory.page_tables,
                "AnonPages" => &mut memory.anonymous,
                "Mapped" => &mut memory.mapped,
                "Shmem" => &mut memory.shared,
                "Cached" => &mut memory.cached,
                "Buffers" => &mut memory.buffers,
                "Dirty" => &mut memory.dirty,
                "Writeback" => &mut memory.writeback,
                // The sum of two lines.
                "Active(file)" | "Inactive(file)" => &mut memory.takeable_files,
                _ => return Some(()),
            };
            *field += kilobytes(value)?;
            Some(())
        })?;
        match memory.total {
            Bytes(0) => Err(Malformed::missing(text, "a line 'MemTotal:'")),
            _ => Ok(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_wanted_lines_are_taken() {
        let text = "MemTotal:       24684084 kB\nMemFree:        20320160 kB\nMemAvailable:   24230344 kB\n\
                    AnonHugePages:      2048 kB\nHugePages_Total:       0\nHugetlb:            4096 kB\n";
        let memory = Meminfo::parse(text).unwrap();
        assert_eq!((memory.total, memory.free), (Bytes(24684084 << 10), Bytes(20320160 << 10)));
        assert_eq!((memory.available, memory.anon_huge), (Bytes(24230344 << 10), Bytes(2 << 20)));
        assert_eq!((memory.hugetlb, memory.swap_total), (Bytes(4 << 20), Bytes(0)));
        assert_eq!(Meminfo::parse("MemTotal: 1 kB\nMemFree: x\n").unwrap_err().line, 2);
        assert!(Meminfo::parse("").is_err());
    }

    #[test]
    fn what_nobody_maps_is_the_rest_of_the_files_in_memory() {
        let text = "MemTotal: 9000 kB\nMapped: 300 kB\nShmem: 200 kB\nActive(file): 250 kB\nInactive(file): 700 kB\nUnevictable: 8000 kB\n";
        let memory = Meminfo::parse(text).unwrap();
        let of = |shared_part| {
            [memory.mapped_files(shared_part), memory.unmapped_cache(shared_part)].map(|bytes| bytes.0 >> 10)
        };
        assert_eq!(of(0.0), [300, 650], "what is locked counts with neither");
        assert_eq!(of(0.5), [150, 800]);
        assert_eq!(of(1.0), [100, 850], "no more than there is");
        assert_eq!(Meminfo::default().unmapped_cache(0.0), Bytes(0));
    }

    #[test]
    fn this_machine_is_read() {
        let memory = Meminfo::read(&Root::host()).unwrap();
        assert!(memory.available <= memory.total && memory.free <= memory.total && memory.free > Bytes(0));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "((MemTotal|MemFree|Hugetlb|.{0,6}):.{0,20}\n){0,8}") {
            let _ = Meminfo::parse(&text);
        }
    }
}
