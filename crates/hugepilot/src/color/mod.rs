//! Page colors: how many a cache would have, and whether they are real on this machine.
//!
//! Owns: the conflict test ([`groups`] chooses pages, [`chase`] times them) and its verdict ([`answer`]). Never touches: memory of others;
//! colored memory itself is `hps::color`.
//!
//! Pages that share a predicted color must evict each other; as many pages of spread colors must not. Both groups are read line by line, each
//! read waiting for the one before, and compared as pairs, each pair with pages that no other had. Both have the same colors in the
//! level below, so that what that level does is the same for both.

pub mod answer;
mod chase;
mod groups;
mod random;

use std::io;

use hugepilot_os::memory::{Mapping, OwnAdvice};
use hugepilot_os::page_move::own_frames;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use self::answer::{Answer, Finding, Indexing, Unmeasured, indexing, judge};
use self::chase::nanos_per_read;
use self::groups::{Shape, Stock};
use self::random::Random;
use crate::kernel::cache::{Cache, data_caches};
use crate::kernel::cpu::Cpu;
use crate::kernel::{KernelError, Root, memory};
use crate::statistics::paired_ratio;
use crate::stop::Stop;
use crate::units::{BASE_PAGE, Bytes};

/// Candidates take at most this share of the memory that is available.
const MEMORY_SHARE: u64 = 4;

/// What the machine answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The processor that was asked.
    pub cpu: u32,
    /// As its maker names it.
    pub model: String,
    /// It is a virtual machine's.
    pub virtual_machine: bool,
    /// One for each level beyond the first.
    pub findings: Vec<Finding>,
}

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ProbeError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(
        "the kernel tells of no cache beyond the first level (/sys/devices/system/cpu/cpu{cpu}/cache), as in some virtual machines: nothing \
         can be predicted"
    )]
    NoCaches { cpu: u32 },
    #[error("the kernel hides page frames from this process: run as root, or with CAP_SYS_ADMIN")]
    FramesHidden,
    #[error("cannot {doing}: {cause}")]
    System { doing: &'static str, cause: io::Error },
    #[error("stopped on request; nothing was found out")]
    Stopped,
}

impl Probe {
    /// Whether colors were seen anywhere, without which coloring can gain nothing.
    pub fn coloring_can_help(&self) -> bool {
        self.findings.iter().any(|finding| finding.answer == Answer::Real)
    }
}

/// Tests each level beyond the first in so many rounds, on the processor that this thread runs on and then stays on. `progress` is told
/// which part of all rounds is done.
pub fn probe(root: &Root, rounds: u32, stop: &Stop, mut progress: impl FnMut(f64)) -> Result<Probe, ProbeError> {
    let cpu = stay_here()?;
    let described = Cpu::read(root)?;
    let caches = data_caches(root, cpu)?;
    let levels: Vec<&[Cache]> = caches.windows(2).filter(|pair| pair[1].level > 1).collect();
    if levels.is_empty() {
        return Err(ProbeError::NoCaches { cpu });
    }
    let mut findings = Vec::new();
    for (level, pair) in levels.iter().enumerate() {
        let (below, cache) = (pair[0], pair[1]);
        let told = |share: f64| progress((level as f64 + share) / levels.len() as f64);
        findings.push(examine(root, below, cache, described.virtual_machine, Rounds { rounds, stop }, told)?);
    }
    Ok(Probe { cpu, model: described.model, virtual_machine: described.virtual_machine, findings })
}

/// How often, unless somebody asks to stop.
#[derive(Clone, Copy)]
struct Rounds<'a> {
    rounds: u32,
    stop: &'a Stop,
}

fn examine(
    root: &Root,
    below: Cache,
    cache: Cache,
    virtual_machine: bool,
    rounds: Rounds<'_>,
    progress: impl FnMut(f64),
) -> Result<Finding, ProbeError> {
    let finding = |answer, slowdown, indexing: Option<Indexing>, obstacle| Finding {
        cache,
        answer,
        slowdown,
        indexing,
        obstacle,
    };
    if cache.colors() == 1 {
        return Ok(finding(Answer::NotObservable, None, None, Some(Unmeasured::OneColor)));
    }
    let shape = Shape::of(&below, &cache);
    let (needed, available) = (Bytes(shape.pool_pages() as u64 * BASE_PAGE), memory::Memory::read(root)?.available);
    if needed.0 > available.0 / MEMORY_SHARE {
        return Ok(finding(Answer::Undecided, None, None, Some(Unmeasured::Memory { needed, available })));
    }
    let pairs = measure(shape, rounds, progress)?;
    let slowdown = paired_ratio(&pairs);
    let answer = judge(slowdown.as_ref());
    Ok(finding(answer, slowdown, indexing(answer, &cache, virtual_machine), None))
}

/// For each round, nanoseconds a read: of pages that share a color, and of spread ones.
fn measure(
    shape: Shape,
    Rounds { rounds, stop }: Rounds<'_>,
    mut progress: impl FnMut(f64),
) -> Result<Vec<(f64, f64)>, ProbeError> {
    let mut pool = candidates(shape.pool_pages())?;
    let frames = own_frames(pool.address(), shape.pool_pages()).map_err(system("read page frames"))?;
    if frames.iter().all(|&frame| frame == 0) {
        return Err(ProbeError::FramesHidden);
    }
    let mut random = Random::anew();
    let mut stock = Stock::new(&frames, shape);
    let mut pairs = Vec::new();
    for round in 0..rounds {
        stop.check().map_err(|_| ProbeError::Stopped)?;
        // What is left may lack pages of one color; then there are fewer rounds, and the interval is wider.
        let Some(groups) = stock.draw(&mut random) else { break };
        let mut time = |pages: &[usize]| nanos_per_read(pool.words_mut(), pages, shape.line_words, &mut random);
        // By turns, so that neither is always the one that finds the caches as the other left them.
        let pair = if round % 2 == 0 {
            let shared = time(&groups.shared);
            (shared, time(&groups.spread))
        } else {
            let spread = time(&groups.spread);
            (time(&groups.shared), spread)
        };
        pairs.push(pair);
        progress(f64::from(round + 1) / f64::from(rounds));
    }
    Ok(pairs)
}

/// Base pages, each backed by memory.
fn candidates(pages: usize) -> Result<Mapping, ProbeError> {
    let bytes = pages * BASE_PAGE as usize;
    let mut pool = Mapping::anonymous(bytes).map_err(system("map memory to choose from"))?;
    pool.advise(0, bytes, OwnAdvice::NoHugePage).map_err(system("keep pages small"))?;
    pool.advise(0, bytes, OwnAdvice::Populate).map_err(system("take memory to choose from"))?;
    Ok(pool)
}

/// Keeps this thread on one processor, whose second level is its own.
fn stay_here() -> Result<u32, ProbeError> {
    let cpu = sched_getcpu();
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|error| system("stay on one processor")(error.into()))?;
    Ok(cpu as u32)
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> ProbeError {
    move |cause| ProbeError::System { doing, cause }
}
