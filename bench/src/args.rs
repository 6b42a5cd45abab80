//! The command line.
//!
//! Owns: arguments and their defaults. Never touches: the system; it only states what was requested.

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::beside::{self, BesideArguments};
use crate::compare::{ChaseArguments, FingerprintArguments, LocalArguments, MemcachedArguments, SweepArguments};
use crate::crowd::{self, CrowdArguments};
use crate::document::{self, DocumentArguments};
use crate::felt::{self, FeltArguments};
use crate::io::{
    self, FillChild, HoldChild, IoArguments, ObtainChild, ResidentHeapChild, SmallFilesChild, WritersChild,
};
use crate::kept::ReportArguments;
use crate::mapped::{self, MappedArguments};
use crate::pilot::{self, PilotArguments};
use crate::postgres::{self, PostgresArguments};
use crate::printed::{self, RecordArguments};
use crate::process::BoundArguments;
use crate::programs::{self, ProgramsArguments};
use crate::retell::retell;
use crate::tracker::TrackerArguments;
use crate::workload::{
    AliasesChild, ChaseChild, Fingerprint, HotChild, Local, MappingsChild, ReaderChild, ResidentChild, SweepChild,
    ThirdChild,
};

const EXAMPLES: &str = "\
Examples:
  hugepilot-bench memcached --quick                     a first result in a few minutes
  hugepilot-bench memcached --keep --plot memcached.svg a figure to publish, raw results kept
  hugepilot-bench sweep --pattern skewed --samples 80   until 80 samples have come
  hugepilot-bench chase --configurations default,ideal,default-again
  hugepilot-bench fingerprint --threads 1 --rounds 6    music search, each way to start it on huge pages
  hugepilot-bench local --quick                         what huge pages do nothing for, or slow down
  hugepilot-bench sweep --one-process --configurations default,observed,default-again
  hugepilot-bench pilot --quick                         the pilot over time, scenario by scenario
  hugepilot-bench felt memcached --quick                what promoting does to response times and throughput meanwhile
  hugepilot-bench io --quick                            huge pages to be had while writers fill the page cache
  hugepilot-bench beside memcached -- hugepilot scan     any command beside a program under load
  hugepilot-bench crowd -- hugepilot scan               50 programs while they are scanned
  hugepilot-bench mapped                                an index of 2 GiB in the page cache, read at random
  hugepilot-bench programs redis chase-dependent        what huge pages gain programs, and what was forecast
  hugepilot-bench report results.json --plot again.png  the report and plot of a kept result
  hugepilot-bench document --check                      whether docs/results says what the kept results say

Run as root: settings of transparent huge pages are changed for a turn, and put back, also after Ctrl-C. Models and simulations, of
page lists, page coloring and sorting, are hugepilot-research's.";

/// Measures hugepilot against what an operator would choose instead.
#[derive(Debug, Parser)]
#[command(name = "hugepilot-bench", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: BenchCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Reads from a real memcached (YCSB's workload C).
    Memcached(MemcachedArguments),
    /// Reads and writes in steps of 4 KiB.
    Sweep(SweepArguments),
    /// Dependent and independent random reads.
    Chase(ChaseArguments),
    /// Music search by fingerprints, started in each of the ways that put a program on huge pages.
    Fingerprint(FingerprintArguments),
    /// The counter-example: programs that huge pages do nothing for or slow down, and whether `hugepilot explain` says so.
    Local(LocalArguments),
    /// Trackers: accuracy and cost on programs whose walked pages are known, one pass against sizes to 128 GiB, and how much a
    /// program slows down while it is watched.
    Tracker(TrackerArguments),
    /// The pilot over time: few huge pages, a second program, a hot set that moves, and rest.
    #[command(after_help = pilot::EXAMPLES)]
    Pilot(PilotArguments),
    /// What promotion does to a running program: throughput and response times while it goes on, in windows of 250 ms.
    #[command(after_help = felt::EXAMPLES)]
    Felt(FeltArguments),
    /// Another command beside a workload under load, such as `hugepilot trial`.
    #[command(after_help = beside::EXAMPLES)]
    Beside(BesideArguments),
    /// PostgreSQL: a server of many processes, with a reserved pool and with hugepilot.
    #[command(after_help = postgres::EXAMPLES)]
    Postgres(PostgresArguments),
    /// Real programs as their communities load them: what huge pages gain each, what was forecast, and what their experts' settings gain.
    #[command(after_help = programs::EXAMPLES)]
    Programs(ProgramsArguments),
    /// Many programs at once, and how much a command such as `hugepilot scan` slows each of them down.
    #[command(after_help = crowd::EXAMPLES)]
    Crowd(CrowdArguments),
    /// A large file that is mapped and read at random, on base pages and on huge pages of the page cache.
    #[command(after_help = mapped::EXAMPLES)]
    Mapped(MappedArguments),
    /// Runs another command, and keeps what it prints as raw results.
    #[command(after_help = printed::EXAMPLES)]
    Record(RecordArguments),
    /// Reclaiming memory: many writers fill the page cache; how fast they are, and how much can be had on huge pages then.
    #[command(after_help = io::EXAMPLES)]
    Io(IoArguments),
    /// Shows the report of raw results again.
    Report(ReportArguments),
    /// Writes the tables of a document from raw results that were kept.
    #[command(after_help = document::EXAMPLES)]
    Document(DocumentArguments),
    /// Binds itself to a processor and becomes another program.
    #[command(hide = true)]
    Bound(BoundArguments),
    /// The child of `sweep`.
    #[command(hide = true)]
    WorkloadSweep(SweepChild),
    /// The child of `chase`.
    #[command(hide = true)]
    WorkloadChase(ChaseChild),
    /// The child of `fingerprint`.
    #[command(hide = true)]
    WorkloadFingerprint(Fingerprint),
    /// The child of `local`.
    #[command(hide = true)]
    WorkloadLocal(Local),
    /// The child of `pilot`.
    #[command(hide = true)]
    WorkloadHot(HotChild),
    /// The child of `felt`.
    #[command(hide = true)]
    WorkloadReader(ReaderChild),
    /// Reads a known third of its memory.
    #[command(hide = true)]
    WorkloadThird(ThirdChild),
    /// Populates memory in many mappings.
    #[command(hide = true)]
    WorkloadMappings(MappingsChild),
    /// Maps one GiB again and again.
    #[command(hide = true)]
    WorkloadAliases(AliasesChild),
    /// Reads memory that the TLB covers.
    #[command(hide = true)]
    WorkloadResident(ResidentChild),
    /// Makes memory scarce.
    #[command(hide = true)]
    WorkloadHold(HoldChild),
    /// Fills the page cache.
    #[command(hide = true)]
    WorkloadFill(FillChild),
    /// Writes files.
    #[command(hide = true)]
    WorkloadWriters(WritersChild),
    /// Reads a heap and a mapped file.
    #[command(hide = true)]
    WorkloadResidentHeap(ResidentHeapChild),
    /// Looks small files up.
    #[command(hide = true)]
    WorkloadSmallFiles(SmallFilesChild),
    /// Asks for huge pages.
    #[command(hide = true)]
    WorkloadObtain(ObtainChild),
}

impl Arguments {
    /// Runs the requested command.
    pub fn run(self) -> Result<()> {
        self.command.run()
    }
}

impl BenchCommand {
    fn run(self) -> Result<()> {
        match self {
            BenchCommand::Memcached(arguments) => arguments.run(),
            BenchCommand::Sweep(arguments) => arguments.run(),
            BenchCommand::Chase(arguments) => arguments.run(),
            BenchCommand::Fingerprint(arguments) => arguments.run(),
            BenchCommand::Local(arguments) => arguments.run(),
            BenchCommand::Tracker(arguments) => arguments.run(),
            BenchCommand::Pilot(arguments) => arguments.run(),
            BenchCommand::Felt(arguments) => arguments.run(),
            BenchCommand::Postgres(arguments) => arguments.run(),
            BenchCommand::Programs(arguments) => arguments.run(),
            BenchCommand::Crowd(arguments) => arguments.run(),
            BenchCommand::Mapped(arguments) => arguments.run(),
            BenchCommand::Record(arguments) => arguments.run(),
            BenchCommand::Io(arguments) => arguments.run(),
            BenchCommand::Beside(arguments) => arguments.run(),
            BenchCommand::Report(ReportArguments { file, plot }) => retell(&file, plot.as_deref()),
            BenchCommand::Document(arguments) => arguments.run(),
            BenchCommand::Bound(child) => match child.run()? {},
            BenchCommand::WorkloadSweep(child) => child.run(),
            BenchCommand::WorkloadChase(child) => child.run(),
            BenchCommand::WorkloadFingerprint(child) => child.run(),
            BenchCommand::WorkloadLocal(child) => child.run(),
            BenchCommand::WorkloadHot(child) => child.run(),
            BenchCommand::WorkloadReader(child) => child.run(),
            BenchCommand::WorkloadThird(child) => child.run(),
            BenchCommand::WorkloadMappings(child) => child.run(),
            BenchCommand::WorkloadAliases(child) => child.run(),
            BenchCommand::WorkloadResident(child) => child.run(),
            BenchCommand::WorkloadHold(child) => child.run(),
            BenchCommand::WorkloadFill(child) => child.run(),
            BenchCommand::WorkloadWriters(child) => child.run(),
            BenchCommand::WorkloadResidentHeap(child) => child.run(),
            BenchCommand::WorkloadSmallFiles(child) => child.run(),
            BenchCommand::WorkloadObtain(child) => child.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::workload::SweepPattern;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let line = ["hugepilot-bench", "sweep", "--pattern=random,skewed", "--configurations=default,ideal", "--keep"];
        let BenchCommand::Sweep(sweep) = Arguments::try_parse_from(line).unwrap().command else { panic!("not sweep") };
        assert_eq!(sweep.pattern, [SweepPattern::Random, SweepPattern::Skewed]);
        assert_eq!(sweep.common.configurations, [Configuration::Default, Configuration::Ideal]);
        assert_eq!(sweep.common.outputs.keep, Some("bench/runs".into()));
    }

    #[test]
    fn a_search_is_measured_with_each_number_of_threads() {
        let parse =
            |line: &[&str]| Arguments::try_parse_from([&["hugepilot-bench"][..], line].concat()).unwrap().command;
        let BenchCommand::Fingerprint(usual) = parse(&["fingerprint"]) else { panic!("not fingerprint") };
        assert_eq!((usual.threads, usual.songs), (vec![1, 2], None));
        let BenchCommand::Fingerprint(one) = parse(&["fingerprint", "--threads=1", "--configurations=run-2m,run-1g"])
        else {
            panic!("not fingerprint")
        };
        assert_eq!(
            (one.threads, one.common.configurations),
            (vec![1], vec![Configuration::Run2M, Configuration::Run1G])
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [["sweep", "--size=12X"], ["memcached", "--rounds=0"], ["chase", "--seconds=-1"]] {
            assert!(Arguments::try_parse_from(["hugepilot-bench"].into_iter().chain(line)).is_err(), "{line:?}");
        }
    }
}
