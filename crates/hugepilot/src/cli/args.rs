//! Arguments; parsing is pure and reads nothing from the system.
//!
//! Owns: every option, its default and its help. Never touches: what a command does with them.

mod cache;
mod color;
mod daemon;
mod fleet;
mod groups;
mod pool;
mod reclaim;
mod run;
mod scan;
mod shared;
mod target;
mod trial;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

pub use self::reclaim::ReclaimArgs;
pub use cache::CacheArgs;
use clap::{Args, Parser, Subcommand};
pub use color::{ColorArgs, ColorCommand, ColorProbeArgs};
pub use daemon::{ConfigArgs, PauseArgs, StatusArgs};
use daemon::{PAUSE_EXAMPLES, RESUME_EXAMPLES};
pub use fleet::{BetterNumber, FleetArgs, FleetCommand, FleetTrialArgs, WorkloadName};
pub use pool::{PoolArgs, PoolCommand, PoolMountArgs, PoolPersistArgs, PoolSetArgs, PoolUnmountArgs};
pub use run::{LaunchOptions, PrintFormat, RunArgs};
pub use scan::{RowIs, ScanArgs};
use shared::parse_plot;
pub use shared::{BudgetOptions, ForecastOptions, PaceOptions, SpendOptions, WatchOptions};
pub use target::TargetOptions;
pub use trial::{LeaveIn, NumberIs, TrialArgs};

use ::daemon::args::DaemonOptions;
use heat::Coverage;
use heat::units::{Bytes, Nanos, TimeError};
use observe::ObserveOptions;

const EXAMPLES: &str = "\
Examples:
  hugepilot scan                       which programs of this machine would gain?
  hugepilot heat 4242                  where does process 4242 walk page tables?
  hugepilot promote 4242               put the memory where that pays on huge pages
  hugepilot trial 4242                 try it, with and without by turns: what does it gain?
  hugepilot run -- memcached -m 4096   start a program and pilot it while it runs
  hugepilot doctor                     what is missing on this machine?

`hugepilot help COMMAND` says more about one of them. Sizes are written 512M, 2G or 1%, times 500ms, 1s or 2m.
Exit status: 0 done, 1 error, 2 wrong usage.";

const HEAT_EXAMPLES: &str = "\
Examples:
  hugepilot heat 4242                  watch for one second
  hugepilot heat 4242 --sample 2G      of a program of 64 GiB, at the price of 2
  hugepilot heat 4242 --live           in the terminal, anew every second
  hugepilot heat 4242 --for 1m --html heat.html
  hugepilot heat --name memcached --window 10s
  hugepilot heat --unit postgresql@15-main --window 200ms      all of its processes; shared memory is shown once
  hugepilot heat 4242 --json | jq '.regions | max_by(.walks_per_second)'";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  hugepilot explain 4242
  hugepilot explain --name postgres    the server, with what all of its processes lose on the memory that they share
  hugepilot explain 4242 --json | jq '.mappings[0].not_huge_bytes'";

const PROMOTE_EXAMPLES: &str = "\
Examples:
  hugepilot promote 4242 --dry-run     the plan, with a reason for each region
  hugepilot promote 4242               act at once
  hugepilot promote --name postgres    what a server's processes share, for all of them
  hugepilot promote 4242 --max-growth 0 --max-huge 2G
  hugepilot promote 4242 --max-slowdown 1%     for programs with tight response times
  hugepilot promote 4242 --fast        over in seconds, at up to 40 % less of its speed meanwhile
  hugepilot promote --guest 4242       a virtual machine, from its host: what is populated of the guest's memory
  hugepilot promote --guest --name qemu-system-x86 --dry-run";

const GIVE_BACK_EXAMPLES: &str = "\
Examples:
  hugepilot give-back 4242             undo what promote did
  hugepilot give-back 4242 --all       split every huge page of the process

Where a daemon pilots the process, the daemon does it, and leaves the process alone until `hugepilot resume 4242`.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  hugepilot attach 4242                until Ctrl-C, or until the process ends
  hugepilot attach 4242 --for 60s --fast
  hugepilot attach --unit postgresql@15-main --max-huge 8G

What was promoted stays; `hugepilot give-back` undoes it.";

const RECORD_EXAMPLES: &str = "\
Examples:
  hugepilot record -o cache.hugepilot 4242               until Ctrl-C, or until the process ends
  hugepilot record -o day.hugepilot 4242 --for 8h --every 30s

Show a recording with `hugepilot replay`, or with zcat and jq.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  hugepilot replay cache.hugepilot                       the last observation
  hugepilot replay cache.hugepilot --html cache.html     all of them, over time, for a browser
  hugepilot replay cache.hugepilot --plan --max-growth 0 what would be promoted, and why";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  hugepilot doctor                     what is missing, each with the command that fixes it
  hugepilot doctor --all               all that was checked
  hugepilot doctor --json | jq -e '.checks | all(.status != \"missing\")'   fails if something is missing

Exit status: 0, whatever it finds.";

/// Finds the memory a running program walks page tables for and puts it on huge pages.
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "hugepilot", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
#[command(help_template = groups::template())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How much to say.
    #[command(flatten)]
    pub verbosity: Verbosity,
}

/// How much to say.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// Say more: what observing costs, mappings too small for a huge page
    #[arg(short, long, global = true, conflicts_with = "quiet", display_order = 1000)]
    pub verbose: bool,
    /// Say nothing on standard error but errors, and show no progress
    #[arg(short, long, global = true, display_order = 1000)]
    pub quiet: bool,
}

/// The commands.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Command {
    /// Show which running programs huge pages would help, and what to do next
    Scan(ScanArgs),
    /// Show where a process walks page tables; change nothing
    #[command(alias = "watch")]
    Heat(HeatArgs),
    /// Say which memory is on huge pages, why the rest is not, and whether more would pay
    Explain(ExplainArgs),
    /// Observe a process once and put the memory that pays on huge pages
    Promote(PromoteArgs),
    /// Try huge pages on a running program, alternating with and without, until the gain is known
    Trial(Box<TrialArgs>),
    /// Undo a promotion: split huge pages and free their empty base pages
    #[command(alias = "undo")]
    GiveBack(GiveBackArgs),
    /// Start a program and pilot it while it runs
    Run(RunArgs),
    /// Pilot a process that runs already until it ends or you say so
    Attach(AttachArgs),
    /// Show what the daemon does: its targets, what it may spend, what it did last
    Status(StatusArgs),
    /// Have the daemon leave a process alone, or all
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(PauseArgs),
    /// Have the daemon pilot a process again, or all
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(PauseArgs),
    /// Compare replicas of a workload on many hosts, by what Prometheus knows of them
    Fleet(FleetArgs),
    /// Keep observations of a process in a file
    Record(RecordArgs),
    /// Show a recording, and decide on it anew
    Replay(ReplayArgs),
    /// Show, resize, mount and keep the pools of reserved huge pages
    Pool(PoolArgs),
    /// Reclaim memory by what it is used for, so that huge pages can be had
    Reclaim(ReclaimArgs),
    /// Read files that programs map into the page cache on huge pages
    Cache(CacheArgs),
    /// Tell how many page colors the caches have, and measure whether they are real
    Color(ColorArgs),
    /// Check what this machine offers, and say how to fix what is missing
    Doctor(DoctorArgs),
    /// Print a configuration of `hugepilotd` with every key explained, or check one
    Config(ConfigArgs),
}

/// `hugepilot heat`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = HEAT_EXAMPLES, group = TargetOptions::required())]
pub struct HeatArgs {
    /// Which processes to watch; several are watched one after the other, and the memory that they share is shown once.
    #[command(flatten)]
    pub target: TargetOptions,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// Observe so much of a large program, at random, and extrapolate; everything where that is a quarter of its base pages or more
    #[arg(long, value_name = "SIZE", value_parser = parse_sample, conflicts_with_all = ["children", "live", "pages"])]
    pub sample: Option<Bytes>,
    /// What watching again and again may take.
    #[command(flatten)]
    pub budget: BudgetOptions,
    /// Show it in the terminal, anew after each window, until q is pressed
    #[arg(long, conflicts_with_all = ["json", "length", "html", "plot", "children"])]
    pub live: bool,
    /// Go on observing for so long, up to 10m, as often as costs the program at most 1 %; shows the last, pictures show all
    #[arg(long = "for", value_name = "TIME", value_parser = parse_short_length, conflicts_with = "children")]
    pub length: Option<Nanos>,
    /// What to draw.
    #[command(flatten)]
    pub pictures: PictureOptions,
    /// Print for each walked page by address in how many scans it was walked; with --for in more than one
    #[arg(long, conflicts_with_all = ["live", "html", "plot", "children"])]
    pub pages: bool,
    /// Print JSON with every region
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot explain`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = EXPLAIN_EXAMPLES, group = TargetOptions::required())]
pub struct ExplainArgs {
    /// Which programs to explain.
    #[command(flatten)]
    pub target: TargetOptions,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// How its gain is forecast.
    #[command(flatten)]
    pub forecast: ForecastOptions,
    /// Print JSON with every mapping
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot promote`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = PROMOTE_EXAMPLES, group = TargetOptions::required())]
pub struct PromoteArgs {
    /// Which programs to promote.
    #[command(flatten)]
    pub target: TargetOptions,
    /// The program is a virtual machine: promote what is populated of its guest's memory, whose heat its host cannot know
    #[arg(long, conflicts_with = "children")]
    pub guest: bool,
    /// Print the plan with its reasons and the expected gain; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// What may be spent.
    #[command(flatten)]
    pub spend: SpendOptions,
    /// How fast to act.
    #[command(flatten)]
    pub pace: PaceOptions,
    /// How its gain is forecast.
    #[command(flatten)]
    pub forecast: ForecastOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot give-back`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = GIVE_BACK_EXAMPLES, group = TargetOptions::required())]
pub struct GiveBackArgs {
    /// Which programs.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Split every huge page of the process, not only those that promote made
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which daemon to ask first.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// `hugepilot attach`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = ATTACH_EXAMPLES, group = TargetOptions::required())]
pub struct AttachArgs {
    /// Which programs to pilot.
    #[command(flatten)]
    pub target: TargetOptions,
    /// How long [default: until Ctrl-C, or until the process ends]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_length)]
    pub length: Option<Nanos>,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// What watching again and again may take.
    #[command(flatten)]
    pub budget: BudgetOptions,
    /// What may be spent.
    #[command(flatten)]
    pub spend: SpendOptions,
    /// How fast to act.
    #[command(flatten)]
    pub pace: PaceOptions,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot record`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = RECORD_EXAMPLES, group = TargetOptions::required(), mut_arg("children", |children| children.hide(true)))]
pub struct RecordArgs {
    /// Which program to watch.
    #[command(flatten)]
    pub target: TargetOptions,
    /// File to write; it must not be there yet
    #[arg(short, long, value_name = "FILE", conflicts_with = "children")]
    pub output: PathBuf,
    /// How long to record [default: until Ctrl-C, or until the process ends]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_length)]
    pub length: Option<Nanos>,
    /// From the beginning of one observation to the next [default: 1s, or longer where that would take more than --max-cpu]
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    pub every: Option<Nanos>,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// What watching again and again may take.
    #[command(flatten)]
    pub budget: BudgetOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hugepilot replay`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// Recording to show
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which observation to show, counted from 1 [default: the last]
    #[arg(long, value_name = "NUMBER")]
    pub observation: Option<usize>,
    /// Show what would be promoted, with a reason for each region, in place of the heat
    #[arg(long)]
    pub plan: bool,
    /// What may be spent.
    #[command(flatten)]
    pub spend: SpendOptions,
    /// What to draw.
    #[command(flatten)]
    pub pictures: PictureOptions,
    /// Print JSON with every region
    #[arg(long)]
    pub json: bool,
}

/// Pictures of heat over time.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct PictureOptions {
    /// Draw addresses over time as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw addresses over time to FILE.svg (or FILE.png, where it was built for that); of a single observation, regions side by side
    #[arg(long, value_name = "FILE", value_parser = parse_plot)]
    pub plot: Option<PathBuf>,
}

/// `hugepilot doctor`
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// Show what is all right, too
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl HeatArgs {
    /// How to watch it; a sample is drawn anew for each call.
    pub fn options(&self) -> ObserveOptions {
        let sample = |size| Coverage::Sample { size, longest: None, seed: RandomState::new().hash_one(0) };
        let coverage = self.sample.map_or(Coverage::Everything, sample);
        ObserveOptions { coverage, ..self.watch.options() }
    }

    /// An option that shows one process only, if it is given.
    pub fn of_one_process(&self) -> Option<&'static str> {
        let given = [
            (self.live, "--live"),
            (self.length.is_some(), "--for"),
            (self.pictures.html.is_some(), "--html"),
            (self.pictures.plot.is_some(), "--plot"),
            (self.pages, "--pages"),
            (self.sample.is_some(), "--sample"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}

fn parse_short_length(text: &str) -> Result<Nanos, TimeError> {
    let longest = Nanos(600_000_000_000);
    Nanos::parse_within(
        text,
        ObserveOptions::SHORTEST_WINDOW..=longest,
        "from 100ms to 10m; `hugepilot record` goes on for longer",
    )
}

fn parse_length(text: &str) -> Result<Nanos, TimeError> {
    let longest = Nanos(720 * ObserveOptions::LONGEST_WINDOW.0);
    Nanos::parse_within(text, ObserveOptions::SHORTEST_WINDOW..=longest, "from 100ms to 720h")
}

fn parse_sample(text: &str) -> Result<Bytes, String> {
    // Eight blocks: with fewer, the error that their differences suggest is chance.
    const SMALLEST: Bytes = Bytes(64 << 20);
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size < SMALLEST {
        Err(format!("'{text}' is too small a sample: write {SMALLEST} or more, such as 2G"))
    } else {
        Ok(size)
    }
}

fn parse_pid(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(format!("'{text}' is not a process id: write a number, such as 4242 (pgrep NAME finds it)")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use std::ffi::OsString;

    use heat::units::{SizeOrShare, Slowdown};
    use observe::TrackerChoice;
    use pilot::decide::Allowance;

    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn process_ids_are_positive_numbers() {
        assert_eq!(parse_pid("4242"), Ok(4242));
        for text in ["0", "-1", "memcached", "", "4294967296", "1.0"] {
            assert!(parse_pid(text).unwrap_err().contains("write a number, such as 4242"), "{text}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_limits() {
        let Ok(Command::Promote(args)) = parse("hugepilot promote 7") else { panic!("not a promotion") };
        assert_eq!((args.target.pids, args.watch.window), (vec![7], Nanos(1_000_000_000)));
        assert_eq!(args.spend.allowance(), Allowance::default());
        let flags = [args.dry_run, args.json, args.watch.allow_stall, args.pace.fast];
        assert_eq!((flags, args.pace.max_slowdown()), ([false; 4], Slowdown(0.05)));
    }

    #[test]
    fn every_option_arrives() {
        let line = "hugepilot promote 7 --dry-run --json --window 2m --allow-stall --max-growth 5% --max-huge 2G \
                    --include-shared --include-interleaved --max-slowdown 0.5%";
        let Ok(Command::Promote(args)) = parse(line) else { panic!("not a promotion") };
        assert_eq!(
            args.watch,
            WatchOptions { tracker: TrackerChoice::Auto, window: Nanos(120_000_000_000), allow_stall: true }
        );
        let (max_growth, max_huge) = (SizeOrShare::Share(0.05), Some(SizeOrShare::Size(Bytes(2 << 30))));
        let expected = Allowance { max_growth, max_huge, include_shared: true, include_interleaved: true };
        assert_eq!(args.spend.allowance(), expected);
        assert_eq!((args.dry_run, args.json, args.pace.max_slowdown()), (true, true, Slowdown(0.005)));
        let Ok(Command::GiveBack(args)) = parse("hugepilot give-back 7 --all --json") else {
            panic!("not giving back")
        };
        let daemon = DaemonOptions { socket: "/run/hugepilot/control.sock".into() };
        let target = TargetOptions { pids: vec![7], ..TargetOptions::default() };
        assert_eq!(args, GiveBackArgs { target, all: true, json: true, daemon });
        assert_eq!(parse("hugepilot doctor --json").unwrap(), Command::Doctor(DoctorArgs { all: false, json: true }));
    }

    #[test]
    fn the_program_keeps_its_own_options() {
        for line in ["hugepilot run --fast -- prog --json -x", "hugepilot run --fast prog --json -x"] {
            let Ok(Command::Run(args)) = parse(line) else { panic!("{line}") };
            assert_eq!(
                (args.pace.max_slowdown() == Slowdown::FAST, args.command),
                (true, ["prog", "--json", "-x"].map(OsString::from).to_vec())
            );
        }
        let Ok(Command::Run(args)) = parse("hugepilot run --summary-json out.json -- -prog") else {
            panic!("not a run")
        };
        assert_eq!((args.summary_json, args.command), (Some("out.json".into()), vec!["-prog".into()]));
    }

    #[test]
    fn wrong_usage_exits_with_2() {
        let wrong = [
            "hugepilot",
            "hugepilot heat",
            "hugepilot heat memcached",
            "hugepilot heat --children",
            "hugepilot heat 7 --cgroup /a",
            "hugepilot heat 7 --children --live",
            "hugepilot record --name a -o b --children",
            "hugepilot heat 7 -v -q",
            "hugepilot heat 7 --window 1",
            "hugepilot promote 7 --fast --max-slowdown 1%",
            "hugepilot attach 7 --max-slowdown 60%",
            "hugepilot promote 7 --max-growth lots",
            "hugepilot run",
            "hugepilot run --",
            "hugepilot run --gentle prog",
            "hugepilot melt 7",
        ];
        for line in wrong {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
