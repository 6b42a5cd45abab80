//! This process's mappings, as the kernel lists them, read with what fits on the stack of a signal handler.
//!
//! Owns: the few fields of `/proc/self/maps` (proc(5)) that count here. Never touches: the mappings.

use std::ffi::c_int;

use crate::system::Reader;

/// More of a line holds nothing but the rest of a long name.
const LINE: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: usize,
    /// Address after the last byte.
    pub end: usize,
    /// `PROT_*`
    pub rights: c_int,
    /// Private memory on reserved huge pages.
    pub from_pool: bool,
    /// A file's contents, private to this process.
    pub of_file: bool,
}

impl Mapping {
    /// What it has of a range.
    pub fn part_of(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let (start, end) = (self.start.max(start), self.end.min(end));
        (start < end).then_some((start, end))
    }
}

/// Shows each mapping, ascending. None where the list cannot be read; some may have been shown then.
pub fn each(mut show: impl FnMut(&Mapping)) -> Option<()> {
    let mut file = Reader::open(c"/proc/self/maps")?;
    let mut line = Line { bytes: [0; LINE], length: 0 };
    let mut buffer = [0; 1024];
    loop {
        let read = file.read(&mut buffer).ok()?;
        if read == 0 {
            return Some(());
        }
        buffer.iter().take(read).filter_map(|&byte| line.push(byte)).for_each(|mapping| show(&mapping));
    }
}

struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    /// What the line says, when it is complete.
    fn push(&mut self, byte: u8) -> Option<Mapping> {
        if byte == b'\n' {
            let length = std::mem::take(&mut self.length);
            return parse(self.bytes.get(..length)?);
        }
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
        None
    }
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut ends = fields.next()?.split(|&byte| byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next()??, ends.next()??);
    let letters = fields.next()?;
    let right = |place: usize, letter: u8, right| if letters.get(place) == Some(&letter) { right } else { 0 };
    let rights = right(0, b'r', libc::PROT_READ) | right(1, b'w', libc::PROT_WRITE) | right(2, b'x', libc::PROT_EXEC);
    let private = letters.get(3) == Some(&b'p');
    let name = fields.nth(3).unwrap_or_default();
    let from_pool = private && name.starts_with(b"/anon_hugepage");
    Some(Mapping { start, end, rights, from_pool, of_file: private && !from_pool && name.starts_with(b"/") })
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
        assert_eq!(parse(pooled), Some(Mapping { start, end, rights, from_pool: true, of_file: false }));
        let text = parse(b"400000-401000 r-xp 00001000 08:01 12 /usr/bin/a program").unwrap();
        assert!(text.of_file && text.rights == libc::PROT_READ | libc::PROT_EXEC);
        let anonymous = parse(b"7f0000000000-7f0000001000 ---p 00000000 00:00 0 ").unwrap();
        assert!(!anonymous.of_file && !anonymous.from_pool && anonymous.rights == 0);
        assert!(!parse(b"1000-2000 rw-s 00000000 00:10 9 /anon_hugepage (deleted)").unwrap().from_pool);
        for broken in [&b""[..], b"1000", b"x-y rw-p", b"1000-2000", b"-", b"1000-ffffffffffffffffff rw-p 0 0 0"] {
            assert_eq!(parse(broken), None, "{}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn long_lines_are_cut_and_the_next_is_whole() {
        let mut line = Line { bytes: [0; LINE], length: 0 };
        let text = format!("1000-2000 r--p 0 08:01 7 /{}\n3000-4000 rw-p 0 00:00 0\n", "x".repeat(5000));
        let found: Vec<_> =
            text.bytes().filter_map(|byte| line.push(byte)).map(|found| (found.start, found.of_file)).collect();
        assert_eq!(found, [(0x1000, true), (0x3000, false)]);
    }

    #[test]
    fn this_process_has_text_and_a_stack() {
        let (mut text, mut stack) = (false, false);
        let local = 0;
        let [function, local] = [parse as fn(&[u8]) -> Option<Mapping> as usize, &raw const local as usize];
        each(|mapping| {
            text |= mapping.of_file && mapping.part_of(function, function + 1).is_some();
            stack |= !mapping.of_file && mapping.part_of(local, local + 1).is_some();
        });
        assert!(text && stack);
    }
}
