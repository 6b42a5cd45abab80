//! The same transpose on this machine: real pages, new ones for each choice, and the clock.
//!
//! Owns: memory placed by each method, and timing. Never touches: settings of the machine.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use heat::units::{BASE_PAGE, HUGE_PAGE};
use hps::color::{ArenaOptions, ColoredArena, Palette};
use hugepilot_os::advise::collapse_own;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::nodes::{current_cpu, stay_on};
use hugepilot_os::stop::Stop;
use kernel::cache::{Cache, data_caches};
use kernel::{Root, memory};
use serde::{Deserialize, Serialize};

use super::model::matrices_bytes;
use super::placement::Placement;
use super::simulation::Point;

/// The length of one timing, and the number of timings, of which the fastest counts: an interruption makes one of them slow.
const LENGTH: Duration = Duration::from_millis(2);
const TIMES: usize = 3;
/// The pause between making memory and timing it, so that after-effects, such as a used-up time slice or pages to be freed, do not count as the
/// placement's.
const REST: Duration = Duration::from_millis(2);
/// Ordinary pages again: the same measured against itself.
pub const AGAIN: &str = "random again";
/// Memory of earlier choices is held up to this fraction of available memory.
const HELD_SHARE: u64 = 4;
/// Occasionally the kernel gives no huge page at once, even if many are free.
const ATTEMPTS: u32 = 3;
/// The arena whose construction is timed.
const ARENA_BYTES: u64 = 256 << 20;

/// Why memory cannot be placed now, but perhaps later.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no huge page can be had: compact memory (/proc/sys/vm/compact_memory), or free some")]
pub struct NoHugePage;

/// The placements that are possible with this many colors: a huge page has at most as many colors as base pages.
pub fn placements(colors: u32) -> Vec<Placement> {
    let huge_pages_have_all = u64::from(colors) <= HUGE_PAGE / BASE_PAGE;
    let can_be = |placement: &Placement| *placement != Placement::HugeAndColored || huge_pages_have_all;
    Placement::value_variants().iter().copied().filter(can_be).collect()
}

/// Binds this thread to one processor; returns that processor's second-level cache.
pub fn settle() -> Result<Cache> {
    let cpu = current_cpu();
    stay_on(&[cpu]).context("cannot stay on one processor")?;
    let caches = data_caches(&Root::host(), cpu)?;
    caches
        .into_iter()
        .find(|cache| cache.level == 2)
        .context("the kernel does not tell the shape of the second-level cache")
}

/// Memory placed by one of the methods.
enum Memory {
    AsItComes(AlignedMemory),
    Colored(ColoredArena),
}

impl Memory {
    fn place(placement: Placement, bytes: u64, palette: &Palette) -> Result<Self> {
        let colored = |huge: u64| -> Result<Self> {
            let request = ArenaOptions { bytes, palette: palette.clone(), huge_pages: huge > 0, first: None };
            let arena = ColoredArena::create(&request)?;
            ensure!(arena.huge_bytes() as u64 == huge, NoHugePage);
            Ok(Memory::Colored(arena))
        };
        match placement {
            Placement::Random => as_it_comes(bytes, 0),
            Placement::Colored => colored(0),
            Placement::Huge => as_it_comes(bytes.next_multiple_of(HUGE_PAGE), bytes.next_multiple_of(HUGE_PAGE)),
            Placement::HugeAndColored => colored(bytes / HUGE_PAGE * HUGE_PAGE),
            Placement::HugeAndRandom => as_it_comes(bytes, bytes / HUGE_PAGE * HUGE_PAGE),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Memory::AsItComes(mapping) => mapping.len() as u64,
            Memory::Colored(arena) => arena.len() as u64,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Memory::AsItComes(mapping) => mapping.words_mut(),
            Memory::Colored(arena) => arena.words_mut(),
        }
    }
}

/// Tries again if there is no huge page.
fn persistently<T>(mut place: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempt = 1;
    loop {
        match place() {
            Err(error) if attempt < ATTEMPTS && error.is::<NoHugePage>() => attempt += 1,
            placed => return placed,
        }
    }
}

/// Memory of earlier choices, held so that no later choice gets its pages; if it becomes too much, the oldest goes first.
struct Held {
    memory: VecDeque<Memory>,
    room: u64,
}

impl Held {
    fn nothing() -> Result<Self> {
        let room = memory::Meminfo::read(&Root::host())?.available.0 / HELD_SHARE;
        Ok(Self { memory: VecDeque::new(), room })
    }

    fn keep(&mut self, memory: Memory) {
        self.memory.push_back(memory);
        while self.memory.iter().map(Memory::len).sum::<u64>() > self.room {
            self.memory.pop_front();
        }
    }
}

/// This many bytes on huge pages, the rest on base pages as the kernel gives them.
fn as_it_comes(bytes: u64, huge: u64) -> Result<Memory> {
    let (bytes, huge) = (bytes.next_multiple_of(BASE_PAGE) as usize, huge as usize);
    let mut mapping = AlignedMemory::anonymous(bytes)?;
    if huge > 0 {
        mapping.advise(0, huge, OwnAdvice::HugePage)?;
    }
    if bytes > huge {
        // A kernel that refuses this has no huge pages.
        let _ = mapping.advise(huge, bytes - huge, OwnAdvice::NoHugePage);
    }
    mapping.advise(0, bytes, OwnAdvice::Populate)?;
    for region in (0..huge as u64).step_by(HUGE_PAGE as usize) {
        collapse_own(mapping.address() + region, HUGE_PAGE).context(NoHugePage)?;
    }
    Ok(Memory::AsItComes(mapping))
}

/// Transposes of one dimension, with each placement and with ordinary pages again; pages are chosen anew `choices` times.
pub fn measure(
    dimension: u64,
    placements: &[Placement],
    choices: u64,
    palette: &Palette,
    stop: &Stop,
) -> Result<Point> {
    let again = placements.contains(&Placement::Random).then(|| (AGAIN.to_owned(), Placement::Random));
    let ways: Vec<(String, Placement)> =
        placements.iter().map(|placement| (placement.to_string(), *placement)).chain(again).collect();
    let mut speeds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut held = Held::nothing()?;
    for choice in 0..choices {
        stop.check()?;
        for way in order(ways.len(), choice as usize) {
            let (name, placement) = &ways[way];
            let mut memory = persistently(|| Memory::place(*placement, matrices_bytes(dimension), palette))
                .with_context(|| format!("cannot place matrices of {dimension} ({placement})"))?;
            std::thread::sleep(REST);
            let speed = megabytes_per_second(memory.words_mut(), dimension as usize);
            speeds.entry(name.clone()).or_default().push(speed);
            held.keep(memory);
        }
    }
    Ok(Point { dimension, speeds })
}

/// Alternately forwards and backwards, so that none always comes first, or always follows the same other one.
fn order(ways: usize, choice: usize) -> impl Iterator<Item = usize> {
    let turn = move |turn: usize| if choice.is_multiple_of(2) { turn } else { ways - 1 - turn };
    (0..ways).map(move |each| (turn(each) + choice / 2) % ways)
}

/// Counted as in the paper: each element is read and written.
fn megabytes_per_second(words: &mut [u64], dimension: usize) -> f64 {
    words.fill(1);
    let (to, from) = words.split_at_mut(dimension * dimension);
    let mut seconds = |transposes: u32| {
        let began = Instant::now();
        for _ in 0..transposes {
            transpose(black_box(&mut *to), black_box(&*from), dimension);
        }
        began.elapsed().as_secs_f64() / f64::from(transposes)
    };
    seconds(1);
    let transposes = (LENGTH.as_secs_f64() / seconds(1).max(1e-9)).ceil() as u32;
    let fastest = (0..TIMES).map(|_| seconds(transposes)).fold(f64::INFINITY, f64::min);
    (2 * 8 * dimension * dimension) as f64 / fastest / 1e6
}

/// `a[i][j] = b[j][i]`: moves 8 bytes, of whatever type.
#[inline(never)]
fn transpose(to: &mut [u64], from: &[u64], dimension: usize) {
    for (row, elements) in to.chunks_exact_mut(dimension).enumerate() {
        let column = from[row..].iter().step_by(dimension);
        elements.iter_mut().zip(column).for_each(|(element, value)| *element = *value);
    }
}

/// How a large arena was built.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Its size, all of it on colored base pages.
    pub bytes: u64,
    /// From the call until its return.
    pub seconds: f64,
    /// Candidates per page.
    pub candidates: f64,
    /// Pages with exactly the color that the sequence requires.
    pub exact: f64,
}

/// Builds a large arena once.
pub fn build(palette: &Palette) -> Result<Built> {
    let request = ArenaOptions { bytes: ARENA_BYTES, palette: palette.clone(), huge_pages: false, first: None };
    let began = Instant::now();
    let arena = ColoredArena::create(&request)?;
    let seconds = began.elapsed().as_secs_f64();
    let verified = arena.verify()?;
    ensure!(verified.pages == ARENA_BYTES / BASE_PAGE, "not all of it is colored");
    let pages = verified.pages as f64;
    let (candidates, exact) = (arena.candidates() as f64 / pages, verified.right as f64 / pages);
    Ok(Built { bytes: ARENA_BYTES, seconds, candidates, exact })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transpose_moves_each_element_to_its_place() {
        let from: Vec<u64> = (0..9).collect();
        let mut to = vec![0; 9];
        transpose(&mut to, &from, 3);
        assert_eq!(to, [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    }

    #[test]
    fn more_colors_than_a_huge_page_has_leave_one_way_out() {
        assert_eq!(placements(512), Placement::value_variants());
        let left = placements(513);
        assert!(left.len() == 4 && !left.contains(&Placement::HugeAndColored), "{left:?}");
    }

    #[test]
    fn placing_is_tried_again_only_where_there_is_no_huge_page() {
        let attempts = |answers: &[Option<bool>]| {
            let mut tried = 0;
            let placed = persistently(|| {
                tried += 1;
                match answers[tried - 1] {
                    Some(false) => Err(anyhow::anyhow!("EAGAIN").context(NoHugePage)),
                    Some(true) => Ok(()),
                    None => Err(anyhow::anyhow!("not enough memory")),
                }
            });
            (tried, placed.is_ok())
        };
        assert_eq!(attempts(&[Some(true)]), (1, true));
        assert_eq!(attempts(&[Some(false), Some(true)]), (2, true));
        assert_eq!(attempts(&[Some(false); 4]), (3, false));
        assert_eq!(attempts(&[None, Some(true)]), (1, false));
    }

    #[test]
    fn each_way_comes_after_different_others() {
        let orders: Vec<Vec<usize>> = (0..6).map(|choice| order(3, choice).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]]);
    }

    #[test]
    fn the_oldest_is_let_go_where_too_much_is_held() {
        let mut held = Held { memory: VecDeque::new(), room: 3 * BASE_PAGE };
        for pages in [1, 2, 2] {
            held.keep(as_it_comes(pages * BASE_PAGE, 0).unwrap());
        }
        assert_eq!((held.memory.len(), held.memory[0].len()), (1, 2 * BASE_PAGE));
        assert!(Held::nothing().unwrap().room > 0);
    }

    #[test]
    fn every_way_of_placing_is_measured_as_often() {
        let palette = Palette::all(32).unwrap();
        let ways = [Placement::Random, Placement::Colored];
        match measure(43, &ways, 2, &palette, &Stop::default()) {
            Err(error) => assert!(format!("{error:#}").contains("CAP_SYS_ADMIN"), "{error:#}"),
            Ok(point) => {
                assert_eq!(point.speeds.len(), 3, "ordinary pages come twice");
                assert!(
                    point.speeds.values().all(|speeds| speeds.len() == 2 && speeds.iter().all(|&speed| speed > 0.0))
                );
            }
        }
    }
}
