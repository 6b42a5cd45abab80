//! The command line.
//!
//! Owns: arguments and their defaults. Never touches: the system; it only says what was asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use heat::units::Bytes;

use crate::configuration::Configuration;
use crate::felt::{self, FeltArguments};
use crate::io::{self, FillChild, HoldChild, IoArguments, ObtainChild, ResidentHeapChild, WritersChild};
use crate::lists::ListsArguments;
use crate::outputs::Outputs;
use crate::pilot::PilotArguments;
use crate::postgres::{self, PostgresArguments};
use crate::servers::{self, ServersArguments};
use crate::sort::{self, SortArguments};
use crate::tracker::TrackerArguments;
use crate::transpose::{self, TransposeArguments};
use crate::workload::{
    AliasesChild, Chase, ChaseChild, ChasePattern, Fingerprint, FingerprintChild, HotChild, Local, LocalChild,
    LocalPattern, MOST_SONGS, MappingsChild, Memcached, Popularity, ReaderChild, ResidentChild, SWEEPS_PER_SAMPLE,
    SortChild, Sweep, SweepChild, SweepPattern, ThirdChild, Workload,
};
use crate::{lists, measure, pilot, process};

/// Where `integrations/memcached/build` puts it.
pub const COMPACTING: &str = "target/memcached/memcached";

const EXAMPLES: &str = "\
Examples:
  hugepilot-bench memcached --quick                     a look in a few minutes
  hugepilot-bench memcached --keep --plot memcached.svg a figure to publish, raw results kept
  hugepilot-bench sweep --pattern skewed --samples 80   until 80 samples have come
  hugepilot-bench chase --configurations default,ideal,default-again
  hugepilot-bench fingerprint --threads 1 --rounds 6    music search, each way to start it on huge pages
  hugepilot-bench local --quick                         what huge pages do nothing for
  hugepilot-bench estimate --rounds 5 --keep            expected gains against those achieved
  hugepilot-bench sweep --one-process --configurations default,observed,default-again
  hugepilot-bench pilot --quick                         the pilot over time, scenario by scenario
  hugepilot-bench felt memcached --quick                what promoting does to response times and throughput meanwhile
  hugepilot-bench io --quick                            huge pages to be had while writers fill the page cache
  hugepilot-bench transpose                             page coloring, on a model of the paper's processors; --measure: here, too
  hugepilot-bench lists --plot lists.svg                page lists of several kernels, simulated, in minutes
  hugepilot-bench sort --quick                          heap, quick and merge sort, in large and in ordinary pages
  hugepilot-bench report results.json --plot again.png  the report and plot of a kept result

Run as root: settings of transparent huge pages are changed for a turn, and put back, also after Ctrl-C. `lists` measures nothing
and needs no root.";

/// Measures hugepilot against what an operator would choose instead.
#[derive(Debug, Parser)]
#[command(name = "hugepilot-bench", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reads from a real memcached (YCSB's workload C).
    Memcached(MemcachedArguments),
    /// Reads and writes in steps of 4 KiB.
    Sweep(SweepArguments),
    /// Dependent and independent random reads.
    Chase(ChaseArguments),
    /// Music search by fingerprints, started in each of the ways that put a program on huge pages.
    Fingerprint(FingerprintArguments),
    /// The counter-example: programs that huge pages do nothing for, and whether `hugepilot explain` says so.
    Local(LocalArguments),
    /// Expected against achieved: what `promote --dry-run` says, and what promoting then gains.
    Estimate(EstimateArguments),
    /// Trackers: accuracy and cost on programs whose walked pages are known, one pass against sizes to 128 GiB, and how much a
    /// program slows down while it is watched.
    Tracker(TrackerArguments),
    /// The pilot over time: few huge pages, a second program, a hot set that moves, and rest.
    #[command(after_help = pilot::EXAMPLES)]
    Pilot(PilotArguments),
    /// What promotion does to a running program: throughput and response times while it goes on, in windows of 250 ms.
    #[command(after_help = felt::EXAMPLES)]
    Felt(FeltArguments),
    /// PostgreSQL: a server of many processes, with a reserved pool and with hugepilot.
    #[command(after_help = postgres::EXAMPLES)]
    Postgres(PostgresArguments),
    /// Other servers, by default and with hugepilot: nothing is to get worse.
    #[command(after_help = servers::EXAMPLES)]
    Servers(ServersArguments),
    /// Aging memory: many writers fill the page cache; how fast they are, and how much can be had on huge pages then.
    #[command(after_help = io::EXAMPLES)]
    Io(IoArguments),
    /// Page coloring: a transpose on a model of the paper's processors, and on this machine.
    #[command(after_help = transpose::EXAMPLES)]
    Transpose(TransposeArguments),
    /// The page lists of Linux 2.6, the paper's split of them, and those of today: a simulation of what reclaim costs as memory grows.
    #[command(after_help = lists::EXAMPLES)]
    Lists(ListsArguments),
    /// Sorting in large and in ordinary pages, by algorithm and size.
    #[command(after_help = sort::EXAMPLES)]
    Sort(SortArguments),
    /// Shows the report of raw results again.
    Report(ReportArguments),
    /// Binds itself to a processor and becomes another program.
    #[command(hide = true)]
    Bound {
        /// The processor.
        #[arg(long)]
        processor: Option<usize>,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// The child of `sweep`.
    #[command(hide = true)]
    WorkloadSweep(SweepChild),
    /// The child of `chase`.
    #[command(hide = true)]
    WorkloadChase(ChaseChild),
    /// The child of `fingerprint`.
    #[command(hide = true)]
    WorkloadFingerprint(FingerprintChild),
    /// The child of `local`.
    #[command(hide = true)]
    WorkloadLocal(LocalChild),
    /// The child of `sort`.
    #[command(hide = true)]
    WorkloadSort(SortChild),
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
    /// Asks for huge pages.
    #[command(hide = true)]
    WorkloadObtain(ObtainChild),
}

/// What every workload can be told.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Three rounds and a small program: a quick check, not a published result.
    #[arg(long)]
    pub quick: bool,
    /// Rounds; each configuration has one turn in each [default: 20, with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// The configurations, separated by commas [default: those that suit the workload].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub configurations: Vec<Configuration>,
    /// Measure all configurations of a round in one process, one after the other: for what differs less than two processes do.
    #[arg(long)]
    pub one_process: bool,
    /// Where the order of turns and all random numbers start.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds of measuring in each turn.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of load before the tool acts.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub settle: f64,
    /// Seconds from the tool's start to measuring; less than the tool takes makes windows that are not alike.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub wait: f64,
    /// Where results go.
    #[command(flatten)]
    pub outputs: Outputs,
    /// The hugepilot binary [default: beside this program].
    #[arg(long, value_name = "PATH")]
    pub hugepilot: Option<PathBuf>,
}

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
    #[command(flatten)]
    common: Common,
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
    #[command(flatten)]
    common: Common,
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
    #[command(flatten)]
    common: Common,
}

/// `fingerprint`.
#[derive(Clone, Debug, Args)]
pub struct FingerprintArguments {
    /// Songs in the index, 240 KiB each [default: 26000, about 6 GiB; with --quick 2000].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SONGS)))]
    pub songs: Option<u32>,
    /// How many threads search, one run each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    #[command(flatten)]
    common: Common,
}

/// `local`.
#[derive(Clone, Debug, Args)]
pub struct LocalArguments {
    /// The patterns, one run each.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["breadth-first", "small"])]
    pub pattern: Vec<LocalPattern>,
    #[command(flatten)]
    common: Common,
}

/// `estimate`.
#[derive(Clone, Debug, Args)]
pub struct EstimateArguments {
    #[command(flatten)]
    common: Common,
}

/// `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Raw results, as `--json` or `--keep` wrote them.
    pub file: PathBuf,
    /// Draws the results to a file, FILE.svg or FILE.png.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Memcached(arguments) => arguments.run(),
            Command::Sweep(arguments) => arguments.run(),
            Command::Chase(arguments) => arguments.run(),
            Command::Fingerprint(arguments) => arguments.run(),
            Command::Local(arguments) => arguments.run(),
            Command::Estimate(arguments) => arguments.run(),
            Command::Tracker(arguments) => arguments.run(),
            Command::Pilot(arguments) => arguments.run(),
            Command::Felt(arguments) => arguments.run(),
            Command::Postgres(arguments) => arguments.run(),
            Command::Servers(arguments) => arguments.run(),
            Command::Io(arguments) => arguments.run(),
            Command::Transpose(arguments) => arguments.run(),
            Command::Lists(arguments) => arguments.run(),
            Command::Sort(arguments) => arguments.run(),
            Command::Report(arguments) => measure::report(&arguments.file, arguments.plot.as_deref()),
            Command::Bound { processor, command } => match process::become_bound(processor, &command)? {},
            Command::WorkloadSweep(child) => child.run(),
            Command::WorkloadChase(child) => child.run(),
            Command::WorkloadFingerprint(child) => child.run(),
            Command::WorkloadLocal(child) => child.run(),
            Command::WorkloadSort(child) => child.run(),
            Command::WorkloadHot(child) => child.run(),
            Command::WorkloadReader(child) => child.run(),
            Command::WorkloadThird(child) => child.run(),
            Command::WorkloadMappings(child) => child.run(),
            Command::WorkloadAliases(child) => child.run(),
            Command::WorkloadResident(child) => child.run(),
            Command::WorkloadHold(child) => child.run(),
            Command::WorkloadFill(child) => child.run(),
            Command::WorkloadWriters(child) => child.run(),
            Command::WorkloadResidentHeap(child) => child.run(),
            Command::WorkloadObtain(child) => child.run(),
        }
    }
}

impl MemcachedArguments {
    fn workload(&self) -> Memcached {
        let items = if self.common.quick { 1_600_000 } else { 5_200_000 };
        Memcached {
            items: if self.paper { 800_000 } else { self.items.unwrap_or(items) },
            value_size: self.value_size as usize,
            connections: self.connections as usize,
            depth: self.depth as usize,
            popularity: self.popularity,
            seed: self.common.seed,
            compacting: self.compacting.clone(),
        }
    }

    fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Never, Always, AlwaysKhugepaged, Own, Hugepilot, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &[Box::new(self.workload())])
    }
}

impl SweepArguments {
    fn workloads(&self) -> Vec<Box<dyn Workload>> {
        let size = self.size.unwrap_or(Bytes(if self.common.quick { 256 << 20 } else { 1 << 30 }));
        let seed = self.common.seed;
        self.pattern
            .iter()
            .map(|&pattern| Box::new(Sweep { size, pattern, seed, sweeps: SWEEPS_PER_SAMPLE }) as Box<dyn Workload>)
            .collect()
    }

    fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Always, AlwaysKhugepaged, Hugepilot, HugepilotNoGrowth, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, self.samples, &self.workloads())
    }
}

impl ChaseArguments {
    fn workloads(&self) -> Vec<Box<dyn Workload>> {
        let size = self.size.unwrap_or(Bytes(if self.common.quick { 1 << 30 } else { 4 << 30 }));
        let seed = self.common.seed;
        self.pattern.iter().map(|&pattern| Box::new(Chase { size, pattern, seed }) as Box<dyn Workload>).collect()
    }

    fn run(self) -> Result<()> {
        use Configuration::*;
        let usual = [Default, Never, Always, Own, Hugepilot, Observed, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &self.workloads())
    }
}

impl FingerprintArguments {
    fn run(self) -> Result<()> {
        use Configuration::*;
        let (songs, seed) = (self.songs.unwrap_or(if self.common.quick { 2_000 } else { 26_000 }), self.common.seed);
        let workload = |&threads: &u32| Box::new(Fingerprint { songs, threads, seed }) as Box<dyn Workload>;
        let peers = [Always, Libhugetlbfs, TunablesThp, TunablesPool, TunablesPool1G, Jemalloc, Mimalloc, Mimalloc1G];
        let ours = [RunThp, Run2M, Run1G, Hugepilot];
        let usual = [&[Default][..], &peers, &ours, &[Ideal, DefaultAgain]].concat();
        measure::measure(&self.common, &usual, 0, &self.threads.iter().map(workload).collect::<Vec<_>>())
    }
}

impl LocalArguments {
    fn run(self) -> Result<()> {
        use Configuration::*;
        let seed = self.common.seed;
        let workload = |&pattern: &LocalPattern| Box::new(Local { pattern, seed }) as Box<dyn Workload>;
        let usual = [Default, Always, RunThp, Explained, Hugepilot, Ideal, DefaultAgain];
        measure::measure(&self.common, &usual, 0, &self.pattern.iter().map(workload).collect::<Vec<_>>())
    }
}

impl EstimateArguments {
    fn run(self) -> Result<()> {
        use Configuration::*;
        // Gains of a few per cent drown in what two processes differ by.
        let common = Common { one_process: true, ..self.common };
        let chase =
            ChaseArguments { size: None, pattern: ChasePattern::value_variants().to_vec(), common: common.clone() };
        let sweep = SweepArguments { size: None, pattern: SweepPattern::value_variants().to_vec(), samples: 0, common };
        let common = &sweep.common;
        let (value_size, connections, depth) = (512, 8, 32);
        let (compacting, common_too) = (COMPACTING.into(), common.clone());
        let memcached = MemcachedArguments {
            items: None,
            value_size,
            paper: false,
            connections,
            depth,
            popularity: Popularity::Ycsb,
            compacting,
            common: common_too,
        };
        let mut workloads = chase.workloads();
        workloads.extend(sweep.workloads());
        workloads.push(Box::new(memcached.workload()));
        measure::measure(common, &[Default, Estimated, Hugepilot, DefaultAgain], 0, &workloads)
    }
}

/// A time as an option's value.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a time: write seconds, such as 2.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let line = ["hugepilot-bench", "sweep", "--pattern=random,skewed", "--configurations=default,ideal", "--keep"];
        let Command::Sweep(sweep) = Arguments::try_parse_from(line).unwrap().command else { panic!("not sweep") };
        assert_eq!(sweep.pattern, [SweepPattern::Random, SweepPattern::Skewed]);
        assert_eq!(sweep.common.configurations, [Configuration::Default, Configuration::Ideal]);
        assert_eq!(sweep.common.outputs.keep, Some("bench/runs".into()));
    }

    #[test]
    fn a_search_is_measured_with_each_number_of_threads() {
        let parse =
            |line: &[&str]| Arguments::try_parse_from([&["hugepilot-bench"][..], line].concat()).unwrap().command;
        let Command::Fingerprint(usual) = parse(&["fingerprint"]) else { panic!("not fingerprint") };
        assert_eq!((usual.threads, usual.songs), (vec![1, 2], None));
        let Command::Fingerprint(one) = parse(&["fingerprint", "--threads=1", "--configurations=run-2m,run-1g"]) else {
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
