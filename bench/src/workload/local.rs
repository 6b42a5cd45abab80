//! The local workload: the counter-example, programs that huge pages do nothing for, or slow down.
//!
//! Owns: its patterns, and both the harness's and the child's side. Never touches: how the figures are judged.
//!
//! Breadth-first: a search through a graph whose edges lead to near neighbours, as a speech decoder follows its hypotheses: the same
//! part of the graph once for each frame of speech, then another part. Of a large memory little is in use at a time, and the TLB holds
//! it. Small: dependent random reads over memory that the TLB holds as a whole. Short-lived: a decoder whose every search has a table of
//! hypotheses of its own, one for each vertex, as zeros from malloc, of which it uses little before it frees it: where a page fault brings
//! a huge page, the kernel zeroes 2 MiB of the table for the sake of a few KiB.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::chase::{place, step};
use super::own_process::{OwnProcess, ReadyLine, print_line, report_every, words};
use super::pages::{WORDS_PER_PAGE, below};
use super::shape::{Running, Start, Workload};
use crate::process::Pinning;

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// Vertices of the graph; with their edges they take 64 MiB.
const VERTICES: usize = 1 << 21;
/// Edges per vertex.
const EDGES: usize = 8;
/// The longest distance between a vertex and its neighbour.
const NEAR: usize = 64;
/// Vertices that a search reaches: 1 MiB of the graph.
const REACHED: usize = 1 << 15;
/// Frames of speech for which the same part of the graph is searched: twenty seconds.
const SPEECH_FRAMES: u32 = 2048;
/// Hypotheses of a search that has a table of its own: 64 KiB of it.
const HYPOTHESES: usize = 1 << 11;
/// Words that such a search follows at once, each in another part of the graph.
const WORDS: usize = 16;
/// Words of the small memory: 1 MiB.
const SMALL_WORDS: usize = 1 << 17;
/// Reads between two checks of the clock.
const READS_PER_CHECK: u64 = 1 << 14;

/// What is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LocalPattern {
    /// A breadth-first search.
    BreadthFirst,
    /// Reads over little memory.
    Small,
    /// Short breadth-first searches, each with a table of its own.
    ShortLived,
}

shown_as_typed!(LocalPattern);

/// How it is set up, which its child is told, too.
#[derive(Clone, Debug, clap::Args)]
pub struct Local {
    /// What is local.
    #[arg(long)]
    pub pattern: LocalPattern,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What a search with a table of its own knows of a vertex: 0 until it is reached.
type Hypothesis = [u64; 4];

/// A graph, and the search that goes through it.
struct Decoder {
    neighbours: Vec<[u32; EDGES]>,
    /// For each vertex, the last search that reached it.
    reached_by: Vec<u32>,
    search: u32,
    queue: Vec<u32>,
}

impl Workload for Local {
    fn name(&self) -> String {
        format!("local {}", self.pattern)
    }

    fn description(&self) -> String {
        match self.pattern {
            LocalPattern::BreadthFirst => format!(
                "breadth-first search through a graph of {}, {} of it at a time, {SPEECH_FRAMES} times each",
                Bytes(self.memory_bytes()),
                Bytes((REACHED * EDGES * 4) as u64)
            ),
            LocalPattern::Small => format!("dependent random reads of 8 bytes over {}", Bytes(self.memory_bytes())),
            LocalPattern::ShortLived => format!(
                "breadth-first searches through a graph of {}, {WORDS} words at a time, each with a new table of {} of which it \
                 uses {}",
                Bytes(self.memory_bytes()),
                Bytes((VERTICES * size_of::<Hypothesis>()) as u64),
                Bytes((HYPOTHESES * size_of::<Hypothesis>()) as u64)
            ),
        }
    }

    fn unit(&self) -> &'static str {
        match self.pattern {
            LocalPattern::BreadthFirst | LocalPattern::ShortLived => "edges",
            LocalPattern::Small => "reads",
        }
    }

    fn memory_bytes(&self) -> u64 {
        match self.pattern {
            LocalPattern::BreadthFirst | LocalPattern::ShortLived => (VERTICES * (EDGES + 1) * 4) as u64,
            LocalPattern::Small => (SMALL_WORDS * 8) as u64,
        }
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        ensure!(
            matches!(how, Start::AsItIs | Start::Launched { .. }),
            "these programs have no switch for huge pages and do not link libhps: choose other --configurations"
        );
        let words = words("workload-local", &[("pattern", &self.pattern), ("seed", &self.seed)]);
        Ok(Box::new(OwnProcess::start_by(how.launcher(), Pinning::of_this_process()?.program, words, stop)?))
    }
}

impl Local {
    /// Runs the child.
    pub fn run(&self) -> Result<()> {
        match self.pattern {
            LocalPattern::BreadthFirst => self.decode(SPEECH_FRAMES, Decoder::search),
            LocalPattern::Small => self.read(),
            LocalPattern::ShortLived => self.decode(SPEECH_FRAMES, Decoder::search_with_new_table),
        }
    }

    /// Searches so many times from the same vertex, and then from another.
    fn decode(&self, frames: u32, search: fn(&mut Decoder, usize) -> u64) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut decoder = Decoder::new(VERTICES, &mut random);
        let size = Bytes((VERTICES * EDGES * 4) as u64);
        print_line(&ReadyLine::at(
            decoder.neighbours.as_ptr().addr() as u64,
            size,
            &self.pattern.to_string(),
            self.seed,
        ))?;
        let (mut from, mut frame) = (0, 0);
        report_every(INTERVAL, || {
            if frame % frames == 0 {
                from = below(&mut random, VERTICES);
            }
            frame = frame.wrapping_add(1);
            search(&mut decoder, from)
        })
    }

    fn read(&self) -> Result<()> {
        let mut words = vec![0u64; SMALL_WORDS];
        // Unwritten memory would be a single page of zeros.
        words.chunks_mut(WORDS_PER_PAGE).for_each(|page| page[WORDS_PER_PAGE - 1] = 1);
        print_line(&ReadyLine::at(words.as_ptr().addr() as u64, Bytes(words.len() as u64 * 8), "small", self.seed))?;
        let mut state = self.seed;
        report_every(INTERVAL, || {
            for _ in 0..READS_PER_CHECK {
                // The words read are zero, but the processor cannot know that before it has them.
                state = step(state).wrapping_add(words[place(state, words.len())]);
            }
            READS_PER_CHECK
        })
    }
}

impl Decoder {
    fn new(vertices: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut near = |vertex: usize| (vertex + vertices - NEAR + below(random, 2 * NEAR + 1)) % vertices;
        let neighbours = (0..vertices).map(|vertex| std::array::from_fn(|_| near(vertex) as u32)).collect();
        Self { neighbours, reached_by: vec![0; vertices], search: 0, queue: Vec::with_capacity(REACHED + EDGES) }
    }

    /// Searches from a vertex until enough vertices are reached; returns the number of edges followed.
    fn search(&mut self, from: usize) -> u64 {
        self.search = self.search.wrapping_add(1);
        self.queue.clear();
        self.queue.push(from as u32);
        self.reached_by[from] = self.search;
        let mut next = 0;
        while next < self.queue.len() && self.queue.len() < REACHED {
            for &neighbour in &self.neighbours[self.queue[next] as usize] {
                if self.reached_by[neighbour as usize] != self.search {
                    self.reached_by[neighbour as usize] = self.search;
                    self.queue.push(neighbour);
                }
            }
            next += 1;
        }
        (next * EDGES) as u64
    }

    /// Searches from as many vertices as there are words, with a table that is freed at the end.
    fn search_with_new_table(&mut self, from: usize) -> u64 {
        let vertices = self.neighbours.len();
        let mut hypotheses: Vec<Hypothesis> = vec![[0; 4]; vertices];
        self.queue.clear();
        self.queue.extend((0..WORDS).map(|word| ((from + word * vertices / WORDS) % vertices) as u32));
        self.queue.iter().for_each(|&vertex| hypotheses[vertex as usize] = [1; 4]);
        let mut next = 0;
        while next < self.queue.len() && self.queue.len() < HYPOTHESES {
            let vertex = self.queue[next];
            for &neighbour in &self.neighbours[vertex as usize] {
                if hypotheses[neighbour as usize][0] == 0 {
                    hypotheses[neighbour as usize] = [u64::from(vertex) + 1; 4];
                    self.queue.push(neighbour);
                }
            }
            next += 1;
        }
        (next * EDGES) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FEW: usize = 4 * REACHED;

    #[test]
    fn a_search_reaches_what_is_near_and_nothing_twice() {
        let mut decoder = Decoder::new(FEW, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        for from in [0, FEW / 2, FEW - 1] {
            let edges = decoder.search(from);
            let reached: HashSet<u32> = decoder.queue.iter().copied().collect();
            assert!((REACHED..REACHED + EDGES).contains(&decoder.queue.len()), "{}", decoder.queue.len());
            assert_eq!(reached.len(), decoder.queue.len());
            assert!(edges >= REACHED as u64, "{edges}");
            let distance = |vertex: u32| (vertex as usize).abs_diff(from).min(FEW - (vertex as usize).abs_diff(from));
            assert!(reached.iter().all(|&vertex| distance(vertex) < REACHED), "its memory is one piece");
        }
    }

    #[test]
    fn the_same_search_is_the_same_work() {
        let mut decoder = Decoder::new(FEW, &mut Xoshiro256PlusPlus::seed_from_u64(2));
        let edges = decoder.search(77);
        let order = decoder.queue.clone();
        assert_eq!((decoder.search(77), &decoder.queue), (edges, &order));
    }

    #[test]
    fn words_are_followed_side_by_side() {
        let mut decoder = Decoder::new(FEW, &mut Xoshiro256PlusPlus::seed_from_u64(4));
        let edges = decoder.search_with_new_table(FEW - 1);
        let reached: HashSet<u32> = decoder.queue.iter().copied().collect();
        assert_eq!(reached.len(), decoder.queue.len(), "nothing twice");
        assert!((HYPOTHESES..HYPOTHESES + EDGES).contains(&reached.len()), "{}", reached.len());
        let words: HashSet<usize> =
            reached.iter().map(|&vertex| (vertex as usize + 1 + FEW / WORDS / 2) % FEW / (FEW / WORDS)).collect();
        assert_eq!(words.len(), WORDS);
        assert_eq!(decoder.search_with_new_table(FEW - 1), edges, "nothing is left of the first");
    }

    #[test]
    fn edges_lead_to_near_vertices() {
        let decoder = Decoder::new(1 << 12, &mut Xoshiro256PlusPlus::seed_from_u64(3));
        for (vertex, neighbours) in decoder.neighbours.iter().enumerate() {
            for &neighbour in neighbours {
                let apart = vertex.abs_diff(neighbour as usize);
                assert!(apart.min((1 << 12) - apart) <= NEAR);
            }
        }
    }
}
