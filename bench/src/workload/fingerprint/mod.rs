//! The fingerprint workload: music search with an inverted index, as a published system does it on 60 GB.
//!
//! Owns: both the harness's and the child's side. Never touches: how the figures are judged.
//!
//! The child is a plain program: an index of 6 GiB, and for each thread 4 GiB of accumulators as the published system has them, in pieces
//! of almost 1 GiB from whatever stands for malloc. Each thread allocates its accumulators itself. What makes it fit is that songs are
//! a tenth as long as whole ones.

mod index;
pub(super) mod music;
mod pieces;
mod search;

use std::fmt::Display;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::RangedI64ValueParser;
use heat::units::Bytes;
use hugepilot_os::stop::Stop;

pub use index::MOST_SONGS;
pub use music::EXCERPT_LENGTH;
pub use search::LONGEST_SONG;

use self::index::{Collection, Index};
use self::music::{EXCERPT_SECONDS, FINGERPRINTS, FINGERPRINTS_PER_SECOND, Music};
use self::search::{DIFFERENCES, Searcher};
use super::own_process::{OwnProcess, ReadyLine, end_child, print_line, words};
use super::progress::Work;
use super::search_work::SearchWork;
use super::shape::{Running, Start, Workload};
use crate::process::{Pinning, bind_this_thread};

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// The limit on a list's length: fingerprints as frequent as silence carry no information.
const LONGEST_LIST: u32 = 7_500;
/// Queries before counting starts, so that the accumulators are populated.
const FIRST_QUERIES: u32 = 20;

/// Reads the length of a song.
pub fn song_length() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(EXCERPT_LENGTH)..=i64::from(LONGEST_SONG))
}

/// How it is set up, which its child is told, too.
#[derive(Clone, Debug, clap::Args)]
pub struct Fingerprint {
    /// Songs in the index.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SONGS)))]
    pub songs: u32,
    /// Fingerprints of each song.
    #[arg(long, default_value_t = 6144, value_parser = song_length())]
    pub song_length: u32,
    /// Threads that search.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Workload for Fingerprint {
    fn name(&self) -> String {
        format!(
            "music search {}",
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) }
        )
    }

    fn description(&self) -> String {
        format!(
            "{} songs of {} fingerprints ({} s) in {FINGERPRINTS} lists of at most {LONGEST_LIST}, {} of memory; queries of \
             {EXCERPT_LENGTH} fingerprints ({EXCERPT_SECONDS:.1} s of music), a fifth of them wrong",
            self.songs,
            self.song_length,
            self.song_length / FINGERPRINTS_PER_SECOND,
            Bytes(self.memory_bytes())
        )
    }

    fn unit(&self) -> &'static str {
        "queries"
    }

    fn memory_bytes(&self) -> u64 {
        let counts = u64::from(self.threads) * u64::from(self.songs) * u64::from(DIFFERENCES) * 2;
        4 * self.entries() + 8 * u64::from(FINGERPRINTS) + counts
    }

    fn start_seconds(&self) -> f64 {
        2.0 + 20e-9 * self.entries() as f64
    }

    fn start(&self, how: Start<'_>, stop: &Stop) -> Result<Box<dyn Running>> {
        let Self { songs, song_length, threads, seed } = self;
        ensure!(
            matches!(how, Start::AsItIs | Start::Launched { .. }),
            "the search has no switch for huge pages and does not link libhps: choose other --configurations"
        );
        let options: [(&str, &dyn Display); 4] =
            [("songs", songs), ("song-length", song_length), ("threads", threads), ("seed", seed)];
        let words = words("workload-fingerprint", &options);
        // On no processor: its index is built on all of them, and its threads bind themselves.
        Ok(Box::new(OwnProcess::start_by(how.launcher(), None, words, stop)?))
    }
}

impl Fingerprint {
    /// Before full lists refuse any.
    fn entries(&self) -> u64 {
        u64::from(self.songs) * u64::from(self.song_length)
    }

    /// The child's whole life.
    pub fn run(&self) -> Result<()> {
        let music = Music::new(self.songs, self.song_length, self.seed);
        let index = Index::build(
            &Collection {
                fingerprints: FINGERPRINTS,
                songs: self.songs,
                song_length: self.song_length,
                fingerprint: |song, place| music.fingerprint(song, place),
                longest_list: LONGEST_LIST,
            },
            std::thread::available_parallelism()?.get() as u32,
        );
        let done = Mutex::new(SearchWork::default());
        std::thread::scope(|scope| {
            let (is_ready, ready) = channel();
            for thread in 0..self.threads {
                let (is_ready, music, index, done) = (is_ready.clone(), &music, &index, &done);
                scope.spawn(move || search_forever(Searcher::new(music, index, thread), thread, is_ready, done));
            }
            drop(is_ready);
            let ended = (0..self.threads).try_for_each(|_| ready.recv()?).and_then(|()| self.report(&index, &done));
            ended.map_err(|error: anyhow::Error| end_child(&error))
        })
    }

    /// Reports that it is ready, and then the work of each interval, until the reader is gone.
    fn report(&self, index: &Index, done: &Mutex<SearchWork>) -> Result<()> {
        print_line(&ReadyLine::at(index.address(), Bytes(index.size_bytes()), "search", self.seed))?;
        loop {
            std::thread::sleep(INTERVAL);
            let work = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
            // Counts whole queries, so that one that is unfinished at the interval's end does not count for less.
            let duration = Duration::from_nanos(work.busy_ns() / u64::from(self.threads));
            print_line(&Work { operations: work.queries, duration, search: Some(work), ..Work::default() })?;
        }
    }
}

/// Runs a search thread.
fn search_forever(mut searcher: Searcher<'_>, thread: u32, is_ready: Sender<Result<()>>, done: &Mutex<SearchWork>) {
    let bound = bind(thread);
    (0..FIRST_QUERIES).for_each(|_| _ = searcher.query());
    // An error means that the receiver is gone.
    _ = is_ready.send(bound);
    drop(is_ready);
    loop {
        let work = searcher.query();
        *done.lock().unwrap_or_else(PoisonError::into_inner) += work;
    }
}

/// Binds each of the first two threads to its own processor.
fn bind(thread: u32) -> Result<()> {
    let Pinning { program, load } = Pinning::of_this_process()?;
    let processor = [program, load].get(thread as usize).copied().flatten();
    bind_this_thread(processor).context("cannot bind a thread to its processor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_it_says() {
        let usual = Fingerprint { songs: 250_000, song_length: 6144, threads: 1, seed: 1 };
        let gigabytes = |search: &Fingerprint| search.memory_bytes() as f64 / (1u64 << 30) as f64;
        assert!((9.6..9.7).contains(&gigabytes(&usual)), "{}", gigabytes(&usual));
        let two = Fingerprint { threads: 2, ..usual.clone() };
        assert!((3.8..3.9).contains(&(gigabytes(&two) - gigabytes(&usual))), "accumulators of the published size");
        assert_eq!(
            (usual.name(), two.name()),
            ("music search 1 thread".to_owned(), "music search 2 threads".to_owned())
        );
    }
}
