//! What one pass of a tracker costs, against the size of the program: to 128 GiB, on a machine with far less memory.
//!
//! Owns: the sizes, the table and the plot. Never touches: how the tracker looks.
//!
//! A pass costs by page-table entries, not by memory: the program maps one GiB again and again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use hugepilot::observe::{Options, PageWalk, Tracker};
use hugepilot::stop::{SecondSignal, Stop};
use hugepilot::target::Target;
use hugepilot::units::{Bytes, GIANT_PAGE, Nanos};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use serde::Serialize;

use crate::machine::Machine;
use crate::settings::Settings;
use crate::statistics::median;
use crate::workload::{OwnProcess, Running};

const FONT: &str = "sans-serif";
/// Long enough for the read at 100 ms; a longer one would only wait.
const WINDOW: Nanos = Nanos(150_000_000);
/// System A (Shimizu, Yamada): GiB, and milliseconds for clearing and one reading. Of the last it is only told that it took longer.
const SYSTEM_A: [(f64, f64); 3] = [(1.0, 37.0), (2.0, 72.0), (128.0, 2000.0)];

/// `cost`.
#[derive(Clone, Debug, clap::Args)]
pub struct CostArguments {
    /// Sizes of the program.
    #[arg(long, value_delimiter = ',', default_values = ["1G", "2G", "4G", "8G", "16G", "32G", "64G", "128G"])]
    size: Vec<Bytes>,
    /// Looks at each size.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Draws the result to a file, FILE.svg.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keeps the raw results and plot below a directory, in one named after day and machine.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    keep: Option<PathBuf>,
}

/// All looks, raw.
#[derive(Debug, Serialize)]
struct Record {
    version: u32,
    machine: Machine,
    passes: Vec<Pass>,
}

/// One look.
#[derive(Debug, Serialize)]
struct Pass {
    tracker: String,
    size_bytes: u64,
    present_bytes: u64,
    clear_ns: u64,
    read_ns_each: u64,
}

impl CostArguments {
    /// Looks at a program of each size, prints a table, and keeps the raw looks.
    pub fn run(&self) -> Result<()> {
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let machine = Machine::describe(&Settings::of_this_machine()?)?;
        let mut tracker = PageWalk::new()?;
        let mut passes = Vec::new();
        for &size in &self.size {
            let started = Instant::now();
            let words = vec!["workload-aliases".to_owned(), format!("--size={}", size.0)];
            let running = OwnProcess::start(words, &stop)?;
            eprintln!("{size}: mapped in {:.1} s, {} looks", started.elapsed().as_secs_f64(), self.rounds);
            for _ in 0..self.rounds {
                stop.check()?;
                passes.push(pass(&mut tracker, &running, size, &stop)?);
            }
        }
        let record = Record { version: 1, machine, passes };
        let table = table(&record.passes);
        print!("{table}");
        self.plot.as_deref().map_or(Ok(()), |path| draw(&record.passes, path))?;
        self.keep.as_deref().map_or(Ok(()), |directory| keep(directory, &record, &table))
    }
}

fn pass(tracker: &mut PageWalk, running: &OwnProcess, size: Bytes, stop: &Stop) -> Result<Pass> {
    let target = Target::open(running.pid())?;
    let heat = tracker.observe(&target, &Options { window: WINDOW, allow_stall: true }, stop)?;
    Ok(Pass {
        tracker: heat.tracker.to_string(),
        size_bytes: size.0,
        present_bytes: heat.pages_present().bytes().0,
        clear_ns: heat.cost.clear.0,
        read_ns_each: heat.cost.read.0 / u64::from(heat.cost.reads.max(1)),
    })
}

/// Median milliseconds at each size: GiB present, clearing, reading.
fn medians(passes: &[Pass]) -> Vec<(f64, f64, f64)> {
    let groups = passes.chunk_by(|one, other| one.size_bytes == other.size_bytes);
    let of = |group: &[Pass], value: fn(&Pass) -> u64| {
        median(&group.iter().map(|pass| value(pass) as f64).collect::<Vec<_>>()).unwrap_or_default()
    };
    let point = |group: &[Pass]| {
        let gib = of(group, |pass| pass.present_bytes) / GIANT_PAGE as f64;
        (gib, of(group, |pass| pass.clear_ns) / 1e6, of(group, |pass| pass.read_ns_each) / 1e6)
    };
    groups.map(point).collect()
}

fn table(passes: &[Pass]) -> String {
    let mut text = "size GiB  clearing ms  reading ms  one pass ms  reading ms/GiB  system A ms\n".to_owned();
    for (gib, clear, read) in medians(passes) {
        let theirs = SYSTEM_A.iter().find(|(size, _)| (size / gib - 1.0).abs() < 0.1).map(|(_, ms)| format!("{ms:.0}"));
        text += &format!(
            "{gib:>8.2} {clear:>12.2} {read:>11.3} {:>12.2} {:>15.3} {:>12}\n",
            clear + read,
            read / gib,
            theirs.unwrap_or("-".to_owned())
        );
    }
    text
}

fn draw(passes: &[Pass], path: &Path) -> Result<()> {
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| anyhow!("the built-in font cannot be read"))?;
    let points = medians(passes);
    let last = points.iter().map(|point| point.0).fold(1.0, f64::max);
    let area = SVGBackend::new(path, (900, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("one pass of the tracker, by size of the program", (FONT, 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((0.8..last * 1.2).log_scale(), (0.1..5000.0).log_scale())?;
    chart.configure_mesh().x_desc("GiB mapped and present").y_desc("ms").label_style((FONT, 14)).draw()?;
    let lines = [
        (
            "clearing and one reading",
            BLACK,
            points.iter().map(|&(gib, clear, read)| (gib, clear + read)).collect::<Vec<_>>(),
        ),
        ("reading alone", RGBColor(0, 84, 148), points.iter().map(|&(gib, _, read)| (gib, read)).collect()),
        ("system A, clearing and one reading", RGBColor(213, 94, 0), SYSTEM_A.to_vec()),
    ];
    for (name, color, points) in lines {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).label_font((FONT, 14)).draw()?;
    area.present().with_context(|| format!("cannot draw {}", path.display()))
}

fn keep(directory: &Path, record: &Record, table: &str) -> Result<()> {
    let path = record.machine.free_path(directory, "cost")?;
    std::fs::write(path.with_extension("json"), serde_json::to_string(record)?)?;
    std::fs::write(path.with_extension("txt"), table)?;
    draw(&record.passes, &path.with_extension("svg"))?;
    eprintln!("kept in {}.*", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_summed_up_by_size() {
        let pass = |size: u64, clear_ns| Pass {
            tracker: "page-walk".to_owned(),
            size_bytes: size * GIANT_PAGE,
            present_bytes: size * GIANT_PAGE,
            clear_ns,
            read_ns_each: size * 500_000,
        };
        let passes = [pass(1, 10_000_000), pass(1, 12_000_000), pass(1, 90_000_000), pass(2, 24_000_000)];
        assert_eq!(medians(&passes), [(1.0, 12.0, 0.5), (2.0, 24.0, 1.0)]);
        let table = table(&passes);
        assert!(table.lines().nth(1).is_some_and(|line| line.contains("12.50") && line.ends_with("37")), "{table}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cost.svg");
        draw(&passes, &path).unwrap();
        assert!(std::fs::read_to_string(path).unwrap().contains("system A"));
    }
}
