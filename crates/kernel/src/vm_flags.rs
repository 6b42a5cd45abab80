//! Flags of mappings, as the kernel stores them and as `/proc/PID/smaps` writes them.
//!
//! Owns: the bits that matter here (include/linux/mm.h; unchanged since Linux 2.6.38) and their two letters (Documentation/filesystems/proc.rst,
//! "VmFlags"). Never touches: a judgement of what they mean.

/// Other processes see writes.
pub const SHARED: u64 = 0x8;
/// It may be mapped for writing later. Of a shared mapping of a file: the file was opened for writing.
pub const MAY_WRITE: u64 = 0x20;
/// A program serves page faults on missing pages (userfaultfd).
pub const UFFD_MISSING: u64 = 0x200;
/// A program serves writes (userfaultfd).
pub const UFFD_WP: u64 = 0x1000;
/// A stack that grows automatically.
pub const GROWSDOWN: u64 = 0x100;
/// Page frames without a count, such as a device's.
pub const PFNMAP: u64 = 0x400;
/// A device's memory.
pub const IO: u64 = 0x4000;
/// `MAP_NORESERVE`.
pub const NORESERVE: u64 = 0x20_0000;
/// On reserved huge pages.
pub const HUGETLB: u64 = 0x40_0000;
/// Page frames with and without a count.
pub const MIXEDMAP: u64 = 0x1000_0000;
/// `MADV_HUGEPAGE`.
pub const HUGEPAGE: u64 = 0x2000_0000;
/// `MADV_NOHUGEPAGE`; since Linux 6.7 also what was mapped with `MAP_STACK`.
pub const NOHUGEPAGE: u64 = 0x4000_0000;

const LETTERS: [(&str, u64); 12] = [
    ("sh", SHARED),
    ("mw", MAY_WRITE),
    ("um", UFFD_MISSING),
    ("uw", UFFD_WP),
    ("nr", NORESERVE),
    ("gd", GROWSDOWN),
    ("pf", PFNMAP),
    ("io", IO),
    ("ht", HUGETLB),
    ("mm", MIXEDMAP),
    ("hg", HUGEPAGE),
    ("nh", NOHUGEPAGE),
];

/// The bits of a `VmFlags:` line; ignores the letters of other flags, because kernels add new ones.
pub fn from_letters(text: &str) -> u64 {
    let bit = |letters: &str| LETTERS.iter().find(|(known, _)| *known == letters).map_or(0, |(_, bit)| *bit);
    text.split_ascii_whitespace().map(bit).fold(0, |flags, bit| flags | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_become_bits() {
        assert_eq!(from_letters(" rd wr mr mw me ac sd nh "), MAY_WRITE | NOHUGEPAGE);
        assert_eq!(from_letters("rd wr sh mr mw me ms de ht sd"), SHARED | MAY_WRITE | HUGETLB);
        assert_eq!(from_letters("rd mr pf io de dd"), PFNMAP | IO);
        assert_eq!(from_letters("rd wr sh nr um uw"), SHARED | NORESERVE | UFFD_MISSING | UFFD_WP);
        assert_eq!(from_letters("rd wr mr mw me gd ac hg mm"), MAY_WRITE | GROWSDOWN | HUGEPAGE | MIXEDMAP);
        assert_eq!(from_letters(""), 0);
    }
}
