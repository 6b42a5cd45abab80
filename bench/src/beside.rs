//! Another command beside a workload under load: a demo, a trial, a profiler.
//!
//! Owns: telling the command the process id, and how to read what the program has done so far. Never touches: what the command does.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};
use tempfile::TempDir;

use crate::programs::LoadedProgram;
use crate::workload::{
    Chase, ChasePattern, Memcached, Popularity, RequestLoad, Running, SWEEPS_PER_SAMPLE, Start, Sweep, SweepPattern,
    Wire, Workload,
};

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench beside memcached -- hugepilot trial '{pid}' --rate '{rate}'
  hugepilot-bench beside sweep-random --size 1G -- hugepilot scan

{pid} stands for the process id of the program under load, {rate} for a command that prints what it has done so far.";

/// How often the file is written; a window of a trial takes seconds.
const EVERY: Duration = Duration::from_millis(20);
const SEED: u64 = 1;

/// `beside`.
#[derive(Clone, Debug, Args)]
pub struct BesideArguments {
    /// What is put under load.
    #[arg(value_enum)]
    workload: BesideWorkload,
    /// Memory to use; that of `memcached-multi-get` is fixed.
    #[arg(long, default_value_t = Bytes(2 << 30))]
    size: Bytes,
    /// The command to run beside it.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A workload that one word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BesideWorkload {
    /// memcached, zipfian reads of 512 bytes.
    Memcached,
    /// memcached as `programs` loads it: requests for fifty items of 512 bytes each, at random, in about 2 GiB.
    MemcachedMultiGet,
    /// Random reads that wait for each other.
    ChaseDependent,
    /// Random reads that overlap.
    ChaseIndependent,
    /// Reads and writes at random.
    SweepRandom,
    /// Reads and writes along addresses: huge pages gain next to nothing.
    SweepSequential,
}

/// Memory of an item of memcached with 512 bytes.
const ITEM: u64 = 630;

impl BesideWorkload {
    fn start(self, size: Bytes, stop: &Stop) -> Result<Beside> {
        if self == BesideWorkload::MemcachedMultiGet {
            eprintln!("starting memcached, and filling it");
            return LoadedProgram::named("memcached", "", stop).map(Beside::Loaded);
        }
        let workload = self.of_size(size);
        eprintln!("starting {}: {}", workload.name(), workload.description());
        let operations = tempfile::tempdir().context("no temporary directory")?;
        let program = workload.start(Start::AsItIs, stop)?;
        let beside = Beside::Counted { program, began: Instant::now(), operations };
        beside.count()?;
        Ok(beside)
    }

    fn of_size(self, size: Bytes) -> Box<dyn Workload> {
        let chase = |pattern| Box::new(Chase { size, pattern, seed: SEED });
        let sweep = |pattern| Box::new(Sweep { size, pattern, seed: SEED, sweeps: SWEEPS_PER_SAMPLE });
        match self {
            BesideWorkload::Memcached | BesideWorkload::MemcachedMultiGet => {
                let load = RequestLoad {
                    wire: Wire::Memcached,
                    items: (size.0 / ITEM).max(1),
                    value_size: 512,
                    connections: 8,
                    depth: 32,
                    popularity: Popularity::Ycsb,
                    seed: SEED,
                };
                Box::new(Memcached { load, growing_hash_table: false, compacting: OsString::new() })
            }
            BesideWorkload::ChaseDependent => chase(ChasePattern::Dependent),
            BesideWorkload::ChaseIndependent => chase(ChasePattern::Independent),
            BesideWorkload::SweepRandom => sweep(SweepPattern::Random),
            BesideWorkload::SweepSequential => sweep(SweepPattern::Sequential),
        }
    }
}

/// A program under load.
enum Beside {
    /// Its load is this program's, and its operations are in a file.
    Counted { program: Box<dyn Running>, began: Instant, operations: TempDir },
    /// It counts for itself.
    Loaded(LoadedProgram),
}

impl Beside {
    fn pid(&self) -> Result<u32> {
        match self {
            Beside::Counted { program, .. } => Ok(program.pid()),
            Beside::Loaded(program) => program.pid(),
        }
    }

    /// A command that prints what it has done so far.
    fn rate(&self) -> String {
        match self {
            Beside::Counted { operations, .. } => format!("cat '{}'", work_in(operations).display()),
            Beside::Loaded(program) => program.rate().to_owned(),
        }
    }

    fn check(&mut self) -> Result<()> {
        match self {
            Beside::Counted { program, .. } => program.check(),
            Beside::Loaded(program) => program.check(),
        }
    }

    /// Whoever reads the file sees all of the number: it takes the place of the last one.
    fn count(&self) -> Result<()> {
        let Beside::Counted { program, began, operations } = self else { return Ok(()) };
        let (work, count) = (work_in(operations), program.progress().window(*began, Instant::now()).operations);
        let next = work.with_extension("next");
        fs::write(&next, format!("{count}\n")).and_then(|()| fs::rename(&next, work)).context("cannot write the work")
    }
}

fn work_in(directory: &TempDir) -> PathBuf {
    directory.path().join("operations")
}

impl BesideArguments {
    /// Runs both until the command ends.
    pub fn run(self) -> Result<()> {
        let stop = Stop::on_signals(SecondSignal::Ends)?;
        let mut program = self.workload.start(self.size, &stop)?;
        let mut child = command(&self.command, program.pid()?, &program.rate())?.spawn().with_context(|| {
            format!("cannot run '{}'; give its path, or check PATH", self.command[0].to_string_lossy())
        })?;
        let status = until_it_ends(&mut child, &mut program, &stop)?;
        ensure!(status.success(), "'{}' ended with {status}", self.command[0].to_string_lossy());
        Ok(())
    }
}

/// The command with its words filled in.
fn command(words: &[OsString], pid: u32, rate: &str) -> Result<Command> {
    let fill = |word: &OsString| -> Result<OsString> {
        let word = word.to_str().context("the command's words must be UTF-8")?;
        Ok(word.replace("{pid}", &pid.to_string()).replace("{rate}", rate).into())
    };
    let words = words.iter().map(fill).collect::<Result<Vec<OsString>>>()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(command)
}

/// After a signal, which the terminal sends to the command, too, this waits until the command has ended.
fn until_it_ends(child: &mut Child, program: &mut Beside, stop: &Stop) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        if !stop.requested() {
            program.check()?;
        }
        program.count()?;
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_words_are_filled_in() {
        let words = ["trial", "{pid}", "--rate", "{rate}"].map(OsString::from);
        let command = command(&words, 42, "cat /tmp/w").unwrap();
        assert_eq!(command.get_program(), "trial");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["42", "--rate", "cat /tmp/w"]);
    }
}
