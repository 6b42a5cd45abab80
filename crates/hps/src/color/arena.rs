//! The colored arena: huge pages for each whole 2 MiB, and for the rest base pages whose frames follow the color sequence.
//!
//! Owns: candidates, and moving the chosen ones into place. Never touches: which ones are chosen; nor pages afterwards: those that the kernel
//! migrates or swaps may come to lie on other frames, which [`ColoredArena::verify`] tells.
//!
//! A huge page is contiguous, and so has its colors by nature; the kernel colors no base pages, so candidates are taken as they come, a few
//! more than needed, and those that are not chosen go back.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::page_move::{PageMover, PageRun, own_frames, remap};

use super::{ColorError, Palette, Run};
use crate::arena::back;
use crate::fork;
use crate::judge::REGION;

const PAGE: usize = 4096;
const HUGE: usize = REGION as usize;
const PAGES_PER_HUGE: usize = HUGE / PAGE;
/// Candidates for each page wanted: with frames as they come, so many more hardly ever lack a color.
const CANDIDATES: f64 = 1.05;
/// Where a color is short all the same, as after memory of other colors was given back, contiguous blocks of 2 MiB are added, in which none
/// is: up to as many candidates as there were, or so many blocks.
const FEWEST_BLOCKS: usize = 4;
/// Mappings that the rest of the process may want meanwhile.
const SPARE_MAPPINGS: u64 = 256;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How large, rounded up to 4 KiB.
    pub bytes: u64,
    /// Which colors. Where not all are used there are no huge pages, since those have all.
    pub palette: Palette,
    /// Huge pages for each whole 2 MiB, as far as they are to be had.
    pub huge_pages: bool,
    /// Where in the palette the sequence begins; None: anywhere, so that not all arenas begin at the same color.
    pub first: Option<usize>,
}

/// Memory of which each page has its color.
#[derive(Debug)]
pub struct ColoredArena {
    memory: Mapping,
    huge_bytes: usize,
    palette: Palette,
    first: usize,
    candidates: usize,
}

/// How the arena lies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Base pages that were chosen by their color.
    pub pages: u64,
    /// Of these, pages that have it.
    pub right: u64,
    /// Huge pages that were made.
    pub huge_pages: u64,
    /// Of these, 2 MiB that are contiguous still.
    pub contiguous: u64,
}

impl ColoredArena {
    /// Makes one, all of it backed by memory and zeroed. Takes CAP_SYS_ADMIN, and for a while memory for the candidates: 1.05 times its size,
    /// and as many times more as there are colors for each one used; up to twice that where a color is short.
    pub fn create(wish: &Wish) -> Result<Self, ColorError> {
        let bytes = usize::try_from(wish.bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let bytes = bytes.filter(|&bytes| bytes > 0).ok_or(ColorError::Empty)?;
        let first = wish.first.unwrap_or_else(|| RandomState::new().hash_one(0) as usize) % wish.palette.used();
        let huge = if wish.huge_pages && wish.palette.is_whole() { bytes / HUGE * HUGE } else { 0 };
        ensure_available(huge.saturating_add(pool_bytes(&wish.palette, (bytes - huge) / PAGE)))?;
        // A child would share pages, and those cannot be moved.
        let _no_fork = fork::hold_off();
        let mut memory = Mapping::anonymous(bytes).map_err(system("map memory for an arena"))?;
        let huge_bytes = take_huge(&mut memory, huge)?;
        let mut arena = Self { memory, huge_bytes, palette: wish.palette.clone(), first, candidates: 0 };
        arena.take_colored()?;
        Ok(arena)
    }

    /// Where it lies.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes of it, whole base pages.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Of these, bytes at its beginning that lie on huge pages.
    pub fn huge_bytes(&self) -> usize {
        self.huge_bytes
    }

    /// Base pages that were chosen from.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// The contents, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// The contents as 8-byte words, to be changed.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.memory.words_mut()
    }

    /// How much of it has its colors still: the kernel may have moved pages to other frames, or taken them to swap.
    pub fn verify(&self) -> Result<Verified, ColorError> {
        let frames = own_frames(self.address(), self.len() / PAGE).map_err(system("read page frames"))?;
        ensure_seen(&frames)?;
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

    /// Fills what is not on huge pages.
    fn take_colored(&mut self) -> Result<(), ColorError> {
        let (start, places) = (self.huge_bytes, (self.len() - self.huge_bytes) / PAGE);
        if places == 0 {
            return Ok(());
        }
        self.memory.advise(start, places * PAGE, OwnAdvice::NoHugePage).map_err(system("keep pages small"))?;
        let (mut pool, frames) = pool(&self.palette, self.first, places)?;
        self.candidates = frames.len();
        let usable = || frames.iter().filter(|&&frame| self.palette.is_used(frame)).count() as u64;
        let choice = self.palette.choose(&frames, self.first, places);
        let choice = choice.ok_or_else(|| ColorError::TooFew { found: usable(), wanted: places as u64 })?;
        bring(&mut self.memory, &mut pool, &choice.runs(), start)?;
        self.memory.bytes_mut()[start..].iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        Ok(())
    }
}

/// Takes huge pages from the beginning for as long as there are any; the bytes on them.
fn take_huge(memory: &mut Mapping, bytes: usize) -> Result<usize, ColorError> {
    for offset in (0..bytes).step_by(HUGE) {
        if !back(memory, offset, false).map_err(system("take memory"))? {
            memory.advise(offset, HUGE, OwnAdvice::DontNeed).map_err(system("give memory back"))?;
            return Ok(offset);
        }
    }
    Ok(bytes)
}

/// Candidates for so many places, and their frames.
fn pool(palette: &Palette, first: usize, places: usize) -> Result<(Mapping, Vec<u64>), ColorError> {
    let usual = pool_bytes(palette, places);
    let most = usual.saturating_add(usual.max(FEWEST_BLOCKS * HUGE));
    let mut pool = Mapping::anonymous(most).map_err(system("map memory to choose from"))?;
    pool.advise(0, usual, OwnAdvice::NoHugePage).map_err(system("keep pages small"))?;
    let mut frames = take(&mut pool, 0, usual)?;
    let a_block_has = (PAGES_PER_HUGE as u64 / u64::from(palette.count())).max(1);
    loop {
        let start = frames.len() * PAGE;
        let blocks = palette.shortage(&frames, first, places).div_ceil(a_block_has) as usize;
        let bytes = blocks.saturating_mul(HUGE).min(most - start);
        if bytes == 0 || ensure_available(bytes).is_err() {
            return Ok((pool, frames));
        }
        // Where huge pages are off these are as any others, which helps too.
        let _ = pool.advise(start, bytes, OwnAdvice::HugePage);
        frames.extend(take(&mut pool, start, bytes)?);
        // Taking a page out splits the huge page, and the kernel then puts the shared zero page in the place of each that holds only zeros.
        pool.bytes_mut()[start..start + bytes].iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    }
}

/// Whole blocks, so that each color is there for a small arena, too.
fn pool_bytes(palette: &Palette, places: usize) -> usize {
    let for_each = f64::from(palette.count()) / palette.used() as f64;
    let pages = (places as f64 * CANDIDATES * for_each).ceil() as usize;
    pages.saturating_mul(PAGE).checked_next_multiple_of(HUGE).unwrap_or(usize::MAX)
}

/// Backs a part of the pool; its frames.
fn take(pool: &mut Mapping, offset: usize, bytes: usize) -> Result<Vec<u64>, ColorError> {
    pool.advise(offset, bytes, OwnAdvice::Populate).map_err(system("take memory to choose from"))?;
    let frames = own_frames(pool.address() + offset as u64, bytes / PAGE).map_err(system("read page frames"))?;
    ensure_seen(&frames)?;
    Ok(frames)
}

fn ensure_seen(frames: &[u64]) -> Result<(), ColorError> {
    if frames.iter().any(|&frame| frame != 0) { Ok(()) } else { Err(ColorError::FramesHidden) }
}

/// Moves the chosen candidates to their places, which begin at `start`.
fn bring(memory: &mut Mapping, pool: &mut Mapping, runs: &[Run], start: usize) -> Result<(), ColorError> {
    let runs = runs.iter().map(|run| PageRun {
        from: run.candidate * PAGE,
        to: start + run.place * PAGE,
        len: run.pages * PAGE,
    });
    let Ok(mut mover) = PageMover::into(memory) else {
        ensure_mappings(runs.len() as u64)?;
        return runs.into_iter().try_for_each(|run| remap(pool, memory, run)).map_err(system("move pages (mremap)"));
    };
    runs.into_iter().try_for_each(|run| mover.bring(pool, run)).map_err(system("move pages (UFFDIO_MOVE)"))
}

/// Each run that is moved by mremap may stay a mapping of its own.
fn ensure_mappings(runs: u64) -> Result<(), ColorError> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(system("count mappings"));
    let most: u64 = read("/proc/sys/vm/max_map_count")?.trim().parse().unwrap_or(u64::MAX);
    let there = read("/proc/self/maps")?.lines().count() as u64;
    if there + runs + SPARE_MAPPINGS > most {
        return Err(ColorError::TooManyMappings { pages: runs, most });
    }
    Ok(())
}

/// Taking more than there is would end some program.
fn ensure_available(needed: usize) -> Result<(), ColorError> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(system("read /proc/meminfo"))?;
    let Some(available) = available_bytes(&text) else { return Ok(()) };
    if needed as u64 > available {
        return Err(ColorError::Memory { needed: needed as u64, available });
    }
    Ok(())
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> ColorError {
    move |cause| ColorError::System { doing, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(bytes: u64, palette: Palette) -> Wish {
        Wish { bytes, palette, huge_pages: false, first: None }
    }

    /// None where this process may not see frames.
    fn made(wish: &Wish) -> Option<ColoredArena> {
        match ColoredArena::create(wish) {
            Err(ColorError::FramesHidden) => {
                eprintln!("skipped: page frames are hidden; root sees them");
                None
            }
            arena => Some(arena.expect("there is memory")),
        }
    }

    #[test]
    fn pages_follow_the_colors_and_read_as_zero() {
        let Some(mut arena) = made(&wish((16 << 20) + 1, Palette::all(32).unwrap())) else { return };
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
        let Some(arena) = made(&Wish { first: Some(5), ..wish(3 * PAGE as u64, palette.clone()) }) else { return };
        let frames = own_frames(arena.address(), 3).unwrap();
        assert!(frames.iter().map(|&frame| palette.color_of(frame)).eq([5, 6, 7]));
    }

    #[test]
    fn an_arena_confined_to_colors_has_no_others_and_no_huge_pages() {
        let palette = Palette::only(32, 8..12).unwrap();
        let Some(arena) = made(&Wish { huge_pages: true, ..wish(3 << 20, palette.clone()) }) else { return };
        assert_eq!(arena.huge_bytes(), 0);
        let frames = own_frames(arena.address(), arena.len() / PAGE).unwrap();
        assert!(frames.iter().all(|&frame| (8..12).contains(&palette.color_of(frame))));
    }

    #[test]
    fn whole_huge_pages_are_huge_and_the_rest_is_colored() {
        let palette = Palette::all(32).unwrap();
        let Some(arena) = made(&Wish { huge_pages: true, ..wish((4 << 20) + 7 * PAGE as u64, palette) }) else {
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
    fn a_page_on_another_frame_is_not_right() {
        let Some(mut arena) = made(&wish(64 * PAGE as u64, Palette::all(32).unwrap())) else { return };
        let before = arena.verify().unwrap();
        arena.memory.advise(0, PAGE, OwnAdvice::DontNeed).unwrap();
        assert_eq!(arena.verify().unwrap(), Verified { right: before.right - 1, ..before });
    }

    #[test]
    fn pages_that_are_moved_one_mapping_each_arrive_too() {
        let palette = Palette::all(4).unwrap();
        let (mut memory, (mut candidates, frames)) = match pool(&palette, 0, 8) {
            Err(ColorError::FramesHidden) => return eprintln!("skipped: page frames are hidden; root sees them"),
            pool => (Mapping::anonymous(8 * PAGE).unwrap(), pool.unwrap()),
        };
        let choice = palette.choose(&frames, 0, 8).unwrap();
        for run in choice.runs() {
            let run = PageRun { from: run.candidate * PAGE, to: run.place * PAGE, len: run.pages * PAGE };
            remap(&mut candidates, &mut memory, run).unwrap();
        }
        let moved = own_frames(memory.address(), 8).unwrap();
        assert!(moved.iter().map(|&frame| palette.color_of(frame)).eq([0, 1, 2, 3, 0, 1, 2, 3]));
    }

    #[test]
    fn what_cannot_be_is_said_before_memory_is_taken() {
        let palette = Palette::all(32).unwrap();
        assert!(matches!(ColoredArena::create(&wish(0, palette.clone())), Err(ColorError::Empty)));
        let error = ColoredArena::create(&wish(1 << 50, palette)).unwrap_err();
        assert!(matches!(error, ColorError::Memory { .. }) && error.to_string().contains("available"), "{error}");
        assert!(matches!(ensure_mappings(1 << 40), Err(ColorError::TooManyMappings { .. })));
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
    }
}
