//! What the pilot reaches over time: with too few huge pages, against a second program, after a change, and at rest.
//!
//! Owns: the scenarios' order, and what they have in common. Never touches: how the pilot does it.
//!
//! Programs start on base pages, and the pilot does not know what the harness knows of them. Every scenario keeps its raw results,
//! prints its table, and holds it against the figure to reach.

mod budget;
mod late_starter;
mod moved;
mod steady;
mod timeline;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use heat::statistics::Interval;
use heat::units::Bytes;
use hugepilot_os::stop::{SecondSignal, Stop};
use serde::Serialize;

use crate::machine::Machine;
use crate::outputs::Results;
use crate::settings::Settings;
use crate::tool::Tool;
use crate::verdict::Verdict;
use crate::workload::Running;

/// Longest time between two looks at a program that is left alone.
const LOOK: Duration = Duration::from_millis(100);
/// Roughly what warming memory, starting a program and ending it take.
const AROUND: Duration = Duration::from_secs(12);

pub const EXAMPLES: &str = "\
Examples:
  hugepilot-bench pilot --quick                         all scenarios, a look in some ten minutes
  hugepilot-bench pilot --only moved,steady --keep      two of them, raw results kept
  hugepilot-bench pilot --only budget --rounds 30       until the intervals are narrow enough

Run as root, with up to 7 GiB of free memory, on a machine that does nothing else.";

/// `pilot`
#[derive(Clone, Debug, Args)]
pub struct PilotArguments {
    /// The scenarios, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Scene>,
    /// Few rounds, short waits and small programs: a quick check, not a published result
    #[arg(long)]
    quick: bool,
    /// Rounds of each scenario [default: 20 for budget and steady, 6 for the others; with --quick 3, and 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Where the order of turns and all random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps the raw results and reports below a directory, in one named after day and machine
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = "bench/runs")]
    keep: Option<PathBuf>,
    /// The hugepilot binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    hugepilot: Option<PathBuf>,
}

/// A scenario, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// A quarter of the memory may be huge: against the best choice of that quarter.
    Budget,
    /// A second program comes when the first has all huge pages.
    LateStarter,
    /// What is hot moves.
    Moved,
    /// Nothing changes any more: what the pilot costs.
    Steady,
}

/// Something measured in rounds.
trait Scenario {
    /// What a round, or a part of it, leaves.
    type Round: Serialize;
    /// The name of its results.
    const NAME: &'static str;

    /// How it is set up, in words.
    fn description(&self) -> String;
    /// Roughly how long it takes.
    fn expected_time(&self) -> Duration;
    /// Measures; what is in `rounds` counts, even where this ends with an error.
    fn measure(&self, stage: &Stage, rounds: &mut Vec<Self::Round>) -> Result<()>;
    /// The tables, with verdicts.
    fn text(&self, rounds: &[Self::Round]) -> String;
}

/// What all scenarios need.
struct Stage {
    machine: Machine,
    tool: Tool,
    stop: Stop,
    /// No second harness, and settings of one that was killed are put back.
    _settings: Settings,
}

/// One file of raw results.
#[derive(Serialize)]
struct Record<'a, T> {
    version: u32,
    scenario: &'a str,
    description: String,
    machine: &'a Machine,
    rounds: &'a [T],
}

impl PilotArguments {
    /// Measures the scenarios one after the other.
    pub fn run(&self) -> Result<()> {
        let wanted = |scene: &Scene| self.only.is_empty() || self.only.contains(scene);
        for &scene in Scene::value_variants().iter().filter(|scene| wanted(scene)) {
            ensure_base_pages()?;
            match scene {
                Scene::Budget => budget::measure(self)?,
                Scene::LateStarter => self.perform(&late_starter::LateStarter::new(self))?,
                Scene::Moved => self.perform(&moved::Moved::new(self))?,
                Scene::Steady => self.perform(&steady::Steady::new(self))?,
            }
        }
        Ok(())
    }

    fn rounds(&self, usual: u32, quick: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { quick } else { usual })
    }

    fn size(&self) -> Bytes {
        Bytes(if self.quick { 1 << 30 } else { 4 << 30 })
    }

    fn perform<S: Scenario>(&self, scenario: &S) -> Result<()> {
        let stage = Stage::open(self)?;
        let minutes = (scenario.expected_time().as_secs_f64() / 60.0).ceil();
        eprintln!(
            "pilot {}: {}\nabout {minutes} min; Ctrl-C ends early and reports what there is",
            S::NAME,
            scenario.description()
        );
        let mut rounds = Vec::new();
        let ended = scenario.measure(&stage, &mut rounds);
        if !rounds.is_empty() {
            let text = format!("pilot {}: {}\n\n{}\n", S::NAME, scenario.description(), scenario.text(&rounds));
            print!("{text}");
            let record = Record {
                version: 1,
                scenario: S::NAME,
                description: scenario.description(),
                machine: &stage.machine,
                rounds: &rounds,
            };
            let json = serde_json::to_string(&record)? + "\n";
            let results = Results { name: &format!("pilot-{}", S::NAME), json, text: &text, draw: None };
            self.keep.as_deref().map_or(Ok(()), |directory| results.keep(directory, &stage.machine))?;
        }
        match ended {
            // Whatever failed, failed because the user wanted an end.
            Err(_) if stage.stop.requested() => bail!("stopped on request; what was measured so far is kept"),
            ended => ended,
        }
    }
}

impl Stage {
    fn open(arguments: &PilotArguments) -> Result<Self> {
        let tool = Tool::find(arguments.hugepilot.clone())?;
        let stop = Stop::on_signals(SecondSignal::Waits)?;
        let settings = Settings::of_this_machine()?;
        Ok(Self { machine: Machine::describe(&settings)?, tool, stop, _settings: settings })
    }

    /// Lets programs run on for a while; an error when one of them ends.
    fn leave_alone(&self, programs: &mut [&mut dyn Running], time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.stop.sleep_until(until.min(Instant::now() + LOOK))?;
            programs.iter_mut().try_for_each(|program| program.check())?;
        }
        Ok(())
    }
}

/// Programs that are huge from the start leave nothing to pilot.
fn ensure_base_pages() -> Result<()> {
    let enabled = Settings::of_this_machine()?.read("enabled")?;
    ensure!(
        enabled != "always",
        "transparent_hugepage/enabled is always here, so that programs start on huge pages: \
         `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` first"
    );
    Ok(())
}

/// A line of the figures, as the other benchmarks print them.
fn figure(text: &str, numbers: &str, verdict: impl fmt::Display) -> String {
    format!("  {text:<42} {numbers:<28} {verdict}\n")
}

/// An interval, or what stands for none.
fn interval(interval: Option<&Interval>) -> String {
    interval
        .map_or("-".to_owned(), |Interval { estimate, low, high, .. }| format!("{estimate:.3} [{low:.3}, {high:.3}]"))
}

/// The verdict on numbers of which each must keep a bound.
fn all_within(values: &[Option<f64>], at_most: f64) -> Verdict {
    match values {
        [] => Verdict::NotMeasured,
        _ if values.iter().all(|value| value.is_some_and(|value| value <= at_most)) => Verdict::Met,
        _ => Verdict::NotMet,
    }
}

/// Seconds, or that it took longer than anyone watched.
fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_must_keep_the_bound() {
        assert_eq!(all_within(&[], 10.0), Verdict::NotMeasured);
        assert_eq!(all_within(&[Some(3.0), Some(10.0)], 10.0), Verdict::Met);
        assert_eq!(all_within(&[Some(3.0), Some(10.1)], 10.0), Verdict::NotMet);
        assert_eq!(all_within(&[Some(3.0), None], 10.0), Verdict::NotMet);
    }
}
