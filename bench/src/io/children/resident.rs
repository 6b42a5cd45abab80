//! A resident process with a hot heap and a mapped file, both read at random; it reports the longest wait of each interval.
//!
//! Reclaimed file pages must be read from disk again, and the process waits for that.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heat::units::{BASE_PAGE, Bytes};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::workload::{ReadyLine, below, print_line, report_with_waits, words, work_for};

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// Pages read per request: many of the heap, few of the file.
const HEAP_PAGES: usize = 64;
const FILE_PAGES: usize = 4;
/// The pause between two requests, because it must not take a processor from the writers.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes in a base page.
const PAGE: usize = BASE_PAGE as usize;

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ResidentHeapChild {
    /// Memory of the heap, and of the file.
    #[arg(long)]
    size: Bytes,
    /// The file to make and map.
    #[arg(long)]
    file: PathBuf,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
}

impl ResidentHeapChild {
    /// Its command line, after the program's name.
    pub fn words(size: Bytes, file: &Path, seed: u64) -> Vec<String> {
        words("workload-resident-heap", &[("size", &size.0), ("file", &file.display()), ("seed", &seed)])
    }

    /// Runs the child: the line for each interval has the number of requests and the time of the longest.
    pub fn run(&self) -> Result<()> {
        let len = self.size.0 as usize;
        let mut heap = AlignedMemory::anonymous(len).context("cannot map the heap")?;
        heap.advise(0, len, OwnAdvice::Populate).context("cannot populate the heap")?;
        let file = written_file(&self.file, len).with_context(|| format!("cannot make {}", self.file.display()))?;
        let mapped =
            AlignedMemory::of_file(&file, len).with_context(|| format!("cannot map {}", self.file.display()))?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut request = || {
            let heap = (0..HEAP_PAGES).map(|_| heap.bytes()[below(&mut random, len)]).fold(0, u8::wrapping_add);
            (0..FILE_PAGES).map(|_| mapped.bytes()[below(&mut random, len)]).fold(heap, u8::wrapping_add)
        };
        // Populates its pages before counting.
        (0..len / PAGE).for_each(|_| _ = std::hint::black_box(request()));
        print_line(&ReadyLine::at(0, self.size, "resident", self.seed))?;
        let longest = std::cell::Cell::new(Duration::ZERO);
        let mut timed = || {
            let asked = Instant::now();
            std::hint::black_box(request());
            longest.set(longest.get().max(asked.elapsed()));
            std::thread::sleep(PAUSE);
            1
        };
        report_with_waits(|| work_for(INTERVAL, &mut timed), || Some(longest.take()))
    }
}

fn written_file(path: &Path, len: usize) -> std::io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut output = BufWriter::with_capacity(1 << 20, &file);
    (0..len / PAGE).try_for_each(|page| output.write_all(&[page as u8; PAGE]))?;
    output.flush()?;
    drop(output);
    file.sync_all()?;
    Ok(file)
}
