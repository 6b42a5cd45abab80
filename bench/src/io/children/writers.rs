//! Many writers of files of 100 KB to 5 MB, as on a backup or mail server: system D's load.
//!
//! Each writer has a ring of files and overwrites the oldest once the ring is full, so the disk never holds more than the rings.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use heat::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::common::{CHUNK, LARGEST, SMALLEST, file_size};
use crate::workload::{ReadyLine, Work, end_child, print_line, words};

/// The average size of a file.
const AVERAGE: u64 = ((SMALLEST + LARGEST) / 2) as u64;
/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// Writers hardly call anything; a thousand default stacks would take 2 GiB of address space.
const STACK: usize = 128 << 10;

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct WritersChild {
    /// Where files are written.
    #[arg(long)]
    directory: PathBuf,
    /// How many write.
    #[arg(long)]
    writers: u32,
    /// Bytes of files after which old ones are written over.
    #[arg(long)]
    keep: Bytes,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
}

/// One writer.
struct Writer<'a> {
    /// Its own directory, because a process that creates files in a directory locks it.
    directory: PathBuf,
    number: u32,
    /// Files in its ring.
    ring: u64,
    random: Xoshiro256PlusPlus,
    written: &'a AtomicU64,
}

impl WritersChild {
    /// Its command line, after the program's name.
    pub fn words(directory: &Path, writers: u32, keep: Bytes, seed: u64) -> Vec<String> {
        let directory = directory.display();
        words(
            "workload-writers",
            &[("directory", &directory), ("writers", &writers), ("keep", &keep.0), ("seed", &seed)],
        )
    }

    /// Runs the child: the line for each interval has the bytes written.
    pub fn run(&self) -> Result<()> {
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (failed, failures) = channel();
            for number in 0..self.writers {
                let (writer, failed) = (self.writer(number, &written), failed.clone());
                let thread = std::thread::Builder::new().stack_size(STACK);
                thread.spawn_scoped(scope, move || writer.write_forever(&failed)).context("cannot start a writer")?;
            }
            let Err(error) = self.report(&written, &failures);
            end_child(&error)
        })
    }

    fn writer<'a>(&'a self, number: u32, written: &'a AtomicU64) -> Writer<'a> {
        Writer {
            directory: self.directory.join(number.to_string()),
            number,
            ring: ring(self.keep, self.writers),
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(number.into())),
            written,
        }
    }

    fn report(&self, written: &AtomicU64, failures: &Receiver<anyhow::Error>) -> Result<Infallible> {
        print_line(&ReadyLine::at(0, self.keep, "writers", self.seed))?;
        let mut start = std::time::Instant::now();
        loop {
            match failures.recv_timeout(INTERVAL) {
                Ok(failure) => return Err(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("all writers have ended"),
            }
            let (operations, now) = (written.swap(0, Ordering::Relaxed), std::time::Instant::now());
            print_line(&Work { operations, duration: now - start, ..Work::default() })?;
            start = now;
        }
    }
}

impl Writer<'_> {
    fn write_forever(mut self, failed: &Sender<anyhow::Error>) {
        let chunk = vec![self.number as u8; CHUNK];
        for file in 0u64.. {
            let path = self.directory.join((file % self.ring).to_string());
            let written = std::fs::create_dir_all(&self.directory).map_err(anyhow::Error::from);
            if let Err(error) = written.and_then(|()| self.write_file(&path, &chunk)) {
                // Nobody receives this once another writer has failed.
                let _ = failed.send(error.context(format!("cannot write {}", path.display())));
                return;
            }
        }
    }

    fn write_file(&mut self, path: &Path, chunk: &[u8]) -> Result<()> {
        let mut left = file_size(&mut self.random);
        let mut file = File::create(path)?;
        while left > 0 {
            let count = file.write(&chunk[..left.min(CHUNK)])?;
            self.written.fetch_add(count as u64, Ordering::Relaxed);
            left -= count;
        }
        Ok(())
    }
}

/// The number of files that each writer keeps.
fn ring(keep: Bytes, writers: u32) -> u64 {
    keep.0.div_ceil(u64::from(writers) * AVERAGE).max(1)
}

/// The approximate size of all their files.
pub fn on_disk(keep: Bytes, writers: u32) -> Bytes {
    Bytes(ring(keep, writers) * u64::from(writers) * AVERAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_what_is_to_be_kept() {
        assert_eq!(ring(Bytes(1), 1024), 1);
        assert_eq!(ring(Bytes(3 * 1024 * AVERAGE), 1024), 3);
        assert_eq!(ring(Bytes(3 * 1024 * AVERAGE + 1), 1024), 4);
        assert_eq!(on_disk(Bytes(3 * 1024 * AVERAGE + 1), 1024), Bytes(4 * 1024 * AVERAGE));
    }

    #[test]
    fn files_are_as_large_as_told_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let child = WritersChild { directory: directory.path().into(), writers: 1, keep: Bytes(1), seed: 3 };
        let written = AtomicU64::new(0);
        let mut writer = child.writer(0, &written);
        let mut sizes = Vec::new();
        for number in 0..20 {
            let path = directory.path().join(number.to_string());
            writer.write_file(&path, &vec![1; CHUNK]).unwrap();
            sizes.push(path.metadata().unwrap().len());
        }
        assert!(sizes.iter().all(|&size| (SMALLEST as u64..=LARGEST as u64).contains(&size)), "{sizes:?}");
        assert!(sizes.iter().any(|&size| size > 2_500_000) && sizes.iter().any(|&size| size < 2_500_000));
        assert_eq!(written.load(Ordering::Relaxed), sizes.iter().sum::<u64>());
    }
}
