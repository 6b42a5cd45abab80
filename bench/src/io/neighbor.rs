//! Programs that run beside the writers while a size is measured, because a machine that does more than write fragments its memory in other ways.
//!
//! Owns: which there are, their start and their end. Never touches: what is measured.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use hugepilot_os::stop::Stop;

use super::children::SmallFilesChild;
use crate::programs::LoadedProgram;
use crate::workload::{OwnProcess, Running};

/// Files whose inodes and directory entries take some 500 MiB of slab.
const FILES: usize = 400_000;
/// Transactions a second: the database must not take a processor from the writers.
const TRANSACTIONS: &str = "--rate=500";

/// A program beside the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Neighbor {
    /// 400,000 small files that are looked up, created and removed: slab of the kernel.
    SmallFiles,
    /// MariaDB with a buffer pool of 2 GiB, of which rows are looked up: memory that the kernel can move.
    Database,
}

shown_as_typed!(Neighbor);

/// Those that run; ended on drop.
#[derive(Default)]
pub(super) struct Neighbors {
    own: Vec<OwnProcess>,
    programs: Vec<LoadedProgram>,
}

impl Neighbors {
    /// Starts them, with their files in that directory. Errors: one is not installed, or ends by itself.
    pub(super) fn start(wanted: &[Neighbor], directory: &Path, seed: u64, stop: &Stop) -> Result<Self> {
        let mut neighbors = Self::default();
        for neighbor in wanted {
            eprintln!("starting beside the writers: {neighbor}");
            match neighbor {
                Neighbor::SmallFiles => {
                    let words = SmallFilesChild::words(&directory.join("small"), FILES, seed);
                    neighbors.own.push(OwnProcess::start_on(None, words, stop)?);
                }
                Neighbor::Database => {
                    neighbors.programs.push(LoadedProgram::named("mariadb", TRANSACTIONS, stop)?);
                }
            }
        }
        Ok(neighbors)
    }

    /// Errors: one has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        self.own.iter_mut().try_for_each(Running::check)?;
        self.programs.iter_mut().try_for_each(LoadedProgram::check)
    }
}
