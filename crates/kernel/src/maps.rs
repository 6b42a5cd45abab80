//! The mappings of a process, from `/proc/PID/maps`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst). Never touches: what is mapped there.

use heat::units::{Address, AddressRange, Bytes};

use crate::lines::parse_lines;
use crate::{KernelError, Malformed, Root};

/// The bound on the file: 64 MiB hold some 600,000 mappings; Linux allows a process 65,530 unless told otherwise.
pub const LIMIT: Bytes = Bytes(64 << 20);

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its addresses; never empty.
    pub range: AddressRange,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Mapped shared (`s`) rather than private (`p`).
    pub shared: bool,
    /// Offset into the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device; 0, 0 for anonymous memory.
    pub device: (u32, u32),
    /// The file's inode; 0 for anonymous memory.
    pub inode: u64,
    /// The file, `[heap]`, `[stack]`, `[anon:...]`, or empty; a newline in a file's name is written as `\012`.
    pub name: String,
}

/// The mappings of one process in ascending order; none for a kernel thread or a zombie.
///
/// Errors: the process has ended (`is_gone`), the reader lacks CAP_SYS_PTRACE (`is_denied`), a malformed line.
pub fn read(root: &Root, pid: u32) -> Result<Vec<Line>, KernelError> {
    root.parsed(&format!("proc/{pid}/maps"), LIMIT, parse)
}

/// Parses the text of a `maps` file.
///
/// Errors: a line is not a mapping such as `7f00-7fff rw-p 00000000 00:00 0 [heap]`.
pub fn parse(text: &str) -> Result<Vec<Line>, Malformed> {
    parse_lines(text, "a mapping such as '7f00-7fff rw-p 00000000 00:00 0 [heap]'", parse_line)
}

/// Parses one line, which also begins a mapping in `smaps`.
pub(super) fn parse_line(line: &str) -> Option<Line> {
    let mut rest = Fields(line);
    let start = rest.hex(b'-')?;
    let end = rest.hex(b' ')?;
    let [r @ (b'r' | b'-'), w @ (b'w' | b'-'), x @ (b'x' | b'-'), s @ (b's' | b'p'), b' '] =
        *rest.0.as_bytes().get(..5)?
    else {
        return None;
    };
    rest = Fields(&rest.0[5..]);
    let offset = rest.hex(b' ')?;
    let device = (u32::try_from(rest.hex(b':')?).ok()?, u32::try_from(rest.hex(b' ')?).ok()?);
    // Only spaces pad the name; a file's name may end in one, so the end is not trimmed.
    let (inode, name) = rest.0.split_once(' ').unwrap_or((rest.0, ""));
    let inode = inode.parse().ok()?;
    (start < end).then(|| Line {
        range: AddressRange { start: Address(start), end: Address(end) },
        readable: r == b'r',
        writable: w == b'w',
        executable: x == b'x',
        shared: s == b's',
        offset,
        device,
        inode,
        name: name.trim_start_matches(' ').to_owned(),
    })
}

/// The rest of a line. Parsed by hand because a process may have 60,000 lines, read while it is being observed.
struct Fields<'a>(&'a str);

impl Fields<'_> {
    /// Takes 1 to 16 hexadecimal digits and the byte that must end them.
    fn hex(&mut self, end: u8) -> Option<u64> {
        let bytes = self.0.as_bytes();
        let mut value = 0;
        for (index, &byte) in bytes.iter().enumerate().take(17) {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ if byte == end && index > 0 => {
                    self.0 = &self.0[index + 1..];
                    return Some(value);
                }
                _ => return None,
            };
            if index == 16 {
                return None;
            }
            value = value << 4 | u64::from(digit);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAP: &str = "555d5b10b000-555d5b12c000 rw-p 00000000 00:00 0                          [heap]\n";

    #[test]
    fn a_heap_is_understood() {
        let lines = parse(HEAP).unwrap();
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        assert_eq!(line.range, AddressRange { start: Address(0x555d5b10b000), end: Address(0x555d5b12c000) });
        assert_eq!((line.readable, line.writable, line.executable, line.shared), (true, true, false, false));
        assert_eq!((line.offset, line.device, line.inode, line.name.as_str()), (0, (0, 0), 0, "[heap]"));
    }

    #[test]
    fn files_devices_and_names_with_spaces_are_understood() {
        let text = "7f048e730000-7f048e787000 r-xs 0001c000 103:0a 316526    /tmp/a b (deleted)\n\
                    7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let lines = parse(text).unwrap();
        assert_eq!((lines[0].device, lines[0].inode, lines[0].offset), ((0x103, 10), 316526, 0x1c000));
        assert_eq!((lines[0].name.as_str(), lines[0].shared, lines[0].executable), ("/tmp/a b (deleted)", true, true));
        assert_eq!((lines[1].name.as_str(), lines[1].readable), ("", false));
        assert_eq!(lines[2].range.len(), Bytes(0x1000));
    }

    #[test]
    fn a_malformed_line_is_named() {
        let bad = [
            "555d5b10b000 rw-p 00000000 00:00 0",
            "2000-1000 rw-p 00000000 00:00 0",
            "1000-1000 rw-p 00000000 00:00 0",
            "1000-2000 rw- 00000000 00:00 0",
            "1000-2000 rwzp 00000000 00:00 0",
            "1000-2000 rw-p 00000000 0000 0",
            "1000-2000 rw-p 00000000 00:00 x",
            "1000-2000 rw-p 00000000 00:00 ",
            "1000-11112222333344445 rw-p 00000000 00:00 0",
            "1000-é rw-p 00000000 00:00 0",
            "1000-2000 rw-é 00000000 00:00 0",
            "",
        ];
        for line in bad {
            let error = parse(&format!("{HEAP}{line}\n{HEAP}")).expect_err(line);
            assert_eq!((error.line, error.found.as_str()), (2, line));
        }
    }

    #[test]
    fn our_own_mappings_are_read() {
        let lines = read(&Root::host(), std::process::id()).unwrap();
        assert!(lines.iter().any(|line| line.name == "[stack]"));
        assert!(lines.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([0-9a-f]{1,17}-[0-9a-f]{1,17} [rwxsp-]{4} .{0,30}\n|.{0,40}\n){0,8}") {
            if let Ok(lines) = parse(&text) {
                prop_assert!(lines.len() <= text.lines().count());
                prop_assert!(lines.iter().all(|line| !line.range.is_empty()));
            }
        }

        #[test]
        fn every_mapping_is_read_back(
            start in 0..u64::MAX, len in 1u64.., flags in any::<[bool; 4]>(), offset: u64, device: (u32, u32), inode: u64,
            name in "(/[a-z ./\\\\]{0,20})?",
        ) {
            let range = AddressRange { start: Address(start), end: Address(start.saturating_add(len)) };
            let [readable, writable, executable, shared] = flags;
            let line = Line { range, readable, writable, executable, shared, offset, device, inode, name };
            prop_assert_eq!(parse(&print(&line)), Ok(vec![line]));
        }
    }

    /// As `show_map_vma` in fs/proc/task_mmu.c prints it.
    fn print(line: &Line) -> String {
        let flag = |set, letter| if set { letter } else { '-' };
        let (start, end, name) = (line.range.start.0, line.range.end.0, &line.name);
        let flags = [flag(line.readable, 'r'), flag(line.writable, 'w'), flag(line.executable, 'x')];
        let flags: String = flags.into_iter().chain([if line.shared { 's' } else { 'p' }]).collect();
        let (major, minor) = line.device;
        let header =
            format!("{start:08x}-{end:08x} {flags} {:08x} {major:02x}:{minor:02x} {} ", line.offset, line.inode);
        if name.is_empty() { format!("{header}\n") } else { format!("{header:<73}{name}\n") }
    }
}
