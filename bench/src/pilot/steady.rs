//! The scenario `steady`: all memory that is worth it is huge and nothing changes; measures what the pilot still costs.
//!
//! Owns: its windows and their results. Never touches: how often the pilot scans.
//!
//! The program is equally huge in all windows. In windows without the pilot a signal stops it, so that it stays settled; when it continues, it takes
//! a due scan at once. So windows hold at least as many scans as they would without stops.

use std::time::Duration;

use anyhow::Result;
use heat::statistics::{Interval, median};
use heat::units::Bytes;
use rustix::process::Signal;
use serde::Serialize;

use super::arguments::PilotArguments;
use super::scenario::{AROUND, Scenario, Stage, all_within, figure};
use crate::comparison::ratio_by_round;
use crate::rounds::rotated;
use crate::sample::{cpu_time, huge_memory};
use crate::table::interval;
use crate::tool::ToolProcess;
use crate::verdict::{Bound, JudgedFigure};
use crate::warm::WarmMemory;
use crate::workload::{Chase, ChasePattern, Running, Start, Workload};

/// The figures: at most this share of a core, in percent, and at least this share of the speed.
const AT_MOST_PERCENT: f64 = 0.5;
const AT_LEAST: f64 = 0.995;

/// The parameters of the measurement.
pub(super) struct Steady {
    program: Chase,
    settle: Duration,
    /// How long CPU time is counted.
    watched: Duration,
    /// The length of each window.
    window: Duration,
    pairs: u32,
}

/// What happens in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Piloted,
    Alone,
    AloneAgain,
}

/// A part of the measurement.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// The settled pilot's CPU time.
    Cpu {
        /// How long it was watched.
        seconds: f64,
        /// What it took.
        cpu_seconds: f64,
        /// The program's memory on huge pages at that time.
        huge_bytes: u64,
    },
    /// A window of the program.
    Window {
        round: u32,
        kind: Kind,
        throughput: f64,
        /// The pilot's CPU time in it.
        pilot_cpu_seconds: f64,
    },
}

impl Steady {
    pub(super) fn new(arguments: &PilotArguments) -> Self {
        let seconds = |usual, quick| Duration::from_secs(if arguments.quick { quick } else { usual });
        let (size, pattern, seed) = (arguments.size(), ChasePattern::Dependent, arguments.seed);
        Self {
            program: Chase { size, pattern, seed },
            settle: seconds(60, 15),
            watched: seconds(120, 20),
            window: seconds(12, 4),
            pairs: arguments.rounds(20, 3),
        }
    }

    /// One window of each kind; over the rounds each kind is first equally often.
    fn round(
        &self,
        stage: &Stage,
        round: u32,
        program: &mut dyn Running,
        pilot: &mut ToolProcess,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        for kind in rotated([Kind::Alone, Kind::Piloted, Kind::AloneAgain], round) {
            pilot.signal(if kind == Kind::Piloted { Signal::CONT } else { Signal::STOP })?;
            let before = cpu_time(pilot.pid())?;
            let start = std::time::Instant::now();
            stage.leave_alone(&mut [&mut *program], self.window)?;
            let throughput = program.progress().window(start, std::time::Instant::now()).throughput();
            pilot.check()?;
            let pilot_cpu_seconds = (cpu_time(pilot.pid())?.saturating_sub(before)).as_secs_f64();
            parts.push(Part::Window { round, kind, throughput, pilot_cpu_seconds });
        }
        Ok(())
    }
}

/// The settled pilot's share of a core, in percent, and the memory that was huge at that time.
fn cpu_percent(parts: &[Part]) -> Option<(f64, Bytes)> {
    parts.iter().find_map(|part| match part {
        &Part::Cpu { seconds, cpu_seconds, huge_bytes } => Some((100.0 * cpu_seconds / seconds, Bytes(huge_bytes))),
        Part::Window { .. } => None,
    })
}

/// Throughput in windows of one kind, relative to the window left alone in the same round.
fn of_alone(parts: &[Part], subject: Kind) -> Option<Interval> {
    let windows = |wanted| {
        parts.iter().filter_map(move |part| match part {
            &Part::Window { round, kind, throughput, .. } if kind == wanted => Some((round, throughput)),
            _ => None,
        })
    };
    ratio_by_round(windows(subject), windows(Kind::Alone))
}

impl Scenario for Steady {
    type Round = Part;
    const NAME: &'static str = "steady";

    fn description(&self) -> String {
        format!(
            "{}, under the pilot; settled for {} s, then {} s of its CPU time, then windows of {} s with and without it",
            self.program.description(),
            self.settle.as_secs(),
            self.watched.as_secs(),
            self.window.as_secs()
        )
    }

    fn expected_time(&self) -> Duration {
        AROUND + self.settle + self.watched + 3 * self.pairs * self.window
    }

    fn measure(&self, stage: &Stage, parts: &mut Vec<Part>) -> Result<()> {
        let warm = WarmMemory::touch(self.program.size.0 / 4 * 5, &stage.stop)?;
        let mut program = self.program.start(Start::AsItIs, &stage.stop)?;
        let mut pilot = stage.tool.attach(program.pid(), true, None)?;
        stage.leave_alone(&mut [&mut *program], self.settle)?;
        drop(warm);
        pilot.check()?;
        let before = cpu_time(pilot.pid())?;
        stage.leave_alone(&mut [&mut *program], self.watched)?;
        pilot.check()?;
        let cpu_seconds = cpu_time(pilot.pid())?.saturating_sub(before).as_secs_f64();
        let huge_bytes = huge_memory(program.pid())?.0;
        parts.push(Part::Cpu { seconds: self.watched.as_secs_f64(), cpu_seconds, huge_bytes });
        for round in 0..self.pairs {
            self.round(stage, round, &mut *program, &mut pilot, parts)?;
            eprintln!("pair {} of {}: {}", round + 1, self.pairs, interval(of_alone(parts, Kind::Piloted)));
        }
        pilot.signal(Signal::CONT)?;
        pilot.end()
    }

    fn text(&self, parts: &[Part]) -> String {
        let (piloted, noise) = (of_alone(parts, Kind::Piloted), of_alone(parts, Kind::AloneAgain));
        let in_windows: Vec<f64> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Window { kind: Kind::Piloted, pilot_cpu_seconds, .. } => Some(*pilot_cpu_seconds),
                _ => None,
            })
            .collect();
        let share = 100.0 * median(&in_windows).unwrap_or_default() / self.window.as_secs_f64();
        let text = "settled: throughput >= 0.995 x without it";
        let speed = JudgedFigure::of_ratio(text, piloted, noise, Bound::AtLeast(AT_LEAST));
        let cpu = cpu_percent(parts);
        let (percent, huge) = cpu.unwrap_or_default();
        format!(
            "{} huge; {} pairs\npiloted, of alone      {}\nalone again, of alone  {}\npilot's CPU in windows {share:.3} %\n\nfigures\n{}{}",
            huge,
            in_windows.len(),
            interval(piloted),
            interval(noise),
            figure(
                "settled: CPU <= 0.5 % of a core",
                &format!("{percent:.3} %"),
                all_within(&cpu.map(|(percent, _)| Some(percent)).into_iter().collect::<Vec<_>>(), AT_MOST_PERCENT)
            ),
            speed.line(42, 28),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Steady {
        let second = Duration::from_secs(1);
        let program = Chase { size: Bytes(1 << 30), pattern: ChasePattern::Dependent, seed: 1 };
        Steady { program, settle: second, watched: second, window: second, pairs: 8 }
    }

    fn parts(cpu_seconds: f64, piloted: f64, again: f64) -> Vec<Part> {
        let mut parts = vec![Part::Cpu { seconds: 100.0, cpu_seconds, huge_bytes: 1 << 30 }];
        for round in 0..8 {
            // The machine slows down from round to round, which must not count against any kind.
            let drift = 1.0 - f64::from(round) / 20.0;
            for (kind, throughput) in [(Kind::Alone, 1.0), (Kind::Piloted, piloted), (Kind::AloneAgain, again)] {
                parts.push(Part::Window { round, kind, throughput: throughput * drift, pilot_cpu_seconds: 0.001 });
            }
        }
        parts
    }

    #[test]
    fn both_figures_are_judged() {
        let lines =
            |parts: &[Part]| scenario().text(parts).lines().rev().take(2).map(str::to_owned).collect::<Vec<_>>();
        let good = lines(&parts(0.4, 0.999, 1.001));
        assert!(good.iter().all(|line| line.ends_with(" met")), "{good:?}");
        let slow = lines(&parts(0.6, 0.98, 1.001));
        assert!(slow.iter().all(|line| line.ends_with("NOT MET")), "{slow:?}");
        let noisy = lines(&parts(0.4, 0.999, 1.02));
        assert!(noisy[0].contains("not resolvable here, +/- 2.000 %"), "{noisy:?}");
    }

    #[test]
    fn what_was_cut_short_is_not_measured() {
        let text = scenario().text(&parts(0.4, 0.999, 1.0)[..4]);
        assert!(text.contains("not measured"), "{text}");
        assert!(scenario().text(&[]).contains("0 pairs"));
    }
}
