//! A large file that is mapped and read at random: in the page cache as the reads themselves bring it there, as reading it from start to end does,
//! and as `hugepilot cache` does.
//!
//! Owns: the files, how each comes into the page cache, and the order of windows. Never touches: how fast the disk is; all is in memory.

mod record;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use heat::units::{BASE_PAGE, Bytes, HUGE_PAGE, SizeError};
use hugepilot_os::file_cache::drop_clean;
use hugepilot_os::memory::SharedView;
use hugepilot_os::page_scan::{self, category};
use hugepilot_os::stop::{SecondSignal, Stop};
use launch::cached_file::FileToCache;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;

pub use self::record::MappedRecord;
use self::record::{Filled, HowFilled, MappedWindow};
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::rounds::{self, order_of_round, progress_bar, turns_done};
use crate::settings::SavedSettings;
use crate::tool::Tool;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench mapped                    an index of 2 GiB
  hugepilot-bench mapped --size 512M --fills 1 --rounds 6
  hugepilot-bench mapped --keep --directory /srv";

/// One window; windows of a round come one after the other.
const WINDOW: Duration = Duration::from_secs(1);
/// Reads between two checks of the clock.
const AT_ONCE: u32 = 4_096;
/// Threads that fill the page cache page by page: a disk answers several requests in the time of one.
const FILLERS: usize = 8;

/// `mapped`
#[derive(Clone, Debug, Args)]
pub struct MappedArguments {
    /// The size of each of the three files
    #[arg(long, default_value_t = Bytes(2 << 30), value_parser = whole_huge_pages)]
    size: Bytes,
    /// How often the page cache is filled anew
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    fills: u32,
    /// Rounds of each filling
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// Where the files are; on a disk
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Where the order of windows and all random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    outputs: Outputs,
}

/// A size in whole huge pages: a mapping must not be longer than its file.
fn whole_huge_pages(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: SizeError| error.to_string())?;
    match size.0 {
        bytes if bytes > 0 && bytes.is_multiple_of(HUGE_PAGE) => Ok(size),
        _ => Err(format!("'{text}' is no multiple of 2 MiB")),
    }
}

/// A file, and how it comes into the page cache.
struct MappedFile {
    how: HowFilled,
    path: PathBuf,
    file: File,
}

impl MappedArguments {
    /// Measures, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let settings = SavedSettings::of_this_machine()?;
        let mut record = MappedRecord::new(MachineDescription::describe(&settings)?, self.size, self.seed);
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-mapped-").tempdir_in(&self.directory);
        let directory = directory.with_context(|| format!("cannot write below {}", self.directory.display()))?;
        let measured = self.measure(directory.path(), &mut record, &stop);
        if !record.windows.is_empty() {
            let (text, json) = (record.text(), json_lines(&record, "fill")?);
            self.outputs.tell(&record.machine, &Results { name: "mapped", json, text: &text, draw: None })?;
        }
        rounds::ended(measured, &stop, "told")
    }

    fn measure(&self, directory: &Path, record: &mut MappedRecord, stop: &Stop) -> Result<()> {
        let write = |how: HowFilled| self.write(directory, how, stop);
        let files =
            [write(HowFilled::ByRandomReads)?, write(HowFilled::FromStartToEnd)?, write(HowFilled::ByHugepilot)?];
        let bar = progress_bar(u64::from(self.fills * self.rounds));
        for fill in 0..self.fills {
            let mut views = Vec::new();
            for file in &files {
                stop.check()?;
                drop_clean(&file.file, 0, 0)?;
                file.fill(self.seed + u64::from(fill), stop)?;
                views.push((file.how, View::of(file, self.size)?));
            }
            for (how, view) in &mut views {
                record.filled.push(Filled { fill, how: *how, huge_bytes: view.huge()? });
            }
            if fill == 0 {
                record.forecast = views[0].1.forecast(stop)?;
            }
            for round in 0..self.rounds {
                self.round(fill, round, &mut views, record, stop)?;
                turns_done(&bar, 1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Every file once, and the first once more, to tell how much it differs from itself.
    fn round(
        &self,
        fill: u32,
        round: u32,
        views: &mut [(HowFilled, View)],
        record: &mut MappedRecord,
        stop: &Stop,
    ) -> Result<()> {
        let turns: Vec<(usize, bool)> = vec![(0, false), (1, false), (2, false), (0, true)];
        for (index, again) in order_of_round(&turns, self.seed, fill * self.rounds + round) {
            stop.check()?;
            let (how, view) = &mut views[index];
            let reads_per_second = view.read(WINDOW);
            record.windows.push(MappedWindow { fill, round, how: *how, again, reads_per_second });
        }
        Ok(())
    }

    fn write(&self, directory: &Path, how: HowFilled, stop: &Stop) -> Result<MappedFile> {
        let path = directory.join(how.to_string().replace(' ', "-"));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut piece = vec![0; 1 << 20];
        for _ in 0..self.size.0 >> 20 {
            stop.check()?;
            random.fill_bytes(&mut piece);
            file.write_all(&piece).with_context(|| format!("cannot write {}", path.display()))?;
        }
        file.sync_all()?;
        // Nobody may write to what is read.
        let file = File::open(&path)?;
        Ok(MappedFile { how, path, file })
    }
}

impl MappedFile {
    /// Brings all of it into the page cache.
    fn fill(&self, seed: u64, stop: &Stop) -> Result<()> {
        match self.how {
            HowFilled::ByRandomReads => self.read_page_by_page(seed, stop),
            HowFilled::FromStartToEnd => {
                io::copy(&mut File::open(&self.path)?, &mut io::sink())?;
                Ok(())
            }
            HowFilled::ByHugepilot => {
                FileToCache::open(&self.path)?.read(stop, |_| ())?;
                Ok(())
            }
        }
    }

    /// As reads at random addresses do, without the kernel's guesses about what comes next.
    fn read_page_by_page(&self, seed: u64, stop: &Stop) -> Result<()> {
        let file = File::open(&self.path)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        let mut pages: Vec<u64> = (0..file.metadata()?.len() / BASE_PAGE).collect();
        pages.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let read = |pages: &[u64]| -> Result<()> {
            for page in pages {
                stop.check()?;
                file.read_exact_at(&mut [0], page * BASE_PAGE)?;
            }
            Ok(())
        };
        let read = &read;
        std::thread::scope(|scope| {
            let parts = pages.chunks(pages.len().div_ceil(FILLERS).max(1));
            let fillers: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
            fillers.into_iter().try_for_each(|filler| filler.join().expect("a filler does not panic"))
        })
    }
}

/// A file that is mapped.
struct View {
    memory: SharedView,
    random: Xoshiro256PlusPlus,
}

impl View {
    fn of(file: &MappedFile, size: Bytes) -> Result<Self> {
        let memory = SharedView::map(&file.file, usize::try_from(size.0)?)?;
        let mut view = Self { memory, random: Xoshiro256PlusPlus::seed_from_u64(1) };
        // No page fault is to be part of a window.
        std::hint::black_box(
            view.memory.bytes().iter().step_by(BASE_PAGE as usize).map(|&byte| u64::from(byte)).sum::<u64>(),
        );
        Ok(view)
    }

    fn huge(&mut self) -> Result<Bytes> {
        let bytes = self.memory.bytes();
        let start = bytes.as_ptr() as u64;
        let mut huge = 0;
        page_scan::scan(std::process::id(), start, start + bytes.len() as u64, category::HUGE, |run| {
            huge += run.end - run.start;
        })
        .context("the kernel does not tell which pages are huge (Linux 6.7)")?;
        Ok(Bytes(huge))
    }

    /// Reads bytes at random for a while; returns how many a second.
    fn read(&mut self, length: Duration) -> f64 {
        let (bytes, begun, mut reads, mut sum) = (self.memory.bytes(), Instant::now(), 0_u64, 0_u64);
        while begun.elapsed() < length {
            for _ in 0..AT_ONCE {
                let place = ((u128::from(self.random.next_u64()) * bytes.len() as u128) >> 64) as usize;
                sum += u64::from(bytes[place]);
            }
            reads += u64::from(AT_ONCE);
        }
        std::hint::black_box(sum);
        reads as f64 / begun.elapsed().as_secs_f64()
    }

    /// What `hugepilot explain` says of a program that reads this file: its gain after a restart with the file on huge pages, in percent.
    fn forecast(&mut self, stop: &Stop) -> Result<Option<Value>> {
        let explain = Tool::find(None)?.start_on("explain", std::process::id(), &[])?;
        while !explain.has_ended()? {
            stop.check()?;
            self.read(WINDOW / 10);
        }
        let report = explain.finish()?.output;
        Ok(Some(report["after_restart"]["expected_gain_percent"].clone()).filter(|gain| !gain.is_null()))
    }
}
