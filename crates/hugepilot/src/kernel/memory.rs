//! The machine's memory, from `/proc/meminfo`.
//!
//! Owns: the lines wanted from that file (Documentation/filesystems/proc.rst). Never touches: settings.

use super::process::kilobytes;
use super::{KernelError, Malformed, Root};
use crate::units::Bytes;

/// The wanted lines of `meminfo`; 0 for a line that the kernel does not print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Usable memory.
    pub total: Bytes,
    /// Memory that nothing uses.
    pub free: Bytes,
    /// Memory that programs could get without swapping (an estimate of the kernel's).
    pub available: Bytes,
    /// Swap space.
    pub swap_total: Bytes,
    /// Swap space not used.
    pub swap_free: Bytes,
    /// Anonymous memory on transparent huge pages.
    pub anon_huge: Bytes,
    /// Shared memory on transparent huge pages.
    pub shmem_huge: Bytes,
    /// File memory on transparent huge pages.
    pub file_huge: Bytes,
    /// Memory in hugetlb pools of all sizes, used or not.
    pub hugetlb: Bytes,
    /// Memory in page tables.
    pub page_tables: Bytes,
}

impl Memory {
    /// Reads `/proc/meminfo`.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        root.parsed("proc/meminfo", Root::LIMIT, Self::parse)
    }

    /// Understands the text of `meminfo`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut memory = Self::default();
        for (index, line) in text.lines().enumerate() {
            let Some((key, value)) = line.split_once(':') else { continue };
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
                "PageTables" => &mut memory.page_tables,
                _ => continue,
            };
            *field =
                kilobytes(value.trim()).ok_or_else(|| Malformed::new(index + 1, "a size such as '12 kB'", line))?;
        }
        match memory.total {
            Bytes(0) => Err(Malformed::missing(text, "a line 'MemTotal:'")),
            _ => Ok(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wanted_lines_are_taken() {
        let text = "MemTotal:       24684084 kB\nMemFree:        20320160 kB\nMemAvailable:   24230344 kB\n\
                    AnonHugePages:      2048 kB\nHugePages_Total:       0\nHugetlb:            4096 kB\n";
        let memory = Memory::parse(text).unwrap();
        assert_eq!((memory.total, memory.free), (Bytes(24684084 << 10), Bytes(20320160 << 10)));
        assert_eq!((memory.available, memory.anon_huge), (Bytes(24230344 << 10), Bytes(2 << 20)));
        assert_eq!((memory.hugetlb, memory.swap_total), (Bytes(4 << 20), Bytes(0)));
        assert_eq!(Memory::parse("MemTotal: 1 kB\nMemFree: x\n").unwrap_err().line, 2);
        assert!(Memory::parse("").is_err());
    }

    #[test]
    fn this_machine_is_read() {
        let memory = Memory::read(&Root::host()).unwrap();
        assert!(memory.available <= memory.total && memory.free <= memory.total && memory.free > Bytes(0));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "((MemTotal|MemFree|Hugetlb|.{0,6}):.{0,20}\n){0,8}") {
            let _ = Memory::parse(&text);
        }
    }
}
