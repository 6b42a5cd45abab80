//! Fills the page cache with clean pages, as a backup does that reads a large tree. The files consist of holes, so no disk has to read anything.
//!
//! Many files are read in parallel, a piece of each in turn, so that adjacent pages belong to different files.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use heat::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::common::{CHUNK, file_size, use_up_first};
use crate::workload::{ReadyLine, print_line, words};

/// Files that a thread reads in parallel.
const AT_ONCE: usize = 64;

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct FillChild {
    /// Where the files are made.
    #[arg(long)]
    directory: PathBuf,
    /// How much is read.
    #[arg(long)]
    size: Bytes,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
}

impl FillChild {
    /// Its command line, after the program's name.
    pub fn words(directory: &Path, size: Bytes, seed: u64) -> Vec<String> {
        words("workload-fill", &[("directory", &directory.display()), ("size", &size.0), ("seed", &seed)])
    }

    /// Runs the child; it reports ready once everything is read.
    pub fn run(&self) -> Result<()> {
        use_up_first()?;
        self.fill().with_context(|| format!("cannot read files in {}", self.directory.display()))?;
        print_line(&ReadyLine::at(0, self.size, "fill", self.seed))?;
        loop {
            std::thread::park();
        }
    }

    fn fill(&self) -> Result<()> {
        let files = Mutex::new(self.make_files()?.into_iter());
        let next = || files.lock().ok()?.next();
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism()?.get();
            let readers: Vec<_> = (0..threads).map(|_| scope.spawn(|| read_in_turns(next))).collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })
    }

    fn make_files(&self) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(&self.directory)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let (mut paths, mut made) = (Vec::new(), 0);
        while made < self.size.0 {
            let path = self.directory.join(paths.len().to_string());
            let size = file_size(&mut random) as u64;
            File::create(&path)?.set_len(size)?;
            paths.push(path);
            made += size;
        }
        Ok(paths)
    }
}

/// Reads several files piece by piece in turn, until none are left.
fn read_in_turns(next: impl Fn() -> Option<PathBuf>) -> Result<()> {
    let (mut open, mut buffer) = (Vec::new(), vec![0; CHUNK]);
    loop {
        while open.len() < AT_ONCE
            && let Some(path) = next()
        {
            open.push(File::open(path)?);
        }
        if open.is_empty() {
            return Ok(());
        }
        for number in (0..open.len()).rev() {
            if open[number].read(&mut buffer)? == 0 {
                open.swap_remove(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_read_and_take_no_room() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let child = FillChild { directory: folder.path().join("read"), size: Bytes(64 << 20), seed: 1 };
        child.fill().unwrap();
        let files: Vec<_> =
            fs::read_dir(&child.directory).unwrap().map(|file| file.unwrap().metadata().unwrap()).collect();
        let size: u64 = files.iter().map(MetadataExt::size).sum();
        assert!((64 << 20..72 << 20).contains(&size), "{size}");
        assert!(files.iter().all(|file| file.blocks() == 0));
    }
}
