//! Tests the tracker on programs whose walked pages are known: how much it finds, and what scanning costs.
//!
//! Owns: these programs, the comparison, and its report. Never touches: how the tracker scans.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use heat::clearing::ClearPolicy;
use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE, Nanos};
use heat::{Heat, Region, TrackerKind};
use hugepilot_os::stop::{SecondSignal, Stop};
use kernel::target::Target;
use observe::{ObserveOptions, Tracker, TrackerChoice};
use pilot::decide::{Allowance, Past, Spent, decide};
use serde::Serialize;

use crate::comparison::median_of;
use crate::cost::SizeArguments;
use crate::machine::MachineDescription;
use crate::outputs::{Results, json_lines};
use crate::sample::field;
use crate::settings::SavedSettings;
use crate::slowdown::SlowdownArguments;
use crate::workload::{OwnProcess, Running, ThirdChild, ThirdPattern, Truth, clock, words};

/// Long enough for the read at 100 ms; a longer window would only wait.
const WINDOW: Nanos = Nanos(150_000_000);
/// The longest time between two progress lines.
const LINE: Duration = Duration::from_millis(600);
/// Large enough to be cleared in slices.
const LARGE: Bytes = Bytes(6 << 30);
/// How long waits are measured without a scan.
const UNOBSERVED: Duration = Duration::from_secs(3);
/// The delay after the program's pages have changed.
const LEAD: Duration = Duration::from_millis(50);
/// The program runs this long before its first scan.
const SETTLE: Duration = Duration::from_millis(500);

/// What `tracker` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// How much a tracker finds, on programs whose walked pages are known.
    Accuracy,
    /// One pass of each tracker that the kernel has, at growing sizes.
    Cost,
    /// How much slower a program runs while each of them watches it.
    Slowdown,
}

/// `tracker`.
#[derive(Clone, Debug, clap::Args)]
pub struct TrackerArguments {
    /// Memory of each program [default: 2G, and 1G of the one that is slowed down].
    #[arg(long)]
    size: Option<Bytes>,
    /// Scans of each program.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Whose accuracy is measured. Programs for page-walk's two ways of clearing are left out for others.
    #[arg(long, default_value_t = TrackerChoice::Only(TrackerKind::PageWalk))]
    tracker: TrackerChoice,
    /// Only one of the three parts.
    #[arg(long, value_enum)]
    only: Option<Part>,
    #[command(flatten)]
    sizes: SizeArguments,
    #[command(flatten)]
    slowdown: SlowdownArguments,
    /// Mappings of the program with many.
    #[arg(long, default_value_t = 60_000)]
    mappings: u64,
    /// Keeps the raw results below a directory, in one named after day and machine.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    keep: Option<PathBuf>,
}

/// All scans, raw.
#[derive(Debug, Serialize)]
struct Record {
    version: u32,
    machine: MachineDescription,
    scans: Vec<Scan>,
}

/// One scan of one program.
#[derive(Debug, Serialize)]
struct Scan {
    program: &'static str,
    meaning: String,
    present_bytes: u64,
    clear_ns: u64,
    longest_stall_ns: u64,
    read_ns_each: u64,
    inspect_ns: u64,
    /// The growth of the machine's inactive anonymous list from before the scan until after it.
    made_inactive_bytes: u64,
    walks_per_second: f64,
    /// The longest wait to map or unmap a page, during the scan and in a second before all scans.
    longest_wait_ns: u64,
    longest_wait_unobserved_ns: u64,
    /// The share of the pages found walked (or of the hottest quarter of regions) that really is read; None if the truth is not known page by page.
    precision: Option<f64>,
    /// The share of the pages read that was found.
    recall: Option<f64>,
    promotions: usize,
}

impl TrackerArguments {
    /// Scans each program in turn, prints a table, and saves the raw scans.
    pub fn run(&self) -> Result<()> {
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let machine = MachineDescription::describe(&SavedSettings::of_this_machine()?)?;
        let wanted = |part| self.only.is_none_or(|only| only == part);
        if wanted(Part::Accuracy) {
            self.accuracy(machine.clone(), &stop)?;
        }
        if wanted(Part::Cost) {
            self.sizes.run(machine.clone(), self.keep.as_deref(), &stop)?;
        }
        if wanted(Part::Slowdown) {
            self.slowdown.run(self.size.unwrap_or(Bytes(GIANT_PAGE)), machine, self.keep.as_deref(), &stop)?;
        }
        Ok(())
    }

    fn accuracy(&self, machine: MachineDescription, stop: &Stop) -> Result<()> {
        let mut tracker = observe::open(self.tracker)?;
        let mut scans = Vec::new();
        for program in self.programs() {
            eprintln!("{}: {} scans", program.name, self.rounds);
            let running = OwnProcess::start(program.arguments.clone(), stop)?;
            std::thread::sleep(SETTLE);
            let unobserved = longest_wait(&running, UNOBSERVED, stop)?;
            for _ in 0..self.rounds {
                stop.check()?;
                program.wait_for_its_period();
                scans.push(scan(tracker.as_mut(), &program, &running, unobserved, stop)?);
            }
        }
        let record = Record { version: 1, machine, scans };
        let table = table(&record.scans);
        let results = Results { name: "tracker", json: json_lines(&record, "program")?, text: &table, draw: None };
        results.show(self.keep.as_deref(), &record.machine)
    }

    fn programs(&self) -> Vec<Program> {
        let usual = self.size.unwrap_or(Bytes(2 * GIANT_PAGE));
        let of_size = |name, size: Bytes, pattern, clearing| {
            let arguments = words("workload-third", &[("size", &size.0), ("pattern", &pattern), ("seed", &1)]);
            Program { name, arguments, truth: Some(ThirdChild { size, pattern, seed: 1 }), clearing }
        };
        let third = |name, pattern| of_size(name, usual, pattern, ClearPolicy::ByCalls);
        let unknown = |name, arguments| Program { name, arguments, truth: None, clearing: ClearPolicy::ByCalls };
        let mappings =
            |name, count: u64| unknown(name, words("workload-mappings", &[("size", &usual.0), ("count", &count)]));
        let mut programs = vec![
            third("uniform", ThirdPattern::Uniform),
            third("a third, contiguous", ThirdPattern::Contiguous),
            third("a third, scattered", ThirdPattern::Scattered),
            third("a third, moving", ThirdPattern::Moving),
            third("zipfian regions", ThirdPattern::Zipfian),
            mappings("one mapping", 1),
            mappings("many mappings", self.mappings),
            unknown("2 MiB in the TLB", words("workload-resident", &[])),
        ];
        if self.tracker == TrackerChoice::Only(TrackerKind::PageWalk) {
            programs.push(of_size("6 GiB, at once", LARGE, ThirdPattern::Contiguous, ClearPolicy::AtOnce));
            programs.push(of_size("6 GiB, in slices", LARGE, ThirdPattern::Contiguous, ClearPolicy::InSlices));
        }
        programs
    }
}

/// A program to be scanned.
struct Program {
    name: &'static str,
    arguments: Vec<String>,
    /// What should be found, if that is known.
    truth: Option<ThirdChild>,
    /// How accessed bits are cleared.
    clearing: ClearPolicy,
}

impl Program {
    /// A scan begins at the start of a period with constant pages, so that it ends in the same period.
    fn wait_for_its_period(&self) {
        if let Some(period) = self.truth.as_ref().and_then(|child| child.pattern.period()) {
            let into = clock().as_nanos() % period.as_nanos();
            std::thread::sleep(period - Duration::from_nanos(into as u64) + LEAD);
        }
    }
}

/// The longest wait to map a page during the next `time`.
fn longest_wait(running: &OwnProcess, time: Duration, stop: &Stop) -> Result<u64> {
    let start = Instant::now();
    stop.sleep_until(start + time)?;
    Ok(wait_between(running, start))
}

/// The longest wait in the progress lines since `start`.
fn wait_between(running: &OwnProcess, start: Instant) -> u64 {
    let window = running.progress().window(start, Instant::now());
    window.longest_wait.map_or(0, |wait| wait.as_nanos() as u64)
}

fn scan(
    tracker: &mut dyn Tracker,
    program: &Program,
    running: &OwnProcess,
    unobserved: u64,
    stop: &Stop,
) -> Result<Scan> {
    let started = Instant::now();
    let truth = program.truth.as_ref().map(|child| child.truth(clock()));
    let target = Target::open(running.pid())?;
    let options = ObserveOptions { window: WINDOW, clearing: program.clearing, ..ObserveOptions::default() };
    // The progress lines that contain the scan's start and end extend beyond it.
    stop.sleep_until(Instant::now() + LINE)?;
    let inactive = inactive_anonymous()?;
    let heat = tracker.observe(&target, &options, stop)?;
    let made_inactive = inactive_anonymous()?.saturating_sub(inactive);
    stop.sleep_until(Instant::now() + LINE)?;
    let limits = Allowance::default().limits(heat.rss, &Spent::default());
    let (precision, recall) = truth.map(|truth| accuracy(&heat, &truth, running)).unzip();
    Ok(Scan {
        program: program.name,
        meaning: format!("{:?}", heat.meaning).to_lowercase(),
        present_bytes: heat.pages_present().bytes().0,
        clear_ns: heat.cost.clear.0,
        longest_stall_ns: heat.cost.longest_stall.0,
        read_ns_each: heat.cost.read.0 / u64::from(heat.cost.reads.max(1)),
        inspect_ns: heat.cost.inspect.0,
        made_inactive_bytes: made_inactive,
        walks_per_second: heat.walks_per_second(),
        longest_wait_ns: wait_between(running, started),
        longest_wait_unobserved_ns: unobserved,
        precision,
        recall,
        promotions: decide(&heat, &limits, &Past::default()).promotions().count(),
    })
}

/// The machine's `Inactive(anon)`.
fn inactive_anonymous() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let name = "Inactive(anon):";
    ensure!(text.contains(name), "/proc/meminfo tells nothing of {name}");
    Ok(field(&text, name))
}

/// Precision and recall over the program's own mapping; its code and stack are walked too, but do not count.
fn accuracy(heat: &Heat, truth: &Truth, running: &OwnProcess) -> (f64, f64) {
    let ready = running.ready();
    let own = AddressRange::new(Address(ready.address), Bytes(ready.size_bytes));
    let regions: Vec<&Region> = heat.regions.iter().filter(|region| own.contains(region.start)).collect();
    let (found, truth): (BTreeSet<u64>, BTreeSet<u64>) = match truth {
        Truth::Pages(used) => {
            let pages = regions.iter().flat_map(|region| region.walked.iter().map(|page| region.page(page).0));
            (
                pages.collect(),
                (0..used.count()).map(|place| own.start.0 + used.page(place) as u64 * BASE_PAGE).collect(),
            )
        }
        Truth::HottestRegions(hottest) => {
            let hot = hottest.iter().map(|&region| own.start.0 + region as u64 * HUGE_PAGE).collect();
            let mut by_walks = regions;
            by_walks.sort_by(|one, other| other.walks_per_second.total_cmp(&one.walks_per_second));
            (by_walks.iter().take(hottest.len()).map(|region| region.start.0).collect(), hot)
        }
    };
    let right = found.intersection(&truth).count() as f64;
    (right / found.len().max(1) as f64, right / truth.len().max(1) as f64)
}

fn table(scans: &[Scan]) -> String {
    let mut text =
        "program               scans  precision  recall  clearing   reading   clearing  waits of mmap, ms     promoted  made inactive\n\
                    \x20                           at least  at least  ms/GiB  ms/GiB   at most ms  scans  otherwise  at most   share\n"
            .to_owned();
    for group in scans.chunk_by(|one, other| one.program == other.program) {
        let per_gib = |value: fn(&Scan) -> u64| {
            let each = |scan: &Scan| value(scan) as f64 / 1e6 / (scan.present_bytes as f64 / GIANT_PAGE as f64);
            median_of(group.iter().map(each)).unwrap_or_default()
        };
        let least = |value: fn(&Scan) -> Option<f64>| {
            let least = group.iter().filter_map(value).min_by(f64::total_cmp);
            least.map_or("-".to_owned(), |least| format!("{least:.4}"))
        };
        let millis = |value: fn(&Scan) -> u64| group.iter().map(value).max().unwrap_or(0) as f64 / 1e6;
        let (waits, otherwise) = (millis(|scan| scan.longest_wait_ns), millis(|scan| scan.longest_wait_unobserved_ns));
        let stall = millis(|scan| scan.longest_stall_ns);
        let promoted = group.iter().map(|scan| scan.promotions).max().unwrap_or(0);
        let share = |scan: &Scan| scan.made_inactive_bytes as f64 / scan.present_bytes.max(1) as f64;
        let inactive = median_of(group.iter().map(share)).unwrap_or_default();
        let (precision, recall) = (least(|scan| scan.precision), least(|scan| scan.recall));
        let (clearing, reading) = (per_gib(|scan| scan.clear_ns), per_gib(|scan| scan.read_ns_each));
        let _ = writeln!(
            text,
            "{:<20} {:>6} {precision:>10} {recall:>9} {clearing:>7.2} {reading:>7.3} {stall:>10.1} {waits:>9.1} {otherwise:>9.1} {promoted:>9} {inactive:>8.3}",
            group[0].program,
            group.len()
        );
    }
    text
}
