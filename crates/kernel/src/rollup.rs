//! How much of a process's memory is on huge pages, from `/proc/PID/smaps_rollup`.
//!
//! Owns: the lines needed from that file (Documentation/filesystems/proc.rst). Never touches: the process. Reading it makes the kernel count every
//! page: some 10 ms/GiB of base pages, under the target's mmap lock, and next to nothing for huge pages.

use heat::units::Bytes;

use crate::Malformed;
use crate::lines::kilobytes;

/// Memory mapped by entries of 2 MiB or more, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Anonymous memory on transparent huge pages.
    pub anonymous: Bytes,
    /// Shared memory on transparent huge pages.
    pub shared: Bytes,
    /// Files on transparent huge pages.
    pub file: Bytes,
    /// A pool's pages (hugetlb), which resident memory does not include.
    pub reserved: Bytes,
}

impl Rollup {
    /// Parses the text of the file: a line like one of `maps`, then fields.
    ///
    /// Errors: a line after the first is not a field, or a needed one has no size such as `8 kB`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut rollup = Self::default();
        for (index, line) in text.lines().enumerate().skip(1) {
            let malformed = || Malformed::new(index + 1, "a field such as 'AnonHugePages: 8 kB'", line);
            let (name, value) = line.split_once(':').ok_or_else(malformed)?;
            let field = match name {
                "AnonHugePages" => &mut rollup.anonymous,
                "ShmemPmdMapped" => &mut rollup.shared,
                "FilePmdMapped" => &mut rollup.file,
                "Shared_Hugetlb" | "Private_Hugetlb" => &mut rollup.reserved,
                _ => continue,
            };
            *field += kilobytes(value.trim()).ok_or_else(malformed)?;
        }
        Ok(rollup)
    }

    /// Memory on transparent huge pages.
    pub fn transparent(&self) -> Bytes {
        self.anonymous + self.shared + self.file
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_taken_and_a_malformed_one_is_named() {
        let text = "555d5b10b000-7ffd0c9f1000 ---p 00000000 00:00 0                          [rollup]\n\
                    Rss:                  20 kB\nAnonHugePages:      2048 kB\nShmemPmdMapped:     4096 kB\n\
                    FilePmdMapped:         8 kB\nShared_Hugetlb:        1 kB\nPrivate_Hugetlb:    2047 kB\n";
        let rollup = Rollup::parse(text).unwrap();
        let mebibytes = |number: u64| Bytes(number << 20);
        assert_eq!((rollup.anonymous, rollup.shared, rollup.reserved), (mebibytes(2), mebibytes(4), mebibytes(2)));
        assert_eq!(rollup.transparent(), mebibytes(6) + Bytes(8 << 10));
        assert_eq!(Rollup::parse("").unwrap(), Rollup::default());
        assert_eq!(Rollup::parse(&format!("{text}AnonHugePages: 8 MB\n")).unwrap_err().line, 8);
        assert_eq!(Rollup::parse("rollup\nnothing\n").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "head\n((AnonHugePages|Shared_Hugetlb|.{0,6}):.{0,12}\n|.{0,20}\n){0,8}") {
            let _ = Rollup::parse(&text);
        }
    }
}
