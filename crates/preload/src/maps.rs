//! This process's mappings, as the kernel lists them.
//!
//! Owns: the few relevant fields of `/proc/self/maps` (proc(5)). Never touches: the mappings.

use std::ffi::c_int;

use crate::lines;

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Private memory on reserved huge pages.
    Pooled,
    /// A segment of System V shared memory, on any kind of page.
    Segment,
    /// A file's contents, private to this process.
    File,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    pub start: usize,
    /// Address after the last byte.
    pub end: usize,
    /// `PROT_*`
    pub rights: c_int,
    pub kind: MappingKind,
}

impl MappedRange {
    /// Its intersection with a range.
    pub fn part_of(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let (start, end) = (self.start.max(start), self.end.min(end));
        (start < end).then_some((start, end))
    }
}

/// Passes on each mapping, ascending. None if the list cannot be read; some may have been passed on by then.
pub fn each(mut show: impl FnMut(&MappedRange)) -> Option<()> {
    lines::each(c"/proc/self/maps", |line| {
        if let Some(mapping) = parse(line) {
            show(&mapping);
        }
    })
}

fn parse(line: &[u8]) -> Option<MappedRange> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut ends = fields.next()?.split(|&byte| byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next()??, ends.next()??);
    let letters = fields.next()?;
    let right = |place: usize, letter: u8, right| if letters.get(place) == Some(&letter) { right } else { 0 };
    let rights = right(0, b'r', libc::PROT_READ) | right(1, b'w', libc::PROT_WRITE) | right(2, b'x', libc::PROT_EXEC);
    let name = fields.nth(3).unwrap_or_default();
    let kind = match letters.get(3) == Some(&b'p') {
        true if name.starts_with(b"/anon_hugepage") => MappingKind::Pooled,
        true if name.starts_with(b"/") => MappingKind::File,
        false if name.starts_with(b"/SYSV") => MappingKind::Segment,
        _ => MappingKind::Other,
    };
    Some(MappedRange { start, end, rights, kind })
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let pooled =
            b"200040000000-200044000000 rw-p 00000000 00:10 3079                       /anon_hugepage (deleted)";
        let (start, end) = (0x2000_4000_0000, 0x2000_4400_0000);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(parse(pooled), Some(MappedRange { start, end, rights, kind: MappingKind::Pooled }));
        let text = parse(b"400000-401000 r-xp 00001000 08:01 12 /usr/bin/a program").unwrap();
        assert!(text.kind == MappingKind::File && text.rights == libc::PROT_READ | libc::PROT_EXEC);
        let anonymous = parse(b"7f0000000000-7f0000001000 ---p 00000000 00:00 0 ").unwrap();
        assert!(anonymous.kind == MappingKind::Other && anonymous.rights == 0);
        let shared =
            |name: &str| parse(format!("1000-2000 rw-s 00000000 00:10 9 {name} (deleted)").as_bytes()).unwrap().kind;
        assert_eq!(shared("/SYSV00000000"), MappingKind::Segment);
        assert_eq!([shared("/anon_hugepage"), shared("/dev/shm/SYSV")], [MappingKind::Other; 2]);
        for broken in [&b""[..], b"1000", b"x-y rw-p", b"1000-2000", b"-", b"1000-ffffffffffffffffff rw-p 0 0 0"] {
            assert_eq!(parse(broken), None, "{}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn this_process_has_text_and_a_stack() {
        let (mut text, mut stack) = (false, false);
        let local = 0;
        let [function, local] = [parse as fn(&[u8]) -> Option<MappedRange> as usize, &raw const local as usize];
        each(|mapping| {
            text |= mapping.kind == MappingKind::File && mapping.part_of(function, function + 1).is_some();
            stack |= mapping.kind == MappingKind::Other && mapping.part_of(local, local + 1).is_some();
        });
        assert!(text && stack);
    }
}
