//! Page colors: how many a cache would have, and whether they are real on this machine.
//!
//! Owns: the conflict test ([`groups`] chooses pages, [`chase`] times them) and its verdict ([`answer`]). Never touches: other programs'
//! memory; colored memory itself is `hps::color`.
//!
//! Pages that share a predicted color must evict each other; as many pages of spread colors must not. Both groups are read line by line,
//! each read depending on the previous one, and compared in pairs, each pair with pages that no other used. Both groups have the same
//! colors in the level below, and virtual addresses unrelated to their frames, so that level and the TLB affect both equally.
#![forbid(unsafe_code)]

pub mod answer;
mod chase;
mod groups;

use std::io;

use heat::units::{BASE_PAGE, Bytes};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::nodes::{current_cpu, stay_on};
use hugepilot_os::page_move::own_frames;
use hugepilot_os::rights::remedy;
use hugepilot_os::stop::Stop;
use kernel::cache::{Cache, data_caches};
use kernel::cpu::Cpu;
use kernel::{KernelError, Root, memory};

use crate::answer::{Answer, ColorObstacle, ColorVerdict, Finding, indexing, verdict};
use crate::chase::nanos_per_read;
use crate::groups::{Shape, Stock};
use fastrand::Rng;

/// Candidates take at most this share of the memory that is available.
const MEMORY_SHARE: u64 = 4;

/// The result of probing a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The processor that was tested.
    pub cpu: u32,
    /// Its model name.
    pub model: String,
    /// Whether it belongs to a virtual machine.
    pub virtual_machine: bool,
    /// One for each level beyond the first.
    pub findings: Vec<Finding>,
}

/// Why nothing could be found out.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ProbeError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(
        "the kernel tells of no cache beyond the first level, or not of its shape (/sys/devices/system/cpu/cpu{cpu}/cache), as in some \
         virtual machines: nothing can be predicted"
    )]
    NoCaches { cpu: u32 },
    #[error(
        "the kernel hides page frames from this process, as from all in a user namespace; {}",
        remedy("CAP_SYS_ADMIN")
    )]
    FramesHidden,
    #[error("cannot {doing}: {cause}")]
    System { doing: &'static str, cause: io::Error },
    #[error("stopped on request; nothing was found out")]
    Stopped,
}

impl Probe {
    /// Whether any colors were observed; otherwise coloring cannot help.
    pub fn coloring_can_help(&self) -> bool {
        self.findings.iter().any(|finding| finding.answer == Answer::Real)
    }
}

/// Tests each level beyond the first in this many rounds, on the processor that this thread currently runs on; the thread stays there.
/// `progress` gets the fraction of all rounds that is done.
///
/// Errors: the kernel reports no cache beyond the first level, hides page frames (CAP_SYS_ADMIN), does not describe the processor, or
/// refuses memory or pinning; or a stop was requested.
pub fn probe(root: &Root, rounds: u32, stop: &Stop, mut progress: impl FnMut(f64)) -> Result<Probe, ProbeError> {
    let cpu = stay_here()?;
    let described = Cpu::read(root)?;
    let caches = data_caches(root, cpu)?;
    let levels = beyond_first(&caches);
    if levels.is_empty() {
        return Err(ProbeError::NoCaches { cpu });
    }
    let mut findings = Vec::new();
    for (level, &(below, cache)) in levels.iter().enumerate() {
        let told = |share: f64| progress((level as f64 + share) / levels.len() as f64);
        findings.push(examine(root, below, cache, described.virtual_machine, Rounds { rounds, stop }, told)?);
    }
    Ok(Probe { cpu, model: described.model, virtual_machine: described.virtual_machine, findings })
}

/// Each cache beyond the first level, with the one below it if that one's shape is known.
fn beyond_first(caches: &[Cache]) -> Vec<(Option<Cache>, Cache)> {
    let below = |cache: &Cache| caches.iter().find(|below| below.level == cache.level - 1).copied();
    caches.iter().filter(|cache| cache.level > 1).map(|cache| (below(cache), *cache)).collect()
}

/// The number of rounds, unless a stop is requested.
#[derive(Clone, Copy)]
struct Rounds<'a> {
    rounds: u32,
    stop: &'a Stop,
}

fn examine(
    root: &Root,
    below: Option<Cache>,
    cache: Cache,
    virtual_machine: bool,
    rounds: Rounds<'_>,
    progress: impl FnMut(f64),
) -> Result<Finding, ProbeError> {
    let available = memory::Meminfo::read(root)?.available;
    let ColorVerdict { answer, slowdown, obstacle } = match plan(below.as_ref(), &cache, rounds.rounds, available) {
        Ok(plan) => carry_out(plan, rounds, progress)?,
        Err(without_measuring) => without_measuring,
    };
    // Without a measurement nothing is known about the indexing.
    let indexing = slowdown.and_then(|_| indexing(answer, &cache, virtual_machine));
    Ok(Finding { cache, answer, slowdown, indexing, obstacle })
}

/// How a level is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    shape: Shape,
    /// Pages to choose from.
    pages: usize,
}

/// The plan for one level, or the verdict without measuring.
fn plan(below: Option<&Cache>, cache: &Cache, rounds: u32, available: Bytes) -> Result<Plan, ColorVerdict> {
    let unmeasured = |answer, obstacle| ColorVerdict { answer, slowdown: None, obstacle: Some(obstacle) };
    if cache.colors() == 1 {
        return Err(unmeasured(Answer::NotObservable, ColorObstacle::OneColor));
    }
    let undecided = |obstacle| Err(unmeasured(Answer::Undecided, obstacle));
    let Some(below) = below else { return undecided(ColorObstacle::UnknownBelow) };
    let shape = Shape::of(below, cache);
    if !shape.can_spread() {
        return undecided(ColorObstacle::FewColors);
    }
    let room = (available.0 / MEMORY_SHARE / BASE_PAGE) as usize;
    if shape.least_pages() > room {
        let needed = Bytes((shape.least_pages() as u64).saturating_mul(BASE_PAGE));
        return undecided(ColorObstacle::Memory { needed, available });
    }
    Ok(Plan { shape, pages: shape.pool_pages(rounds, room) })
}

/// The verdict after one measurement or two; `progress` covers both, although the second may be skipped.
fn carry_out(plan: Plan, rounds: Rounds<'_>, mut progress: impl FnMut(f64)) -> Result<ColorVerdict, ProbeError> {
    let mut before = 0.0;
    verdict(rounds.rounds, || {
        let pairs = measure(plan, rounds, |share| progress((before + share) / 2.0));
        before += 1.0;
        pairs
    })
}

/// For each round, nanoseconds per read: of pages that share a color, and of spread ones.
fn measure(
    Plan { shape, pages }: Plan,
    rounds: Rounds<'_>,
    progress: impl FnMut(f64),
) -> Result<Vec<(f64, f64)>, ProbeError> {
    let mut random = Rng::new();
    let mut pool = candidates(pages, &mut random)?;
    let frames = own_frames(pool.address(), pages).map_err(system("read page frames"))?;
    if frames.iter().all(|&frame| frame == 0) {
        return Err(ProbeError::FramesHidden);
    }
    let time = |pages: &[usize], random: &mut Rng| nanos_per_read(pool.words_mut(), pages, shape.line_words, random);
    compare(Stock::new(&frames, shape), rounds, &mut random, time, progress)
}

/// For each round, the time that two groups of pages take. There are fewer rounds once too few pages of one color are left.
fn compare(
    mut stock: Stock<'_>,
    Rounds { rounds, stop }: Rounds<'_>,
    random: &mut Rng,
    mut time: impl FnMut(&[usize], &mut Rng) -> f64,
    mut progress: impl FnMut(f64),
) -> Result<Vec<(f64, f64)>, ProbeError> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        stop.check().map_err(|_| ProbeError::Stopped)?;
        let Some(groups) = stock.draw(random) else { break };
        // Alternate, so neither always finds the caches as the other left them.
        let pair = if round % 2 == 0 {
            let shared = time(&groups.shared, random);
            (shared, time(&groups.spread, random))
        } else {
            let spread = time(&groups.spread, random);
            (time(&groups.shared, random), spread)
        };
        pairs.push(pair);
        progress(f64::from(round + 1) / f64::from(rounds));
    }
    Ok(pairs)
}

/// Base pages, populated in random order. The kernel hands out consecutive frames. If pages were populated in address order, those that
/// share a color would be equidistant, share TLB sets too, and be slower for that reason.
fn candidates(pages: usize, random: &mut Rng) -> Result<AlignedMemory, ProbeError> {
    let page = BASE_PAGE as usize;
    let mut pool = AlignedMemory::anonymous(pages * page).map_err(system("map memory to choose from"))?;
    // A kernel that refuses has no huge pages.
    let _ = pool.advise(0, pages * page, OwnAdvice::NoHugePage);
    let mut order: Vec<usize> = (0..pages).collect();
    random.shuffle(&mut order);
    let mut back = |number| pool.advise(number * page, page, OwnAdvice::Populate);
    order.into_iter().try_for_each(&mut back).map_err(system("take memory to choose from"))?;
    Ok(pool)
}

/// Pins this thread to one processor, because the second level is private to a core.
fn stay_here() -> Result<u32, ProbeError> {
    let cpu = current_cpu();
    stay_on(&[cpu]).map_err(system("stay on one processor"))?;
    Ok(cpu)
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> ProbeError {
    move |cause| ProbeError::System { doing, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES_PER_PAGE: u64 = BASE_PAGE / 64;

    /// A cache with LRU replacement; the set is the remainder of a hash of the line.
    struct Model {
        ways: usize,
        hash: fn(u64) -> u64,
        sets: Vec<Vec<u64>>,
    }

    impl Model {
        fn new(cache: &Cache, hash: fn(u64) -> u64) -> Self {
            Self { ways: cache.ways as usize, hash, sets: vec![Vec::new(); cache.sets as usize] }
        }

        fn has(&mut self, line: u64) -> bool {
            let number = (self.hash)(line) as usize % self.sets.len();
            let set = &mut self.sets[number];
            let place = set.iter().position(|&there| there == line);
            if let Some(place) = place {
                set.remove(place);
            }
            set.truncate(self.ways - 1);
            set.insert(0, line);
            place.is_some()
        }
    }

    const FIRST: Cache = Cache { level: 1, size: Bytes(16 << 10), ways: 4, line: Bytes(64), sets: 64 };
    const SECOND: Cache = Cache { level: 2, size: Bytes(256 << 10), ways: 8, line: Bytes(64), sets: 512 };
    const THIRD: Cache = Cache { level: 3, size: Bytes(2 << 20), ways: 16, line: Bytes(64), sets: 2048 };

    /// The test's answer for two levels, the second indexed by this hash, in memory that the host maps like this.
    fn said([below, cache]: [Cache; 2], hash: fn(u64) -> u64, host: fn(u64) -> u64) -> Answer {
        let Plan { shape, pages } = plan(Some(&below), &cache, 30, Bytes(1 << 30)).unwrap();
        let mut random = Rng::with_seed(5);
        let mut frames: Vec<u64> = (1..=pages as u64).collect();
        random.shuffle(&mut frames);
        let time = |pages: &[usize], random: &mut Rng| {
            let (mut near, mut far) = (Model::new(&below, as_it_is), Model::new(&cache, hash));
            let lines = |&page: &usize| (0..LINES_PER_PAGE).map(move |line| (page, line));
            let mut order: Vec<(usize, u64)> = pages.iter().flat_map(lines).collect();
            random.shuffle(&mut order);
            let mut read = |&(page, line): &(usize, u64)| {
                let line = host(frames[page]) * LINES_PER_PAGE + line;
                if near.has(line) {
                    1.0
                } else if far.has(line) {
                    10.0
                } else {
                    50.0
                }
            };
            // The first pass is not timed.
            let (_, time): (f64, f64) = (order.iter().map(&mut read).sum(), order.iter().map(&mut read).sum());
            time
        };
        let stop = Stop::default();
        let pairs = compare(Stock::new(&frames, shape), Rounds { rounds: 30, stop: &stop }, &mut random, time, |_| ());
        let pairs = pairs.unwrap();
        assert_eq!(pairs.len(), 30);
        let Ok(said) = verdict(30, || Ok::<_, std::convert::Infallible>(pairs.clone()));
        said.answer
    }

    fn as_it_is(number: u64) -> u64 {
        number
    }

    /// Any permutation would do.
    fn scrambled(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }

    #[test]
    fn colors_are_real_where_bits_of_the_address_tell_the_set_and_nowhere_else() {
        // The second level has 8 colors; the third has 4 for each of these.
        for levels in [[FIRST, SECOND], [SECOND, THIRD]] {
            assert_eq!(said(levels, as_it_is, as_it_is), Answer::Real, "{levels:?}");
            assert_eq!(said(levels, scrambled, as_it_is), Answer::NotObservable, "{levels:?}");
            assert_eq!(said(levels, as_it_is, scrambled), Answer::NotObservable, "the host places each page anywhere");
        }
    }

    #[test]
    fn a_level_is_compared_with_the_one_right_below() {
        assert_eq!(beyond_first(&[FIRST, SECOND, THIRD]), [(Some(FIRST), SECOND), (Some(SECOND), THIRD)]);
        assert_eq!(beyond_first(&[FIRST, THIRD]), [(None, THIRD)]);
        assert_eq!(beyond_first(&[SECOND, THIRD]), [(None, SECOND), (Some(SECOND), THIRD)]);
        assert_eq!(beyond_first(&[FIRST]), []);
    }

    /// How many pages to choose from if this much memory is available, or why there is no answer.
    fn planned(below: Option<Cache>, cache: Cache, available: u64) -> Result<usize, (Answer, Option<ColorObstacle>)> {
        let plan = plan(below.as_ref(), &cache, 30, Bytes(available));
        plan.map(|plan| plan.pages).map_err(|verdict| (verdict.answer, verdict.obstacle))
    }

    #[test]
    fn what_cannot_be_measured_has_its_reason() {
        let undecided = |obstacle| Err((Answer::Undecided, Some(obstacle)));
        let one_color = Cache { sets: 64, ..SECOND };
        assert_eq!(planned(None, one_color, 1 << 30), Err((Answer::NotObservable, Some(ColorObstacle::OneColor))));
        assert_eq!(planned(None, SECOND, 1 << 30), undecided(ColorObstacle::UnknownBelow));
        // Twice the colors of the level below, and 48 pages of one color there.
        let third = Cache { size: Bytes(1 << 20), sets: 1024, ..THIRD };
        assert_eq!(planned(Some(SECOND), third, 1 << 30), undecided(ColorObstacle::FewColors));
        let (needed, available) = (Bytes(32 << 20), Bytes(100 << 20));
        let memory = ColorObstacle::Memory { needed, available };
        assert_eq!(planned(Some(FIRST), SECOND, available.0), undecided(memory));
    }

    #[test]
    fn a_quarter_of_what_is_available_is_chosen_from_at_most() {
        let second = Cache { level: 2, size: Bytes(1 << 20), ways: 8, line: Bytes(64), sets: 2048 };
        let third = Cache { level: 3, size: Bytes(32 << 20), ways: 16, line: Bytes(64), sets: 32768 };
        assert_eq!(planned(Some(second), third, 1 << 30), Ok(24_576 + 30 * 1056));
        assert_eq!(planned(Some(second), third, 600 << 20), Ok(38_400));
    }

    #[test]
    fn addresses_tell_nothing_of_frames() {
        let pool = candidates(4096, &mut Rng::with_seed(5)).unwrap();
        let frames = own_frames(pool.address(), 4096).unwrap();
        if frames.iter().all(|&frame| frame == 0) {
            return eprintln!("skipped: page frames are hidden; root sees them");
        }
        let neighbours = frames.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 100, "{neighbours} of 4095 neighbours are neighbours in memory, too");
    }
}
