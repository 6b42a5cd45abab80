//! The mappings of a process and their contents, from `/proc/PID/smaps`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst). Never touches: what is mapped there. Reading it makes the kernel count every
//! page: some 10 ms/GiB of base pages, mapping by mapping under the target's mmap lock.

use heat::units::Bytes;

use crate::lines::kilobytes;
use crate::{KernelError, Malformed, Root, maps, vm_flags};

/// The bound on the file: some 800 bytes for each of 300,000 mappings; Linux allows a process 65,530 unless told otherwise.
pub const LIMIT: Bytes = Bytes(256 << 20);

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmapsMapping {
    /// Its line in `maps`.
    pub line: maps::Line,
    /// Memory present. The shared zero page and hugetlb pages are not counted.
    pub resident: Bytes,
    /// Memory present, each page divided by the number of processes that have it.
    pub proportional: Bytes,
    /// The part of present memory that belongs to no file, nor to shared memory.
    pub anonymous: Bytes,
    /// The part of present memory that was given back by `MADV_FREE`, not written since, and not reclaimed yet.
    pub lazily_freed: Bytes,
    /// Memory mapped by entries of 2 MiB or more, hugetlb pages included.
    pub huge: Bytes,
    /// The part of it that is shared memory on transparent huge pages.
    pub shared_huge: Bytes,
    /// The part of it that is a file on transparent huge pages.
    pub file_huge: Bytes,
    /// Bytes in each page with which the kernel maps it.
    pub page_size: Bytes,
    /// Pages of a hugetlb pool that only this mapping has.
    pub hugetlb_private: Bytes,
    /// Pages of a hugetlb pool that others also have.
    pub hugetlb_shared: Bytes,
    /// Bits of [`vm_flags`].
    pub flags: u64,
}

/// The mappings of one process in ascending order; none for a kernel thread or a zombie.
///
/// Errors: as [`maps::read`].
pub fn read(root: &Root, pid: u32) -> Result<Vec<SmapsMapping>, KernelError> {
    let (name, mut mappings) = (format!("proc/{pid}/smaps"), Vec::new());
    root.each_line(&name, LIMIT, |number, line| {
        let malformed = |cause| KernelError::Malformed { path: root.path(&name), cause };
        take_line(&mut mappings, number, line).map_err(malformed)?;
        maps::ensure_few(root, &name, mappings.len())
    })?;
    Ok(mappings)
}

/// Parses the text of an `smaps` file.
///
/// Errors: a line is neither a mapping nor a field of one, or a needed field has no size such as `8 kB`.
pub fn parse(text: &str) -> Result<Vec<SmapsMapping>, Malformed> {
    let mut mappings: Vec<SmapsMapping> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        take_line(&mut mappings, index + 1, line)?;
    }
    Ok(mappings)
}

/// Begins a mapping, or stores a field of the last one.
fn take_line(mappings: &mut Vec<SmapsMapping>, number: usize, line: &str) -> Result<(), Malformed> {
    let malformed = || Malformed::new(number, "a mapping or a field of one, such as 'Rss: 8 kB'", line);
    if let Some(line) = maps::parse_line(line) {
        mappings.push(SmapsMapping { line, ..SmapsMapping::default() });
        return Ok(());
    }
    let (name, value) = line.split_once(':').ok_or_else(malformed)?;
    mappings.last_mut().and_then(|mapping| mapping.take(name, value.trim())).ok_or_else(malformed)
}

impl SmapsMapping {
    /// Stores one field; fields that are not needed are skipped.
    fn take(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "Rss" => self.resident = kilobytes(value)?,
            "Pss" => self.proportional = kilobytes(value)?,
            "LazyFree" => self.lazily_freed = kilobytes(value)?,
            "KernelPageSize" => self.page_size = kilobytes(value)?,
            "Anonymous" => self.anonymous = kilobytes(value)?,
            "AnonHugePages" => self.huge += kilobytes(value)?,
            "ShmemPmdMapped" => {
                self.shared_huge = kilobytes(value)?;
                self.huge += self.shared_huge;
            }
            "FilePmdMapped" => {
                self.file_huge = kilobytes(value)?;
                self.huge += self.file_huge;
            }
            "Private_Hugetlb" => {
                self.hugetlb_private = kilobytes(value)?;
                self.huge += self.hugetlb_private;
            }
            "Shared_Hugetlb" => {
                self.hugetlb_shared = kilobytes(value)?;
                self.huge += self.hugetlb_shared;
            }
            "VmFlags" => self.flags = vm_flags::from_letters(value),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use heat::units::{Address, AddressRange};
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
555d5b10b000-555d5b12c000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
KernelPageSize:        4 kB
Rss:                  20 kB
Pss:                  12 kB
Anonymous:            16 kB
LazyFree:              8 kB
AnonHugePages:      2048 kB
Private_Hugetlb:    4096 kB
THPeligible:           0
VmFlags: rd wr mr mw me ac nh
7f0000000000-7f0000001000 rw-s 00000000 00:01 7 /memfd:Size: (deleted)
Rss:                   0 kB
ShmemPmdMapped:     2048 kB
FilePmdMapped:      8192 kB
VmFlags: rd wr sh mr mw me ms sd
";

    #[test]
    fn mappings_are_understood() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(mappings.len(), 2);
        let heap = &mappings[0];
        assert_eq!(heap.line.range, AddressRange { start: Address(0x555d5b10b000), end: Address(0x555d5b12c000) });
        assert_eq!((heap.resident, heap.lazily_freed, heap.huge), (Bytes(20 << 10), Bytes(8 << 10), Bytes(6 << 20)));
        assert_eq!((heap.anonymous, heap.shared_huge, heap.file_huge), (Bytes(16 << 10), Bytes(0), Bytes(0)));
        assert_eq!((mappings[1].shared_huge, mappings[1].file_huge), (Bytes(2 << 20), Bytes(8 << 20)));
        assert_eq!(mappings[1].huge, Bytes(10 << 20));
        assert_eq!((heap.proportional, mappings[1].proportional), (Bytes(12 << 10), Bytes(0)));
        assert_eq!((heap.page_size, heap.hugetlb_private + heap.hugetlb_shared), (Bytes(4 << 10), Bytes(4 << 20)));
        assert_eq!(
            (heap.flags, mappings[1].flags),
            (vm_flags::MAY_WRITE | vm_flags::NOHUGEPAGE, vm_flags::MAY_WRITE | vm_flags::SHARED)
        );
        assert_eq!(mappings[1].line.name, "/memfd:Size: (deleted)");
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (line, text) in [(1, "Rss: 8 kB\n"), (17, &format!("{TEXT}Rss: 8 MB\n")), (17, &format!("{TEXT}nothing\n"))]
        {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn our_own_mappings_are_those_of_maps() {
        let mappings = read(&Root::host(), std::process::id()).unwrap();
        let stack = mappings.iter().find(|mapping| mapping.line.name == "[stack]").unwrap();
        assert!(stack.flags & vm_flags::GROWSDOWN != 0 && stack.resident > Bytes(0));
        assert!(mappings.windows(2).all(|pair| pair[0].line.range.end <= pair[1].line.range.start));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(1000-2000 rw-p 0 0:0 0\n)?((Rss|LazyFree|VmFlags|.{0,6}):.{0,12}\n|.{0,20}\n){0,8}"
        ) {
            let _ = parse(&text);
        }
    }
}
