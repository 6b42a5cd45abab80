//! Samples how much of a program's memory is on huge pages while it runs: afterwards it is too late.
//!
//! Owns: when to scan, and what to keep. Never touches: the program.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heat::PageSizes;
use heat::units::{Address, Bytes, HUGE_PAGE};
use hugepilot_os::placement::CountsFile;
use hugepilot_os::stop::Stop;
use kernel::maps::{self, Line};
use kernel::process::{ProcessStatus, descendants, thread_cpu_time};
use kernel::smaps::{self, SmapsMapping};
use kernel::{Root, hugetlb};
use serde::Serialize;

use crate::request::PageKind;

/// The time to the first scan, and the shortest between two: short programs need samples, too.
const SOONEST: Duration = Duration::from_millis(20);
/// The longest interval, unless scanning takes long.
const LATEST: Duration = Duration::from_secs(1);
/// The next scan comes after this fraction of the program's age, a tenth.
const SHARE_OF_AGE: u32 = 10;
/// The next scan comes after this many times the CPU time of the last one: half a per cent of a CPU.
const REST_AFTER: u32 = 200;
/// However long scans take, the next comes within this time, and before the program's age doubles: even a short program is scanned more
/// than once.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Regions in which a scan counts smaller huge pages; beyond 8 GiB of mappings it judges by a part of them.
const MOST_REGIONS: u64 = 4096;
/// A later scan replaces the largest one if it found at least this share of the most memory ever found.
const ALIKE: f64 = 0.9;

/// A program and its descendants at one moment; sums. What they share counts once, as the process has it that has most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TreeSample {
    /// Processes with eligible memory.
    pub processes: usize,
    /// Of these, processes with transparent huge pages disabled, by themselves or by a parent.
    #[serde(skip)]
    pub switched_off: usize,
    /// Eligible memory: private and shared memory in mappings as large as a page of the kind, rounded down to whole huge pages per process, and files
    /// on huge pages.
    #[serde(rename = "could_be_huge_bytes")]
    pub could: Bytes,
    /// Memory on transparent huge pages; on smaller ones, too, where these were requested.
    #[serde(rename = "transparent_bytes")]
    pub transparent: Bytes,
    /// The part of it on smaller ones. None: nobody asked, or the kernel shows it to root only (CAP_SYS_ADMIN).
    #[serde(rename = "smaller_bytes")]
    pub smaller: Option<Bytes>,
    /// At most the part of it where the preload library asked for huge pages: places are told of all processes together, also those that are unmapped by
    /// now. None: it was not told, or there were too many places.
    #[serde(skip)]
    pub placed: Option<Bytes>,
    /// Memory on pool pages.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Bytes,
    /// Pages that the pool still has available; None without a pool.
    #[serde(rename = "pool_left_pages")]
    pub pool_left: Option<u64>,
}

/// A sample that is being taken.
#[derive(Default)]
struct Tally {
    sample: TreeSample,
    shared: Shared,
}

/// What is shared, in the process that has most of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shared {
    /// Shared memory that could be huge.
    could: Bytes,
    /// The part on transparent huge pages.
    transparent: Bytes,
    /// The same where the preload library asked for it.
    placed: Bytes,
    /// Files on huge pages.
    file: Bytes,
    /// A pool's pages.
    reserved: Bytes,
}

/// Raises the most seen of shared memory to this; returns by how much.
fn raise(most: &mut Bytes, to: Bytes) -> Bytes {
    let more = to.saturating_sub(*most);
    *most += more;
    more
}

/// The samples of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many scans there were.
    pub scans: u64,
    /// The last scan with at least nine tenths of the most memory ever found.
    pub largest: TreeSample,
    /// The last scan.
    pub last: TreeSample,
    /// The most eligible memory ever found.
    pub most: Bytes,
}

impl TreeSample {
    /// Memory on huge pages of any kind.
    pub fn huge(&self) -> Bytes {
        self.transparent + self.reserved
    }
}

/// What a process's mappings hold.
#[derive(Clone, Copy, Debug, Default)]
struct Mapped {
    /// Memory of each kind on transparent huge pages.
    private: Bytes,
    shared: Bytes,
    file: Bytes,
    /// A pool's pages that no other process has, and others.
    reserved: Bytes,
    reserved_shared: Bytes,
    /// Private and shared memory present in mappings that are smaller than a page of the kind.
    small_private: Bytes,
    small_shared: Bytes,
}

impl Mapped {
    fn of(mappings: &[SmapsMapping], page: Bytes) -> Self {
        let mut sum = Self::default();
        for mapping in mappings {
            let pooled = mapping.hugetlb_private + mapping.hugetlb_shared;
            sum.private += mapping.huge.saturating_sub(mapping.shared_huge + mapping.file_huge + pooled);
            sum.shared += mapping.shared_huge;
            sum.file += mapping.file_huge;
            sum.reserved += mapping.hugetlb_private;
            sum.reserved_shared += mapping.hugetlb_shared;
            if mapping.line.range.len() < page {
                sum.small_private += mapping.anonymous;
                // Shared memory can be written, and what is mapped of files mostly cannot.
                let is_shared = mapping.line.shared && mapping.line.writable;
                sum.small_shared += if is_shared { mapping.resident } else { Bytes(0) };
            }
        }
        sum
    }
}

impl Tally {
    /// Adds a process, whose memory could be on pages of this size.
    fn add(&mut self, status: &ProcessStatus, mapped: &Mapped, page: Bytes) {
        let Self { sample, shared: most } = self;
        let whole = |resident: Bytes, small: Bytes| {
            let resident = resident.saturating_sub(small);
            Bytes(resident.0 - resident.0 % page.0)
        };
        // The two files are read at different times.
        let private = whole(status.rss_anon, mapped.small_private).max(mapped.private);
        let shared = whole(status.rss_shmem, mapped.small_shared).max(mapped.shared);
        let counts = private + shared + mapped.file + mapped.reserved + mapped.reserved_shared > Bytes(0);
        sample.processes += usize::from(counts);
        sample.switched_off += usize::from(counts && status.thp_enabled == Some(false));
        let file = raise(&mut most.file, mapped.file);
        let reserved = mapped.reserved + raise(&mut most.reserved, mapped.reserved_shared);
        sample.could += private + raise(&mut most.could, shared) + file + reserved;
        sample.transparent += mapped.private + raise(&mut most.transparent, mapped.shared) + file;
        sample.reserved += reserved;
    }

    /// Adds what a process has on huge pages where the preload library asked for them.
    fn add_placed(&mut self, mappings: &[SmapsMapping], placed: &[Range<u64>]) {
        let of = |shared| {
            let mappings = mappings.iter().filter(|mapping| mapping.line.shared == shared);
            huge_within(mappings, placed)
        };
        let huge = of(false) + raise(&mut self.shared.placed, of(true));
        self.sample.placed = self.sample.placed.map(|sum| sum + huge);
    }

    /// Adds what a process has on huge pages below 2 MiB.
    fn add_smaller(&mut self, smaller: Bytes) {
        self.sample.transparent += smaller;
        *self.sample.smaller.get_or_insert_default() += smaller;
    }
}

impl Seen {
    fn note(&mut self, sample: TreeSample) {
        self.scans += 1;
        self.most = self.most.max(sample.could);
        if sample.could >= self.most.share(ALIKE) {
            self.largest = sample;
        }
        self.last = sample;
    }
}

/// Scans a process and its descendants until a stop is requested; the caller requests it when the process has ended. `counts`: where the preload
/// library records what it places.
pub fn watch(pid: u32, pages: PageKind, counts: Option<Arc<CountsFile>>, stop: Stop) -> JoinHandle<Seen> {
    thread::spawn(move || {
        let (root, began) = (Root::host(), Instant::now());
        let mut seen = Seen::default();
        let mut next = began + SOONEST;
        while stop.sleep_until(next).is_ok() {
            let before = thread_cpu_time();
            let placed = counts.as_ref().and_then(|counts| counts.recorded()).map(merged);
            if let Some(sample) = sample(&root, pid, pages, placed.as_deref()) {
                seen.note(sample);
            }
            // CPU time, not elapsed time: on a busy machine there would be too few scans.
            let cost = thread_cpu_time().saturating_sub(before).duration();
            next = Instant::now() + rest(began.elapsed(), cost);
        }
        seen
    })
}

/// How long to wait after a scan of this cost, for a program of this age.
fn rest(age: Duration, cost: Duration) -> Duration {
    let for_its_cost = cost.saturating_mul(REST_AFTER).min(LONGEST_REST).min(age);
    (age / SHARE_OF_AGE).clamp(SOONEST, LATEST).max(for_its_cost)
}

/// The current state; None if the program has ended. Descendants that end meanwhile are left out.
fn sample(root: &Root, pid: u32, pages: PageKind, placed: Option<&[Range<u64>]>) -> Option<TreeSample> {
    let sample = TreeSample { placed: placed.map(|_| Bytes(0)), ..TreeSample::default() };
    let mut tally = Tally { sample, ..Tally::default() };
    let family = descendants(root, pid).unwrap_or_default();
    let mut any = false;
    let (page, counts_smaller) = (pages.size().min(Bytes(HUGE_PAGE)), matches!(pages, PageKind::Smaller(_)));
    for process in family.into_iter().chain([pid]) {
        let (status, mappings) = (ProcessStatus::read(root, process), smaps::read(root, process));
        if let (Ok(status), Ok(mappings)) = (status, mappings) {
            any = true;
            tally.add(&status, &Mapped::of(&mappings, page), page);
            if let Some(placed) = placed.filter(|placed| !placed.is_empty()) {
                tally.add_placed(&mappings, placed);
            }
            if let Some(smaller) = counts_smaller.then(|| on_smaller_pages(root, process)).flatten() {
                tally.add_smaller(smaller);
            }
        }
    }
    if pages.is_reserved() {
        let pools = hugetlb::pools(root).unwrap_or_default();
        tally.sample.pool_left = pools.iter().find(|pool| pool.page_size == pages.size()).map(|pool| pool.available());
    }
    any.then_some(tally.sample)
}

/// Ascending ranges without overlaps: memory may have been placed at an address again and again.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    merged
}

/// Transparent huge memory in these ranges. The kernel may have joined their mappings with others, of which they get their share.
fn huge_within<'a>(mappings: impl Iterator<Item = &'a SmapsMapping>, ranges: &[Range<u64>]) -> Bytes {
    let within = |mapping: &'a SmapsMapping| {
        let of = mapping.line.range;
        let common = |range: &Range<u64>| range.end.min(of.end.0).saturating_sub(range.start.max(of.start.0));
        let transparent = mapping.huge.saturating_sub(mapping.hugetlb_private + mapping.hugetlb_shared);
        transparent.share(ranges.iter().map(common).sum::<u64>() as f64 / of.len().0 as f64)
    };
    mappings.filter(|mapping| mapping.huge > Bytes(0)).map(within).sum()
}

/// A process's memory on huge pages below 2 MiB, judged by a part of it if it has mapped much; None if the kernel does not tell.
fn on_smaller_pages(root: &Root, pid: u32) -> Option<Bytes> {
    let lines: Vec<Line> = maps::read(root, pid).ok()?.into_iter().filter(|line| line.writable).collect();
    let numbers = |line: &Line| line.range.start.0 / HUGE_PAGE..line.range.end.0.div_ceil(HUGE_PAGE);
    let all: u64 = lines.iter().map(|line| numbers(line).end - numbers(line).start).sum();
    let step = all.div_ceil(MOST_REGIONS).max(1);
    // Neighbours may share a region, which counts once.
    let starts: BTreeSet<u64> = lines.iter().flat_map(numbers).step_by(step as usize).collect();
    let starts = starts.into_iter().map(|number| Address(number * HUGE_PAGE));
    let sizes = observe::on_smaller_huge_pages(root, pid, starts).ok()?;
    Some(Bytes(sizes.iter().map(PageSizes::total).sum::<Bytes>().0 * step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(could: u64, transparent: u64) -> TreeSample {
        TreeSample { could: Bytes(could), transparent: Bytes(transparent), ..TreeSample::default() }
    }

    #[test]
    fn the_latest_of_the_largest_samples_is_kept() {
        let mut seen = Seen::default();
        for sample in [with(100, 0), with(1000, 0), with(990, 900), with(950, 950), with(10, 0)] {
            seen.note(sample);
        }
        assert_eq!((seen.scans, seen.largest, seen.last), (5, with(950, 950), with(10, 0)));
    }

    #[test]
    fn samples_are_many_at_first_and_few_where_they_cost_much() {
        let ms = Duration::from_millis;
        for (age, cost, expected) in
            [(0, 0, 20), (20, 0, 20), (1000, 0, 100), (100_000, 0, 1000), (10_000, 15, 3000), (100_000, 1000, 60_000)]
        {
            assert_eq!(rest(ms(age), ms(cost)), ms(expected), "{age} {cost}");
        }
        let mut age = SOONEST;
        let scans = std::iter::repeat_with(|| {
            age += rest(age, ms(50));
            age
        });
        let scans: Vec<Duration> = scans.take(6).collect();
        assert_eq!(scans, [40, 80, 160, 320, 640, 1280].map(ms), "however much each of them costs");
    }

    #[test]
    fn what_could_be_huge_is_counted_in_whole_huge_pages() {
        let status = ProcessStatus { rss_anon: Bytes(5 << 20), rss_shmem: Bytes(2 << 20), ..ProcessStatus::default() };
        let huge = |number: u64| Bytes(number * HUGE_PAGE);
        let mut tally = Tally::default();
        tally.add(&status, &Mapped { private: huge(2), reserved: huge(4), ..Mapped::default() }, Bytes(HUGE_PAGE));
        assert_eq!((tally.sample.processes, tally.sample.could, tally.sample.huge()), (1, huge(7), huge(6)));
        let small = ProcessStatus { rss_anon: Bytes(1 << 20), ..ProcessStatus::default() };
        tally.add(&small, &Mapped::default(), Bytes(HUGE_PAGE));
        assert_eq!((tally.sample.processes, tally.sample.could), (1, huge(7)));
        tally.add(&ProcessStatus { thp_enabled: Some(false), ..status }, &Mapped::default(), Bytes(HUGE_PAGE));
        tally.add(&ProcessStatus { thp_enabled: Some(false), ..small.clone() }, &Mapped::default(), Bytes(HUGE_PAGE));
        assert_eq!((tally.sample.processes, tally.sample.switched_off), (2, 1));
        let before = tally.sample;
        for shared in [1, 3, 2] {
            let mapped = Mapped { shared: huge(shared), reserved_shared: huge(10 * shared), ..Mapped::default() };
            tally.add(&ProcessStatus { rss_shmem: huge(4), ..small.clone() }, &mapped, Bytes(HUGE_PAGE));
        }
        let more = |of: fn(&TreeSample) -> Bytes| of(&tally.sample).saturating_sub(of(&before));
        assert_eq!((more(|all| all.transparent), more(|all| all.reserved)), (huge(3), huge(30)), "once, and not six");
        assert_eq!(more(|all| all.could), huge(3 + 30), "one could be huge before");
        // More was mapped between the two reads.
        let mut late = Tally::default();
        late.add(&small, &Mapped { private: huge(2), ..Mapped::default() }, Bytes(HUGE_PAGE));
        assert_eq!((late.sample.could, late.sample.huge()), (huge(2), huge(2)));
    }

    #[test]
    fn mappings_smaller_than_a_page_do_not_count() {
        let mapping = |start: u64, len: u64, kind: &str| {
            let (start, end) = ((1 << 30) + (start << 10), (1 << 30) + ((start + len) << 10));
            let anonymous = if kind == "rw-p" { len } else { 0 };
            format!("{start:x}-{end:x} {kind} 0 0:1 7\nRss: {len} kB\nAnonymous: {anonymous} kB\n")
        };
        let text =
            [mapping(0, 32, "rw-p"), mapping(100, 96, "rw-p"), mapping(256, 64, "rw-p"), mapping(512, 32, "rw-s")];
        let could = |page: u64, rows: &[String]| {
            let mapped = Mapped::of(&smaps::parse(&rows.concat()).unwrap(), Bytes(page << 10));
            let status =
                ProcessStatus { rss_anon: Bytes(192 << 10), rss_shmem: Bytes(32 << 10), ..ProcessStatus::default() };
            let mut tally = Tally::default();
            tally.add(&status, &mapped, Bytes(page << 10));
            (tally.sample.processes, tally.sample.could.0 >> 10)
        };
        assert_eq!(could(16, &text), (1, 192 + 32));
        assert_eq!(could(64, &text), (1, 128), "32 KiB do not fit, twice");
        assert_eq!(could(128, &text), (0, 0), "nor do 96 and 64");
    }

    #[test]
    fn only_huge_memory_counts_as_placed() {
        let mib = |number: u64| number << 20;
        let mapped = |text: &str| {
            let field = |line: &str| {
                let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
                let [start, end, transparent, pooled] = words[..] else { panic!("{line}") };
                let (start, end) = (mib(start), mib(end));
                format!(
                    "{start:x}-{end:x} rw-p 0 0:0 0\nAnonHugePages: {} kB\nPrivate_Hugetlb: {} kB\n",
                    transparent << 10,
                    pooled << 10
                )
            };
            smaps::parse(&text.lines().map(field).collect::<String>()).unwrap()
        };
        let ranges = merged(vec![mib(200)..mib(264), mib(0)..mib(64), mib(32)..mib(64), mib(220)..mib(230)]);
        assert_eq!(ranges, [mib(0)..mib(64), mib(200)..mib(264)]);
        let huge = |text: &str| huge_within(mapped(text).iter(), &ranges).0 >> 20;
        assert_eq!(huge("0 64 0 0\n64 200 136 0"), 0, "never touched, and the neighbour");
        assert_eq!(huge("0 64 4 0\n136 264 100 0"), 54, "half of the second was placed");
        assert_eq!(huge("0 64 0 4"), 0, "of a pool");
    }

    #[test]
    fn our_own_memory_is_seen_and_an_ended_program_is_not() {
        let everywhere = 0..1 << 47;
        let own = sample(&Root::host(), std::process::id(), PageKind::Huge, Some(std::slice::from_ref(&everywhere)))
            .expect("we live");
        assert!(own.could >= own.huge() && own.placed.is_some());
        let stop = Stop::default();
        stop.request();
        assert_eq!(watch(std::process::id(), PageKind::Transparent, None, stop).join().unwrap(), Seen::default());
    }
}
