//! The costs and benefits of keeping huge pages available while many writers fill the page cache.
//!
//! Owns: the sizes of memory, the order of turns, and saving their results. Never touches: how memory is reclaimed.
//!
//! A holder leaves only a given amount of memory. Each turn begins with an empty page cache, which reads then fill; next writers write, while a
//! resident process with a hot heap and a mapped file runs, and at the end huge pages are requested.

mod children;
mod kernel_work;
mod neighbor;
mod plot;
mod record;
mod report;
mod supply;
mod turn;
mod way;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

pub use self::children::{FillChild, HoldChild, ObtainChild, ResidentHeapChild, SmallFilesChild, WritersChild};
use self::neighbor::{Neighbor, Neighbors};
pub use self::record::Record;
pub use self::report::text;
use self::turn::{OBTAIN, SETTLE, Stage, Turn, begin_anew, ensure_is_disk_with, measure_turn, room_on_disk};
use self::way::Way;
use crate::machine::MachineDescription;
use crate::outputs::{Outputs, Results, json_lines};
use crate::process::Pinning;
use crate::rounds;
use crate::sample::machine_memory;
use crate::settings::SavedSettings;
use crate::tool::Tool;
use crate::workload::{OwnProcess, Running};

/// The default sizes for programs and page cache: from one that the writers fill to all of a 24 GiB machine.
const USUAL_GIBIBYTES: [u64; 4] = [2, 6, 12, 20];
/// With less memory a machine could not even end its own programs.
const LEAST: Bytes = Bytes(1 << 30);
/// A turn that ran out of memory is repeated; after this many attempts the size is too small.
const ATTEMPTS: u32 = 3;

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench io --quick                            one size, one round: a first result in two minutes
  hugepilot-bench io --keep                             a figure to publish, raw results kept
  hugepilot-bench io --sizes 6G,12G,20G --rounds 6      until the intervals are narrow enough
  hugepilot-bench io --directory /srv/backup            on the file system that matters
  hugepilot-bench io --sizes 6G,12G --seconds 120 --beside small-files,database --rounds 3
                                                        minutes at a time, on a machine that does other things as well

Run as root, on a machine that does nothing else: a holder takes all memory but the size that is measured, the page cache is dropped before
each turn, and transparent huge pages are set to madvise meanwhile. Files take 20 GB of disk at most, and are removed.";

/// `io`
#[derive(Clone, Debug, Args)]
pub struct IoArguments {
    /// Memory left to writers and page cache, one series of rounds each [default: 2G,6G,12G,20G, as far as there is so much; with --quick 4G]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<Bytes>,
    /// The ways to reclaim memory, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    configurations: Vec<Way>,
    /// Programs beside the writers, separated by commas; the database needs mariadb-server and sysbench [default: none]
    #[arg(long, value_enum, value_delimiter = ',')]
    beside: Vec<Neighbor>,
    /// Where files are written, in a directory that is removed afterwards; on a disk, not in memory
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Threads that write files of 100 KB to 5 MB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    writers: u32,
    /// Rounds; each configuration has one turn in each [default: 6, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Seconds of measuring in each turn, once the page cache is full
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// One size and one round: a quick check, not a published result
    #[arg(long)]
    quick: bool,
    /// Where the order of turns and all random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    outputs: Outputs,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<PathBuf>,
}

/// The progress over all turns.
struct Pace {
    began: Instant,
    done: f64,
    all: f64,
}

impl IoArguments {
    /// Measures all sizes, and reports what was measured even if it ends early.
    pub fn run(&self) -> Result<()> {
        self.outputs.check()?;
        let ways = self.ways();
        let needs_tool = ways.iter().any(|way| way.needs_hugepilot());
        let tool = needs_tool.then(|| Tool::find(self.hugepilot.clone())).transpose()?;
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let mut settings = SavedSettings::of_this_machine()?;
        let sizes = self.sizes()?;
        ensure_is_disk_with(&self.directory, room_on_disk(self.writers))?;
        let directory = tempfile::Builder::new().prefix("hugepilot-bench-io-").tempdir_in(&self.directory)?;
        settings.apply(&[("enabled", "madvise"), ("defrag", "madvise")])?;
        let mut record = Record::new(MachineDescription::describe(&settings)?, self.description());
        let mut pace = Pace { began: Instant::now(), done: 0.0, all: self.seconds_of(&sizes, &ways) };
        eprintln!(
            "io: {}\nabout {:.0} min; Ctrl-C ends early and reports what there is",
            record.description,
            (pace.all / 60.0).ceil()
        );
        let stage = Stage {
            writers: self.writers,
            window: self.window(),
            seed: self.seed,
            tool: tool.as_ref(),
            stop: &stop,
            directory: directory.path(),
        };
        let ended =
            sizes.iter().try_for_each(|&size| self.measure_size(&stage, size, &ways, &mut pace, &mut record.turns));
        self.tell(&record)?;
        rounds::ended(ended, &stop, "kept")
    }

    fn measure_size(
        &self,
        stage: &Stage<'_>,
        size: Bytes,
        ways: &[Way],
        pace: &mut Pace,
        turns: &mut Vec<Turn>,
    ) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ size.0);
        let directory = tempfile::tempdir_in(stage.directory)?;
        let mut neighbors = Neighbors::start(&self.beside, directory.path(), self.seed, stage.stop)?;
        let mut holder = hold_all_but(stage, size)?;
        for round in 0..self.rounds() {
            let mut order = ways.to_vec();
            order.shuffle(&mut random);
            for way in order {
                let turn = measure_scarce(stage, size, round, way, &mut holder)?;
                neighbors.check()?;
                pace.done += self.seconds_of_turn(size);
                let (of, left) = (self.rounds(), pace.minutes_left());
                eprintln!("{size}, round {} of {of}, {}; about {left:.0} min left", round + 1, report::line(&turn));
                turns.push(turn);
            }
        }
        Ok(())
    }

    fn tell(&self, record: &Record) -> Result<()> {
        if record.turns.is_empty() {
            return Ok(());
        }
        let (text, json) = (text(record), json_lines(record, "round")?);
        let draw = |path: &Path| Ok(picture::draw(record, path)?);
        self.outputs.tell(&record.machine, &Results { name: "io", json, text: &text, draw: Some(&draw) })
    }

    fn ways(&self) -> Vec<Way> {
        match &self.configurations[..] {
            [] => Way::value_variants().to_vec(),
            chosen => chosen.to_vec(),
        }
    }

    /// The sizes requested, or the default ones that fit this machine. Errors: a size is too small, or larger than the memory.
    fn sizes(&self) -> Result<Vec<Bytes>> {
        let available = machine_memory()?.available;
        let usual: &[u64] = if self.quick { &[4] } else { &USUAL_GIBIBYTES };
        let usual = usual.iter().map(|gibibytes| Bytes(gibibytes << 30)).filter(|&size| size < available);
        let sizes = if self.sizes.is_empty() { usual.collect() } else { self.sizes.clone() };
        for &size in &sizes {
            ensure!(size >= LEAST, "--sizes {size}: at least {LEAST} must be left");
            ensure!(size <= available, "--sizes {size}: {available} are available here");
        }
        ensure!(!sizes.is_empty(), "{available} are available here: choose --sizes that fit");
        Ok(sizes)
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 6 })
    }

    fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn description(&self) -> String {
        let others: String = self.beside.iter().map(|neighbor| format!(", {neighbor}")).collect();
        format!(
            "{} writers of files of 100 KB to 5 MB below {}, beside a process with a hot heap and a mapped file{others}; {} s once the page cache is full",
            self.writers,
            self.directory.display(),
            self.seconds
        )
    }

    fn seconds_of(&self, sizes: &[Bytes], ways: &[Way]) -> f64 {
        let turns = ways.len() as f64 * f64::from(self.rounds());
        sizes.iter().map(|&size| self.seconds_of_turn(size)).sum::<f64>() * turns
    }

    /// An estimate: some seconds to begin and to end, and 2 GB a second to fill memory and to take it on huge pages.
    fn seconds_of_turn(&self, size: Bytes) -> f64 {
        let of_size = size.0 as f64 / 2e9;
        8.0 + of_size + (SETTLE + self.window()).as_secs_f64() + of_size.min(OBTAIN.as_secs_f64())
    }
}

impl Pace {
    /// At the pace so far.
    fn minutes_left(&self) -> f64 {
        (self.all - self.done) * self.began.elapsed().as_secs_f64() / self.done.max(1.0) / 60.0
    }
}

/// One turn in which memory stayed scarce to the end: a kernel that runs out of memory first ends the program that makes it scarce.
fn measure_scarce(
    stage: &Stage<'_>,
    size: Bytes,
    round: u32,
    way: Way,
    holder: &mut Option<OwnProcess>,
) -> Result<Turn> {
    for _ in 0..ATTEMPTS {
        let turn = measure_turn(stage, size, round, way)?;
        let Err(ended) = holder.as_mut().map_or(Ok(()), Running::check) else { return Ok(turn) };
        eprintln!("{size}, {way}: memory did not stay scarce, and this is measured again: {ended:#}");
        *holder = hold_all_but(stage, size)?;
    }
    bail!("{size}, {way}: the kernel ran out of memory {ATTEMPTS} times: choose larger --sizes, or fewer --writers")
}

/// Takes all memory except `size`; None if the machine has no more than that.
fn hold_all_but(stage: &Stage<'_>, size: Bytes) -> Result<Option<OwnProcess>> {
    begin_anew()?;
    let available = machine_memory()?.available;
    if available <= size {
        return Ok(None);
    }
    let words = HoldChild::words(available, size, stage.seed);
    OwnProcess::start_on(Pinning::of_this_process()?.load, words, stage.stop).map(Some)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        io: IoArguments,
    }

    fn parse(words: &[&str]) -> Result<IoArguments, clap::Error> {
        Line::try_parse_from([&["io"][..], words].concat()).map(|line| line.io)
    }

    #[test]
    fn all_ways_are_measured_unless_some_are_named() {
        assert_eq!(parse(&[]).unwrap().ways(), Way::value_variants());
        for way in Way::value_variants() {
            let name = way.to_string();
            assert_eq!(parse(&[&format!("--configurations={name}")]).unwrap().ways(), [*way]);
            assert_eq!(serde_json::to_string(way).unwrap(), format!("\"{name}\""));
        }
    }

    #[test]
    fn sizes_must_fit() {
        let error = |words: &[&str]| parse(words).unwrap().sizes().unwrap_err().to_string();
        assert!(error(&["--sizes=512M"]).contains("at least 1 GiB"), "{}", error(&["--sizes=512M"]));
        assert!(error(&["--sizes=1000T"]).contains("are available here"));
        assert_eq!(parse(&["--sizes=1G"]).unwrap().sizes().unwrap(), [LEAST]);
    }

    #[test]
    fn what_is_left_follows_from_what_it_took_so_far() {
        let began = Instant::now().checked_sub(Duration::from_secs(120)).unwrap();
        let left = Pace { began, done: 60.0, all: 240.0 }.minutes_left();
        assert!((left - 6.0).abs() < 0.1, "{left}");
    }

    #[test]
    fn the_usual_sizes_take_less_than_an_hour() {
        let arguments = parse(&[]).unwrap();
        let sizes = USUAL_GIBIBYTES.map(|gibibytes| Bytes(gibibytes << 30));
        assert!(arguments.seconds_of(&sizes, &arguments.ways()) < 3600.0);
    }
}
