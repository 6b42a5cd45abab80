//! What an ELF file says about its program (man 5 elf). Reading is bounded, because the file may come from anywhere.
//!
//! Owns: the queries on such a file. Never touches: what follows from the answers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use heat::units::{Bytes, HUGE_PAGE};
use memchr::memmem;
use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};

use crate::program::OPTIONS;

/// The most that is read at once: read-only data of the largest servers.
const MOST_AT_ONCE: Bytes = Bytes(64 << 20);
/// Note segments that are searched; programs have two or three.
const MOST_NOTES: usize = 16;
/// Segments of code that are noted; linkers make one.
const MOST_CODE: usize = 16;
/// Libraries that one file may name.
const MOST_NEEDED: usize = 256;
/// Sections with constants, names of options among them; the tunables of a static glibc are written once, at startup.
pub(crate) const CONSTANTS: [&[u8]; 2] = [b".rodata", b".data.rel.ro"];

type Segments<'a> = &'a [ProgramHeader64<Endianness>];

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// For 32-bit processors; then nothing else is known.
    pub is_32_bit: bool,
    /// The loader of a dynamic program.
    pub loader: Option<PathBuf>,
    /// Built by Go, which maps memory by its own system calls.
    pub is_go: bool,
    /// Names of the libraries that it directly needs.
    pub needed: Vec<String>,
    /// Directories to search for them first, with `$ORIGIN` unexpanded.
    pub search: Vec<String>,
    /// Which of [`OPTIONS`] it mentions.
    pub mentions: BTreeSet<&'static str>,
    /// How much code it has.
    pub code: Bytes,
    /// Of that, whole 2 MiB that huge pages of the page cache can map once it is started, by their offsets in the file.
    pub aligned_code: Vec<Range<u64>>,
    /// The same once a program loads it as a library, which the kernel may place better.
    pub aligned_as_library: Vec<Range<u64>>,
}

/// Reads a file; None if it is not an ELF file, or an invalid one.
///
/// Errors: the file cannot be opened.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let cache = ReadCache::new(File::open(path)?);
    Ok(parse(Bounded(&cache)))
}

/// What `find` finds first in the sections with these names; None where it finds nothing, or the file is no ELF file that can be read.
pub(crate) fn find_in_sections<T>(path: &Path, names: &[&[u8]], find: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let data = Bounded(&cache);
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    sections(header, header.endian().ok()?, data, names).into_iter().find_map(find)
}

/// Refuses long reads, whose length may be forged and for which memory would be allocated first.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(self.0)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > MOST_AT_ONCE.0 { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

/// Parses the bytes of a file.
pub fn parse<'a, R: ReadRef<'a>>(data: R) -> Option<Elf> {
    match data.read_bytes_at(0, 5).ok()? {
        b"\x7fELF\x01" => return Some(Elf { is_32_bit: true, ..Elf::default() }),
        b"\x7fELF\x02" => {}
        _ => return None,
    }
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let loader = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_INTERP);
    let loader = loader.and_then(|segment| segment.interpreter(endian, data).ok().flatten());
    let (needed, search) = libraries(segments, endian, data).unwrap_or_default();
    let code = code(segments, endian);
    let aligned =
        |placed: Option<Displacement>| code.iter().filter_map(|segment| aligned(segment, placed?, endian)).collect();
    Some(Elf {
        is_32_bit: false,
        loader: loader.map(|path| PathBuf::from(String::from_utf8_lossy(path).into_owned())),
        is_go: is_go(segments, endian, data),
        needed,
        search,
        mentions: mentions(header, endian, data),
        code: Bytes(code.iter().fold(0, |sum, segment| sum.saturating_add(segment.p_filesz(endian)))),
        aligned_code: aligned(as_program(header.e_type(endian), segments, endian)),
        aligned_as_library: aligned(as_library(segments, endian)),
    })
}

fn code<'a>(segments: Segments<'a>, endian: Endianness) -> Vec<&'a ProgramHeader64<Endianness>> {
    let is_code = |segment: &&ProgramHeader64<Endianness>| {
        segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian) & elf::PF_X != 0
    };
    segments.iter().filter(is_code).take(MOST_CODE).collect()
}

/// How far addresses are from offsets in the file, modulo 2 MiB, in segments that are alike in memory and in the file.
type Displacement = u64;

/// Of a program, which the kernel places (fs/binfmt_elf.c): at the addresses that it was linked for; or, if it may be anywhere, at a multiple of
/// its largest alignment since Linux 5.10. None: it may be anywhere, and on no multiple of 2 MiB.
fn as_program(kind: u16, segments: Segments<'_>, endian: Endianness) -> Option<Displacement> {
    (kind == elf::ET_EXEC || is_aligned(segments, endian)).then_some(0)
}

/// Of a library. glibc maps it as a whole, and keeps to its largest alignment since 2.35. Below that the kernel chooses: file systems with large
/// folios map 2 MiB and more of a file alike in memory and in the file (mm/huge_memory.c, thp_get_unmapped_area; since Linux 5.18).
fn as_library(segments: Segments<'_>, endian: Endianness) -> Option<Displacement> {
    let first = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_LOAD)?;
    Some(if is_aligned(segments, endian) { 0 } else { displacement(first, endian) })
}

/// Whether the linker aligned it to 2 MiB.
fn is_aligned(segments: Segments<'_>, endian: Endianness) -> bool {
    segments.iter().any(|segment| {
        let align = segment.p_align(endian);
        segment.p_type(endian) == elf::PT_LOAD && align > 0 && align.is_multiple_of(HUGE_PAGE)
    })
}

fn displacement(segment: &ProgramHeader64<Endianness>, endian: Endianness) -> Displacement {
    segment.p_vaddr(endian).wrapping_sub(segment.p_offset(endian)) % HUGE_PAGE
}

/// Whole 2 MiB of a segment, if it is alike in memory and in the file.
fn aligned(segment: &ProgramHeader64<Endianness>, alike: Displacement, endian: Endianness) -> Option<Range<u64>> {
    if displacement(segment, endian) != alike {
        return None;
    }
    let offset = segment.p_offset(endian);
    let start = offset.checked_next_multiple_of(HUGE_PAGE)?;
    let end = offset.checked_add(segment.p_filesz(endian))? / HUGE_PAGE * HUGE_PAGE;
    (start < end).then_some(start..end)
}

/// Go's linker adds a note with the build id under its own name.
fn is_go<'a, R: ReadRef<'a>>(segments: Segments<'a>, endian: Endianness, data: R) -> bool {
    let of_go = |segment: &ProgramHeader64<Endianness>| {
        let mut notes = segment.notes(endian, data).ok().flatten()?;
        while let Some(note) = notes.next().ok()? {
            if note.name() == b"Go" {
                return Some(());
            }
        }
        None
    };
    let notes = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_NOTE);
    notes.take(MOST_NOTES).any(|segment| of_go(segment).is_some())
}

/// Names of needed libraries, and the directories to search first.
fn libraries<'a, R: ReadRef<'a>>(
    segments: Segments<'a>,
    endian: Endianness,
    data: R,
) -> Option<(Vec<String>, Vec<String>)> {
    let segment = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC)?;
    let entries = segment.dynamic(endian, data).ok().flatten()?;
    let end = |entry: &&elf::Dyn64<Endianness>| entry.d_tag(endian) != u64::from(elf::DT_NULL);
    let entries: Vec<(u64, u64)> =
        entries.iter().take_while(end).map(|entry| (entry.d_tag(endian), entry.d_val(endian))).collect();
    let values = |tags: &[u32]| {
        let tags: Vec<u64> = tags.iter().copied().map(u64::from).collect();
        entries.iter().filter(move |(tag, _)| tags.contains(tag)).map(|&(_, value)| value).take(MOST_NEEDED)
    };
    let names = in_file(values(&[elf::DT_STRTAB]).next()?, segments, endian)?;
    let len = data.len().ok()?;
    let name = |offset: u64| {
        let start = names.checked_add(offset).filter(|&start| start < len)?;
        data.read_bytes_at_until(start..len, 0).ok().map(|name| String::from_utf8_lossy(name).into_owned())
    };
    let needed = values(&[elf::DT_NEEDED]).filter_map(name).collect();
    let search = values(&[elf::DT_RPATH, elf::DT_RUNPATH]).filter_map(name);
    Some((needed, search.flat_map(|list| list.split(':').map(str::to_owned).collect::<Vec<_>>()).collect()))
}

/// The offset in the file of a program address.
fn in_file(address: u64, segments: Segments<'_>, endian: Endianness) -> Option<u64> {
    segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).find_map(|segment| {
        let within = address.checked_sub(segment.p_vaddr(endian))?;
        (within < segment.p_filesz(endian)).then(|| segment.p_offset(endian).checked_add(within))?
    })
}

/// Which option names occur among the constants, each as a whole C string: a program cannot honour an option that it does not
/// mention.
fn mentions<'a, R: ReadRef<'a>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for constants in sections(header, endian, data, &CONSTANTS) {
        found.extend(OPTIONS.into_iter().filter(|option| is_mentioned(option, constants)));
    }
    found
}

/// The contents of sections, those that there are.
fn sections<'a, R: ReadRef<'a>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
    names: &[&[u8]],
) -> Vec<&'a [u8]> {
    let Ok(sections) = header.sections(endian, data) else { return Vec::new() };
    let section = |name: &&[u8]| Some(sections.section_by_name(endian, name)?.1);
    let contents = names.iter().filter_map(section).filter_map(|section| {
        let size = section.sh_size(endian).min(MOST_AT_ONCE.0);
        data.read_bytes_at(section.sh_offset(endian), size).ok()
    });
    contents.collect()
}

fn is_mentioned(option: &str, constants: &[u8]) -> bool {
    let whole = [b"\0", option.as_bytes(), b"\0"].concat();
    memmem::find(constants, &whole).is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use object::{U32, U64};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_file_is_understood() {
        let elf = read(&std::env::current_exe().unwrap()).unwrap().expect("it is an ELF file");
        assert!(elf.loader.is_some_and(|loader| loader.to_string_lossy().contains("ld-")));
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed);
        assert!(!elf.is_go && !elf.is_32_bit);
    }

    #[test]
    fn what_is_no_program_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for bytes in [b"".as_slice(), b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02", b"\x7fELF\x03\x01\x01"] {
            fs::write(&file, bytes).unwrap();
            assert_eq!(read(&file).unwrap(), None, "{bytes:?}");
        }
        fs::write(&file, b"\x7fELF\x01\x01").unwrap();
        assert!(read(&file).unwrap().unwrap().is_32_bit);
        assert!(read(&folder.path().join("none")).is_err());
    }

    /// A segment at these places.
    fn segment(flags: u32, offset: u64, address: u64, align: u64, bytes: u64) -> ProgramHeader64<Endianness> {
        ProgramHeader64 {
            p_type: U32::new(Endianness::Little, elf::PT_LOAD),
            p_flags: U32::new(Endianness::Little, flags),
            p_offset: U64::new(Endianness::Little, offset),
            p_vaddr: U64::new(Endianness::Little, address),
            p_paddr: U64::new(Endianness::Little, 0),
            p_filesz: U64::new(Endianness::Little, bytes),
            p_memsz: U64::new(Endianness::Little, bytes),
            p_align: U64::new(Endianness::Little, align),
        }
    }

    const MIB: u64 = 1 << 20;
    const ENDIAN: Endianness = Endianness::Little;

    #[test]
    fn code_fits_huge_pages_where_it_is_alike_in_file_and_memory() {
        let of = |offset: u64, address: u64, bytes: u64| {
            let segment = segment(elf::PF_R | elf::PF_X, offset, address, 4096, bytes);
            assert_eq!(code(&[segment], ENDIAN).len(), 1);
            aligned(&segment, 0, ENDIAN)
        };
        assert_eq!(code(&[segment(elf::PF_R, MIB, MIB, 4096, MIB)], ENDIAN).len(), 0, "data is no code");
        assert_eq!(of(MIB, 5 * MIB, 6 * MIB), Some(2 * MIB..6 * MIB));
        assert_eq!(of(2 * MIB, 5 * MIB, 6 * MIB), None, "it is not alike");
        assert_eq!(of(2 * MIB, 4 * MIB, 2 * MIB - 1), None, "it is too small");
        assert_eq!(of(u64::MAX, u64::MAX, 6 * MIB), None, "it is forged");
    }

    #[test]
    fn code_of_any_alignment_fits_where_the_linker_or_the_kernel_places_it_so() {
        let parts = |first: u64, align: u64| {
            [segment(elf::PF_R, 0, first, align, 4096), segment(elf::PF_R | elf::PF_X, 4096, 4096, align, 8 * MIB)]
        };
        let program = |kind, parts: [_; 2]| aligned(&parts[1], as_program(kind, &parts, ENDIAN)?, ENDIAN);
        let library = |parts: [_; 2]| aligned(&parts[1], as_library(&parts, ENDIAN)?, ENDIAN);
        let all = Some(2 * MIB..8 * MIB);
        assert_eq!(program(elf::ET_EXEC, parts(0, 4096)), all, "it says where it is");
        assert_eq!(program(elf::ET_DYN, parts(0, 2 * MIB)), all, "the linker aligned it");
        assert_eq!(program(elf::ET_DYN, parts(0, 4096)), None, "it may be anywhere");
        assert_eq!(program(elf::ET_DYN, parts(0, 0)), None);
        assert_eq!(library(parts(0, 4096)), all, "the kernel aligns it");
        assert_eq!(library(parts(0, 2 * MIB)), all);
        assert_eq!(library(parts(4096, 4096)), None, "its code is not alike with its beginning");
        assert_eq!(as_library(&[], ENDIAN), None);
    }

    #[test]
    fn an_option_is_mentioned_by_its_whole_name_only() {
        assert!(is_mentioned("MALLOC_CONF", b"a\0MALLOC_CONF\0b"));
        assert!(!is_mentioned("MALLOC_CONF", b"a\0JE_MALLOC_CONF\0b"));
        assert!(!is_mentioned("MALLOC_CONF", b"a\0MALLOC_CONF_2\0b"));
    }

    /// The beginning of our own file, with its segments, dynamic entries and names.
    fn own_head() -> Vec<u8> {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut bytes = Vec::new();
        file.take(256 << 10).read_to_end(&mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0";
            let _ = parse(bytes.as_slice());
            let _ = parse([head.as_slice(), &bytes].concat().as_slice());
        }

        #[test]
        fn a_damaged_file_is_understood_or_refused(
            damage in proptest::collection::vec((0usize..4096, any::<u8>()), 1..40),
            len in 0usize..(256 << 10),
        ) {
            let mut bytes = own_head();
            for (place, byte) in damage {
                if let Some(there) = bytes.get_mut(place) {
                    *there = byte;
                }
            }
            let _ = parse(bytes.as_slice());
            bytes.truncate(len);
            let _ = parse(bytes.as_slice());
        }
    }
}
