//! The cost of one pass of a tracker as a function of the program's size: up to 128 GiB, on a machine with far less memory.
//!
//! Owns: the sizes, the table and the plot. Never touches: how the tracker scans.
//!
//! A pass costs time per page-table entry, not per byte of memory; the program therefore maps one GiB repeatedly.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use heat::clearing::ClearPolicy;
use heat::statistics::median;
use heat::units::{Address, AddressRange, Bytes, CpuShare, GIANT_PAGE, Nanos};
use heat::{Coverage, Heat, TrackerKind};
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use observe::write_scan::WriteScan;
use observe::{ObserveOptions, Tracker, TrackerChoice};
use picture::chart::{ChartLine, line_chart};
use picture::color::COLORS;
use picture::{Area, DrawError, Picture, draw};
use plotters::prelude::*;
use serde::Serialize;

use crate::machine::MachineDescription;
use crate::outputs::{Results, json_lines};
use crate::workload::{OwnProcess, Running, words};

/// Long enough for the read at 100 ms; a longer window would only wait.
const WINDOW: Nanos = Nanos(150_000_000);
/// System A (Shimizu, Yamada): GiB, and milliseconds for clearing and reading once. For the last the paper only says that it took longer.
const SYSTEM_A: [(f64, f64); 3] = [(1.0, 37.0), (2.0, 72.0), (128.0, 2000.0)];

/// More private memory than this would leave too little for everything else; beyond it the program maps aliases of one GiB.
const MOST_PRIVATE: Bytes = Bytes(14 * GIANT_PAGE);
/// The pilot's sample of a large program.
pub const SAMPLE: Bytes = Bytes(2 * GIANT_PAGE);

/// A way of scanning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// page-walk, clearing all bits at once.
    AtOnce,
    /// page-walk, clearing in slices.
    Slices,
    /// page-walk, on a sample of 2 GiB, or on everything up to 8 GiB.
    Sample,
    /// This process tracks its own writes.
    Writes,
    /// Another tracker.
    Other(TrackerKind),
}

/// How one pass is measured at growing sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct SizeArguments {
    /// Sizes of the program whose observation is timed; page tables to 128 GiB fit where one GiB is mapped again and again.
    #[arg(long, value_delimiter = ',', default_values = ["1G", "2G", "4G", "8G", "16G", "32G", "64G", "128G"])]
    pub sizes: Vec<Bytes>,
    /// Scans of each size.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub scans: u32,
    /// Draws the passes to a file, FILE.svg.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// All scans, raw.
#[derive(Debug, Serialize)]
struct Record {
    version: u32,
    machine: MachineDescription,
    passes: Vec<Pass>,
}

/// One scan.
#[derive(Debug, Serialize)]
struct Pass {
    way: String,
    size_bytes: u64,
    present_bytes: u64,
    clear_ns: u64,
    read_ns_each: u64,
    /// CPU time of a kernel thread in the window.
    kernel_ns: u64,
    /// All CPU time of ours that the scan took, and the program's time that it took.
    own_ns: u64,
    program_ns: u64,
    /// From the start of one scan to the start of the next, at hugepilot's pace.
    pace_ns: u64,
}

impl SizeArguments {
    /// Scans a program of each size in each way, prints a table, and saves the raw scans.
    pub fn run(&self, machine: MachineDescription, keep: Option<&Path>, stop: &Stop) -> Result<()> {
        let mut passes = Vec::new();
        for way in Way::ALL {
            if let Err(error) = self.passes_of(way, &mut passes, stop) {
                stop.check()?;
                eprintln!("{way}: not here: {error:#}");
            }
        }
        let record = Record { version: 1, machine, passes };
        let table = table(&record.passes);
        let picture = |path: &Path| Ok(draw(&PassPlot(&record.passes), path)?);
        let results = Results { name: "cost", json: json_lines(&record, "way")?, text: &table, draw: Some(&picture) };
        results.show(keep, &record.machine)?;
        self.plot.as_deref().map_or(Ok(()), picture)
    }

    fn passes_of(&self, way: Way, passes: &mut Vec<Pass>, stop: &Stop) -> Result<()> {
        let mut tracker = way.tracker()?;
        for &size in self.sizes.iter().filter(|&&size| way != Way::Slices || size <= MOST_PRIVATE) {
            let started = Instant::now();
            let mut scan = way.scan_of(size, tracker.as_deref_mut(), stop)?;
            eprintln!("{way}, {size}: mapped in {:.1} s, {} scans", started.elapsed().as_secs_f64(), self.scans);
            for _ in 0..self.scans {
                stop.check()?;
                passes.push(Pass::of(way, size, &scan()?));
            }
        }
        Ok(())
    }
}

impl Way {
    const ALL: [Way; 8] = [
        Way::AtOnce,
        Way::Slices,
        Way::Sample,
        Way::Writes,
        Way::Other(TrackerKind::DamonVaddr),
        Way::Other(TrackerKind::DamonPaddr),
        Way::Other(TrackerKind::IdlePage),
        Way::Other(TrackerKind::PerfMem),
    ];

    /// None if this process tracks itself.
    fn tracker(self) -> Result<Option<Box<dyn Tracker>>> {
        let kind = match self {
            Way::Writes => return Ok(None),
            Way::AtOnce | Way::Slices | Way::Sample => TrackerKind::PageWalk,
            Way::Other(kind) => kind,
        };
        Ok(Some(observe::open(TrackerChoice::Only(kind))?))
    }

    /// A program of that size, ready for repeated scans.
    fn scan_of<'a>(
        self,
        size: Bytes,
        tracker: Option<&'a mut (dyn Tracker + 'static)>,
        stop: &'a Stop,
    ) -> Result<Box<dyn FnMut() -> Result<Heat> + 'a>> {
        let Some(tracker) = tracker else {
            let own = AlignedMemory::aliased(GIANT_PAGE as usize, size.0.div_ceil(GIANT_PAGE) as usize)?;
            let range = AddressRange::new(Address(own.address()), Bytes(own.bytes().len() as u64));
            let watch = WriteScan::of(range)?;
            return Ok(Box::new(move || {
                let _mapped = &own;
                Ok(watch.observe(WINDOW, stop)?)
            }));
        };
        // `MADV_COLD` skips memory that is mapped more than once: it would clear nothing in aliases.
        let is_private = self == Way::Slices || self == Way::Sample && size <= MOST_PRIVATE;
        let child = if is_private { "workload-mappings" } else { "workload-aliases" };
        let mut words = words(child, &[("size", &size.0)]);
        words.extend(is_private.then(|| "--count=1".to_owned()));
        let running = OwnProcess::start(words, stop)?;
        let coverage = match self {
            Way::Sample => Coverage::Sample { size: SAMPLE, longest: None, seed: 1 },
            _ => Coverage::Everything,
        };
        let clearing = if self == Way::Slices { ClearPolicy::InSlices } else { ClearPolicy::AtOnce };
        let options = ObserveOptions { window: WINDOW, clearing, coverage, ..ObserveOptions::default() };
        let target = Target::open(running.pid())?;
        Ok(Box::new(move || {
            let _running = &running;
            Ok(tracker.observe(&target, &options, stop)?)
        }))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::AtOnce => f.pad("page-walk"),
            Way::Slices => f.pad("page-walk, slices"),
            Way::Sample => f.pad("page-walk, sample"),
            Way::Writes => f.pad("write-scan"),
            Way::Other(kind) => kind.fmt(f),
        }
    }
}

impl Pass {
    fn of(way: Way, size: Bytes, heat: &Heat) -> Self {
        let cost = &heat.cost;
        Self {
            way: way.to_string(),
            size_bytes: size.0,
            present_bytes: heat.pages_present().bytes().0,
            clear_ns: cost.clear.0,
            read_ns_each: cost.read.0 / u64::from(cost.reads.max(1)),
            kernel_ns: cost.kernel.0,
            own_ns: cost.own().0,
            program_ns: cost.program.0,
            pace_ns: heat.window.0 + cost.rest(CpuShare::default()).as_nanos() as u64,
        }
    }
}

/// One line of the table, and one point of the plot.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    way: String,
    gib: f64,
    clear_ms: f64,
    read_ms: f64,
    kernel_ms: f64,
    /// The program's loss from one scan.
    program_ms: f64,
    cpu_seconds_an_hour: f64,
}

/// The medians for each size.
fn medians(passes: &[Pass]) -> Vec<Point> {
    let groups = passes.chunk_by(|one, other| (&one.way, one.size_bytes) == (&other.way, other.size_bytes));
    let point = |group: &[Pass]| {
        let of =
            |value: &dyn Fn(&Pass) -> f64| median(&group.iter().map(value).collect::<Vec<_>>()).unwrap_or_default();
        Point {
            way: group[0].way.clone(),
            gib: of(&|pass| pass.present_bytes as f64) / GIANT_PAGE as f64,
            clear_ms: of(&|pass| pass.clear_ns as f64 / 1e6),
            read_ms: of(&|pass| pass.read_ns_each as f64 / 1e6),
            kernel_ms: of(&|pass| pass.kernel_ns as f64 / 1e6),
            program_ms: of(&|pass| pass.program_ns as f64 / 1e6),
            cpu_seconds_an_hour: of(&|pass| 3600.0 * pass.own_ns as f64 / pass.pace_ns.max(1) as f64),
        }
    };
    groups.map(point).collect()
}

fn table(passes: &[Pass]) -> String {
    let mut text =
        "tracker            size GiB  clearing ms  reading ms  kernel thread ms  one pass ms  program ms  reading ms/GiB  CPU s/hour  system A ms\n"
            .to_owned();
    for Point { way, gib, clear_ms, read_ms, kernel_ms, program_ms, cpu_seconds_an_hour } in medians(passes) {
        let theirs = SYSTEM_A.iter().find(|(size, _)| (size / gib - 1.0).abs() < 0.1).map(|(_, ms)| format!("{ms:.0}"));
        text += &format!(
            "{way:<18} {gib:>8.2} {clear_ms:>12.2} {read_ms:>11.3} {kernel_ms:>17.2} {:>12.2} {program_ms:>11.2} {:>15.3} {cpu_seconds_an_hour:>11.1} {:>12}\n",
            clear_ms + read_ms + kernel_ms,
            read_ms / gib,
            theirs.unwrap_or("-".to_owned())
        );
    }
    text
}

/// The picture of passes: the time of one against the size of the program.
struct PassPlot<'a>(&'a [Pass]);

impl Picture for PassPlot<'_> {
    fn size(&self) -> (u32, u32) {
        (900, 600)
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let points = medians(self.0);
        let last = points.iter().map(|point| point.gib).fold(1.0, f64::max);
        let series = |way: &str, value: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
            points.iter().filter(|point| point.way == way).map(|point| (point.gib, value(point))).collect()
        };
        let pass = |point: &Point| point.clear_ms + point.read_ms + point.kernel_ms;
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = points
            .chunk_by(|one, other| one.way == other.way)
            .map(|group| (group[0].way.clone(), series(&group[0].way, &pass)))
            .collect();
        lines.push(("page-walk, reading alone".to_owned(), series("page-walk", &|point| point.read_ms)));
        lines.push(("system A".to_owned(), SYSTEM_A.to_vec()));
        let line = |((name, points), color): (_, &RGBColor)| ChartLine { name, style: color.stroke_width(2), points };
        let lines: Vec<ChartLine> = lines.into_iter().zip(COLORS.iter().cycle()).map(line).collect();
        let across = ((0.8..last * 1.2).log_scale(), "GiB mapped and present");
        let caption = "one pass of the tracker, ms, by size of the program";
        line_chart(area, caption, across, (0.1..5000.0).log_scale(), (&lines, 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_summed_up_by_size() {
        let pass = |size: u64, clear_ns| Pass {
            way: "page-walk".to_owned(),
            size_bytes: size * GIANT_PAGE,
            present_bytes: size * GIANT_PAGE,
            clear_ns,
            read_ns_each: size * 500_000,
            kernel_ns: 0,
            own_ns: 10_000_000,
            program_ns: 1,
            pace_ns: 1_000_000_000,
        };
        let passes = [pass(1, 10_000_000), pass(1, 12_000_000), pass(1, 90_000_000), pass(2, 24_000_000)];
        let points: Vec<_> = medians(&passes).iter().map(|point| (point.gib, point.clear_ms, point.read_ms)).collect();
        assert_eq!(points, [(1.0, 12.0, 0.5), (2.0, 24.0, 1.0)]);
        let table = table(&passes);
        let first = table.lines().nth(1).unwrap();
        assert!(first.contains("12.50") && first.contains("36.0") && first.ends_with("37"), "{table}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cost.svg");
        draw(&PassPlot(&passes), &path).unwrap();
        assert!(std::fs::read_to_string(path).unwrap().contains("system A"));
    }

    #[test]
    fn a_process_scans_itself() {
        let (mut passes, stop) = (Vec::new(), Stop::default());
        let arguments = SizeArguments { sizes: vec![Bytes(GIANT_PAGE)], scans: 1, plot: None };
        match arguments.passes_of(Way::Writes, &mut passes, &stop) {
            Err(error) => eprintln!("skipped: {error:#}"),
            Ok(()) => assert_eq!(passes.iter().map(|pass| pass.present_bytes).collect::<Vec<_>>(), [GIANT_PAGE]),
        }
    }
}
