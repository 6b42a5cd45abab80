//! The colored arena: huge pages for each whole 2 MiB, and base pages in color order for the rest.
//!
//! Owns: candidates, and moving the chosen ones into place. Never touches: the choice itself; or pages afterwards: the kernel may migrate
//! or swap them to other frames, which [`ColoredArena::verify`] reports.
//!
//! A huge page is contiguous, so it has all its colors. The kernel does not color base pages, so the arena allocates a few more candidates
//! than needed, and frees those that are not chosen.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;

use hugepilot_os::memory::{AlignedMemory, OwnAdvice, available_bytes};
use hugepilot_os::page_move::{PageMove, PageMover, own_frames, remap};

use super::choice::runs;
use super::{ColorError, Palette};
use crate::arena::back;
use crate::fork;
use crate::judge::REGION;

const PAGE: usize = 4096;
const HUGE: usize = REGION as usize;
const PAGES_PER_HUGE: usize = HUGE / PAGE;
/// Candidates per page: with frames as the kernel hands them out, this many hardly ever lack a color.
const CANDIDATES: f64 = 1.05;
/// If a color is short nevertheless, for example after memory of other colors was freed, contiguous blocks of 2 MiB are added, which lack
/// none: up to as many candidates again, or this many blocks.
const FEWEST_BLOCKS: usize = 4;
/// Mappings reserved for the rest of the process meanwhile.
const SPARE_MAPPINGS: u64 = 256;

/// Prepares moving pages into memory; an error means that mremap must do it.
type Mover = fn(&mut AlignedMemory) -> io::Result<PageMover<'_>>;

/// Reads the frames of this many pages from an address on.
type Reader<'a> = dyn FnMut(u64, usize) -> Result<Vec<u64>, ColorError> + 'a;

/// What is requested.
#[derive(Clone, Debug)]
pub struct ArenaOptions {
    /// Size in bytes, rounded up to 4 KiB.
    pub bytes: u64,
    /// Which colors. If not all are used there are no huge pages, since those have all.
    pub palette: Palette,
    /// Huge pages for each whole 2 MiB, as far as available; only with up to 512 colors, since a huge page has no more.
    pub huge_pages: bool,
    /// Where in the palette the sequence begins; None: at random, so that not all arenas begin with the same color.
    pub first: Option<usize>,
}

/// Memory in which each page has its color.
#[derive(Debug)]
pub struct ColoredArena {
    memory: AlignedMemory,
    huge_bytes: usize,
    palette: Palette,
    first: usize,
    candidates: usize,
}

/// How many pages still have their color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Base pages chosen by color.
    pub pages: u64,
    /// Of these, pages that have the right one.
    pub right: u64,
    /// Huge pages that were made.
    pub huge_pages: u64,
    /// Of these, those still contiguous.
    pub contiguous: u64,
}

impl ColoredArena {
    /// Makes an arena, all of it populated and zeroed. Needs CAP_SYS_ADMIN, and temporarily memory for the candidates: 1.05 times its size,
    /// multiplied by the number of colors per color used; if a color is short, at most twice that, or 8 MiB more.
    ///
    /// Errors: the size is 0, page frames are hidden or inaccessible, future memory is locked, there is too little memory, too few pages
    /// have the wanted colors, too many mappings would be needed, or the kernel refuses a step.
    pub fn create(options: &ArenaOptions) -> Result<Self, ColorError> {
        Self::create_by(|memory| PageMover::into(memory), options)
    }

    fn create_by(mover: Mover, options: &ArenaOptions) -> Result<Self, ColorError> {
        if options.bytes == 0 {
            return Err(ColorError::Empty);
        }
        let bytes = whole_pages(options.bytes);
        let first = options.first.unwrap_or_else(|| RandomState::new().hash_one(0) as usize) % options.palette.used();
        let huge = if options.huge_pages && fits_huge_pages(&options.palette) { bytes / HUGE * HUGE } else { 0 };
        ensure_available(huge.saturating_add(pool_bytes(&options.palette, (bytes - huge) / PAGE)))?;
        ensure_frames_seen()?;
        ensure_backed_on_demand(&AlignedMemory::anonymous(PAGE).map_err(system("map a page"))?)?;
        // A child would share pages, and shared pages cannot be moved.
        let _no_fork = fork::hold_off();
        let mut memory = AlignedMemory::anonymous(bytes).map_err(system("map memory for an arena"))?;
        let huge_bytes = take_huge(&mut memory, huge)?;
        let mut arena = Self { memory, huge_bytes, palette: options.palette.clone(), first, candidates: 0 };
        arena.take_colored(mover)?;
        Ok(arena)
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Its length in bytes, whole base pages.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Bytes at its beginning that were put on huge pages.
    pub fn huge_bytes(&self) -> usize {
        self.huge_bytes
    }

    /// Base pages after those, chosen by color.
    pub fn pages(&self) -> usize {
        (self.len() - self.huge_bytes) / PAGE
    }

    /// Candidates for the base pages.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// The contents, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// The contents as 8-byte words, mutable.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.memory.words_mut()
    }

    /// How much of it still has its colors. The kernel moves pages to other frames when it compacts memory, balances NUMA nodes, merges
    /// equal pages or swaps them in, and copies pages that a forked process writes to. A swapped-out page has no color.
    ///
    /// The result is a snapshot from reading the page tables, which takes microseconds per MiB. It changes nothing, and lost colors cannot
    /// be restored.
    ///
    /// Errors: `/proc/self/pagemap` cannot be read, or hides page frames (CAP_SYS_ADMIN).
    pub fn verify(&self) -> Result<Verified, ColorError> {
        let frames = frames_of(self.address(), self.len() / PAGE)?;
        if frames.iter().all(|&frame| frame == 0) {
            // Distinguishes hidden frames from an arena that is swapped out completely.
            ensure_frames_seen()?;
        }
        let (huge, colored) = frames.split_at(self.huge_bytes / PAGE);
        let right = |&(place, &frame): &(usize, &u64)| {
            frame != 0 && self.palette.color_of(frame) == self.palette.wanted(self.first, place)
        };
        let contiguous = |block: &&[u64]| block[0] != 0 && block.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        Ok(Verified {
            pages: colored.len() as u64,
            right: colored.iter().enumerate().filter(right).count() as u64,
            huge_pages: (self.huge_bytes / HUGE) as u64,
            contiguous: huge.chunks(PAGES_PER_HUGE).filter(contiguous).count() as u64,
        })
    }

    /// Fills the part that is not on huge pages.
    fn take_colored(&mut self, mover: Mover) -> Result<(), ColorError> {
        let (start, places) = (self.huge_bytes, self.pages());
        if places == 0 {
            return Ok(());
        }
        keep_small(&mut self.memory, start, places * PAGE);
        let mut pool = Pool::take(&mut frames_of, &self.palette, self.first, places)?;
        self.candidates = pool.frames.len();
        let usable = || pool.frames.iter().filter(|&&frame| self.palette.is_used(frame)).count() as u64;
        let choice = self.palette.choose(&pool.frames, self.first, places);
        let choice = choice.ok_or_else(|| ColorError::TooFew { found: usable(), wanted: places as u64 })?;
        pool.bring(mover, &choice, &mut self.memory, start)?;
        self.memory.bytes_mut()[start..].iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        Ok(())
    }
}

/// The pool of candidates.
struct Pool {
    memory: AlignedMemory,
    frames: Vec<u64>,
    /// Candidates that are single pages. The rest allows huge pages, which makes it a separate mapping for the kernel.
    single: usize,
}

impl Pool {
    /// Candidates for this many places.
    fn take(read: &mut Reader<'_>, palette: &Palette, first: usize, places: usize) -> Result<Self, ColorError> {
        let usual = pool_bytes(palette, places);
        // If huge pages were not available, more places remain than were accounted for.
        ensure_available(usual)?;
        let most = usual.saturating_add(usual.max(FEWEST_BLOCKS * HUGE));
        let memory = AlignedMemory::anonymous(most).map_err(system("map memory to choose from"))?;
        let mut pool = Self { memory, frames: Vec::new(), single: usual / PAGE };
        keep_small(&mut pool.memory, 0, usual);
        pool.grow(usual, read)?;
        let a_block_has = (PAGES_PER_HUGE as u64 / u64::from(palette.count())).max(1);
        loop {
            let start = pool.frames.len() * PAGE;
            let blocks = palette.shortage(&pool.frames, first, places).div_ceil(a_block_has) as usize;
            let bytes = blocks.saturating_mul(HUGE).min(most - start);
            if bytes == 0 || ensure_available(bytes).is_err() {
                return Ok(pool);
            }
            // If huge pages are off, these are ordinary candidates, which helps too.
            let _ = pool.memory.advise(start, bytes, OwnAdvice::HugePage);
            pool.grow(bytes, read)?;
            // Taking a page out splits the huge page; the kernel then replaces each of its pages that holds only zeros with the shared zero
            // page.
            pool.memory.bytes_mut()[start..start + bytes].iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        }
    }

    /// Populates this much more of it.
    fn grow(&mut self, bytes: usize, read: &mut Reader<'_>) -> Result<(), ColorError> {
        let start = self.frames.len() * PAGE;
        self.memory.advise(start, bytes, OwnAdvice::Populate).map_err(system("take memory to choose from"))?;
        self.frames.extend(read(self.memory.address() + start as u64, bytes / PAGE)?);
        Ok(())
    }

    /// Moves the chosen candidates to their places in `memory`, starting at `start`.
    fn bring(
        &mut self,
        mover: Mover,
        choice: &[usize],
        memory: &mut AlignedMemory,
        start: usize,
    ) -> Result<(), ColorError> {
        let runs = runs(choice, self.single);
        let mut runs = runs.iter().map(|run| PageMove {
            from: run.candidate * PAGE,
            to: start + run.place * PAGE,
            len: run.pages * PAGE,
        });
        let Ok(mut mover) = mover(memory) else {
            ensure_mappings(runs.len() as u64)?;
            return runs
                .try_for_each(|run| remap(&mut self.memory, memory, run))
                .map_err(system("move pages (mremap)"));
        };
        runs.try_for_each(|run| mover.bring(&mut self.memory, run)).map_err(system("move pages (UFFDIO_MOVE)"))
    }
}

/// Whole base pages; a size beyond the address space is also beyond the memory.
fn whole_pages(bytes: u64) -> usize {
    let whole = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
    whole.unwrap_or(usize::MAX / PAGE * PAGE)
}

/// A kernel that refuses has no huge pages.
fn keep_small(memory: &mut AlignedMemory, offset: usize, bytes: usize) {
    let _ = memory.advise(offset, bytes, OwnAdvice::NoHugePage);
}

/// A huge page has exactly one base page for each of up to 512 colors; a subset is impossible.
fn fits_huge_pages(palette: &Palette) -> bool {
    palette.is_whole() && palette.count() as usize <= PAGES_PER_HUGE
}

/// Takes huge pages from the beginning for as long as any are available; returns the bytes on them.
fn take_huge(memory: &mut AlignedMemory, bytes: usize) -> Result<usize, ColorError> {
    for offset in (0..bytes).step_by(HUGE) {
        if !back(memory, offset, false).map_err(system("take memory"))? {
            memory.advise(offset, HUGE, OwnAdvice::DontNeed).map_err(system("give memory back"))?;
            return Ok(offset);
        }
    }
    Ok(bytes)
}

/// Whole blocks, so even a small arena has candidates of each color.
fn pool_bytes(palette: &Palette, places: usize) -> usize {
    let for_each = f64::from(palette.count()) / palette.used() as f64;
    let pages = (places as f64 * CANDIDATES * for_each).ceil() as usize;
    pages.saturating_mul(PAGE).checked_next_multiple_of(HUGE).unwrap_or(usize::MAX)
}

fn frames_of(start: u64, pages: usize) -> Result<Vec<u64>, ColorError> {
    own_frames(start, pages).map_err(ColorError::of_frames)
}

/// A process that may not read page frames gets 0 for a page that is certainly present, and should learn it before memory is taken.
fn ensure_frames_seen() -> Result<(), ColorError> {
    let mut page = AlignedMemory::anonymous(PAGE).map_err(system("map a page"))?;
    page.bytes_mut()[0] = 1;
    let frames = frames_of(page.address(), 1)?;
    if frames == [0] { Err(ColorError::FramesHidden) } else { Ok(()) }
}

/// If all future memory is locked, too much would be taken, and no page could be moved to a place that is already populated.
fn ensure_backed_on_demand(untouched: &AlignedMemory) -> Result<(), ColorError> {
    let frames = frames_of(untouched.address(), 1)?;
    if frames == [0] { Ok(()) } else { Err(ColorError::Locked) }
}

/// Each run moved by mremap may remain a separate mapping.
fn ensure_mappings(runs: u64) -> Result<(), ColorError> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(system("count mappings"));
    let most: u64 = read("/proc/sys/vm/max_map_count")?.trim().parse().unwrap_or(u64::MAX);
    let there = read("/proc/self/maps")?.lines().count() as u64;
    if there + runs + SPARE_MAPPINGS > most {
        return Err(ColorError::TooManyMappings { pages: runs, most });
    }
    Ok(())
}

/// Taking more than is available would get some program killed.
fn ensure_available(needed: usize) -> Result<(), ColorError> {
    let Some(available) = available_bytes().map_err(system("read /proc/meminfo"))? else { return Ok(()) };
    if needed as u64 > available {
        return Err(ColorError::Memory { needed: needed as u64, available });
    }
    Ok(())
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> ColorError {
    move |cause| ColorError::System { doing, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(bytes: u64, palette: Palette) -> ArenaOptions {
        ArenaOptions { bytes, palette, huge_pages: false, first: None }
    }

    /// None if this process may not read frames.
    fn made(options: &ArenaOptions) -> Option<ColoredArena> {
        match ColoredArena::create(options) {
            Err(ColorError::FramesHidden) => {
                eprintln!("skipped: page frames are hidden; root sees them");
                None
            }
            arena => Some(arena.expect("there is memory")),
        }
    }

    #[test]
    fn pages_follow_the_colors_and_read_as_zero() {
        let Some(mut arena) = made(&options((16 << 20) + 1, Palette::all(32).unwrap())) else { return };
        assert_eq!((arena.len(), arena.huge_bytes()), ((16 << 20) + PAGE, 0));
        assert!(arena.candidates() as f64 >= 1.05 * 4097.0);
        assert!(arena.bytes_mut().iter().all(|&byte| byte == 0));
        arena.bytes_mut().fill(1);
        let verified = arena.verify().unwrap();
        assert_eq!((verified.pages, verified.huge_pages), (4097, 0));
        assert!(verified.right as f64 >= 0.999 * 4097.0, "{verified:?}");
    }

    #[test]
    fn a_small_arena_has_its_colors_too() {
        let palette = Palette::all(32).unwrap();
        let Some(arena) = made(&ArenaOptions { first: Some(5), ..options(3 * PAGE as u64, palette.clone()) }) else {
            return;
        };
        let frames = own_frames(arena.address(), 3).unwrap();
        assert!(frames.iter().map(|&frame| palette.color_of(frame)).eq([5, 6, 7]));
    }

    #[test]
    fn an_arena_confined_to_colors_has_no_others_and_no_huge_pages() {
        let palette = Palette::only(32, 8..12).unwrap();
        let Some(arena) = made(&ArenaOptions { huge_pages: true, ..options(3 << 20, palette.clone()) }) else { return };
        assert_eq!(arena.huge_bytes(), 0);
        let frames = own_frames(arena.address(), arena.len() / PAGE).unwrap();
        assert!(frames.iter().all(|&frame| (8..12).contains(&palette.color_of(frame))));
    }

    #[test]
    fn whole_huge_pages_are_huge_and_the_rest_is_colored() {
        let palette = Palette::all(32).unwrap();
        let Some(arena) = made(&ArenaOptions { huge_pages: true, ..options((4 << 20) + 7 * PAGE as u64, palette) })
        else {
            return;
        };
        let verified = arena.verify().unwrap();
        assert_eq!(verified.pages as usize * PAGE + arena.huge_bytes(), arena.len());
        assert_eq!(
            (verified.contiguous, verified.huge_pages),
            ((arena.huge_bytes() / HUGE) as u64, verified.contiguous)
        );
        assert_eq!(verified.right, verified.pages);
    }

    #[test]
    fn more_colors_than_a_huge_page_has_take_base_pages() {
        let palette = Palette::all(1024).unwrap();
        let Some(arena) = made(&ArenaOptions { huge_pages: true, ..options(4 << 20, palette.clone()) }) else { return };
        let verified = arena.verify().unwrap();
        assert_eq!((arena.huge_bytes(), verified.pages), (0, 1024));
        // A color may be missing among the candidates, but only once as many as permitted were taken.
        let most = (pool_bytes(&palette, 1024) + FEWEST_BLOCKS * HUGE) / PAGE;
        assert!(arena.candidates() <= most);
        assert!(verified.right == 1024 || arena.candidates() == most, "{verified:?}");
        assert!(fits_huge_pages(&Palette::all(512).unwrap()));
    }

    /// In a process of its own, because the lock affects every other test.
    #[test]
    fn memory_that_is_locked_from_the_start_is_no_place_for_colors() {
        const ALONE: &str = "HPS_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "color::arena::tests::memory_that_is_locked_from_the_start_is_no_place_for_colors";
            let mut this = std::process::Command::new(std::env::current_exe().unwrap());
            let ended = this.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ended.stdout);
            return assert!(ended.status.success() && said.contains("1 passed"), "{said}");
        }
        rustix::mm::mlockall(rustix::mm::MlockAllFlags::FUTURE).unwrap();
        match ColoredArena::create(&options(64 * PAGE as u64, Palette::all(32).unwrap())) {
            Err(ColorError::FramesHidden) => eprintln!("skipped: page frames are hidden; root sees them"),
            Err(error) => assert!(error.to_string().contains("before mlockall"), "{error}"),
            Ok(_) => panic!("no page could be moved to its place"),
        }
    }

    #[test]
    fn a_page_on_another_frame_is_not_right() {
        let Some(mut arena) = made(&options(64 * PAGE as u64, Palette::all(32).unwrap())) else { return };
        let before = arena.verify().unwrap();
        arena.memory.advise(0, PAGE, OwnAdvice::DontNeed).unwrap();
        assert_eq!(arena.verify().unwrap(), Verified { right: before.right - 1, ..before });
    }

    #[test]
    fn pages_that_are_not_there_are_not_right_and_are_no_error() {
        let Some(mut arena) = made(&options(8 * PAGE as u64, Palette::all(32).unwrap())) else { return };
        arena.memory.advise(0, 8 * PAGE, OwnAdvice::DontNeed).unwrap();
        assert_eq!(arena.verify().unwrap(), Verified { pages: 8, right: 0, huge_pages: 0, contiguous: 0 });
    }

    /// How many mappings it has become.
    fn mappings_of(arena: &ColoredArena) -> usize {
        let end = arena.address() + arena.len() as u64;
        let overlaps = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
            let address = |text| u64::from_str_radix(text, 16).unwrap();
            address(range.0) < end && address(range.1) > arena.address()
        };
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(overlaps).count()
    }

    #[test]
    fn an_arena_is_one_mapping() {
        let Some(arena) = made(&options(16 << 20, Palette::all(32).unwrap())) else { return };
        if PageMover::into(&mut AlignedMemory::anonymous(PAGE).unwrap()).is_err() {
            return eprintln!("skipped: this kernel has no UFFDIO_MOVE");
        }
        assert_eq!(mappings_of(&arena), 1);
    }

    fn no_mover(_: &mut AlignedMemory) -> io::Result<PageMover<'_>> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    #[test]
    fn an_arena_is_whole_and_colored_where_only_mremap_moves_pages() {
        for palette in [Palette::all(32).unwrap(), Palette::only(32, 8..12).unwrap()] {
            let mut arena = match ColoredArena::create_by(no_mover, &options(16 << 20, palette.clone())) {
                Err(ColorError::FramesHidden) => return eprintln!("skipped: page frames are hidden; root sees them"),
                arena => arena.expect("there is memory"),
            };
            assert!(arena.bytes_mut().iter().all(|&byte| byte == 0));
            arena.bytes_mut().fill(1);
            let verified = arena.verify().unwrap();
            assert!(verified.pages == 4096 && verified.right as f64 >= 0.999 * 4096.0, "{verified:?}");
            assert!(mappings_of(&arena) > 1, "nobody moves single pages by mremap without");
        }
    }

    #[test]
    fn blocks_are_added_until_no_color_is_short() {
        let (palette, places) = (Palette::all(32).unwrap(), 400);
        let mut without_a_color = (1_u64..).filter(|frame| frame % 32 != 7);
        let mut reads = Vec::new();
        let mut read = |_: u64, pages: usize| -> Result<Vec<u64>, ColorError> {
            reads.push(pages);
            Ok(match reads.len() {
                1 => without_a_color.by_ref().take(pages).collect(),
                _ => (1 << 20..).take(pages).collect(),
            })
        };
        let pool = Pool::take(&mut read, &palette, 0, places).unwrap();
        assert_eq!((reads, pool.single), (vec![512, 512], 512));
        let choice = palette.choose(&pool.frames, 0, places).unwrap();
        let color = |candidate: &usize| palette.color_of(pool.frames[*candidate]);
        assert!(choice.iter().map(color).eq((0..places).map(|place| palette.wanted(0, place))));
        assert!(pool.memory.bytes()[512 * PAGE..1024 * PAGE].iter().step_by(PAGE).all(|&byte| byte == 1));
    }

    #[test]
    fn blocks_that_do_not_help_are_so_many_and_no_more() {
        let palette = Palette::all(32).unwrap();
        let mut without_a_color = (1_u64..).filter(|frame| frame % 32 != 7);
        let mut read = |_: u64, pages: usize| -> Result<Vec<u64>, ColorError> {
            Ok(without_a_color.by_ref().take(pages).collect())
        };
        let pool = Pool::take(&mut read, &palette, 0, 400).unwrap();
        assert_eq!((pool.single, pool.frames.len()), (512, (1 + FEWEST_BLOCKS) * 512));
        assert!(palette.choose(&pool.frames, 0, 400).is_some(), "the next-best color");
    }

    #[test]
    fn a_choice_that_reaches_over_both_parts_of_a_pool_arrives_whole() {
        let movers: [Mover; 2] = [no_mover, |memory| PageMover::into(memory)];
        for mover in movers {
            let (palette, mut arena) = (Palette::all(1).unwrap(), AlignedMemory::anonymous(8 * PAGE).unwrap());
            keep_small(&mut arena, 0, 8 * PAGE);
            let memory = AlignedMemory::anonymous(HUGE + 8 * PAGE).unwrap();
            let mut pool = Pool { memory, frames: Vec::new(), single: 4 };
            keep_small(&mut pool.memory, 0, 4 * PAGE);
            pool.memory.advise(4 * PAGE, HUGE, OwnAdvice::HugePage).unwrap();
            pool.grow(8 * PAGE, &mut frames_of).unwrap();
            (0..8).for_each(|page| pool.memory.bytes_mut()[page * PAGE] = page as u8);
            let Some(choice) = palette.choose(&pool.frames, 0, 8) else {
                return eprintln!("skipped: page frames are hidden; root sees them");
            };
            pool.bring(mover, &choice, &mut arena, 0).unwrap();
            assert!(arena.bytes().iter().step_by(PAGE).copied().eq(0..8));
        }
    }

    #[test]
    fn what_cannot_be_is_said_before_memory_is_taken() {
        let palette = Palette::all(32).unwrap();
        assert!(matches!(ColoredArena::create(&options(0, palette.clone())), Err(ColorError::Empty)));
        for bytes in [1 << 50, u64::MAX] {
            let error = ColoredArena::create(&options(bytes, palette.clone())).unwrap_err();
            assert!(matches!(error, ColorError::Memory { .. }) && error.to_string().contains("available"), "{error}");
        }
        assert!(matches!(ensure_mappings(1 << 40), Err(ColorError::TooManyMappings { .. })));
    }
}
