//! The mappings of a process, from `/proc/PID/maps`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst). Never touches: what is mapped there.

use heat::units::{Address, AddressRange, Bytes};

use crate::lines::parse_lines;
use crate::{KernelError, Malformed, Root};

/// The bound on the file, and so on the time that reading it takes.
pub const LIMIT: Bytes = Bytes(64 << 20);
/// The most mappings of a process. Linux allows 65,530 unless told otherwise, some distributions 1,048,576; this many take some 100 bytes each, and
/// the longest names three times that.
pub const MOST_MAPPINGS: usize = 1 << 18;
/// The most bytes kept of a name: programs choose their paths, and may map one 16,000 times.
pub const LONGEST_NAME: usize = 255;
/// Of these, the bytes kept of its start, by which memory without a file is told (`/memfd:`); the rest are of its end, which people recognize.
const START_OF_NAME: usize = 40;

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
    /// The file, `[heap]`, `[stack]`, `[anon:...]`, or empty; a newline in a file's name is written as `\012`. At most [`LONGEST_NAME`] bytes: the
    /// middle of a longer one is replaced by `…`.
    pub name: String,
}

/// The mappings of one process in ascending order; none for a kernel thread or a zombie.
///
/// Errors: the process has ended (`is_gone`), the reader lacks CAP_SYS_PTRACE (`is_denied`), it has more than [`MOST_MAPPINGS`] or the file is longer
/// than [`LIMIT`] (`is_too_much`), a malformed line.
pub fn read(root: &Root, pid: u32) -> Result<Vec<Line>, KernelError> {
    read_lines(root, &format!("proc/{pid}/maps"), LIMIT, EXPECTED, parse_line)
}

const EXPECTED: &str = "a mapping such as '7f00-7fff rw-p 00000000 00:00 0 [heap]'";

/// Reads a file with one line for each mapping.
pub(super) fn read_lines<T>(
    root: &Root,
    name: &str,
    limit: Bytes,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, KernelError> {
    let mut found = Vec::new();
    root.each_line(name, limit, |number, line| {
        let malformed =
            || KernelError::Malformed { path: root.path(name), cause: Malformed::new(number, expected, line) };
        found.push(parse(line).ok_or_else(malformed)?);
        ensure_few(root, name, found.len())
    })?;
    Ok(found)
}

/// Errors: there are more than [`MOST_MAPPINGS`].
pub(super) fn ensure_few(root: &Root, name: &str, mappings: usize) -> Result<(), KernelError> {
    match mappings {
        0..=MOST_MAPPINGS => Ok(()),
        _ => Err(KernelError::TooManyMappings { path: root.path(name), most: MOST_MAPPINGS }),
    }
}

/// Parses the text of a `maps` file.
///
/// Errors: a line is not a mapping such as `7f00-7fff rw-p 00000000 00:00 0 [heap]`.
pub fn parse(text: &str) -> Result<Vec<Line>, Malformed> {
    parse_lines(text, EXPECTED, parse_line)
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
        name: shortened(name.trim_start_matches(' ')),
    })
}

/// Both ends of a long name. The end alone could begin like another kind of memory.
fn shortened(name: &str) -> String {
    const MARK: &str = "…";
    if name.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let is_boundary = |at: &usize| name.is_char_boundary(*at);
    let start = (0..=START_OF_NAME).rev().find(is_boundary).unwrap_or(0);
    let rest = name.len() - (LONGEST_NAME - START_OF_NAME - MARK.len());
    let end = (rest..name.len()).find(is_boundary).unwrap_or(name.len());
    [&name[..start], MARK, &name[end..]].concat()
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

    /// A captured tree in which process 5 has this file.
    fn tree(file: &str, content: &[u8]) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/5")).unwrap();
        std::fs::write(tree.path().join("proc/5").join(file), content).unwrap();
        let root = Root::at(tree.path());
        (tree, root)
    }

    #[test]
    fn a_long_path_takes_little_memory_and_keeps_both_ends() {
        let path = |start: &str, middle: &[u8], end: &str| [start.as_bytes(), middle, end.as_bytes()].concat();
        let line = |path: Vec<u8>| [b"1000-2000 r--s 00000000 08:01 7 ".as_slice(), &path, b"\n"].concat();
        let names = [
            path("/a/", &[0xff; 4000], "/z (deleted)"),
            path("/memfd:", "é".repeat(120).as_bytes(), "z (deleted)"),
            // Its last 255 bytes begin like shared memory.
            path("/a", &[b'b'; 100], &format!("/memfd:{}", "c".repeat(248))),
            path("/a/", &[b'b'; 10 << 20], "z"),
        ];
        let text = names.map(line).concat();
        let (_tree, root) = tree("maps", &text);
        let lines = read(&root, 5).unwrap();
        let expected = [("/a/", "/z (deleted)"), ("/memfd:", "z (deleted)"), ("/ab", "c"), ("/a/b", "bz")];
        assert_eq!(lines.len(), expected.len());
        for (line, (start, end)) in lines.iter().zip(expected) {
            assert!(line.name.starts_with(start) && line.name.ends_with(end), "{}", line.name);
            assert!(line.name.contains('…') && line.name.len() <= LONGEST_NAME && line.name.capacity() <= LONGEST_NAME);
        }
    }

    #[test]
    fn a_name_that_fits_is_kept() {
        let name = format!("/{}", "a".repeat(LONGEST_NAME - 1));
        assert_eq!((shortened(&name), shortened("")), (name.clone(), String::new()));
        assert_eq!(shortened(&format!("{name}b")).len(), LONGEST_NAME);
    }

    #[test]
    fn a_process_with_too_many_mappings_is_refused() {
        let (_tree, root) = tree("maps", "1000-2000 rw-p 0 0:0 0\n".repeat(MOST_MAPPINGS).as_bytes());
        assert_eq!(read(&root, 5).unwrap().len(), MOST_MAPPINGS);
        for (file, line) in [("maps", "1000-2000 rw-p 0 0:0 0\n"), ("smaps", "1000-2000 rw-p 0 0:0 0\n")] {
            let (_tree, root) = tree(file, line.repeat(MOST_MAPPINGS + 1).as_bytes());
            let error =
                if file == "maps" { read(&root, 5).unwrap_err() } else { crate::smaps::read(&root, 5).unwrap_err() };
            assert!(error.is_too_much() && error.path().ends_with(format!("proc/5/{file}")), "{error}");
        }
        let (_tree, root) = tree("numa_maps", "1000 default\n".repeat(MOST_MAPPINGS + 1).as_bytes());
        assert!(crate::numa_maps::read(&root, 5).unwrap_err().is_too_much());
    }

    #[test]
    fn a_malformed_line_of_a_file_is_named() {
        let (_tree, root) = tree("maps", format!("{HEAP}nothing\n").as_bytes());
        let error = read(&root, 5).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("'nothing'"), "{error}");
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
