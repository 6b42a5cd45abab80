//! The tracker held against programs whose walked pages are known: how much it finds, and what looking costs.
//!
//! Owns: these programs, the comparison, and its report. Never touches: how the tracker looks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use hugepilot::decide::{Allowance, Spent, decide};
use hugepilot::observe::{Heat, Options, PageWalk, Tracker};
use hugepilot::stop::{SecondSignal, Stop};
use hugepilot::target::Target;
use hugepilot::units::{Address, BASE_PAGE, Bytes, GIANT_PAGE, Nanos};
use serde::Serialize;

use crate::machine::Machine;
use crate::settings::Settings;
use crate::statistics::median;
use crate::workload::{OwnProcess, Running, ThirdChild, ThirdPattern};

/// Long enough for the read at 100 ms; a longer one would only wait.
const WINDOW: Nanos = Nanos(150_000_000);
/// The program runs this long before it is first looked at.
const SETTLE: Duration = Duration::from_millis(500);

/// `tracker`.
#[derive(Clone, Debug, clap::Args)]
pub struct TrackerArguments {
    /// Memory of each program.
    #[arg(long, default_value = "2G")]
    size: Bytes,
    /// Looks at each program.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Mappings of the program with many.
    #[arg(long, default_value_t = 60_000)]
    mappings: u64,
    /// Keeps the raw results below a directory, in one named after day and machine.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    keep: Option<PathBuf>,
}

/// All looks, raw.
#[derive(Debug, Serialize)]
struct Record {
    version: u32,
    machine: Machine,
    looks: Vec<Look>,
}

/// One look at one program.
#[derive(Debug, Serialize)]
struct Look {
    program: &'static str,
    meaning: String,
    present_bytes: u64,
    clear_ns: u64,
    longest_stall_ns: u64,
    read_ns_each: u64,
    inspect_ns: u64,
    walks_per_second: f64,
    /// Of the pages found walked, the share that really is read; None where the truth is not known page by page.
    precision: Option<f64>,
    /// Of the pages that are read, the share found.
    recall: Option<f64>,
    promotions: usize,
}

impl TrackerArguments {
    /// Looks at each program in turn, prints a table, and keeps the raw looks.
    pub fn run(&self) -> Result<()> {
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let machine = Machine::describe(&Settings::of_this_machine()?)?;
        let mut tracker = PageWalk::new()?;
        let mut looks = Vec::new();
        for (program, arguments, truth) in self.programs() {
            eprintln!("{program}: {} looks", self.rounds);
            let running = OwnProcess::start(arguments, &stop)?;
            std::thread::sleep(SETTLE);
            let walked = truth.map(|truth| used_addresses(&truth, running.ready().address));
            for _ in 0..self.rounds {
                stop.check()?;
                looks.push(look(&mut tracker, program, &running, walked.as_ref())?);
            }
        }
        let record = Record { version: 1, machine, looks };
        let table = table(&record.looks);
        print!("{table}");
        self.keep.as_deref().map_or(Ok(()), |directory| keep(directory, &record, &table))
    }

    /// Each program's name, how it is started, and its used pages where they are known.
    fn programs(&self) -> Vec<(&'static str, Vec<String>, Option<ThirdChild>)> {
        let third = |name, pattern| {
            let child = ThirdChild { size: self.size, pattern, seed: 1 };
            let arguments = [format!("--size={}", self.size.0), format!("--pattern={pattern}"), "--seed=1".to_owned()];
            (name, command("workload-third", &arguments), Some(child))
        };
        let mappings = |name, count| {
            let arguments = [format!("--size={}", self.size.0), format!("--count={count}")];
            (name, command("workload-mappings", &arguments), None)
        };
        vec![
            third("a third, contiguous", ThirdPattern::Contiguous),
            third("a third, scattered", ThirdPattern::Scattered),
            mappings("one mapping", 1),
            mappings("many mappings", self.mappings),
            ("2 MiB in the TLB", command("workload-resident", &[]), None),
        ]
    }
}

fn command(name: &str, arguments: &[String]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(arguments.iter().cloned()).collect()
}

fn used_addresses(child: &ThirdChild, start: u64) -> BTreeSet<Address> {
    let used = child.used_pages();
    (0..used.count()).map(|place| Address(start + used.page(place) as u64 * BASE_PAGE)).collect()
}

fn look(
    tracker: &mut PageWalk,
    program: &'static str,
    running: &OwnProcess,
    truth: Option<&BTreeSet<Address>>,
) -> Result<Look> {
    let target = Target::open(running.pid())?;
    let options = Options { window: WINDOW, allow_stall: false };
    let heat = tracker.observe(&target, &options, &Stop::default())?;
    let limits = Allowance::default().limits(heat.rss, &Spent::default());
    let (precision, recall) = truth.map(|truth| accuracy(&heat, truth, running)).unzip();
    Ok(Look {
        program,
        meaning: format!("{:?}", heat.meaning).to_lowercase(),
        present_bytes: heat.pages_present().bytes().0,
        clear_ns: heat.cost.clear.0,
        longest_stall_ns: heat.cost.longest_stall.0,
        read_ns_each: heat.cost.read.0 / u64::from(heat.cost.reads.max(1)),
        inspect_ns: heat.cost.inspect.0,
        walks_per_second: heat.walks_per_second(),
        precision,
        recall,
        promotions: decide(&heat, &limits).promotions().count(),
    })
}

/// Precision and recall over the program's own mapping; its code and stack are walked too, and are not in question.
fn accuracy(heat: &Heat, truth: &BTreeSet<Address>, running: &OwnProcess) -> (f64, f64) {
    let ready = running.ready();
    let own = ready.address..ready.address + ready.size_bytes;
    let pages = heat.regions.iter().flat_map(|region| region.walked.iter().map(move |page| region.page(page)));
    let (mut found, mut right) = (0u64, 0u64);
    for page in pages.filter(|page| own.contains(&page.0)) {
        found += 1;
        right += u64::from(truth.contains(&page));
    }
    (right as f64 / found.max(1) as f64, right as f64 / truth.len().max(1) as f64)
}

fn table(looks: &[Look]) -> String {
    let mut text =
        "program               looks  precision  recall  clearing   reading   stall at most  promoted at most\n\
                    \x20                           at least  at least  ms/GiB  ms/GiB     ms\n"
            .to_owned();
    let mut rest = looks;
    while let Some(first) = rest.first() {
        let (group, after) = rest.split_at(rest.iter().take_while(|look| look.program == first.program).count());
        let per_gib = |value: fn(&Look) -> u64| {
            let each: Vec<f64> = group
                .iter()
                .map(|look| value(look) as f64 / 1e6 / (look.present_bytes as f64 / GIANT_PAGE as f64))
                .collect();
            median(&each).unwrap_or_default()
        };
        let least = |value: fn(&Look) -> Option<f64>| {
            let least = group.iter().filter_map(value).min_by(f64::total_cmp);
            least.map_or("-".to_owned(), |least| format!("{least:.4}"))
        };
        let stall = group.iter().map(|look| look.longest_stall_ns).max().unwrap_or(0) as f64 / 1e6;
        let promoted = group.iter().map(|look| look.promotions).max().unwrap_or(0);
        let (precision, recall) = (least(|look| look.precision), least(|look| look.recall));
        let (clearing, reading) = (per_gib(|look| look.clear_ns), per_gib(|look| look.read_ns_each));
        let _ = writeln!(
            text,
            "{:<20} {:>6} {precision:>10} {recall:>9} {clearing:>7.2} {reading:>7.3} {stall:>10.1} {promoted:>12}",
            first.program,
            group.len()
        );
        rest = after;
    }
    text
}

fn keep(directory: &Path, record: &Record, table: &str) -> Result<()> {
    let path = record.machine.free_path(directory, "tracker")?;
    std::fs::write(path.with_extension("json"), serde_json::to_string(record)?)?;
    std::fs::write(path.with_extension("txt"), table)?;
    eprintln!("kept in {}.*", path.display());
    Ok(())
}
