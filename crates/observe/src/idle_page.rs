//! The tracker `idle-page`: the kernel marks page frames as idle on request, and removes the mark of those that are used
//! (Documentation/admin-guide/mm/idle_page_tracking.rst).
//!
//! Owns: the marks of the target's frames. Never touches: the marks of any other frame; the file has one bit for each.
//!
//! *Bits*: walks, since the kernel clears accessed bits without flushing the TLB. *Bias*: a mark belongs to the frame, so other programs' accesses to
//! shared memory count, too; a huge page of any size has one mark, and counts as walked as a whole; frames on none of the kernel's page lists (a
//! device's, the zero page, very new ones) cannot be marked and count as unobserved, as do the machine's last few. The first walk after marking sets
//! a cleared bit, and takes as long as under page-walk: rates are corrected alike. Unlike under page-walk, a second such walk follows the read that
//! saw the first; by then a region that is walked often has its rate. *Cost*: for marking and reading, the kernel finds all mappings of each page. A
//! pass takes tens of times as long as page-walk's, and with much memory the earliest read is that late: for memory walked more than three times
//! until then, the rate is only a lower bound. A page fault of the program waits for one page at most; for setting bits again the program loses twice
//! what it does under page-walk.
//!
//! Marks of pages not seen walked stay, because the file can set marks but not remove them. They change nothing by themselves: reclaim does not read
//! them, and they go when a use is noticed or the page is freed. Pages whose bits were cleared do not seem old either, since the kernel notes that
//! they were set. Only another program that tracks idle pages at the same time is misled (DAMON marks them, too), as it misleads us: to both, a page
//! seems idle since it was last marked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use heat::rate::{self, DELAYS, ReadCount, ReadCounts};
use heat::units::Nanos;
use heat::{Cost, Heat, Meaning, PageSet, Region, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::page_use::flag::{COMPOUND_HEAD, COMPOUND_TAIL, LRU};
use kernel::pagemap::Entry;
use kernel::target::Target;
use kernel::{Root, probe};

use crate::frames::{Frame, FrameFlags, FrameTables};
use crate::survey::Survey;
use crate::window::Window;
use crate::{ObserveError, ObserveOptions, Tracker, first_walk, wait_until};

/// Frames of one word of the file.
const WORD: u64 = 64;
/// Words read or written at once; the kernel takes no more in one call.
const MOST_WORDS: usize = 512;
/// The largest gap, in words without frames of the target, that one call reads through: each takes less time than another call.
const GAP: u64 = 16;

/// The tracker, ready to observe any process.
pub struct IdlePage {
    root: Root,
    bitmap: Bitmap,
    frames: FrameTables,
    survey: Survey,
    /// What the program loses for each page that it walks again; None until needed.
    price: Option<Nanos>,
}

impl IdlePage {
    /// Errors: the kernel does not support idle marks, or CAP_DAC_OVERRIDE is missing.
    pub fn new() -> Result<Self, ObserveError> {
        let root = Root::host();
        let bitmap = Bitmap::open(&root)?;
        let frames = FrameTables::open(&root)?;
        let survey = Survey::new(&root, TrackerKind::IdlePage, Meaning::Walked)?;
        Ok(Self { bitmap, frames, survey, root, price: None })
    }

    /// What is present, and the frames that can be marked.
    fn initial_scan(&mut self, target: &Target, most_regions: usize) -> Result<(Heat, Vec<Frame>), ObserveError> {
        let (mut frames, mut index) = (Vec::new(), 0);
        let mut heat = self.survey.scan(target, most_regions, |region, entries| {
            frames.extend(frames_of(index, region, entries));
            region.unobserved = region.present.len() as u16;
            index += 1;
            // It is not yet known what will be walked.
            true
        })?;
        let (mut markable, mut folio) = (Vec::new(), Folio::default());
        self.frames.tell_flags(&mut frames, |frame, flags| {
            markable.extend(folio.mark_of(frame.number, flags).map(|number| Frame { number, ..*frame }));
        })?;
        self.bitmap.keep_readable(&mut markable)?;
        for frame in &markable {
            let region = &mut heat.regions[frame.region as usize];
            region.unobserved -= if region.huge { region.unobserved } else { 1 };
        }
        Ok((heat, markable))
    }
}

impl Tracker for IdlePage {
    fn kind(&self) -> TrackerKind {
        TrackerKind::IdlePage
    }

    fn observe(&mut self, target: &Target, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let window = Window::begin(&self.root, target.pid())?;
        let (mut heat, frames) = self.initial_scan(target, options.most_regions)?;
        let mut marks = Marks::of(&self.bitmap, frames);
        heat.cost.clear = marks.set()?;
        let read_counts = marks.follow(&mut heat, target, stop)?;
        let end = window.started() + options.window.duration();
        if Instant::now() < end {
            wait_until(end, target, stop)?;
            marks.read(&mut heat.cost)?;
        }
        marks.count_in_window(&mut heat.regions);
        let price = *self.price.get_or_insert_with(|| first_walk::price(&self.root));
        let bits = |region: &Region| if region.huge { 1 } else { u64::from(region.walked_in_window) };
        // Once after marking, and once after the read that saw it.
        heat.cost.program = Nanos(2 * heat.regions.iter().map(bits).sum::<u64>() * price.0);
        let ended = window.end(&self.root)?;
        rate::rate(&mut heat.regions, &read_counts);
        rate::undo_slowdown(&mut heat.regions, ended.busy_cpus);
        Ok(ended.add_to(heat))
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| false)
    }

    fn survey_growth(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| true)
    }
}

/// The frames by which a region is observed: for a huge page only the first.
fn frames_of(index: u32, region: &Region, entries: &[Entry]) -> Vec<Frame> {
    let pages = if region.huge { 1 } else { entries.len() };
    let frame = move |(page, entry): (usize, &Entry)| {
        Some(Frame { number: entry.frame()?, region: index, page: page as u16, dirty: false })
    };
    entries[..pages].iter().enumerate().filter_map(frame).collect()
}

/// Finds the frame that carries each mark, as frames arrive in ascending order: among several that the kernel manages together, the first.
#[derive(Default)]
struct Folio {
    head: Option<u64>,
    next: u64,
}

impl Folio {
    /// None if it cannot be marked.
    fn mark_of(&mut self, number: u64, flags: FrameFlags) -> Option<u64> {
        let goes_on = number <= self.next;
        self.next = number + 1;
        if !flags.has(COMPOUND_TAIL) {
            self.head = flags.has(COMPOUND_HEAD).then_some(number).filter(|_| flags.has(LRU));
            return flags.has(LRU).then_some(number);
        }
        self.head = self.head.filter(|_| goes_on);
        self.head
    }
}

/// The file of marks.
struct Bitmap {
    file: File,
    path: PathBuf,
}

impl Bitmap {
    fn open(root: &Root) -> Result<Self, ObserveError> {
        let path = root.path(probe::IDLE_PAGES);
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ObserveError::NoIdlePages { path }),
            Err(cause) => Err(ObserveError::IdlePages { doing: "open", path, cause }),
        }
    }

    /// Drops frames whose marks cannot be read: the machine's last ones, if they do not fill a word, because the kernel reads whole words only.
    /// `frames` ascend.
    fn keep_readable(&self, frames: &mut Vec<Frame>) -> Result<(), ObserveError> {
        while let Some(last) = frames.last() {
            let read = self.file.read_at(&mut [0; 8], last.number / WORD * 8);
            match read.map_err(|cause| self.failed("read", cause))? {
                0 => frames.pop(),
                _ => break,
            };
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, cause: io::Error) -> ObserveError {
        ObserveError::IdlePages { doing, path: self.path.clone(), cause }
    }

    /// Marks frames: those whose bits are set in `words`, starting at word `first`.
    fn set(&self, first: u64, words: &[u64]) -> Result<(), ObserveError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let written = self.file.write_all_at(&bytes, first * 8);
        written.map_err(|cause| self.failed("write", cause))
    }

    /// The words from `first`: a set bit is a mark that is still there.
    fn read(&self, first: u64, words: usize) -> Result<Vec<u64>, ObserveError> {
        let mut bytes = vec![0; words * 8];
        let read = self.file.read_exact_at(&mut bytes, first * 8);
        read.map_err(|cause| self.failed("read", cause))?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect())
    }
}

/// The marks of one process's frames.
struct Marks<'a> {
    bitmap: &'a Bitmap,
    /// By the number of the frame with the mark, ascending.
    frames: Vec<Frame>,
    chunks: Vec<Chunk>,
}

/// Words that are read together.
struct Chunk {
    first: u64,
    /// Which frames belong to the target.
    wanted: Vec<u64>,
    /// Which of them have been used since they were marked.
    used: Vec<u64>,
    /// The middle of the call, because the kernel takes a while for all of them.
    set_at: Instant,
    /// The same for the last read.
    read_at: Instant,
}

impl Chunk {
    fn at(first: u64) -> Self {
        let now = Instant::now();
        Self { first, wanted: Vec::new(), used: Vec::new(), set_at: now, read_at: now }
    }

    fn end(&self) -> u64 {
        self.first + self.wanted.len() as u64
    }

    fn is_used(&self, frame: u64) -> bool {
        self.used[(frame / WORD - self.first) as usize] & 1 << (frame % WORD) != 0
    }
}

impl<'a> Marks<'a> {
    /// For frames in ascending order.
    fn of(bitmap: &'a Bitmap, frames: Vec<Frame>) -> Self {
        let mut chunks: Vec<Chunk> = Vec::new();
        for frame in &frames {
            let word = frame.number / WORD;
            let near = |chunk: &Chunk| word < chunk.end() + GAP && word < chunk.first + MOST_WORDS as u64;
            if !chunks.last().is_some_and(near) {
                chunks.push(Chunk::at(word));
            }
            let chunk = chunks.last_mut().expect("just pushed");
            let at = (word - chunk.first) as usize;
            chunk.wanted.resize(chunk.wanted.len().max(at + 1), 0);
            chunk.wanted[at] |= 1 << (frame.number % WORD);
        }
        for chunk in &mut chunks {
            chunk.used = vec![0; chunk.wanted.len()];
        }
        Self { bitmap, frames, chunks }
    }

    /// Marks all; returns the time that it took.
    fn set(&mut self) -> Result<Nanos, ObserveError> {
        let started = Instant::now();
        for chunk in &mut self.chunks {
            let before = Instant::now();
            self.bitmap.set(chunk.first, &chunk.wanted)?;
            chunk.set_at = before + before.elapsed() / 2;
        }
        Ok(Nanos::since(started))
    }

    /// Reads at growing delays from now on.
    fn follow(&mut self, heat: &mut Heat, target: &Target, stop: &Stop) -> Result<Vec<ReadCounts>, ObserveError> {
        let since = Instant::now();
        let mut read_counts = vec![ReadCounts::default(); heat.regions.len()];
        for (number, delay) in DELAYS.into_iter().enumerate() {
            // Reading much memory may take longer than the next delay: skip the read then, since the next shows the same.
            if DELAYS.get(number + 1).is_some_and(|&next| since.elapsed() > next) {
                continue;
            }
            wait_until(since + delay, target, stop)?;
            self.read(&mut heat.cost)?;
            self.tell(&mut heat.regions, 1 + number, &mut read_counts);
        }
        Ok(read_counts)
    }

    /// Notes which frames have lost their marks.
    fn read(&mut self, cost: &mut Cost) -> Result<(), ObserveError> {
        let started = Instant::now();
        for chunk in &mut self.chunks {
            let before = Instant::now();
            let idle = self.bitmap.read(chunk.first, chunk.wanted.len())?;
            chunk.read_at = before + before.elapsed() / 2;
            for ((used, wanted), idle) in chunk.used.iter_mut().zip(&chunk.wanted).zip(idle) {
                *used |= wanted & !idle;
            }
        }
        cost.read += Nanos::since(started);
        cost.reads += 1;
        Ok(())
    }

    /// Passes on each frame with its chunk.
    fn each(&self, mut tell: impl FnMut(&Frame, &Chunk)) {
        let mut at = 0;
        for frame in &self.frames {
            at += self.chunks[at..].iter().take_while(|chunk| chunk.end() <= frame.number / WORD).count();
            tell(frame, &self.chunks[at]);
        }
    }

    /// Stores what read `number`, the last one, saw. Pages of one region are read at different times; the mean of their delays counts.
    fn tell(&self, regions: &mut [Region], number: usize, read_counts: &mut [ReadCounts]) {
        let mut sums = vec![(0u64, Nanos(0)); regions.len()];
        self.each(|frame, chunk| {
            let index = frame.region as usize;
            let (count, delays) = &mut sums[index];
            *count += 1;
            *delays += Nanos::from_duration(chunk.read_at - chunk.set_at);
            if chunk.is_used(frame.number) {
                let region = &mut regions[index];
                if region.huge {
                    region.walked = PageSet::ALL
                } else {
                    region.walked.insert(frame.page.into())
                }
                read_counts[index][number].walked += 1;
            }
        });
        for (read_counts, (count, delays)) in read_counts.iter_mut().zip(sums) {
            read_counts[number] = ReadCount::new(Nanos(delays.0 / count.max(1)), read_counts[number].walked);
        }
    }

    /// Counts the pages whose marks are gone.
    fn count_in_window(&self, regions: &mut [Region]) {
        regions.iter_mut().for_each(|region| region.walked_in_window = 0);
        self.each(|frame, chunk| {
            let region = &mut regions[frame.region as usize];
            region.walked_in_window += u16::from(chunk.is_used(frame.number)) * if region.huge { 512 } else { 1 };
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heat::samples::{huge, region};

    use super::*;

    fn frames(numbers: &[u64]) -> Vec<Frame> {
        let frame = |(page, &number): (usize, &u64)| Frame { number, region: 0, page: page as u16, dirty: false };
        numbers.iter().enumerate().map(frame).collect()
    }

    /// A tree with an ordinary file in place of the marks: reads return what was written last.
    fn bitmap(words: usize) -> (tempfile::TempDir, Bitmap) {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join(probe::IDLE_PAGES);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; words * 8]).unwrap();
        let bitmap = Bitmap::open(&Root::at(tree.path())).unwrap();
        (tree, bitmap)
    }

    /// Does what the kernel does when frames are used.
    fn take_marks(bitmap: &Bitmap, frames: &[u64]) {
        for frame in frames {
            let word = bitmap.read(frame / WORD, 1).unwrap()[0];
            bitmap.set(frame / WORD, &[word & !(1 << (frame % WORD))]).unwrap();
        }
    }

    #[test]
    fn only_the_targets_frames_are_marked() {
        let (_tree, bitmap) = bitmap(2000);
        let mut marks = Marks::of(&bitmap, frames(&[3, 64, 127, 64 * 900, 64 * 1999 + 63]));
        marks.set().unwrap();
        let words = bitmap.read(0, 2000).unwrap();
        let set: Vec<(usize, u64)> = words.into_iter().enumerate().filter(|(_, word)| *word != 0).collect();
        assert_eq!(set, [(0, 1 << 3), (1, 1 | 1 << 63), (900, 1), (1999, 1 << 63)]);
        assert_eq!(marks.chunks.iter().map(|chunk| chunk.first).collect::<Vec<_>>(), [0, 900, 1999]);
    }

    #[test]
    fn chunks_are_what_one_call_takes() {
        let (_tree, bitmap) = bitmap(0);
        let dense: Vec<u64> = (0..WORD * 1200).collect();
        let marks = Marks::of(&bitmap, frames(&dense));
        assert_eq!(marks.chunks.iter().map(|chunk| chunk.wanted.len()).collect::<Vec<_>>(), [512, 512, 176]);
        assert!(marks.chunks.iter().all(|chunk| chunk.wanted.iter().all(|&word| word == u64::MAX)));
    }

    #[test]
    fn frames_without_their_mark_were_used() {
        let (_tree, bitmap) = bitmap(100);
        let mut regions = [region(0, 0.0, 0), huge(1, 0.0)];
        let mut all = frames(&[10, 70, 71, 5000]);
        all.push(Frame { number: 5120, region: 1, page: 0, dirty: false });
        let mut marks = Marks::of(&bitmap, all);
        let mut read_counts = vec![ReadCounts::default(); 2];
        let mut scan = |marks: &mut Marks<'_>, number| {
            marks.read(&mut Cost::default()).unwrap();
            marks.tell(&mut regions, number, &mut read_counts);
            (regions[0].walked.iter().collect::<Vec<_>>(), regions[1].walked.len(), read_counts[0][number].walked)
        };
        marks.set().unwrap();
        assert_eq!(scan(&mut marks, 0), (vec![], 0, 0));
        take_marks(&bitmap, &[71, 5000]);
        assert_eq!(scan(&mut marks, 1), (vec![2, 3], 0, 2));
        take_marks(&bitmap, &[10, 5120]);
        assert_eq!(scan(&mut marks, 2), (vec![0, 2, 3], 512, 3));
        assert!(read_counts.iter().all(|each| each[2].delay() > Nanos(0) && each[2].delay() >= each[1].delay()));
        marks.count_in_window(&mut regions);
        assert_eq!((regions[0].walked_in_window, regions[1].walked_in_window), (3, 512));
    }

    #[test]
    fn the_last_frames_are_left_out_where_they_fill_no_word() {
        let (_tree, bitmap) = bitmap(3);
        let kept = |numbers: &[u64]| {
            let mut all = frames(numbers);
            bitmap.keep_readable(&mut all).unwrap();
            all.into_iter().map(|frame| frame.number).collect::<Vec<_>>()
        };
        assert_eq!(kept(&[5, 190, 192, 200]), [5, 190]);
        assert_eq!(kept(&[5, 191]), [5, 191]);
        assert!(kept(&[192]).is_empty() && kept(&[]).is_empty());
    }

    #[test]
    fn a_huge_page_has_one_mark_and_some_frames_none() {
        let mut folio = Folio::default();
        let [single, head, tail, unlisted] = [1 << 5, 1 << 5 | 1 << 15, 1 << 16, 0].map(FrameFlags::from_bits);
        let flags = [
            (7, single),
            (8, head),
            (9, tail),
            (9, tail),
            (10, tail),
            (11, unlisted),
            (12, tail),
            (20, head),
            (22, tail),
        ];
        let marks: Vec<Option<u64>> = flags.map(|(number, flags)| folio.mark_of(number, flags)).to_vec();
        let expected = [Some(7), Some(8), Some(8), Some(8), Some(8), None, None, Some(20), None];
        assert_eq!(marks, expected, "a tail whose head the target does not map is not known");
        let entries: Vec<Entry> = (0..512).map(|number| Entry(1 << 63 | (512 + number))).collect();
        assert_eq!(frames_of(0, &huge(0, 0.0), &entries).len(), 1);
        assert_eq!(frames_of(0, &region(0, 0.0, 0), &entries).len(), 512);
    }

    #[test]
    fn a_kernel_without_it_is_told() {
        let error = Bitmap::open(&Root::at(tempfile::tempdir().unwrap().path())).err().unwrap();
        assert!(matches!(error, ObserveError::NoIdlePages { .. }), "{error}");
        assert!(error.to_string().contains("CONFIG_IDLE_PAGE_TRACKING"), "{error}");
    }
}
