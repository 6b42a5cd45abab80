//! How much a tracker at hugepilot's default pace slows a program down.
//!
//! Owns: windows with and without a tracker, their order, and the table. Never touches: how the tracker scans.
//!
//! In each round one process has three windows of the same length: watched, left alone, and left alone again, which gives the machine's noise. The
//! windows rotate, so that the after-effects of a watched window are shared evenly. A watched window holds whole periods, each a scan and the rest
//! after it, because a scan's cost falls on its first moments.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use heat::statistics::Interval;
use heat::units::{Bytes, CpuShare, Nanos};
use heat::{Cost, Coverage, TrackerKind};
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use observe::choice::TRACKERS;
use observe::write_scan::WriteScan;
use observe::{ObserveOptions, Tracker, TrackerChoice};
use serde::Serialize;

use crate::comparison::{median_of, ratio_by_round};
use crate::cost::SAMPLE;
use crate::machine::MachineDescription;
use crate::outputs::{Results, json_lines};
use crate::rounds::rotated;
use crate::table::interval;
use crate::values::seconds;
use crate::verdict::FigureVerdict;
use crate::workload::{Running, Start, Sweep, SweepPattern, SweepThread, Workload};

/// The default window of the commands.
const WINDOW: Nanos = Nanos(1_000_000_000);
/// The longest time between two progress lines. A line that spans a window's boundary counts for neither window, so scans begin this much later.
const LINE: Duration = Duration::from_millis(400);
/// The figure: at most 1 % slower.
const AT_LEAST: f64 = 0.99;

/// How slowdown is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct SlowdownArguments {
    /// Pairs of a watched and an unwatched window of each tracker.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Seconds of each window at least; it holds whole periods of the tracker, each a scan and the rest after it.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// The trackers that slow a program down, separated by commas [default: all that work here].
    #[arg(long, value_delimiter = ',', value_parser = tracker)]
    pub trackers: Vec<TrackerKind>,
    /// Watch a sample of the program, as large ones are watched when nothing changes
    #[arg(long)]
    pub by_sample: bool,
}

fn tracker(name: &str) -> Result<TrackerKind, String> {
    match name.parse()? {
        TrackerChoice::Only(kind) => Ok(kind),
        TrackerChoice::Auto => Err("'auto' is none in particular: name the trackers".to_owned()),
    }
}

/// What happens to the program in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Watched,
    Alone,
    AloneAgain,
}

/// One window, raw.
#[derive(Clone, Debug, Serialize)]
struct Span {
    tracker: TrackerKind,
    round: u32,
    kind: Kind,
    seconds: f64,
    /// Steps a second.
    throughput: f64,
    /// The cost of each scan, as hugepilot accounts for it.
    scans: Vec<Cost>,
}

/// All windows.
#[derive(Debug, Serialize)]
struct Record {
    version: u32,
    machine: MachineDescription,
    size_bytes: u64,
    spans: Vec<Span>,
}

impl SlowdownArguments {
    /// Measures each tracker, prints a table, and saves the raw windows.
    pub fn run(&self, size: Bytes, machine: MachineDescription, keep: Option<&Path>, stop: &Stop) -> Result<()> {
        let mut spans = Vec::new();
        let every = TRACKERS.into_iter().chain([TrackerKind::WriteScan]);
        for kind in every.filter(|kind| self.trackers.is_empty() || self.trackers.contains(kind)) {
            let measured = self.rounds(kind, size, &mut spans, stop);
            // What has been measured so far counts.
            if stop.requested() {
                break;
            }
            if let Err(error) = measured {
                eprintln!("{kind}: not here: {error:#}");
            }
        }
        if spans.is_empty() {
            stop.check()?;
            bail!("no tracker works here");
        }
        let record = Record { version: 1, machine, size_bytes: size.0, spans };
        let table = table(&record.spans);
        let results = Results { name: "slowdown", json: json_lines(&record, "tracker")?, text: &table, draw: None };
        results.show(keep, &record.machine)
    }

    fn coverage(&self) -> Coverage {
        match self.by_sample {
            true => Coverage::Sample { size: SAMPLE, longest: None, seed: 1 },
            false => Coverage::Everything,
        }
    }

    fn rounds(&self, tracker: TrackerKind, size: Bytes, spans: &mut Vec<Span>, stop: &Stop) -> Result<()> {
        let mut program = Watched::start(tracker, size, stop)?;
        // Unwatched windows are as long as the watched one before them; this first watched one serves no other purpose.
        let mut length = program.watch(self.seconds, self.coverage())?.length();
        for round in 0..self.pairs {
            for kind in Kind::order_in(round) {
                let stretch = match kind {
                    Kind::Watched => program.watch(self.seconds, self.coverage())?,
                    Kind::Alone | Kind::AloneAgain => program.leave_alone(length)?,
                };
                length = stretch.length();
                let running = program.running();
                running.check()?;
                let window = running.progress().window(stretch.start, stretch.end);
                ensure!(window.operations > 0, "no line of progress in {length:?}: take a smaller --size");
                let (seconds, throughput) = (length.as_secs_f64(), window.throughput());
                spans.push(Span { tracker, round, kind, seconds, throughput, scans: stretch.scans });
            }
            let row = Row::of(spans.rsplit(|span| span.tracker != tracker).next().unwrap_or_default());
            let (pairs, so_far) = (self.pairs, row.watched.map_or(1.0, |ratio| ratio.estimate));
            eprintln!(
                "{tracker}: {} of {pairs} pairs, windows of {:.1} s, watched {so_far:.3}",
                round + 1,
                row.seconds
            );
        }
        Ok(())
    }
}

impl Kind {
    /// Over the rounds each comes first, second and last equally often.
    fn order_in(round: u32) -> [Kind; 3] {
        rotated([Kind::Alone, Kind::Watched, Kind::AloneAgain], round)
    }
}

/// A program, and its tracker.
struct Watched<'a> {
    watcher: Watcher,
    stop: &'a Stop,
}

enum Watcher {
    /// This process has a child and a tracker that watches it.
    Tracker(Box<dyn Tracker>, Target, Box<dyn Running>),
    /// This process watches one of its own threads.
    Itself(SweepThread),
}

impl<'a> Watched<'a> {
    fn start(tracker: TrackerKind, size: Bytes, stop: &'a Stop) -> Result<Self> {
        // One sweep per line, so that lines are short.
        let program = Sweep { size, pattern: SweepPattern::Random, seed: 1, sweeps: 1 };
        let watcher = match tracker {
            TrackerKind::WriteScan => {
                let thread = program.start_here()?;
                WriteScan::of(thread.range())?;
                Watcher::Itself(thread)
            }
            _ => {
                let tracker = observe::open(TrackerChoice::Only(tracker))?;
                let running = program.start(Start::AsItIs, stop)?;
                Watcher::Tracker(tracker, Target::open(running.pid())?, running)
            }
        };
        Ok(Self { watcher, stop })
    }

    fn running(&mut self) -> &mut dyn Running {
        match &mut self.watcher {
            Watcher::Tracker(_, _, running) => running.as_mut(),
            Watcher::Itself(thread) => thread,
        }
    }

    fn leave_alone(&self, length: Duration) -> Result<Stretch> {
        let start = Instant::now();
        self.stop.sleep_until(start + length)?;
        Ok(Stretch { start, end: Instant::now(), scans: Vec::new() })
    }

    /// Watches it for whole periods that last at least this many seconds.
    fn watch(&mut self, seconds: f64, coverage: Coverage) -> Result<Stretch> {
        let stop = self.stop;
        match &mut self.watcher {
            Watcher::Tracker(tracker, target, _) => periods(seconds, stop, || {
                let options = ObserveOptions { window: WINDOW, coverage, ..ObserveOptions::default() };
                Ok(tracker.observe(target, &options, stop)?.cost)
            }),
            Watcher::Itself(thread) => {
                // Protection ends when this is dropped, so that the other windows really have none. The memory that it protects faults at its first
                // access.
                let watch = WriteScan::of(thread.range())?;
                stop.sleep_until(Instant::now() + WINDOW.duration())?;
                periods(seconds, stop, || Ok(watch.observe(WINDOW, stop)?.cost))
            }
        }
    }
}

/// A stretch of the program's time.
struct Stretch {
    start: Instant,
    end: Instant,
    scans: Vec<Cost>,
}

impl Stretch {
    fn length(&self) -> Duration {
        self.end - self.start
    }
}

/// Scans repeatedly at hugepilot's pace, until that many seconds have passed and the last scan's rest is over.
fn periods(seconds: f64, stop: &Stop, mut scan: impl FnMut() -> Result<Cost>) -> Result<Stretch> {
    let (start, mut scans) = (Instant::now(), Vec::new());
    let mut next = start + LINE;
    let until = next + Duration::from_secs_f64(seconds);
    while scans.is_empty() || next < until {
        stop.sleep_until(next)?;
        let began = Instant::now();
        let cost = scan()?;
        next = Instant::now().max(began + cost.rest(CpuShare::default()));
        scans.push(cost);
    }
    // As much earlier as the first scan began later.
    stop.sleep_until(next - LINE)?;
    Ok(Stretch { start, end: Instant::now(), scans })
}

/// The result of one tracker's windows.
struct Row {
    seconds: f64,
    scans: f64,
    alone: f64,
    watched: Option<Interval>,
    /// Left alone again, relative to left alone.
    noise: Option<Interval>,
}

/// The pilot's pace when nothing changes.
const STEADY: Duration = Duration::from_secs(60);

impl Row {
    fn of(spans: &[Span]) -> Self {
        let of = |wanted| spans.iter().filter(move |span| span.kind == wanted);
        let typical = |kind, value: fn(&Span) -> f64| median_of(of(kind).map(value)).unwrap_or_default();
        let speeds = |kind| of(kind).map(|span| (span.round, span.throughput));
        let ratio = |kind| ratio_by_round(speeds(kind), speeds(Kind::Alone));
        Self {
            seconds: typical(Kind::Watched, |span| span.seconds),
            scans: typical(Kind::Watched, |span| span.scans.len() as f64),
            alone: typical(Kind::Alone, |span| span.throughput),
            watched: ratio(Kind::Watched),
            noise: ratio(Kind::AloneAgain),
        }
    }

    /// The loss at the steady pace, if each scan costs the same.
    fn steady(&self) -> Option<Interval> {
        let rarer = self.seconds / self.scans.max(1.0) / STEADY.as_secs_f64();
        self.watched.map(|watched| {
            let [estimate, low, high] =
                [watched.estimate, watched.low, watched.high].map(|ratio| 1.0 - (1.0 - ratio) * rarer.min(1.0));
            Interval { estimate, low, high, ..watched }
        })
    }
}

fn table(spans: &[Span]) -> String {
    let mut text = "tracker       pairs  window s  scans  M steps/s alone  watched, of alone     a scan a minute       alone again, of alone  at most 1 % slower\n"
        .to_owned();
    for group in spans.chunk_by(|one, other| one.tracker == other.tracker) {
        let row = Row::of(group);
        let Row { seconds, scans, alone, watched, noise } = row;
        let (Some(watched), Some(steady), Some(noise)) = (watched, row.steady(), noise) else { continue };
        let _ = writeln!(
            text,
            "{:<12} {:>6} {seconds:>9.1} {scans:>6.0} {:>16.2}  {:<21} {:<21} {:<22} {}",
            group[0].tracker,
            watched.pairs,
            alone / 1e6,
            interval(Some(watched)),
            interval(Some(steady)),
            interval(Some(noise)),
            FigureVerdict::at_least(AT_LEAST, &watched, &noise)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: u64 = 1_000_000;

    #[test]
    fn a_window_holds_whole_periods() {
        // A rest of 100 ms follows 1 ms of work.
        let cost = Cost { read: Nanos(MILLIS), ..Cost::default() };
        let mut began = Vec::new();
        let stretch = periods(0.55, &Stop::default(), || {
            began.push(Instant::now());
            Ok(cost)
        });
        let stretch = stretch.unwrap();
        // Six, or fewer if a rest takes longer.
        assert!((4..=6).contains(&stretch.scans.len()), "{}", stretch.scans.len());
        assert!(began[0] - stretch.start >= LINE, "lines that hold the border count for none");
        assert!((Duration::from_millis(550)..Duration::from_secs(1)).contains(&stretch.length()));
    }

    #[test]
    fn each_kind_takes_turns() {
        let orders: Vec<[Kind; 3]> = (0..3).map(Kind::order_in).collect();
        for place in 0..3 {
            assert!(
                [Kind::Watched, Kind::Alone, Kind::AloneAgain]
                    .iter()
                    .all(|kind| orders.iter().any(|order| order[place] == *kind))
            );
        }
    }

    fn rounds(tracker: TrackerKind, count: u32, watched: f64) -> Vec<Span> {
        let span = |round, kind, throughput| Span { tracker, round, kind, seconds: 5.0, throughput, scans: Vec::new() };
        let round = |round: u32| {
            let drift = 1e6 * (1.0 + f64::from(round) / 10.0);
            Kind::order_in(round)
                .map(|kind| span(round, kind, if kind == Kind::Watched { watched * drift } else { drift }))
        };
        (0..count).flat_map(round).collect()
    }

    #[test]
    fn rarer_scans_cost_less() {
        let row = Row { scans: 2.0, ..Row::of(&rounds(TrackerKind::PageWalk, 8, 0.97)) };
        // 3 % of 5 s for two scans, so 0.075 s of each minute.
        assert!((row.steady().unwrap().estimate - (1.0 - 0.075 / 60.0)).abs() < 1e-6, "{:?}", row.steady());
    }

    #[test]
    fn trackers_are_judged_by_their_own_pairs() {
        let mut spans = rounds(TrackerKind::PageWalk, 8, 0.995);
        spans.extend(rounds(TrackerKind::DamonVaddr, 8, 0.95));
        spans.extend(rounds(TrackerKind::PerfMem, 2, 1.0));
        spans.pop();
        let table = table(&spans);
        let line = |tracker: TrackerKind| table.lines().find(|line| line.starts_with(&tracker.to_string())).unwrap();
        assert!(line(TrackerKind::PageWalk).contains("0.995 [0.995, 0.995]"), "{table}");
        assert!(line(TrackerKind::PageWalk).ends_with("  met"), "{table}");
        assert!(line(TrackerKind::DamonVaddr).ends_with("NOT MET"), "{table}");
        assert!(line(TrackerKind::PerfMem).contains("not measured"), "{table}");
    }

    #[test]
    fn a_thread_of_this_process_is_slowed_down() {
        let arguments = SlowdownArguments { pairs: 1, seconds: 0.01, trackers: Vec::new(), by_sample: false };
        let (mut spans, size) = (Vec::new(), Bytes(4 << 20));
        match arguments.rounds(TrackerKind::WriteScan, size, &mut spans, &Stop::default()) {
            Err(error) => eprintln!("skipped: {error:#}"),
            Ok(()) => {
                let kinds: Vec<Kind> = spans.iter().map(|span| span.kind).collect();
                assert_eq!(kinds, Kind::order_in(0));
                assert!(
                    spans
                        .iter()
                        .all(|span| span.throughput > 0.0 && span.scans.is_empty() != (span.kind == Kind::Watched))
                );
            }
        }
    }
}
