//! Programs to be observed, each written as a line of steps: `map=512M fill ready read=third`.
//!
//! Owns: what a step does, and which pages a rule names, so that tests know the truth. Never touches: hugepilot.
//!
//! Every filled page carries a pattern and every read checks it, so any program notices lost data and ends with [`CORRUPTED`].

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use heat::units::{BASE_PAGE, Bytes, PAGES_PER_REGION};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice, SharedView};
use hugepilot_os::nodes::NodePolicy;
use hugepilot_os::trial;
use kernel::Root;
use kernel::target::Process;

use crate::support::{self, PATIENCE};
use crate::tracking;

/// The exit status after a read found something other than what was written.
pub const CORRUPTED: u8 = 99;

const PAGE_WORDS: usize = BASE_PAGE as usize / 8;
/// The size of the blocks that a program allocates.
const BLOCK: usize = 64 << 10;

/// Memory that is mapped repeatedly to fill page tables.
const ALIASED: usize = 64 << 20;

/// Selects pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All.
    All,
    /// The middle third, in one piece.
    Third,
    /// The last third, in one piece.
    Last,
    /// A third, scattered by a hash of the page's number.
    Scattered,
    /// 16 pages of each region.
    Sparse,
    /// The first page of each region.
    Lone,
    /// The first 2 MiB, which fit in any TLB.
    Resident,
    /// Every second page.
    Half,
    /// The pages that are not in `Half`.
    Odd,
}

impl Rule {
    fn parse(word: &str) -> Rule {
        match word {
            "all" => Rule::All,
            "third" => Rule::Third,
            "last" => Rule::Last,
            "scattered" => Rule::Scattered,
            "sparse" => Rule::Sparse,
            "lone" => Rule::Lone,
            "resident" => Rule::Resident,
            "half" => Rule::Half,
            "odd" => Rule::Odd,
            other => panic!("no rule '{other}'"),
        }
    }

    /// Whether the rule names this page of a mapping with `pages` pages.
    pub fn names(self, page: usize, pages: usize) -> bool {
        match self {
            Rule::All => true,
            Rule::Third => (pages / 3..pages / 3 * 2).contains(&page),
            Rule::Last => page >= pages / 3 * 2,
            Rule::Scattered => hash(page as u64).is_multiple_of(3),
            Rule::Sparse => page.is_multiple_of(PAGES_PER_REGION / 16),
            Rule::Lone => page.is_multiple_of(PAGES_PER_REGION),
            Rule::Resident => page < PAGES_PER_REGION,
            Rule::Half => page.is_multiple_of(2),
            Rule::Odd => !page.is_multiple_of(2),
        }
    }

    fn pages(self, pages: usize) -> impl Iterator<Item = usize> {
        (0..pages).filter(move |&page| self.names(page, pages))
    }
}

/// Mixes a number well (the finalizer of SplitMix64).
fn hash(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The contents of a word of a filled page.
fn pattern(word: usize) -> u64 {
    (word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes the steps one after the other.
pub fn run(steps: impl Iterator<Item = String>) -> ExitCode {
    let steps: Vec<String> = steps.collect();
    let mut program = Program::default();
    for (number, step) in steps.iter().enumerate() {
        let (name, value) = step.split_once('=').unwrap_or((step, ""));
        match program.step(name, value, &steps[number + 1..]) {
            Ok(None) => {}
            Ok(Some(status)) => return status,
            Err(error) => {
                eprintln!("{step}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The state that the steps so far have left behind.
#[derive(Default)]
struct Program {
    memory: Vec<AlignedMemory>,
    blocks: Vec<Vec<u8>>,
    unread: Vec<AlignedMemory>,
    virtual_machine: Option<std::os::fd::OwnedFd>,
    userfaultfd: Option<std::os::fd::OwnedFd>,
    tracking: Vec<tracking::Tracking>,
}

impl Program {
    fn step(&mut self, name: &str, value: &str, rest: &[String]) -> std::io::Result<Option<ExitCode>> {
        match name {
            // Private memory, or memory that is shared with children.
            "map" => self.memory.push(AlignedMemory::anonymous(bytes(value))?),
            "shmem" => self.memory.push(AlignedMemory::shared(bytes(value))?),
            "memfd" => self.memory.push(AlignedMemory::aliased(bytes(value), 1)?),
            // A System V segment.
            "sysv" => self.memory.push(AlignedMemory::segment(bytes(value))?),
            // The same on a pool's reserved huge pages.
            "pool" => self.memory.push(AlignedMemory::pooled(bytes(value))?),
            // A whole file, which other processes may map too.
            "file" => self.memory.push(map_file(value)?),
            // A file that is only read, in a thread, forever.
            "view" => view_file(value)?,
            // Memory from the allocator, in blocks of 64 KiB, written to.
            "malloc" => self.blocks.extend(allocate(bytes(value))),
            // The same in 16 threads, each with its own heap.
            "malloc-in-threads" => self.blocks.extend(allocate_in_threads(bytes(value))),
            // Writes the pattern to the pages that a rule names, or to all pages.
            "fill" => fill(self.last(), if value.is_empty() { Rule::All } else { Rule::parse(value) }),
            // Reads pages that were never written, so that they map the zero page.
            "read-zeros" => read_zeros(self.last().bytes(), Rule::parse(value)),
            "hugepage" => self.advise_all(OwnAdvice::HugePage)?,
            "nohugepage" => self.advise_all(OwnAdvice::NoHugePage)?,
            // Sets the node from which the last mapping, or every mapping, gets new pages.
            "bind" => self.last().set_node_policy(NodePolicy::Bind, &numbers(value))?,
            "interleave" => self.last().set_node_policy(NodePolicy::Interleave, &numbers(value))?,
            "interleave-all" => trial::interleave_thread(&numbers(value))?,
            // Lazily frees the pages that a rule names.
            "free" => self.advise(Rule::parse(value), OwnAdvice::Free)?,
            // Frees at once the pages that a rule names.
            "free-now" => self.advise(Rule::parse(value), OwnAdvice::DontNeed)?,
            // This many bytes of page tables, over little memory that is never read.
            "page-tables" => self.unread.push(AlignedMemory::aliased(ALIASED, bytes(value) / ALIASED)?),
            // A thread that maps and unmaps a page a thousand times a second, and never touches it.
            "remap" => drop(thread::spawn(remap)),
            // A thread that touches new pages a thousand times a second, and makes no other call.
            "fault" => drop(thread::spawn(fault)),
            // Splits it into mappings of one page each, by advice that differs from page to page.
            "split" => self.advise(Rule::Half, OwnAdvice::NoHugePage)?,
            "thp-disable" => rustix::thread::disable_transparent_huge_pages(true)?,
            "fork" => trial::fork_sleeper().map(drop)?,
            // A child that shares the last mapping and reads it.
            "fork-reader" => trial::fork_reader(self.last()).map(drop)?,
            // A sequence of such children, forever; each ends when it has read all of it.
            "fork-brief-readers" => loop {
                trial::fork_brief_reader(self.last())?;
            },
            // Unmaps the last mapping.
            "unmap" => drop(self.memory.pop()),
            "lock" => trial::lock(self.last())?,
            // Prints the address of the last mapping, and makes every access to it fault.
            "forbid" => {
                self.say_ready()?;
                trial::forbid(self.memory.pop().expect("map comes first"))?;
            }
            // From now on a userfaultfd serves missing pages of the last mapping, as for a guest that is migrating.
            "uffd" => self.userfaultfd = Some(trial::serve_missing_pages(self.last())?),
            "kvm" => self.virtual_machine = Some(trial::create_virtual_machine()?),
            "join-cgroup" => fs::write(format!("{value}/cgroup.procs"), std::process::id().to_string())?,
            // A thread that does nothing.
            "thread" => drop(thread::spawn(|| thread::sleep(Duration::from_secs(3600)))),
            // Uses this much stack, forever.
            "stack" => use_stack(bytes(value)),
            "ready" => self.say_ready()?,
            "sleep" => thread::sleep(time(value)),
            // Lives on until whoever scans it once before its age doubles has surely seen all of it, however slow the machine.
            "be-scanned" => thread::sleep((lived() * 2).max(Duration::from_secs(2))),
            // Creates a file that others wait for.
            "touch" => fs::write(value, "")?,
            // Waits until a file exists.
            "await" => {
                while !std::path::Path::new(value).exists() {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            // `read=RULE` reads forever, `read=RULE,TIME` for that time.
            "read" => return Ok(read_for(&self.memory, value).err()),
            // `read-until=FILE` or `read-until=FILE,RULE` reads until the file exists.
            "read-until" => {
                let (file, rule) = value.split_once(',').unwrap_or((value, "all"));
                let over = || std::path::Path::new(file).exists();
                return Ok(read_until(&self.memory, Rule::parse(rule), over).err());
            }
            // `read-until-huge=SIZE` or `read-until-huge=SIZE,RULE`, until so much of all its memory is huge.
            "read-until-huge" => {
                let (size, rule) = value.split_once(',').unwrap_or((value, "all"));
                let (size, deadline) = (bytes(size) as u64, Instant::now() + PATIENCE);
                let over = || support::huge_bytes_of(std::process::id()) >= size || Instant::now() > deadline;
                return Ok(read_until(&self.memory, Rule::parse(rule), over).err());
            }
            // Is told by the daemon at that socket which of the last mapping is active, and converts it; with `SOCKET,rest` it rests
            // after each list, with `SOCKET,deaf` it ignores all.
            "track" => {
                let (socket, kind) = value.split_once(',').unwrap_or((value, ""));
                let memory = self.memory.last().expect("map comes first");
                self.tracking.push(tracking::begin(socket, kind, memory)?);
            }
            "untrack" => self.tracking.clear(),
            "exec" => return Err(Command::new(std::env::current_exe()?).arg("program").args(rest).exec()),
            "exit" => return Ok(Some(ExitCode::from(value.parse::<u8>().expect("a status")))),
            other => panic!("no step '{other}'"),
        }
        Ok(None)
    }

    fn last(&mut self) -> &mut AlignedMemory {
        self.memory.last_mut().expect("map comes first")
    }

    fn advise_all(&mut self, advice: OwnAdvice) -> std::io::Result<()> {
        let len = self.last().bytes().len();
        self.last().advise(0, len, advice)
    }

    fn advise(&mut self, rule: Rule, advice: OwnAdvice) -> std::io::Result<()> {
        let mapping = self.last();
        let page = BASE_PAGE as usize;
        rule.pages(mapping.bytes().len() / page).try_for_each(|number| mapping.advise(number * page, page, advice))
    }

    /// Tells the tests the address of the last mapping.
    fn say_ready(&mut self) -> std::io::Result<()> {
        let (start, len) = self.memory.last().map_or((0, 0), |memory| (memory.address(), memory.bytes().len()));
        let pid = std::process::id();
        println!("{}", serde_json::json!({ "pid": pid, "start": start, "len": len }));
        std::io::stdout().flush()
    }
}

/// Blocks that are present, because each byte was written.
fn allocate(size: usize) -> Vec<Vec<u8>> {
    (0..size / BLOCK).map(|number| vec![number as u8 | 1; BLOCK]).collect()
}

fn allocate_in_threads(size: usize) -> Vec<Vec<u8>> {
    let threads: Vec<_> = (0..16).map(|_| thread::spawn(move || allocate(size / 16))).collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("it only allocates")).collect()
}

fn remap() {
    loop {
        drop(AlignedMemory::anonymous(BASE_PAGE as usize).expect("room for a page"));
        thread::sleep(Duration::from_millis(1));
    }
}

/// As many pages as last a few minutes.
fn fault() {
    let mut memory = AlignedMemory::anonymous(1 << 30).expect("room for addresses");
    memory.advise(0, 1 << 30, OwnAdvice::NoHugePage).expect("base pages");
    for byte in memory.bytes_mut().iter_mut().step_by(BASE_PAGE as usize) {
        *byte = 1;
        thread::sleep(Duration::from_millis(1));
    }
}

fn map_file(path: &str) -> std::io::Result<AlignedMemory> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    AlignedMemory::of_file(&file, file.metadata()?.len() as usize)
}

fn view_file(path: &str) -> std::io::Result<()> {
    let file = fs::File::open(path)?;
    let mut view = SharedView::map(&file, file.metadata()?.len() as usize)?;
    let mut read = move || view.bytes().iter().step_by(BASE_PAGE as usize).fold(0, |all: u8, &byte| all ^ byte);
    std::hint::black_box(read());
    thread::spawn(move || {
        loop {
            std::hint::black_box(read());
        }
    });
    Ok(())
}

fn bytes(value: &str) -> usize {
    value.parse::<Bytes>().expect("a size").0 as usize
}

/// Parses `0,1`.
fn numbers(value: &str) -> Vec<u32> {
    value.split(',').map(|number| number.parse().expect("a number")).collect()
}

/// Parses `200ms` or `4s`.
/// How long ago this process was started.
fn lived() -> Duration {
    let start = Process::of(&Root::host(), std::process::id()).expect("we are alive").start_ticks;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    now.saturating_sub(Duration::from_millis(start * 1000 / rustix::param::clock_ticks_per_second()))
}

fn time(value: &str) -> Duration {
    match value.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().expect("a time")),
        None => Duration::from_secs(value.trim_end_matches('s').parse().expect("a time")),
    }
}

fn fill(mapping: &mut AlignedMemory, rule: Rule) {
    let words = mapping.words_mut();
    for page in rule.pages(words.len() / PAGE_WORDS) {
        for (offset, word) in words[page * PAGE_WORDS..][..PAGE_WORDS].iter_mut().enumerate() {
            *word = pattern(page * PAGE_WORDS + offset);
        }
    }
}

fn read_zeros(bytes: &[u8], rule: Rule) {
    let page = BASE_PAGE as usize;
    rule.pages(bytes.len() / page).for_each(|number| assert_eq!(black_box(bytes[number * page]), 0));
}

/// Reads like [`read_until`] for the time given with the rule, or forever.
fn read_for(memory: &[AlignedMemory], value: &str) -> Result<(), ExitCode> {
    let (rule, until) = match value.split_once(',') {
        Some((rule, length)) => (Rule::parse(rule), Some(Instant::now() + time(length))),
        None => (Rule::parse(value), None),
    };
    read_until(memory, rule, || until.is_some_and(|until| Instant::now() >= until))
}

/// Reads the pages that the rule names in every mapping, each equally often and in an order that no prefetcher follows, until `over`. Errors: the
/// exit status, because a read did not find what was written.
fn read_until(memory: &[AlignedMemory], rule: Rule, over: impl Fn() -> bool) -> Result<(), ExitCode> {
    let mut order: Vec<(u32, u32)> = Vec::new();
    for (mapping, memory) in memory.iter().enumerate() {
        order.extend(rule.pages(memory.bytes().len() / BASE_PAGE as usize).map(|page| (mapping as u32, page as u32)));
    }
    shuffle(&mut order);
    let contents: Vec<&[u8]> = memory.iter().map(AlignedMemory::bytes).collect();
    for round in 0u64.. {
        for &(mapping, page) in &order {
            // A different cache line for each page and round, so that caches do not relieve the TLB.
            let line = (u64::from(page) + round * 7) as usize % (PAGE_WORDS / 8);
            let word = page as usize * PAGE_WORDS + line * 8;
            let found = u64::from_ne_bytes(contents[mapping as usize][word * 8..][..8].try_into().expect("8 bytes"));
            if found != pattern(word) {
                eprintln!("page {page}: found {found:#x}, not what was written");
                return Err(ExitCode::from(CORRUPTED));
            }
        }
        if over() {
            break;
        }
    }
    Ok(())
}

/// Fisher and Yates, with a xorshift with a fixed seed.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

fn use_stack(size: usize) {
    /// Recurses with a frame of at least 32 KiB.
    fn descend(frames: usize) -> u64 {
        let frame = black_box([frames as u64; 8 * PAGE_WORDS]);
        let below = if frames == 0 { 0 } else { descend(frames - 1) };
        below + frame[frames % frame.len()]
    }
    let frames = size / (8 * BASE_PAGE as usize);
    // The stack is larger than the part in use: a debug build keeps more than one copy of a frame's array.
    let thread = thread::Builder::new().stack_size(4 * size).spawn(move || {
        loop {
            black_box(descend(frames));
        }
    });
    thread.expect("a thread with a large stack");
}
