//! Small files that are read by name, created and removed, as on a file or mail server: they fill the kernel's slab with inodes and directory entries.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use heat::units::Bytes;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::workload::{ReadyLine, below, print_line, report_every, words};

/// The resolution of progress reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// Files in one directory.
const IN_A_DIRECTORY: usize = 1000;
/// Calls of stat(2) in a request; one file is created anew.
const STATS: usize = 20;
/// The pause between two requests, because it must not take a processor from the writers.
const PAUSE: Duration = Duration::from_millis(1);

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct SmallFilesChild {
    /// Where they are created.
    #[arg(long)]
    directory: PathBuf,
    /// How many there are.
    #[arg(long)]
    files: usize,
    /// Where the random numbers start.
    #[arg(long)]
    seed: u64,
}

impl SmallFilesChild {
    /// Its command line, after the program's name.
    pub fn words(directory: &Path, files: usize, seed: u64) -> Vec<String> {
        words("workload-small-files", &[("directory", &directory.display()), ("files", &files), ("seed", &seed)])
    }

    /// Runs the child: the line for each interval has the number of requests.
    pub fn run(&self) -> Result<()> {
        self.create_all().with_context(|| format!("cannot create files in {}", self.directory.display()))?;
        print_line(&ReadyLine::at(0, Bytes(0), "small-files", self.seed))?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        report_every(INTERVAL, || self.request(&mut random))
    }

    fn create_all(&self) -> std::io::Result<()> {
        for number in (0..self.files).step_by(IN_A_DIRECTORY) {
            fs::create_dir_all(self.path(number).parent().expect("it is in a directory"))?;
        }
        (0..self.files).try_for_each(|number| File::create(self.path(number)).map(drop))
    }

    /// Calls stat on files, of which half do not exist: the kernel remembers these names, too.
    fn request(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        for number in 0..STATS {
            let _is_there = self.path(below(random, self.files) + (number % 2) * self.files).metadata().is_ok();
        }
        let changed = self.path(below(random, self.files));
        // A full disk shows in the writers, which tell it.
        let _ = fs::remove_file(&changed).and_then(|()| File::create(&changed));
        std::thread::sleep(PAUSE);
        1
    }

    fn path(&self, number: usize) -> PathBuf {
        let directory = number % self.files / IN_A_DIRECTORY;
        self.directory.join(directory.to_string()).join(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_always_as_many() {
        let folder = tempfile::tempdir().unwrap();
        let child = SmallFilesChild { directory: folder.path().join("small"), files: 2500, seed: 1 };
        child.create_all().unwrap();
        let count = || -> usize {
            fs::read_dir(&child.directory)
                .unwrap()
                .map(|each| fs::read_dir(each.unwrap().path()).unwrap().count())
                .sum()
        };
        assert_eq!(count(), 2500);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..10).for_each(|_| _ = child.request(&mut random));
        assert_eq!(count(), 2500);
        assert!(child.path(2499).exists() && !child.path(2500).exists());
        assert_eq!(
            child.path(2500).parent(),
            child.path(0).parent(),
            "names that are missing are sought where the others are"
        );
    }
}
