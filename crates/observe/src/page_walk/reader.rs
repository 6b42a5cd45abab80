//! Copies of a process's page tables, made by the eBPF programs in `bpf/`.
//!
//! Owns: loading the programs, running them, and decoding their records (`bpf/page_walk.h`). Never touches: accessed bits or the target's memory.
//! Reading page tables takes no lock of the target; listing its mappings takes the mmap lock for reading.

use std::io::Read;
use std::os::fd::AsFd;

use heat::PageSet;
use heat::units::{Address, AddressRange, BASE_PAGE, GIANT_PAGE, HUGE_PAGE, PAGES_PER_REGION};
use hugepilot_os::bpf::TaskIterator;
use hugepilot_os::memory::SharedView;
use kernel::pagemap;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::kernel_time::KernelTime;
use crate::mapped::MappingFlags;
use crate::object;
use crate::page_walk::{Layout, ObserveError};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page_walk.bpf.o"));

// bpf/page_walk.h
const MAX_TABLES: usize = 256;
const MAX_RECORDS: usize = 8192;
const TABLE_BYTES: usize = 4096;
const RECORD_BYTES: usize = 32;
const REPLY_BYTES: usize = 56;
const MAX_MAPPINGS: usize = 16384;
const MAPPING_BYTES: usize = 24;

// Intel SDM volume 3, "Paging": bits of a page-table entry.
const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
/// Written since the entry was made or cleaned: set by the processor or, where the entry is write-protected now, kept by the kernel
/// (`_PAGE_SAVED_DIRTY`).
const DIRTY: u64 = 1 << 6 | 1 << 58;
/// Without `PRESENT`: memory is there, but every access faults (mprotect, NUMA balancing); `_PAGE_PROTNONE`.
const PROT_NONE: u64 = 1 << 8;
/// Set in entries of the zero page and of device memory, for which the kernel keeps no `struct page` count.
const SPECIAL: u64 = 1 << 9;

/// The loaded programs; they read any process once the direct map's layout is known.
pub(super) struct PageTableReader {
    object: Object,
    requests: MapHandle,
    replies: MapHandle,
    records: SharedView,
    tables: SharedView,
    mappings: SharedView,
    /// Where the kernel maps physical memory.
    pub(super) layout: Layout,
}

/// The programs attached to one thread, whose address space they read.
pub(super) struct AttachedReader<'a> {
    reader: &'a mut PageTableReader,
    tables: TaskIterator,
    mappings: TaskIterator,
    pid: u32,
    mm: Option<u64>,
}

/// An aligned 2 MiB (or 1 GiB) as the page tables map it.
pub(super) struct PageTable<'a> {
    /// Where it starts.
    pub(super) start: Address,
    /// CLOCK_MONOTONIC when it was read.
    pub(super) read_at: KernelTime,
    pub(super) pages: Entries<'a>,
}

/// How one [`PageTable`] maps its memory.
pub(super) enum Entries<'a> {
    /// With base pages: 512 entries of 8 bytes.
    Base(&'a [u8]),
    /// With a single larger page.
    Huge {
        /// 2 MiB or 1 GiB.
        bytes: u64,
        entry: u64,
    },
}

/// The entry of one base page that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its index in the region, 0 to 511.
    pub(super) page: usize,
    /// The page frame that it maps.
    pub(super) frame: u64,
    /// Whether the program may write to it without a page fault: in private memory, no other process maps the frame then.
    pub(super) writable: bool,
    /// Whether the program has written to it since the kernel last made it clean.
    pub(super) dirty: bool,
}

/// The result of one run.
#[derive(Debug)]
struct Reply {
    next: u64,
    mm: u64,
    pgd: u64,
    peeked: u64,
    stack_pointer: u64,
    records: usize,
    failures: u32,
}

/// The parameters of a run besides the layout.
#[derive(Default)]
struct Request {
    range: Option<AddressRange>,
    peek: u64,
}

impl PageTableReader {
    /// Loads the programs. The layout is not known yet: see [`crate::page_walk::direct_map`].
    pub(super) fn load() -> Result<Self, ObserveError> {
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Warn, |_, text| tracing::debug!("libbpf: {}", text.trim()))));
        let refused = |cause| ObserveError::BpfRefused { cause };
        let object = object::load("hugepilot", PROGRAM).map_err(refused)?;
        let map = |name: &str| object::map(&object, name).map_err(refused);
        let view = |name: &str, len| {
            SharedView::map(map(name)?.as_fd(), len).map_err(|error| refused(libbpf_rs::Error::from(error)))
        };
        Ok(Self {
            requests: map("requests")?,
            replies: map("replies")?,
            records: view("records", MAX_RECORDS * RECORD_BYTES)?,
            tables: view("tables", MAX_TABLES * TABLE_BYTES)?,
            mappings: view("mappings", MAX_MAPPINGS * MAPPING_BYTES)?,
            layout: Layout::UNKNOWN,
            object,
        })
    }

    /// Attaches to a process through one of its running threads.
    pub(super) fn attach(&mut self, pid: u32, tid: u32) -> Result<AttachedReader<'_>, ObserveError> {
        let attach = |name: &str| {
            let program = self.object.progs().find(|program| program.name() == name);
            let program = program.expect("bpf/page_walk.bpf.c defines the program");
            TaskIterator::attach(program.as_fd(), tid).map_err(|cause| ObserveError::Attach { pid, cause })
        };
        let (tables, mappings) = (attach("copy_page_tables")?, attach("list_mappings")?);
        Ok(AttachedReader { reader: self, tables, mappings, pid, mm: None })
    }
}

impl AttachedReader<'_> {
    /// The address space that was read; None before the first read.
    pub(super) fn address_space(&self) -> Option<u64> {
        self.mm
    }

    /// Later reads fail if the address space is another one.
    pub(super) fn expecting(self, address_space: Option<u64>) -> Self {
        Self { mm: address_space, ..self }
    }

    /// Reads every page table of `range` and passes each to `visit`, ascending.
    ///
    /// Errors: the process ended or called exec since the first read, or the kernel refused.
    pub(super) fn read(
        &mut self,
        range: AddressRange,
        mut visit: impl FnMut(PageTable<'_>),
    ) -> Result<(), ObserveError> {
        self.try_read(range, |table| {
            visit(table);
            Ok(())
        })
    }

    /// The same until `visit` fails. Errors: also its.
    pub(super) fn try_read(
        &mut self,
        range: AddressRange,
        mut visit: impl FnMut(PageTable<'_>) -> Result<(), ObserveError>,
    ) -> Result<(), ObserveError> {
        let mut rest = range;
        while !rest.is_empty() {
            let reply = self.run(&self.tables, &Request { range: Some(rest), peek: 0 })?;
            if *self.mm.get_or_insert(reply.mm) != reply.mm {
                return Err(ObserveError::Exec { pid: self.pid });
            }
            if reply.failures > 0 {
                tracing::debug!(pid = self.pid, failures = reply.failures, "some entries led to no page table");
            }
            let tables = self.reader.tables.bytes();
            for record in self.reader.records.bytes().chunks_exact(RECORD_BYTES).take(reply.records.min(MAX_RECORDS)) {
                visit(decode(record, tables))?;
            }
            rest.start = Address(reply.next.max(rest.start.0 + BASE_PAGE));
        }
        Ok(())
    }

    /// The flags of every mapping of the process, ascending.
    pub(super) fn mapping_flags(&mut self, range: AddressRange) -> Result<Vec<MappingFlags>, ObserveError> {
        let mut found = Vec::new();
        let mut rest = range;
        loop {
            let reply = self.run(&self.mappings, &Request { range: Some(rest), peek: 0 })?;
            let listed = reply.records.min(MAX_MAPPINGS);
            let records = self.reader.mappings.bytes().chunks_exact(MAPPING_BYTES).take(listed);
            found.extend(records.map(|record| MappingFlags {
                range: AddressRange { start: Address(word(record, 0)), end: Address(word(record, 8)) },
                flags: word(record, 16),
            }));
            if listed < MAX_MAPPINGS {
                return Ok(found);
            }
            rest.start = Address(reply.next);
        }
    }

    /// The thread's stack pointer when it last entered the kernel.
    pub(super) fn stack_pointer(&mut self) -> Result<Address, ObserveError> {
        Ok(Address(self.run(&self.tables, &Request::default())?.stack_pointer))
    }

    /// The kernel's address of the process's top-level page table.
    pub(super) fn top_level_table(&mut self) -> Result<u64, ObserveError> {
        Ok(self.run(&self.tables, &Request::default())?.pgd)
    }

    /// The 8 bytes at a kernel address; 0 where nothing can be read.
    pub(super) fn peek(&mut self, address: u64) -> Result<u64, ObserveError> {
        Ok(self.run(&self.tables, &Request { range: None, peek: address })?.peeked)
    }

    /// Uses another layout from now on.
    pub(super) fn set_layout(&mut self, layout: Layout) {
        self.reader.layout = layout;
    }

    fn run(&self, program: &TaskIterator, request: &Request) -> Result<Reply, ObserveError> {
        let error = |cause| ObserveError::Read { pid: self.pid, cause };
        let zero = 0u32.to_ne_bytes();
        let update = |map: &MapHandle, value: &[u8]| {
            map.update(&zero, value, MapFlags::ANY).map_err(|cause| error(std::io::Error::other(cause)))
        };
        update(&self.reader.requests, &encode(request, &self.reader.layout))?;
        update(&self.reader.replies, &[0; REPLY_BYTES])?;
        program.open().and_then(|mut run| run.read(&mut [0; 8])).map_err(error)?;
        let reply = self.reader.replies.lookup(&zero, MapFlags::ANY).map_err(|e| error(std::io::Error::other(e)))?;
        let reply = decode_reply(&reply.expect("an array map holds every index"));
        if reply.mm == 0 { Err(ObserveError::Exited { pid: self.pid }) } else { Ok(reply) }
    }
}

impl Entries<'_> {
    /// Whether a single page larger than a base page maps all of it.
    pub(super) fn is_huge(&self) -> bool {
        matches!(self, Entries::Huge { .. })
    }

    /// How many regions it covers.
    pub(super) fn regions(&self) -> usize {
        match self {
            Entries::Huge { bytes, .. } => (bytes / HUGE_PAGE) as usize,
            Entries::Base(_) => 1,
        }
    }

    /// The base pages that are present, and those accessed since the bits were cleared. Memory whose every access faults is present but cannot be
    /// accessed.
    ///
    /// The kernel never clears the bit of a special entry, so a set bit there tells nothing: it would make memory that was read once, or given back,
    /// seem walked forever.
    pub(super) fn present_and_accessed(&self) -> (PageSet, PageSet) {
        match self {
            Entries::Huge { entry, .. } if entry & (PRESENT | ACCESSED) == PRESENT | ACCESSED => {
                (PageSet::ALL, PageSet::ALL)
            }
            Entries::Huge { .. } => (PageSet::ALL, PageSet::NONE),
            Entries::Base(entries) => {
                let [present, faulting, accessed, special] =
                    matching(entries, [PRESENT, PROT_NONE, PRESENT | ACCESSED, PRESENT | SPECIAL]);
                let present = std::array::from_fn(|at| present[at] | faulting[at]);
                let accessed = std::array::from_fn(|at| accessed[at] & !special[at]);
                (PageSet::from_words(present), PageSet::from_words(accessed))
            }
        }
    }

    /// How many base pages were accessed, as [`Entries::present_and_accessed`] defines it.
    pub(super) fn accessed(&self) -> usize {
        match self {
            Entries::Huge { entry, .. } if entry & (PRESENT | ACCESSED) == PRESENT | ACCESSED => PAGES_PER_REGION,
            Entries::Huge { .. } => 0,
            Entries::Base(entries) => accessed_words(entries).map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// How many cache lines of the page table, of eight entries each, hold an accessed base page; none where huge.
    pub(super) fn accessed_lines(&self) -> usize {
        let Entries::Base(entries) = self else { return 0 };
        accessed_words(entries).flat_map(u64::to_le_bytes).filter(|&line| line != 0).count()
    }

    /// The entries of base pages that the program can access; none where huge.
    pub(super) fn accessible(&self, layout: Layout) -> impl Iterator<Item = Entry> {
        let entries = match self {
            Entries::Base(entries) => entries,
            Entries::Huge { .. } => &[][..],
        };
        entries.chunks_exact(8).enumerate().filter_map(move |(page, entry)| {
            let entry = word(entry, 0);
            let frame = (entry & layout.frame_mask) / BASE_PAGE;
            let (writable, dirty) = (entry & WRITABLE != 0, entry & DIRTY != 0);
            (entry & PRESENT != 0).then_some(Entry { page, frame, writable, dirty })
        })
    }

    /// What `/proc/PID/pagemap` would say of one of its regions, as far as the entries tell: page and frame.
    pub(super) fn as_pagemap(&self, region: usize, layout: Layout) -> [pagemap::Entry; PAGES_PER_REGION] {
        let frame = |entry: u64| (entry & layout.frame_mask) / BASE_PAGE;
        match self {
            Entries::Huge { bytes, entry } => {
                // The low bits of a large page's address have another meaning.
                let first =
                    frame(*entry) / (bytes / BASE_PAGE) * (bytes / BASE_PAGE) + (region * PAGES_PER_REGION) as u64;
                std::array::from_fn(|page| pagemap::Entry::present(Some(first + page as u64)))
            }
            Entries::Base(entries) => std::array::from_fn(|page| match word(entries, page * 8) {
                entry if entry & PRESENT != 0 => pagemap::Entry::present(Some(frame(entry))),
                // Processors must not speculate on this address, so the kernel inverts its bits.
                entry if entry & PROT_NONE != 0 => pagemap::Entry::present(None),
                _ => pagemap::Entry::default(),
            }),
        }
    }

    /// Base pages whose entries are special: the zero page, or memory that the kernel keeps no count of.
    pub(super) fn special(&self) -> PageSet {
        match self {
            Entries::Base(entries) => PageSet::from_words(matching(entries, [PRESENT | SPECIAL])[0]),
            Entries::Huge { .. } => PageSet::NONE,
        }
    }
}

/// Which base pages were accessed, as [`Entries::present_and_accessed`] defines it.
fn accessed_words(entries: &[u8]) -> impl Iterator<Item = u64> {
    let [accessed, special] = matching(entries, [PRESENT | ACCESSED, PRESENT | SPECIAL]);
    accessed.into_iter().zip(special).map(|(accessed, special)| accessed & !special)
}

/// For each of `masks`, the base pages whose entries have all of its bits, page 0 in the lowest bit of the first word.
///
/// Neighbours mostly agree, so 64 entries are first checked for all or none: the compiler vectorizes that, while assembling the bits one by one would
/// take longer than copying the table.
fn matching<const MASKS: usize>(entries: &[u8], masks: [u64; MASKS]) -> [[u64; PAGES_PER_REGION / 64]; MASKS] {
    let mut sets = [[0u64; PAGES_PER_REGION / 64]; MASKS];
    for (number, entries) in entries.chunks_exact(64 * 8).enumerate() {
        let words = || entries.chunks_exact(8).map(|entry| word(entry, 0));
        let (all, any) = words().fold((u64::MAX, 0), |(all, any), entry| (all & entry, any | entry));
        for (set, bits) in sets.iter_mut().zip(masks) {
            set[number] = match () {
                () if all & bits == bits => u64::MAX,
                () if any & bits != bits => 0,
                () => words().enumerate().fold(0, |set, (at, entry)| set | u64::from(entry & bits == bits) << at),
            };
        }
    }
    sets
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn half_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// `struct request`
fn encode(request: &Request, layout: &Layout) -> Vec<u8> {
    let (start, end) = request.range.map_or((0, 0), |range| (range.start.0, range.end.0));
    let fields = [start, end, layout.direct_map, layout.frame_mask, request.peek, u64::from(layout.levels)];
    fields.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// `struct reply`
fn decode_reply(bytes: &[u8]) -> Reply {
    Reply {
        next: word(bytes, 0),
        mm: word(bytes, 8),
        pgd: word(bytes, 16),
        peeked: word(bytes, 24),
        stack_pointer: word(bytes, 32),
        records: half_word(bytes, 40) as usize,
        failures: half_word(bytes, 48),
    }
}

/// `struct record`
fn decode<'a>(record: &[u8], tables: &'a [u8]) -> PageTable<'a> {
    let entry = word(record, 8);
    let pages = match half_word(record, 24) {
        2 => Entries::Huge { bytes: HUGE_PAGE, entry },
        3 => Entries::Huge { bytes: GIANT_PAGE, entry },
        _ => {
            let table = (half_word(record, 28) as usize).min(MAX_TABLES - 1);
            Entries::Base(&tables[table * TABLE_BYTES..(table + 1) * TABLE_BYTES])
        }
    };
    PageTable { start: Address(word(record, 0)), read_at: KernelTime(word(record, 16)), pages }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accessed(entry: u64) -> bool {
        let mut entries = [0; TABLE_BYTES];
        entries[..8].copy_from_slice(&entry.to_ne_bytes());
        let (present, accessed) = Entries::Base(&entries).present_and_accessed();
        assert_eq!(present.contains(0), entry & (PRESENT | PROT_NONE) != 0);
        assert_eq!(Entries::Base(&entries).accessed(), accessed.len());
        assert_eq!(Entries::Base(&entries).accessed_lines(), accessed.page_table_lines());
        accessed.contains(0)
    }

    #[test]
    fn only_present_ordinary_pages_tell_accesses() {
        assert!(accessed(PRESENT | ACCESSED));
        assert!(!accessed(PRESENT));
        assert!(!accessed(ACCESSED), "a swap entry uses the bit for something else");
        assert!(!accessed(PRESENT | ACCESSED | SPECIAL), "the zero page keeps its bit");
        assert!(!accessed(PROT_NONE | ACCESSED), "every access faults, so the bit is an old one");
    }

    #[test]
    fn entries_tell_frame_and_writes() {
        let entries: Vec<u8> = [PRESENT | 7 << 12, 0, PRESENT | WRITABLE | 9 << 12 | 1 << 6, PROT_NONE | 1 << 12]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        let layout = Layout { frame_mask: 0xf_ffff_f000, ..Layout::UNKNOWN };
        let found: Vec<Entry> = Entries::Base(&entries).accessible(layout).collect();
        let expected = [
            Entry { page: 0, frame: 7, writable: false, dirty: false },
            Entry { page: 2, frame: 9, writable: true, dirty: true },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn pagemap_says_the_same_of_base_and_large_pages() {
        let layout = Layout { frame_mask: 0xf_ffff_f000, ..Layout::UNKNOWN };
        let entries: Vec<u8> = [PRESENT | 7 << 12, 0, PROT_NONE | 1 << 12]
            .into_iter()
            .chain([0; PAGES_PER_REGION - 3])
            .flat_map(u64::to_ne_bytes)
            .collect();
        let found = Entries::Base(&entries).as_pagemap(0, layout);
        assert_eq!(found[0].frame(), Some(7));
        assert!(!found[1].is_present() && found[2].is_present());
        assert_eq!(found[2].frame(), None, "its bits are turned round");
        // The lowest address bit of a large page is not part of its address.
        let giant = Entries::Huge { bytes: GIANT_PAGE, entry: PRESENT | (5 * GIANT_PAGE) | 1 << 12 };
        let third = giant.as_pagemap(2, layout);
        assert_eq!(third[1].frame(), Some(5 * GIANT_PAGE / BASE_PAGE + 2 * 512 + 1));
    }

    proptest! {
        #[test]
        fn bits_are_found_wherever_they_are(
            entries in prop::collection::vec(prop_oneof![Just(0u64), Just(PRESENT), Just(PRESENT | ACCESSED), any::<u64>()], 512),
            alike in 0..512usize,
        ) {
            // A run of equal entries, for the paths that read 64 together.
            let entries: Vec<u64> = entries.iter().enumerate().map(|(n, &e)| if n < alike { entries[0] } else { e }).collect();
            let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
            for bits in [PRESENT, PRESENT | ACCESSED, PRESENT | SPECIAL] {
                let found: Vec<usize> = PageSet::from_words(matching(&bytes, [bits])[0]).iter().collect();
                let expected: Vec<usize> = (0..512).filter(|&page| entries[page] & bits == bits).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
