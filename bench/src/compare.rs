//! The commands that compare configurations on a workload: their arguments, and the workloads that these name.
//!
//! Owns: their arguments, their defaults, and the configurations that suit each. Never touches: how any of them is measured.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use heat::units::Bytes;

use crate::common::Common;
use crate::configuration::Configuration;
use crate::measure;
use crate::workload::{
    Chase, ChasePattern, Fingerprint, Local, LocalPattern, MOST_SONGS, Memcached, Popularity, RequestLoad,
    SWEEPS_PER_SAMPLE, Sweep, SweepPattern, Wire, Workload, song_length,
};

/// Where `integrations/memcached/build` installs it.
const COMPACTING: &str = "target/memcached/memcached";

/// `memcached`.
#[derive(Clone, Debug, Args)]
pub struct MemcachedArguments {
    /// Items held [default: 5200000, about 3 GiB; with --quick 1600000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub items: Option<u64>,
    /// Bytes in each value.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(8..500_000))]
    pub value_size: u32,
    /// The paper's size: 800,000 items of 512 bytes.
    #[arg(long, conflicts_with_all = ["items", "value_size"])]
    pub paper: bool,
    /// Let memcached grow its hash table while it is filled, as it does by default [default: its final size from the start on].
    #[arg(long)]
    pub growing_hash_table: bool,
    /// Connections that take turns.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: u32,
    /// Reads under way on each connection.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub depth: u32,
    /// Among which items the reads are zipfian.
    #[arg(long, value_enum, default_value_t = Popularity::Ycsb)]
    pub popularity: Popularity,
    /// The memcached that compacts by libhps, for the configurations that have to do with it.
    #[arg(long, value_name = "PATH", default_value = COMPACTING)]
    pub compacting: OsString,
    /// What every workload can be told.
    #[command(flatten)]
    pub common: Common,
}

/// `sweep`.
#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// Memory to map [default: 1 GiB; with --quick 256 MiB].
    #[arg(long)]
    pub size: Option<Bytes>,
    /// The patterns, one run each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["sequential", "random", "skewed"])]
    pub pattern: Vec<SweepPattern>,
    /// Measure until that many samples have come since the program's start.
    #[arg(long, default_value_t = 0)]
    pub samples: usize,
    /// What every workload can be told.
    #[command(flatten)]
    pub common: Common,
}

/// `chase`.
#[derive(Clone, Debug, Args)]
pub struct ChaseArguments {
    /// Memory to map and read [default: 4 GiB; with --quick 1 GiB].
    #[arg(long)]
    pub size: Option<Bytes>,
    /// The patterns, one run each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["dependent", "independent"])]
    pub pattern: Vec<ChasePattern>,
    /// What every workload can be told.
    #[command(flatten)]
    pub common: Common,
}

/// `fingerprint`.
#[derive(Clone, Debug, Args)]
pub struct FingerprintArguments {
    /// Songs, each with 16 KiB of accumulators for each thread [default: 250000, 4 GiB; with --quick 20000].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SONGS)))]
    pub songs: Option<u32>,
    /// Fingerprints of each song, which take 4 bytes in the index; 128 are a second.
    #[arg(long, default_value_t = 6144, value_parser = song_length())]
    pub song_length: u32,
    /// How many threads search, one run each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// What every workload can be told.
    #[command(flatten)]
    pub common: Common,
}

/// `local`.
#[derive(Clone, Debug, Args)]
pub struct LocalArguments {
    /// The patterns, one run each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["breadth-first", "small", "short-lived"])]
    pub pattern: Vec<LocalPattern>,
    /// What every workload can be told.
    #[command(flatten)]
    pub common: Common,
}

impl MemcachedArguments {
    fn workload(&self) -> Memcached {
        let load = RequestLoad {
            wire: Wire::Memcached,
            items: if self.paper { 800_000 } else { self.items.unwrap_or(usual_items(&self.common)) },
            value_size: self.value_size as usize,
            connections: self.connections as usize,
            depth: self.depth as usize,
            popularity: self.popularity,
            seed: self.common.seed,
        };
        Memcached { load, growing_hash_table: self.growing_hash_table, compacting: self.compacting.clone() }
    }

    /// Measures it.
    pub fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Never, Always, AlwaysKhugepaged, Own, Hugepilot, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &[Box::new(self.workload())])
    }
}

impl SweepArguments {
    /// Measures it.
    pub fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Always, AlwaysKhugepaged, Hugepilot, HugepilotNoGrowth, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, self.samples, &sweeps(&self.common, self.size, &self.pattern))
    }
}

impl ChaseArguments {
    /// Measures it.
    pub fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Never, Always, Own, Hugepilot, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &chases(&self.common, self.size, &self.pattern))
    }
}

impl FingerprintArguments {
    /// Measures it.
    pub fn run(self) -> Result<()> {
        use Configuration::*;
        let (song_length, seed) = (self.song_length, self.common.seed);
        let songs = self.songs.unwrap_or(if self.common.quick { 20_000 } else { 250_000 });
        let workloads = boxed(self.threads.iter().map(|&threads| Fingerprint { songs, song_length, threads, seed }));
        let peers = [Always, Libhugetlbfs, TunablesThp, TunablesPool, TunablesPool1G, Jemalloc, Mimalloc, Mimalloc1G];
        let ours = [RunThp, Run2M, Run1G, Hugepilot];
        let usual = [&[Default][..], &peers, &ours, &[Ideal, DefaultAgain]].concat();
        measure::measure(&self.common, &usual, 0, &workloads)
    }
}

impl LocalArguments {
    /// Measures it.
    pub fn run(self) -> Result<()> {
        use Configuration::*;
        let seed = self.common.seed;
        let workloads = boxed(self.pattern.iter().map(|&pattern| Local { pattern, seed }));
        let usual = [Default, Always, RunThp, Explained, Hugepilot, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &workloads)
    }
}

fn usual_items(common: &Common) -> u64 {
    if common.quick { 1_600_000 } else { 5_200_000 }
}

fn sweeps(common: &Common, size: Option<Bytes>, patterns: &[SweepPattern]) -> Vec<Box<dyn Workload>> {
    let size = size.unwrap_or(Bytes(if common.quick { 256 << 20 } else { 1 << 30 }));
    let (seed, sweeps) = (common.seed, SWEEPS_PER_SAMPLE);
    boxed(patterns.iter().map(|&pattern| Sweep { size, pattern, seed, sweeps }))
}

fn chases(common: &Common, size: Option<Bytes>, patterns: &[ChasePattern]) -> Vec<Box<dyn Workload>> {
    let size = size.unwrap_or(Bytes(if common.quick { 1 << 30 } else { 4 << 30 }));
    boxed(patterns.iter().map(|&pattern| Chase { size, pattern, seed: common.seed }))
}

fn boxed<W: Workload + 'static>(workloads: impl Iterator<Item = W>) -> Vec<Box<dyn Workload>> {
    workloads.map(|workload| Box::new(workload) as Box<dyn Workload>).collect()
}
