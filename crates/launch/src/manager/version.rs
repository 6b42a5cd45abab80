//! Which version of an allocator or runtime a process has, from the files that it has mapped.
//!
//! Owns: where each writes its version. Never touches: what follows from it. Files are read with bounds, and nothing of them is shown but numbers.

use std::fmt;
use std::path::Path;

use heat::Mapping;
use memchr::memmem;
use serde::{Serialize, Serializer};

use super::MemoryManager;
use crate::program::elf;

/// More numbers than that make no version, nor do longer ones.
const MOST_NUMBERS: usize = 4;
const MOST_DIGITS: usize = 5;
/// The longest version of jemalloc, before its commit.
const MOST_DESCRIBED: usize = 40;
/// Go's linker writes this, and from byte 32 on the version with its length in front (debug/buildinfo).
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const GO_VERSION_AT: usize = 32;
/// What precedes a version in constants. Of HotSpot: `(17.0.15+6-LTS) for linux-amd64 JRE (17.0.15+6-LTS), built on`.
const OF_JAVA: &[u8] = b" JRE (";
const OF_TCMALLOC: &[u8] = b"\0gperftools ";
const OF_GLIBC: &[u8] = b" release version ";

/// A version: `5.3.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerVersion(Vec<u32>);

impl ManagerVersion {
    /// The numbers at the beginning of a text; None unless there are two.
    pub fn at_start(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(text.len());
        let text = std::str::from_utf8(text.get(..end.min(MOST_NUMBERS * (MOST_DIGITS + 1)))?).ok()?;
        let numbers = text.split('.').map_while(|number| number.parse().ok().filter(|_| number.len() <= MOST_DIGITS));
        Some(Self(numbers.take(MOST_NUMBERS).collect())).filter(|version| version.0.len() >= 2)
    }

    /// Whether it is at least this one.
    pub(super) fn is_from(&self, numbers: &[u32]) -> bool {
        self.0.as_slice() >= numbers
    }
}

impl fmt::Display for ManagerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        write!(f, "{}", numbers.join("."))
    }
}

impl Serialize for ManagerVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The version, and None if it is not known. `file` is mapped by the process, or its program; `mapping` is None for the latter.
pub(super) fn version(manager: MemoryManager, file: &Path, mapping: Option<&Mapping>) -> Option<ManagerVersion> {
    let constant = |words| elf::find_in_sections(file, &elf::CONSTANTS, |text| after(text, words));
    match manager {
        // Not the file `release` in its directory: whoever runs the process may have put a link or a pipe there.
        MemoryManager::Java => constant(OF_JAVA),
        MemoryManager::Mimalloc => of_file_name(&mapping?.name),
        MemoryManager::Go => elf::find_in_sections(file, &[b".go.buildinfo"], of_go),
        MemoryManager::Jemalloc => elf::find_in_sections(file, &elf::CONSTANTS, of_jemalloc),
        MemoryManager::Tcmalloc => constant(OF_TCMALLOC),
        MemoryManager::Glibc => constant(OF_GLIBC),
    }
}

fn after(text: &[u8], words: &[u8]) -> Option<ManagerVersion> {
    memmem::find_iter(text, words).find_map(|place| ManagerVersion::at_start(text.get(place + words.len()..)?))
}

/// `5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c`, as git describes the commit.
fn of_jemalloc(text: &[u8]) -> Option<ManagerVersion> {
    let is_commit = |commit: &[u8]| commit.len() == 40 && commit.iter().all(u8::is_ascii_hexdigit);
    memmem::find_iter(text, b"-g").find_map(|place| {
        let commit = text.get(place + 2..place + 42)?;
        // A version, and how many commits came after it. A forged file may be full of marks, and have no end.
        let before = text.get(place.saturating_sub(MOST_DESCRIBED)..place)?;
        let described = before.get(before.iter().rposition(|&byte| byte == 0)? + 1..)?;
        ManagerVersion::at_start(described).filter(|_| is_commit(commit) && described.contains(&b'-'))
    })
}

/// `go1.26.8`; programs built before Go 1.18 have only a pointer to it.
fn of_go(info: &[u8]) -> Option<ManagerVersion> {
    let info = info.get(memmem::find(info, GO_BUILD_INFO)?..)?;
    let is_inline = info.get(GO_BUILD_INFO.len() + 1)? & 2 != 0;
    // One byte of length is enough for a version.
    let length = usize::from(*info.get(GO_VERSION_AT).filter(|_| is_inline)?);
    let text = info.get(GO_VERSION_AT + 1..GO_VERSION_AT + 1 + length)?;
    ManagerVersion::at_start(text.strip_prefix(b"go")?)
}

/// `libmimalloc.so.2.0`.
fn of_file_name(name: &str) -> Option<ManagerVersion> {
    ManagerVersion::at_start(name.rsplit_once(".so.")?.1.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(version: Option<ManagerVersion>) -> Option<String> {
        version.map(|version| version.to_string())
    }

    #[test]
    fn versions_are_numbers_and_have_an_order() {
        let of = |text: &str| told(ManagerVersion::at_start(text.as_bytes()));
        assert_eq!(of("5.3.0-0-g54").as_deref(), Some("5.3.0"));
        assert_eq!(of("2.36.\n").as_deref(), Some("2.36"));
        assert_eq!((of("7"), of(""), of("a.b"), of("1.1234567890123")), (None, None, None, None));
        let version = ManagerVersion::at_start(b"5.1").unwrap();
        assert!(version.is_from(&[5, 1]) && version.is_from(&[4, 9]) && !version.is_from(&[5, 2]));
        assert!(ManagerVersion::at_start(b"5.10").unwrap().is_from(&[5, 9]));
    }

    #[test]
    fn each_writes_its_version_in_its_own_way() {
        let commit = "54eaed1d8b56b1aa528be3bdd1877e59c56fa90c";
        let of = |text: &str| told(of_jemalloc(text.as_bytes()));
        assert_eq!(of(&format!("x-g\0a\05.3.0-0-g{commit}\0")).as_deref(), Some("5.3.0"));
        assert_eq!(of(&format!("\05.3.0-0-g{}\0", &commit[1..])), None);
        assert_eq!(of(&format!("\0linux-6.1-0-g{commit}\0")), None);
        assert_eq!(told(after(b"a\0gperftools 2.10\0", OF_TCMALLOC)).as_deref(), Some("2.10"));
        let java = |text: &str| told(after(text.as_bytes(), OF_JAVA));
        let internal = "64-Bit Server VM (25.412-b08) for linux-amd64 JRE (1.8.0_412-b08), built on May  1 2025";
        assert_eq!(java(internal).as_deref(), Some("1.8.0"), "not the version of its virtual machine");
        assert_eq!(java("\0 JRE (%s)\0 JRE (17.0.15+6-LTS), built on").as_deref(), Some("17.0.15"));
        assert_eq!(told(of_file_name("/usr/lib/libmimalloc.so.2.0")).as_deref(), Some("2.0"));
        assert_eq!(told(of_file_name("/usr/lib/libmimalloc.so.2")), None);
        let mut info = [GO_BUILD_INFO, b"\x08\x02", &[0; 16], b"\x08go1.26.8\x00"].concat();
        assert_eq!(told(of_go(&info)).as_deref(), Some("1.26.8"));
        info[15] = 0;
        assert_eq!(told(of_go(&info)), None, "it has only a pointer to its version");
        assert_eq!(told(of_go(GO_BUILD_INFO)), None);
    }
}
